"""``fabric plot``, ``fabric report`` and ``fabric compare``: what is made of results."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from app.commands.options import add_json_option
from app.commands.result_options import RESULT, add_experiment_folder_option, results_of
from fabric.errors import UsageError
from fabric.report.paper import FORMATS, USUAL_FORMATS, Paper, on_paper, parse_width_in
from runs.console import OUT
from runs.registry import EXPERIMENTS


def add_plot_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric plot``."""
    parser.add_argument("directory", type=Path, metavar="DIR", help=RESULT)
    add_experiment_folder_option(parser)
    only = "draw this figure; may be repeated (default: all; result.figures in Python lists them)"
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=only)
    kind = "of the files; may be repeated (default: png and svg); text stays text in pdf, and in svg for paper"
    parser.add_argument("--format", action="append", choices=FORMATS, default=[], dest="formats", help=kind)
    width = "of a page or a column, in in, cm, mm or pt, e.g. 3.3in; text is made for that size (default: a screen's)"
    parser.add_argument("--width", type=_width_in, metavar="WIDTH", help=width)
    bare = "without title, verdict and provenance, for a caption of your own; a pdf has them among its properties"
    parser.add_argument("--bare", action="store_true", help=bare)
    out = "where the files go (default: figures in DIR, with --width or --bare: paper in DIR)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=out)
    parser.set_defaults(command=plot_result)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric report``."""
    parser.add_argument("directory", type=Path, metavar="DIR", help=RESULT)
    add_experiment_folder_option(parser)
    parser.set_defaults(command=report_result)


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric compare``."""
    which = "directories of runs of one experiment, at least two; the others are compared with the first"
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help=which)
    changed = "show only metrics that differ from the first run's by this much or more, e.g. 5 (default: all metrics)"
    parser.add_argument("--changed", type=_percent, metavar="PERCENT", help=changed)
    add_json_option(parser)
    parser.set_defaults(command=compare_results)


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage; give a number of 0 or more, e.g. 5")
    return percent


def _width_in(text: str) -> float:
    try:
        return parse_width_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def plot_result(options: argparse.Namespace, _: list[str]) -> int:
    """Draw a result's figures."""
    paper = Paper(options.width, options.bare)
    (result,) = results_of([options.directory], options.experiment_folder)
    directory = options.out or result.directory / ("figures" if paper.is_usual else "paper")
    with on_paper(paper):
        paths = result.draw_files(directory, options.only, options.formats or USUAL_FORMATS)
    for path in paths:
        OUT.print(f"drawn: {path}", soft_wrap=True)
    for name, why in ({} if options.only else result.not_drawn).items():
        OUT.print(f"not drawn: {name}: {why}", soft_wrap=True)
    if result.missing:
        OUT.print(result.missing, soft_wrap=True)
    return 0


def report_result(options: argparse.Namespace, _: list[str]) -> int:
    """Write a result as a page."""
    (result,) = results_of([options.directory], options.experiment_folder)
    OUT.print(f"report: {result.write_report()}", soft_wrap=True)
    if result.missing:
        OUT.print(result.missing, soft_wrap=True)
    return 0


def compare_results(options: argparse.Namespace, _: list[str]) -> int:
    """Print results side by side."""
    from fabric.report.compare import compare
    from fabric.results import Result
    from runs.measures import SHARED

    if len(options.directories) < 2:
        raise UsageError("compare needs at least two result directories")
    results = [Result(directory) for directory in options.directories]
    known = EXPERIMENTS.get(str(results[0].manifest["experiment"]))
    comparison = compare(results, (*(known.load_measures() if known else ()), *SHARED))
    if options.changed is not None:
        comparison = comparison.changed(options.changed / 100)
    if options.json:
        print(json.dumps(comparison.as_json(), indent=1))
    else:
        OUT.print(comparison.table())
    return 0
