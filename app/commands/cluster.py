"""``fabric cluster``: a cluster that is up, and those who ask it; and without one, faults by published rates, job lists
under policies, a machine's goodput."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from app.commands.cluster_failing import add_failing_options
from app.commands.cluster_page import add_page_options
from app.commands.cluster_play import add_play_options
from app.commands.cluster_questions import add_question_options
from app.commands.cluster_up import add_up_options
from app.commands.cluster_views import add_view_options
from app.commands.options import TOPOLOGY, add_json_option, add_set_option
from app.commands.outputs import write_whole
from runs.console import print_tables, tell

Row = list[Any]
_COMPOSED = "composed of given costs (--set), not measured with packets"
_OF_MEASURED = "composed of costs measured with packets in {}, and of what was given there and by --set"
_TABLE = (
    "a published table (fire_flyer_2, fire_flyer_2_gpu_errors, llama3, rsc1, rsc2) or a file (docs/cluster-failures.md)"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric cluster``."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_up_options(commands.add_parser("up", help="bring a scheduler and agents up on a fabric, and answer users"))
    add_view_options(commands)
    add_question_options(commands)
    add_failing_options(commands)
    add_page_options(commands)
    faults = commands.add_parser("faults", help="draw faults by a table's rates, as lines of failures:")
    faults.add_argument("table", metavar="FAULTS", help=_TABLE)
    faults.add_argument(
        "--topology", metavar="TOPOLOGY", help=f"{TOPOLOGY} whose units fail (default: the table's own)"
    )
    faults.add_argument("--days", type=float, metavar="DAYS", help="how long (default: the table's own)")
    faults.add_argument("--seed", type=int, default=1, metavar="N", help="of what is drawn")
    faults.add_argument("--faster", type=float, default=1.0, metavar="X", help="shorten times between faults by it")
    faults.add_argument("--out", type=Path, metavar="FILE", help="write them as failures: (default: no file)")
    nodes = "compute nodes that fail, of the topology, e.g. a platform's but its first (default: all)"
    faults.add_argument("--nodes", metavar="HOST,...", help=nodes)
    platform = "for a platform with health: GPU errors by their Xid, other ends of programs as restarts of agents"
    faults.add_argument("--platform", action="store_true", help=platform)
    add_json_option(faults)
    faults.set_defaults(command=show_faults)
    add_play_options(commands.add_parser("play", help="play a list of jobs under policies: waiting, use, lost work"))
    goodput = commands.add_parser("goodput", help="one job on a whole machine with faults: where its time goes")
    goodput.add_argument("table", metavar="FAULTS", nargs="+", help=_TABLE)
    goodput.add_argument("--nodes", type=int, metavar="N", help="of the job (default: the table's own)")
    goodput.add_argument("--spare", type=int, default=20, metavar="N", help="nodes beside these")
    goodput.add_argument("--days", type=float, default=30.0, metavar="DAYS", help="how long")
    goodput.add_argument("--repeat", type=int, default=5, metavar="N", help="seeds, for intervals")
    goodput.add_argument("--seed", type=int, default=1, metavar="N", help="the first seed")
    goodput.add_argument(
        "--costs", type=Path, metavar="DIR", help="use what a result of goodput_year measured (default: given costs)"
    )
    _add_costs(goodput)
    add_json_option(goodput)
    goodput.set_defaults(command=show_goodput)


def _add_costs(parser: argparse.ArgumentParser) -> None:
    add_set_option(parser, "change a cost in seconds, e.g. save=2, interval='10 min' or detect_silent=30")


def _costs(options: argparse.Namespace, measured: Mapping[str, Any] = MappingProxyType({})) -> Any:
    from cluster.simulation.costs import Costs
    from fabric.config import checked, with_overrides

    source = "--set" if options.overrides else f"--costs {options.costs}"
    return checked(Costs, with_overrides(measured, options.overrides), source)


def _machine_costs(options: argparse.Namespace, name: str, nodes: int) -> Any:
    """Return the costs of a job on a whole machine: given ones, or those that a result has measured."""
    from cluster.simulation.measured import costs_of, measured_result
    from fabric.results import Result

    if options.costs is None:
        return _costs(options)
    found = measured_result(Result(options.costs).summary, f"{options.costs}/summary.json")
    known = ", ".join(found.machines)
    _require(name in found.machines, "--costs", options.costs, f"it has no machine {name!r}; it has {known}")
    costs = costs_of(found.measured, found.given, found.machines[name], nodes)
    return _costs(options, costs.model_dump())


def _require(good: bool, option: str, value: object, limit: str) -> None:
    from fabric.errors import UsageError

    if not good:
        raise UsageError(f"{option}: {value}; {limit}")


def _printed(options: argparse.Namespace, title: str, columns: Sequence[str], rows: Sequence[Row], note: str) -> int:
    """Print rows as a table, or as JSON, with what they are composed of."""
    if options.json:
        print(json.dumps({"note": note, "rows": [dict(zip(columns, row, strict=True)) for row in rows]}, indent=1))
    else:
        print_tables([{"title": title, "columns": list(columns), "rows": rows, "note": note}])
    return 0


# Faults --------------------------------------------------------------------------------------------------------------


def show_faults(options: argparse.Namespace, _: list[str]) -> int:
    """Draw faults, and print them class by class beside their table."""
    from cluster.faults.classes import Unit
    from cluster.faults.drawing import Units, draw_faults
    from cluster.faults.entries import entries, while_alive
    from cluster.faults.published import table_of
    from fabric.config import yaml_of
    from topologies.load import load_fabric

    table = table_of(options.table)
    days = table.days if options.days is None else options.days
    _require(0 < days <= 36_500, "--days", options.days, "give more than 0 and 36500 at most")
    _require(0 < options.faster <= 1e9, "--faster", options.faster, "give more than 0 and 1e9 at most")
    own = {
        Unit.NODE: table.nodes,
        Unit.LINK: table.links or 0,
        Unit.STORAGE: table.storage_nodes or 0,
        Unit.SWITCH: table.switches or 0,
    }
    units = Units.numbered(own) if options.topology is None else Units.of(load_fabric(options.topology))
    if options.nodes is not None:
        named = tuple(dict.fromkeys(options.nodes.split(",")))
        where = "a machine without names; give --topology" if options.topology is None else options.topology
        for name in named:
            _require(name in units.nodes, "--nodes", name, f"is not a compute node of {where}")
        units = replace(units, nodes=named)
    drawn = draw_faults(table, units, days, options.seed)
    rows = [
        [
            one.name,
            one.effect.value,
            one.events,
            round(table.expected(one, units.counts, days), 2),
            sum(fault.name == one.name for fault in drawn),
        ]
        for one in table.classes
    ]
    if options.out is not None:
        text = f"# {table.source}; {days:g} days, seed {options.seed}\n"
        kept = drawn if options.platform else while_alive(drawn)
        lines = entries(kept, options.faster, on_platform=options.platform)
        if left_out := len(drawn) - len(kept):
            tell(
                f"{left_out} faults are left out: a GPU's error has killed their node's programs before; see --platform"
            )
        write_whole(options.out, (text + yaml_of({"failures": lines})).encode())
        tell(f"{len(lines)} lines of failures: {options.out}")
    per_day = 1000 * table.per_node_day()
    mtbf_h = table.mtbf_s(len(units.nodes)) / 3600 if units.nodes else float("inf")
    note = f"{per_day:.2f} per 1,000 node-days; of {len(units.nodes)} nodes one every {mtbf_h:.3g} h"
    columns = ("class", "effect", f"in {table.days:g} days", "expected", "drawn")
    return _printed(options, table.source, columns, rows, note)


# A machine -----------------------------------------------------------------------------------------------------------


def show_goodput(options: argparse.Namespace, _: list[str]) -> int:
    """Play one job on a whole machine with the faults of tables, and print where its time goes."""
    _require(0 < options.days <= 3650, "--days", options.days, "give more than 0 and 3650 at most")
    _require(1 <= options.repeat <= 1000, "--repeat", options.repeat, "give 1 to 1000")
    _require(options.nodes is None or 1 <= options.nodes <= 100_000, "--nodes", options.nodes, "give 1 to 100000")
    _require(0 <= options.spare <= 100_000, "--spare", options.spare, "give 0 to 100000")
    columns, rows = ["of its time"], dict[str, Row]()
    for name in options.table:
        columns.append(name)
        for what, value in _goodput(options, name).items():
            rows.setdefault(what, [what]).append(value)
    title = f"One job on a machine for {options.days:g} days: median of {options.repeat} seeds [95 % interval]"
    note = _COMPOSED if options.costs is None else _OF_MEASURED.format(options.costs)
    return _printed(options, title, columns, list(rows.values()), note)


def _goodput(options: argparse.Namespace, name: str) -> dict[str, str]:
    from cluster.checkpoints.intervals import dalys_interval_s, youngs_interval_s
    from cluster.faults.published import table_of
    from cluster.simulation.composing import Machine, play_machine
    from cluster.simulation.goodput import WITHOUT_TASK, Cause
    from fabric.units import format_time

    table = table_of(name)
    machine = Machine(options.nodes or table.nodes, options.spare, options.days)
    costs = _machine_costs(options, name, machine.nodes)
    tell(f"{name}: {machine.nodes} nodes and {machine.spare} spare ones, {options.repeat} times {machine.days:g} days")
    seeds = range(options.seed, options.seed + options.repeat)
    played = [play_machine(table, machine, costs, seed) for seed in seeds]
    mtbf_s = table.mtbf_s(machine.nodes, only_stopping=True)
    held: Callable[[Any, Any], float] = lambda one, cause: one.goodput.node_s[cause] / sum(  # noqa: E731
        seconds for other, seconds in one.goodput.node_s.items() if other not in WITHOUT_TASK
    )
    found = {
        "nodes": f"{machine.nodes}",
        "stopped every": format_time(mtbf_s),
        "stops": _interval([float(one.jobs[0].failures) for one in played], "{:.0f}"),
        "runtime goodput": _interval([one.goodput.runtime for one in played], "{:.2%}"),
    }
    for cause in Cause:
        if cause not in WITHOUT_TASK and any(one.goodput.node_s[cause] for one in played):
            found[cause.value] = _interval([held(one, cause) for one in played], "{:.2%}")
    losses = [seconds for one in played for seconds in one.jobs[0].lost_per_failure_s]
    found["steps lost per stop"] = format_time(sum(losses) / len(losses)) if losses else ""
    found["at most"] = format_time(max(losses)) if losses else ""
    if costs.save > 0:
        found["Young's interval"] = format_time(youngs_interval_s(costs.save, mtbf_s))
        found["Daly's interval"] = format_time(dalys_interval_s(costs.save, mtbf_s))
    found["published"] = table.published
    return found


def _interval(values: Sequence[float], form: str) -> str:
    from fabric.estimates import estimate

    found = estimate(values)
    if found.low is None or found.high is None:
        return form.format(found.median)
    return f"{form.format(found.median)} [{form.format(found.low)}, {form.format(found.high)}]"
