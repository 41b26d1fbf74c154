"""Measurements of this project's own parts: ``python -m app.benchmarks NAME``.

They are for those who change it, and who keep docs/performance.md; no user of the project needs them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from app.cli import carried_out, end
from app.commands.bench import add_own_options
from app.commands.parsers import CommandParser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = CommandParser(prog="python -m app.benchmarks")
    add_own_options(parser)
    parser.set_defaults(entry=("app.benchmarks",))
    return carried_out(parser.parse_args(arguments), arguments)


if __name__ == "__main__":
    end(main())
