"""The output of the command: answers on stdout, progress and errors on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_IN_FILES = 120
"""A pipe or a file has no width of its own, and tables should not be cut for the narrowest terminal."""
_NO_LIMIT = 100_000


def _console(stream_is_terminal: bool, stderr: bool) -> Console:
    """Return a console that prints text as it is: brackets are not styles, and ``:x:`` is not a symbol."""
    width = None if stream_is_terminal else _WIDTH_IN_FILES
    return Console(stderr=stderr, width=width, markup=False, emoji=False)


OUT = _console(sys.stdout.isatty(), stderr=False)
ERR = _console(sys.stderr.isatty(), stderr=True)


def tell(text: str) -> None:
    """Say what is being done."""
    ERR.print(Text(text, "dim"), soft_wrap=True)


def print_tables(tables: Iterable[Mapping[str, Any]]) -> None:
    """Print tables as summaries have them."""
    for described in tables:
        table = Table(*described["columns"], title=described["title"], caption=described.get("note"))
        for row in described["rows"]:
            table.add_row(*(_shown(cell, place) for place, cell in enumerate(row)))
        if _narrowest(table) > OUT.width:
            _print_compact(table)
        else:
            OUT.print(table)


def _shown(cell: Any, place: int) -> str:
    """Return a cell as text; nothing is a dash, but for a first one that means that of the row above."""
    if cell is None:
        return "-" if place else ""
    return str(cell)


def _print_compact(table: Table) -> None:
    """Print a table that is too wide: with less around its columns, and if need be beyond the width, for a number of
    which the end is missing is worse than a line that is too long."""
    table.box, table.padding, table.pad_edge = box.SIMPLE_HEAD, (0, 0), False
    for column in table.columns:
        column.min_width = max(
            len(word) for cell in (column.header, *column.cells) for word in str(cell).split() or [""]
        )
    OUT.print(table, width=max(OUT.width, _narrowest(table)), crop=False, no_wrap=True, overflow="ignore")


def _narrowest(table: Table) -> int:
    """Return how wide a table is in which no word is broken."""
    return table.__rich_measure__(OUT, OUT.options.update(width=_NO_LIMIT)).minimum
