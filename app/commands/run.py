"""``fabric run``: an experiment played, and its answer printed."""

from __future__ import annotations

import argparse
import glob
import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from app import machines
from app.commands.answer import answer_as_json, exit_code_of, print_answer
from app.commands.export import require_place, write_metrics
from app.commands.options import (
    add_capture_option,
    add_engine_option,
    add_json_option,
    add_live_options,
    add_set_option,
    add_sflow_options,
    live_port,
)
from app.commands.progress import Display
from app.commands.streams import begin_streams
from app.sweeps.planning import require_same
from fabric.errors import UsageError
from fabric.results import UNFINISHED
from fabric.world.isolation.processes import die_with_sudo
from runs.captures import is_on_stdout
from runs.console import tell
from runs.launching import launcher
from runs.launching.spec import Prepared, RunSpec, prepare


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric run``."""
    what = "an experiment (fabric list), a YAML file that names one, or the folder of one of your own"
    parser.add_argument("experiment", metavar="EXPERIMENT|FILE", help=what)
    add_run_options(parser)
    # Of the command lines of a sweep: which run of it this is.
    parser.add_argument("--expect-key", metavar="KEY", help=argparse.SUPPRESS)
    parser.set_defaults(command=run_experiment)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Let a command say how a run is to be run."""
    add_set_option(parser)
    add_engine_option(parser)
    rate = (
        "scale all links so that NICs have this rate, e.g. '10 Mbit/s'; calibrated: the rate that fabric calibrate "
        "found for this machine (default: the topology's own)"
    )
    parser.add_argument("--rate", metavar="RATE|calibrated", help=rate)
    seed = "of all that is drawn at random (default: the config's, which is 1 unless it says otherwise)"
    parser.add_argument("--seed", type=int, metavar="N", help=seed)
    directory = "directory of the run (default: a new one in results/)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=directory)
    add_capture_option(parser)
    add_sflow_options(parser)
    later = "draw nothing and write no report now, which saves seconds per run of a sweep; fabric report DIR does both"
    parser.add_argument("--no-figures", action="store_false", dest="draws", help=later)
    repeats = "run it with N seeds, from --seed on: medians and 95 %% intervals (docs/sweeps.md); default: once"
    parser.add_argument("--repeat", type=int, metavar="N", help=repeats)
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="with --repeat: how many runs at a time (default: as many as fit)"
    )
    guests = (
        "play the run in N guests of the virtual engine, each with a part of the fabric, best on a core of its own "
        "(docs/virtual-time.md); default: 1"
    )
    parser.add_argument("--guests", type=int, default=1, metavar="N", help=guests)
    places = (
        "share the guests among machines: those of this Slurm allocation, of a Ray cluster (RAY_ADDRESS), or on which "
        "you start the command that is shown (docs/virtual-time.md); default: this machine alone"
    )
    parser.add_argument("--on", choices=[machines.SLURM, machines.RAY, machines.HAND], help=places)
    many = "with --on: how many machines, this one included (default: all of a Slurm allocation)"
    parser.add_argument("--machines", type=int, metavar="N", help=many)
    address = "with --on: the IP address of this machine that the others reach (default: that of its name)"
    parser.add_argument("--address", metavar="IP", help=address)
    add_live_options(
        parser, "the run, or with --repeat all of them,", ", and of a run's /metrics, which Prometheus reads"
    )
    file = (
        "write the run's metrics at its end in OpenMetrics, or, into a file whose name ends with .prom, as "
        "node_exporter reads them (docs/exports.md); default: no such file"
    )
    parser.add_argument("--openmetrics", type=Path, metavar="FILE", help=file)
    more = "print all tables, the margins to the limits of the verdict, CPU use and cost"
    parser.add_argument("-v", "--verbose", action="store_true", help=more)
    add_json_option(parser, "print answer, verdict, metrics and directory as one JSON object; progress is on stderr")


def run_experiment(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run an experiment and print its answer; exit code 3 if the verdict is `invalid`."""
    spec = spec_of(options.experiment, options)
    if options.expect_key is not None:
        require_same(spec, options.expect_key)
    return run_spec(spec, options, arguments)


def spec_of(experiment: str, options: argparse.Namespace, settings: Mapping[str, Any] | None = None) -> RunSpec:
    """Return the run that options ask for."""
    return RunSpec(
        experiment,
        settings=settings or {},
        overrides=options.overrides,
        seed=options.seed,
        engine=options.engine,
        rate=options.rate,
        memory_bytes=options.memory,
        directory=options.out,
        captures=options.capture,
        draws=options.draws,
        guests=options.guests,
    )


def run_spec(spec: RunSpec, options: argparse.Namespace, arguments: list[str]) -> int:
    """Run a spec, once or as often as options say, and print its answer; exit code 3 if the verdict
    is `invalid`."""
    if options.json and any(map(is_on_stdout, spec.captures)):
        raise UsageError("--json: prints on stdout, which is to have the capture; give the capture a file")
    streams = begin_streams(spec.captures, options)
    spec = replace(spec, captures=streams.captures, sflow=streams.sflow)
    die_with_sudo()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # Or the run would be killed, not ended.
    port = live_port(options)
    if options.guests > 1 and (options.repeat is not None or options.live):
        what = "--live" if options.live else f"--repeat {options.repeat}, whose runs have a core each"
        raise UsageError(f"--guests {options.guests}: not with {what}; omit one of the two")
    if options.repeat is not None:
        if options.json:
            raise UsageError(f"--json: is about one run; with --repeat {options.repeat} runs.csv has all: omit --json")
        if options.openmetrics is not None:
            raise UsageError(f"--openmetrics: is about one run, and --repeat {options.repeat} plays several; omit one")
        from app.commands.repeats import repeat  # It loads pandas, which a run's answer does not need.

        return repeat(spec, options.repeat, options.jobs, port)
    if options.jobs is not None:
        raise UsageError(f"--jobs {options.jobs}: a single run is one job; it is for --repeat")
    if options.openmetrics is not None:
        require_place(options.openmetrics, "--openmetrics")
    if options.on is None and (options.machines or options.address):
        raise UsageError("--machines, --address: are of runs on several machines; give --on, too, or omit them")
    others = machines.Machines(options.on, options.machines, options.address) if options.on is not None else None
    prepared = prepare(spec, ["fabric", *arguments])
    try:
        with launcher.shared(prepared, others, tell) as met, _display(met, options) as (played, display):
            result = launcher.play(played, display.report)
    except KeyboardInterrupt:
        _tell_what_is_kept(Path(prepared.order.directory))
        raise
    if options.json:
        print(json.dumps(answer_as_json(result, prepared.experiment), indent=1))
    else:
        print_answer(result, prepared.experiment, verbose=options.verbose)
    if (
        options.openmetrics is not None
    ):  # Last: whoever waited for the run has its answer, whatever becomes of the file.
        write_metrics(result, options.openmetrics, "--openmetrics")
    return exit_code_of(result)


def _tell_what_is_kept(directory: Path) -> None:
    """Say what is left of a run that was interrupted. Of one that was recorded, the launcher has said where it is."""
    if not any(directory.parent.glob(f"{glob.escape(directory.name)}{UNFINISHED}*")):
        tell("nothing is kept of the run: it had not ended")


@contextmanager
def _display(prepared: Prepared, options: argparse.Namespace) -> Iterator[tuple[Prepared, Display]]:
    """Yield the run as it is to be played, and where its events are shown."""
    if (port := live_port(options)) is not None:
        from app.commands.watching import live_display  # What it needs takes a second to load.

        with live_display(prepared, port) as both:
            yield both
    else:
        with Display() as display:
            yield prepared, display
