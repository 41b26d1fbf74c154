"""``fabric timeline``: a result as a trace for Perfetto and ``chrome://tracing``."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.commands.outputs import writing
from app.commands.result_options import RESULT, add_experiment_folder_option, results_of
from runs.console import OUT

TRACE_NAME = "timeline.json"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric timeline``."""
    parser.add_argument("directory", type=Path, metavar="DIR", help=RESULT)
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the trace (default: {TRACE_NAME} in DIR)")
    add_experiment_folder_option(parser)
    parser.set_defaults(command=write_timeline)


def write_timeline(options: argparse.Namespace, _: list[str]) -> int:
    """Write the trace."""
    from fabric.report.trace import write_trace
    from fabric.report.view.model import view_of

    path = options.out or options.directory / TRACE_NAME
    (result,) = results_of([options.directory], options.experiment_folder)
    if options.out is None:
        result.require_own_files()
    view = view_of(result)
    with writing(path):
        notes = write_trace(view, path)
    OUT.print(f"timeline: {path} (open it in ui.perfetto.dev or chrome://tracing)", soft_wrap=True, highlight=False)
    for note in notes:
        OUT.print(f"  {note}", soft_wrap=True, highlight=False)
    return 0
