"""``fabric view``: a page to look into results, as one file or served on the loopback address."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.outputs import writing
from app.commands.result_options import add_experiment_folder_option, results_of
from fabric.errors import UsageError
from runs.console import OUT, tell

if TYPE_CHECKING:
    from fabric.report.view.model import View

VIEW_NAME = "view.html"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric view``."""
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="results; several share one slider")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page's file (default: view.html in the first DIR)"
    )
    parser.add_argument("--serve", action="store_true", help="serve it on 127.0.0.1 with all samples, until Ctrl-C")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of --serve (default: any that is free)")
    add_experiment_folder_option(parser)
    parser.set_defaults(command=view_results)


def view_results(options: argparse.Namespace, _: list[str]) -> int:
    """Write the page, or serve it until interrupted."""
    if options.serve and options.out:
        raise UsageError("--out and --serve: the page is either a file or served; give one of them")
    if options.serve:
        tell("reading samples")
        _serve(_views(options.directories, options.experiment_folder), options.port)
        return 0
    from fabric.report.view.document import write_page
    from fabric.results import Result

    path = options.out or options.directories[0] / VIEW_NAME
    if options.out is None:
        Result(options.directories[0]).require_own_files()
    views = _views(options.directories, options.experiment_folder)
    with writing(path):
        notes = write_page(views, path)
    OUT.print(f"view: {path}", soft_wrap=True, highlight=False)
    for note in notes:
        OUT.print(f"  {note}", soft_wrap=True, highlight=False)
    return 0


def _views(directories: Sequence[Path], folders: Sequence[Path]) -> list[View]:
    from fabric.report.view.model import view_of
    from runs.launching.result_ways import ways_of

    return [view_of(result, ways_of(result)) for result in results_of(directories, folders)]


def _serve(views: Sequence[View], port: int) -> None:
    from fabric.report.view.answers import ResultPages
    from fabric.report.view.serving import serving

    pages = ResultPages(views)
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, _: ended.set())
    with serving(pages.answer, port) as address:
        OUT.print(f"view: {address}", soft_wrap=True, highlight=False)
        tell("until Ctrl-C; only this machine reaches it, and only with this address")
        try:
            ended.wait()
        except KeyboardInterrupt:
            return
