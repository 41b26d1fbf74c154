"""``fabric export``: a result in the format of another tool."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from app.commands.outputs import write_whole
from app.commands.result_options import RESULT, add_experiment_folder_option, results_of
from fabric.errors import UsageError
from runs.console import tell

if TYPE_CHECKING:
    from app.export.choice import Exported
    from fabric.results import Result

_PROMETHEUS_FILES = ".prom"
"""What node_exporter's textfile collector reads, in Prometheus' text format only."""


class _Format(NamedTuple):
    """A format: what help says of it, how a result gets it, and whether it takes a phase and a job."""

    help: str
    export: Callable[[Result, argparse.Namespace], Exported]
    takes_choice: bool = False
    is_binary: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric export``."""
    parser.description = "Write a result in the format of another tool:\n\n" + "\n".join(
        f"  {name:<12}{one.help}" for name, one in FORMATS.items()
    )
    parser.add_argument("format", choices=list(FORMATS), metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("directory", type=Path, metavar="DIR", help=RESULT)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it into this file (default: print it)")
    parser.add_argument("--phase", metavar="PHASE", help="nccl-tests, fio: only this phase (default: all)")
    parser.add_argument("--job", metavar="JOB", help="nccl-tests, fio: only this job (default: all)")
    dates = "openmetrics: give each sample the date of the run, for promtool tsdb create-blocks-from openmetrics"
    parser.add_argument("--timestamps", action="store_true", help=dates)
    add_experiment_folder_option(parser)
    parser.set_defaults(command=export_result)


def export_result(options: argparse.Namespace, _: list[str]) -> int:
    """Print a result in a format, or write it."""
    wanted = FORMATS[options.format]
    for option, given, fits in (
        ("--phase", options.phase is not None, wanted.takes_choice),
        ("--job", options.job is not None, wanted.takes_choice),
        ("--timestamps", options.timestamps, options.format == "openmetrics"),
    ):
        if given and not fits:
            raise UsageError(f"{option}: is not for {options.format}, which is about the whole run; omit it")
    if wanted.is_binary and options.out is None and sys.stdout.isatty():
        raise UsageError(f"{options.format}: is binary, and would garble a terminal; give --out FILE, or a pipe")
    (result,) = results_of([options.directory], options.experiment_folder)
    found = wanted.export(result, options)
    if options.out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    else:
        write_whole(options.out, found.data)
        tell(f"{options.format}: {options.out}")
    for note in found.notes:
        tell(f"  {note}")
    return 0


def write_metrics(result: Result, path: Path, option: str) -> None:
    """Write a run's metrics for Prometheus: a file whose name ends with ``.prom`` is for node_exporter, and in the
    format that it reads, any other in OpenMetrics. Raises UsageError, naming the option, if it cannot be written."""
    from app.export.openmetrics import openmetrics, prometheus_text

    text = prometheus_text(result) if path.suffix == _PROMETHEUS_FILES else openmetrics(result)
    write_whole(path, text.encode(), option)
    tell(f"metrics: {path}")


def require_place(path: Path, option: str) -> None:
    """Raise UsageError, before a run is played for it, if a file cannot be written for want of its directory."""
    if path.is_dir() or not path.parent.is_dir():
        why = "is a directory; name a file in it" if path.is_dir() else f"{path.parent} is not a directory; make it"
        raise UsageError(f"{option} {path}: {why}")


# How ----------------------------------------------------------------------------------------------------------------


def _openmetrics(result: Result, options: argparse.Namespace) -> Exported:
    from app.export.choice import Exported
    from app.export.openmetrics import openmetrics

    return Exported(openmetrics(result, timestamps=options.timestamps).encode())


def _prometheus(result: Result, _: argparse.Namespace) -> Exported:
    from app.export.choice import Exported
    from app.export.openmetrics import prometheus_text

    return Exported(prometheus_text(result).encode())


def _perfetto(result: Result, _: argparse.Namespace) -> Exported:
    from app.export.perfetto import perfetto

    return perfetto(result)


def _nccl_tests(result: Result, options: argparse.Namespace) -> Exported:
    from app.export.choice import Choice
    from app.export.nccl_tests import nccl_tests

    return nccl_tests(result, Choice(options.phase, options.job))


def _fio(result: Result, options: argparse.Namespace) -> Exported:
    from app.export.choice import Choice
    from app.export.fio import fio

    return fio(result, Choice(options.phase, options.job))


FORMATS = {
    "openmetrics": _Format("OpenMetrics 1.0: verdict, metrics, counters of ports, cost", _openmetrics),
    "prometheus": _Format("the same in Prometheus' text format, which node_exporter reads", _prometheus),
    "perfetto": _Format(
        "Perfetto's protobuf trace, for ui.perfetto.dev and trace_processor", _perfetto, is_binary=True
    ),
    "nccl-tests": _Format("the table of nccl-tests' all_reduce_perf", _nccl_tests, takes_choice=True),
    "fio": _Format("fio's JSON of reads and writes", _fio, takes_choice=True),
}
"""By name, in the order of help."""
