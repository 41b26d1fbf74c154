"""``fabric cost``: what runs cost the machine that played them, side by side and as a figure."""

from __future__ import annotations

import argparse
from pathlib import Path

from runs.console import OUT, print_tables


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric cost``."""
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="directories of runs")
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write the table with all its digits (default: no file)"
    )
    figure = "draw how wall time and memory grow into this directory: cost.png, cost.svg (default: draw nothing)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=figure)
    parser.set_defaults(command=tell_cost)


def tell_cost(options: argparse.Namespace, _: list[str]) -> int:
    """Print what runs cost, and draw it if asked to."""
    from fabric.report.cost import costs, costs_table  # They need a second to load.
    from fabric.results import Result

    found = costs([Result(directory) for directory in options.directories])
    print_tables([vars(costs_table(found))])
    if options.csv is not None:
        found.to_csv(options.csv, index=False)
        OUT.print(f"table: {options.csv}", soft_wrap=True)
    if options.out is not None:
        from fabric.report.figures.cost import growth
        from fabric.report.figures.style import save

        for path in save(growth(found), options.out, "cost"):
            OUT.print(f"drawn: {path}", soft_wrap=True)
    return 0
