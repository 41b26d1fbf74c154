"""``fabric cluster play``: a list of jobs under policies, composed of given costs; as ``time_sharing`` composes it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.options import add_json_option, add_set_option
from cluster.placement import Placement
from cluster.policies import POLICIES, Policy
from fabric.errors import UsageError
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable
from fabric.suggestions import one_of
from runs.console import print_tables, tell

if TYPE_CHECKING:
    from cluster.sharing.composed import Point
    from cluster.sharing.lists import ListConfig
    from cluster.simulation.costs import Costs

_COMPOSED = "composed of given costs (--set), not measured with packets"
_PLACEMENTS = tuple(one.value for one in Placement)


def add_play_options(play: argparse.ArgumentParser) -> None:
    """Define it."""
    play.add_argument(
        "--jobs", default="kalos", metavar="CLUSTER", help="draw jobs as of seren, kalos, philly or helios"
    )
    play.add_argument("--trace", type=Path, metavar="FILE", help="play a trace of Acme or Helios (default: draw jobs)")
    play.add_argument("--count", type=int, default=500, metavar="N", help="how many jobs")
    play.add_argument("--users", type=int, default=30, metavar="N", help="users of jobs that are drawn")
    whole = "nodes of 8 GPUs, in whole leaves of 16 in two zones: 100 make 128"
    play.add_argument("--nodes", type=int, default=128, metavar="N", help=whole)
    play.add_argument("--gpus-per-node", type=int, default=8, metavar="N", help="GPUs that a node stands for")
    play.add_argument("--largest", type=int, metavar="N", help="leave out jobs of more nodes (default: none)")
    play.add_argument(
        "--longest", metavar="TIME", help="leave out jobs that run for longer, such as '1 h' (default: none)"
    )
    play.add_argument("--deaf", type=float, default=0.0, metavar="X", help="part of the jobs that answers no notice")
    play.add_argument(
        "--load",
        type=float,
        action="append",
        default=[],
        metavar="X",
        help="work per time, of what the nodes can do; several: a list for each (default: 0.9)",
    )
    play.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="NAME",
        help=f"{one_of(POLICIES)} (default: all)",
    )
    play.add_argument("--placement", default="packed", metavar="NAME", help=one_of(_PLACEMENTS))
    play.add_argument("--seed", type=int, default=1, metavar="N", help="of jobs that are drawn, and their users")
    play.add_argument("--repeat", type=int, default=1, metavar="N", help="seeds, for intervals")
    add_set_option(play, "change a cost in seconds, e.g. start=20, answer='500 ms' or suspend_save=2")
    add_json_option(play)
    play.set_defaults(command=show_play)


def show_play(options: argparse.Namespace, _: list[str]) -> int:
    """Play a list of jobs under policies, and print what each makes of it."""
    from cluster.sharing.composed import Cluster, grid_of, sweep

    _require(2 <= options.nodes <= 10_000, "--nodes", options.nodes, "give 2 to 10000")
    _require(1 <= options.repeat <= 1000, "--repeat", options.repeat, "give 1 to 1000")
    loads = options.load or [0.9]
    for load in loads:
        _require(0 < load <= 100, "--load", load, "give more than 0 and 100 at most")
    policies, config = _policies(options), _list(options)
    cluster = Cluster(grid_of(options.nodes), _costs(options))
    seeds = range(options.seed, options.seed + options.repeat)
    points = sweep(config, cluster, policies, loads, seeds, tell)
    cases = [(load, policy.name) for load in loads for policy in policies]
    note = f"{_COMPOSED}; {_left_out(config, cluster.nodes.names, options)}"
    if options.json:
        sizes = {"nodes": len(cluster.nodes), "nodes_asked": options.nodes}
        print(json.dumps({"note": note, **sizes, "rows": [_as_json(points, *case) for case in cases]}, indent=1))
    else:
        print_tables([_table(options, points, cases, note, len(cluster.nodes))])
    return 0


def _left_out(config: ListConfig, names: Sequence[str], options: argparse.Namespace) -> str:
    from cluster.sharing.lists import fitted_list

    listed = fitted_list(config, len(names), _costs(options), options.seed)
    return f"{len(listed.jobs)} jobs of seed {options.seed}; {listed.said() or 'none left out'}"


def _table(
    options: argparse.Namespace, points: list[Point], cases: Sequence[tuple[float, str]], note: str, nodes: int
) -> dict[str, Any]:
    from cluster.sharing.composed import COLUMNS, nodes_words, row_of

    what = options.trace or f"drawn as of {options.jobs}"
    title = f"{options.count} jobs ({what}) on {nodes_words(nodes, options.nodes)}"
    if options.repeat > 1:
        title += f": medians of {options.repeat} seeds [95 % interval]"
    rows: list[Row] = [[quantity(load, "g"), policy, *row_of(points, policy, load)] for load, policy in cases]
    return SummaryTable(title, ["load", "policy", *COLUMNS], rows, note).as_json()


def _as_json(points: list[Point], load: float, policy: str) -> dict[str, Any]:
    """Return a row: medians by name, and the intervals of those that have one."""
    from cluster.sharing.composed import over_seeds

    names = dict.fromkeys(name for one in points if one.policy == policy for name in one.measures.numbers())
    found = {name: value for name in names if (value := over_seeds(points, policy, load, name)) is not None}
    intervals = {name: [one.low, one.high] for name, one in found.items() if one.low is not None}
    medians = {name: one.median for name, one in found.items()}
    return {"load": load, "policy": policy, **medians, **({"intervals": intervals} if intervals else {})}


def _list(options: argparse.Namespace) -> ListConfig:
    from cluster.jobs.clusters import cluster_summary
    from cluster.sharing.lists import ListConfig
    from fabric.config import checked, read_text

    if options.trace is None:
        cluster_summary(options.jobs)  # Which says what is known.
    else:
        read_text(options.trace, "trace of jobs")
    keys = ("count", "users", "gpus_per_node", "largest", "longest")
    said = {name: value for name in keys if (value := getattr(options, name)) is not None}
    said["given"] = {"deaf": options.deaf}
    return checked(ListConfig, {"jobs_from": str(options.trace or options.jobs), **said}, "cluster play")


def _costs(options: argparse.Namespace) -> Costs:
    from cluster.simulation.costs import Costs
    from fabric.config import checked, with_overrides

    return checked(Costs, with_overrides({}, options.overrides), "--set")


def _policies(options: argparse.Namespace) -> list[Policy]:
    for name in options.policy:
        _require(name in POLICIES, "--policy", name, f"use {one_of(POLICIES)}")
    _require(options.placement in _PLACEMENTS, "--placement", options.placement, f"use {one_of(_PLACEMENTS)}")
    return [POLICIES[name].placed(Placement(options.placement)) for name in options.policy or POLICIES]


def _require(good: bool, option: str, value: object, limit: str) -> None:
    if not good:
        raise UsageError(f"{option}: {value}; {limit}")
