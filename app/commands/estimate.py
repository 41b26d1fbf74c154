"""``fabric estimate``: when flows end on a fabric of any size, without packets."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from app.commands.options import add_json_option, add_set_option, add_topology, size_bytes
from controllers.planning.policies import POLICIES
from fabric.errors import UsageError
from fabric.model.lanes import DATA_LEVELS, Queueing

_PATTERNS = ("permutation", "all_to_all", "incast", "ring")
_ONE_OF = "no default: give one of --pattern, --matrix, --jobs, --collisions"
_SIZE_BYTES = 1024 * 1024
_SHOWN = 10
_OF_PATTERNS = ("size", "hosts", "peers")
_OF_ONE_JOB = ("level",)
_OF_FLOWS = ("routing", "queueing")
NOTE = (
    "an estimate without packets: flows share links as fluids, headers counted; no queues, losses, growing windows "
    "or acknowledgements, and no verdict"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric estimate``."""
    add_topology(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--pattern", choices=_PATTERNS, help=f"who sends to whom, over NICs of compute nodes; {_ONE_OF}")
    what.add_argument(
        "--matrix", type=Path, metavar="FILE", help=f"a connection matrix, as fabric replay plays it; {_ONE_OF}"
    )
    jobs = f"a YAML list of jobs that play at once (docs/estimate.md); {_ONE_OF}"
    what.add_argument("--jobs", type=Path, metavar="FILE", help=jobs)
    meet = "how many flows of random permutations meet on leaves' uplinks, by each policy and in theory"
    what.add_argument("--collisions", action="store_true", help=meet)
    size = "with --pattern: payload of each flow, e.g. 16MiB (default: 1MiB)"
    parser.add_argument("--size", type=size_bytes, metavar="SIZE", help=size)
    parser.add_argument(
        "--hosts", type=int, metavar="N", help="with --pattern: the first N compute nodes (default: all)"
    )
    peers = "with all_to_all: to how many others each NIC sends, evenly spread (default: to all)"
    parser.add_argument("--peers", type=int, metavar="N", help=peers)
    level = "Service Level of the packets, with --pattern or --matrix (default: other)"
    parser.add_argument("--level", choices=[level.label for level in DATA_LEVELS], help=level)
    policies = [policy.name for policy in POLICIES if not policy.moves]
    which = "which of several equal paths packets take (default: static)"
    parser.add_argument("--routing", choices=policies, help=which)
    queueings = [queueing.value for queueing in Queueing]
    lanes = "one queue per port, or lanes, which have their shares (default: lanes)"
    parser.add_argument("--queueing", choices=queueings, help=lanes)
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of permutations, and of ports that hashes go by"
    )
    add_set_option(parser)
    add_json_option(parser)
    parser.set_defaults(command=show_estimate)


def show_estimate(options: argparse.Namespace, _: list[str]) -> int:
    """Print an estimate."""
    from rich.text import Text

    from app.commands.estimate_tables import as_json, tables
    from app.commands.worlds import fabric_of
    from runs.console import OUT, print_tables

    _refuse_what_is_for_others(options)
    fabric = fabric_of(options)
    if options.collisions:
        from app.commands.collisions import collision_table

        table = collision_table(fabric, options.seed)
        if options.json:
            print(json.dumps(table.as_json()))
        else:
            print_tables([table.as_json()])
        return 0
    found = _estimate(fabric, options)
    if options.json:
        print(json.dumps(as_json(found, _SHOWN, NOTE)))
        return 0
    print_tables([table.as_json() for table in tables(found, _SHOWN)])
    OUT.print(Text(NOTE, "dim"))
    return 0


def _refuse_what_is_for_others(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that would be ignored, and for numbers that no pattern has."""
    asked = next(name for name in ("pattern", "matrix", "jobs", "collisions") if getattr(options, name))
    ignored = {
        "pattern": (),
        "matrix": _OF_PATTERNS,
        "jobs": (*_OF_PATTERNS, *_OF_ONE_JOB),
        "collisions": (*_OF_PATTERNS, *_OF_ONE_JOB, *_OF_FLOWS),
    }[asked]
    for name in ignored:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name}: does not go with --{asked}; omit one of the two")
    for name, least in {"size": 1, "hosts": 1, "peers": 1, "seed": 0}.items():
        if (value := getattr(options, name)) is not None and value < least:
            raise UsageError(f"--{name} {value}: must be {least} or more")


def _estimate(fabric: Any, options: argparse.Namespace) -> Any:
    """Return the estimate that the options ask for."""
    from app.estimate.estimating import Setting, estimate, matrix_flows, pattern_flows
    from app.estimate.jobs import read_jobs, verify_jobs
    from controllers.routing import Routing
    from experiments.replay.connection_matrix import read_matrix
    from fabric.config import read_text
    from fabric.model.lanes import plan_lanes
    from runs.config import queues_of

    lanes = plan_lanes(queues_of(options.overrides), Queueing(options.queueing or Queueing.LANES.value))
    routing = Routing.model_validate({"policy": options.routing or "static"})
    setting = Setting(fabric, routing, lanes, options.seed)
    if options.matrix is not None:
        source = os.fsencode(options.matrix).decode(errors="replace")  # A name need not be text.
        matrix = read_matrix(read_text(options.matrix, "a connection matrix of htsim"), source)
        return estimate(setting, [matrix_flows(setting, matrix, source, options.level or "other")], matrix)
    jobs = [_job_of(options)] if options.pattern else read_jobs(options.jobs)
    verify_jobs(jobs, fabric, lanes, "--pattern" if options.pattern else str(options.jobs))
    return estimate(setting, [pattern_flows(setting, job) for job in jobs])


def _job_of(options: argparse.Namespace) -> Any:
    """Return the job that options ask for. Raises ConfigError."""
    from app.estimate.jobs import PatternJob
    from fabric.config import checked

    words = {"name": options.pattern, "pattern": options.pattern, "size": _SIZE_BYTES, "service_level": "other"}
    given = {"size": options.size, "hosts": options.hosts, "peers": options.peers, "service_level": options.level}
    return checked(PatternJob, words | {key: value for key, value in given.items() if value is not None}, "--pattern")
