"""``fabric list``: the experiments and their questions. It loads nothing else, and answers at once."""

from __future__ import annotations

import argparse
import json
import os
import sys

from runs.catalogue import EXPERIMENTS


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric list``."""
    parser.add_argument("--json", action="store_true", help="print names and questions as JSON")
    parser.set_defaults(command=list_experiments)


def list_experiments(options: argparse.Namespace, _: list[str]) -> int:
    """Print the experiments, one per line: names in one column, questions in the other."""
    if options.json:
        found = [{"name": name, "question": one.question} for name, one in EXPERIMENTS.items()]
        print(json.dumps({"experiments": found}, indent=1))
        return 0
    width = max(map(len, EXPERIMENTS))
    begin, end = ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    for name, experiment in EXPERIMENTS.items():
        print(f"{begin}{name:<{width}}{end}  {experiment.question}")
    return 0
