"""``fabric run``: an experiment played, and its answer printed."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from experiments.commands.answer import print_answer
from experiments.commands.progress import Display
from experiments.commands.worlds import add_capture_option, add_engine_option, add_set_option
from experiments.launching import launcher
from experiments.launching.spec import RunSpec, prepare
from fabric.world.processes import die_with_sudo


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric run``."""
    parser.add_argument("experiment", metavar="EXPERIMENT|FILE")
    add_set_option(parser)
    add_engine_option(parser)
    rate = (
        "scale all links so that NICs have this rate; calibrated: the rate that fabric calibrate found for this machine"
    )
    parser.add_argument("--rate", metavar="RATE|calibrated", help=rate)
    parser.add_argument("--seed", type=int, metavar="N")
    directory = "directory of the run (default: a new one in results/)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=directory)
    add_capture_option(parser, "z0l03:7=a.pcap")
    later = "leave figures and the report to a later fabric report DIR, which saves seconds per run of a sweep"
    parser.add_argument("--no-figures", action="store_false", dest="draws", help=later)
    parser.set_defaults(command=run_experiment)


def run_experiment(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run an experiment and print its answer; 3 if it is not to be believed."""
    die_with_sudo()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # Or the run would be killed, not ended.
    spec = RunSpec(
        options.experiment,
        overrides=options.overrides,
        seed=options.seed,
        engine=options.engine,
        rate=options.rate,
        memory_bytes=options.memory,
        directory=options.out,
        captures=options.capture,
        draws=options.draws,
    )
    prepared = prepare(spec, ["fabric", *arguments])
    with Display() as display:
        result = launcher.play(prepared, display.report)
    return print_answer(result, prepared.experiment)
