"""An experiment's own tables over several runs: where their numbers differ, the median and its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from fabric.estimates import estimate, is_median_known
from fabric.records.cells import Bound, Cell, Part, Quantity, quantity
from fabric.records.summary_table import SummaryTable, cell_words

_MOST_SHOWN = 3
_MISSING = (None, "", "-")
_PARTIAL = "a cell that some runs lack is of those that have it"


def has_numbers(summary: Mapping[str, Any]) -> bool:
    """Return whether a summary's tables have the numbers of their cells; those of earlier versions have words alone."""
    return all("numbers" in table for table in summary["tables"])


def merged_tables(summaries: Sequence[Mapping[str, Any]]) -> list[SummaryTable]:
    """Return the tables of several runs as one: of each number the median over runs and its 95 % interval. All must
    have the numbers of their cells (:func:`has_numbers`).

    Tables are the same by title and columns; rows by their names: the first cell, and as many of the texts behind it as
    tell the rows of a run apart. A row that not all runs have says how many have it. A cell that is the same in all
    runs stays as it is; one that some runs lack (None, a dash, or a number that was not measured) is of those that have
    it, and the table's note says so. Texts that differ stand side by side. Parts of notes that all runs have stay; what
    only some say, as the name of a port, does not.
    """
    found: dict[tuple[str, ...], list[SummaryTable]] = {}
    for summary in summaries:
        for table in map(SummaryTable.of, summary["tables"]):
            found.setdefault((table.title, *table.columns), []).append(table)
    return [_merged(tables, len(summaries)) for tables in found.values()]


def _merged(tables: Sequence[SummaryTable], runs: int) -> SummaryTable:
    rows, is_partial = _merged_rows(tables, runs)
    notes = [*_common_notes(tables), *([_PARTIAL] if is_partial else [])]
    return replace(tables[0], rows=rows, note=notes)


def _common_notes(tables: Sequence[SummaryTable]) -> list[str]:
    first, *others = (table.notes for table in tables)
    return [part for part in first if all(part in one for one in others)]


def _merged_rows(tables: Sequence[SummaryTable], runs: int) -> tuple[list[list[Cell]], bool]:
    """Return the rows, and whether one has a cell that only some of its runs have."""
    found: dict[tuple[str, ...], list[list[Cell]]] = {}
    texts = _columns_of_texts([row for table in tables for row in table.rows])
    # Of the numbers of columns that tell most rows apart, the least.
    needed = max(range(texts + 1), key=lambda count: sum(len(set(_names(one.rows, count))) for one in tables))
    for table in tables:
        for name, row in _named_rows(table.rows, needed):
            found.setdefault(name, []).append(row)
    merged, is_partial = [], False
    for rows in found.values():
        columns = list(zip(*rows, strict=True))
        cells = [merged_cell(column) for column in columns]
        is_partial = is_partial or any(map(_is_partial, columns[1:]))
        if any(row[0] is None or row[0] == "" for row in rows):
            cells[0] = rows[0][0]
        if len(rows) < runs:
            cells[0] = f"{_text(cells[0])} ({len(rows)} of {runs} runs)".strip()
        merged.append(cells)
    return merged, is_partial


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell_words(cell))


def _is_missing(cell: Cell) -> bool:
    return not cell.is_measured if isinstance(cell, Quantity) else cell in _MISSING


def _is_partial(cells: Sequence[Cell]) -> bool:
    return 0 < sum(map(_is_missing, cells)) < len(cells)


def _columns_of_texts(rows: Sequence[Sequence[Cell]]) -> int:
    """Return how many columns behind the first have nothing but texts, or no cell, in all runs, up to one that has
    something else."""
    behind = list(zip(*rows, strict=True))[1:]
    are_texts = [all(cell is None or isinstance(cell, str) for cell in column) for column in behind]
    return [*are_texts, False].index(False)


def _names(rows: Sequence[Sequence[Cell]], columns: int) -> Iterator[tuple[str, ...]]:
    """Yield the first cell of each row, and those of so many columns behind it. An empty first cell means that of the
    row above."""
    group = ""
    for row in rows:
        group = _text(row[0]) or group
        yield (group, *(str(cell) for cell in row[1 : 1 + columns]))


def _named_rows(rows: Sequence[Sequence[Cell]], columns: int) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Yield each row's name, which no other has, and its cells."""
    seen: Counter[tuple[str, ...]] = Counter()
    for name, row in zip(_names(rows, columns), rows, strict=True):
        yield (*name, str(seen[name])), list(row)
        seen[name] += 1


def merged_cell(cells: Sequence[Cell]) -> Cell:
    """Return one cell for the runs that have it: the cell itself if all agree, a median with its interval if numbers
    differ, otherwise the texts side by side."""
    present = [cell for cell in cells if not _is_missing(cell)]
    if not present:
        return next((cell for cell in cells if cell), cells[0])
    if len({(type(cell), cell) for cell in present}) == 1:
        return present[0]
    numbers = [quantity(cell) if _is_plain(cell) else cell for cell in present]
    if (merged := _merged_numbers(numbers)) is not None:
        # One and 1.0 are the same, and stay a number.
        return merged.value if all(map(_is_plain, present)) and merged.low is None else merged
    if all(isinstance(cell, tuple) for cell in present) and (parts := _merged_parts(present)) is not None:
        return parts
    distinct = list(dict.fromkeys(map(_text, present)))
    return " or ".join(distinct[:_MOST_SHOWN]) + (" or ..." if len(distinct) > _MOST_SHOWN else "")


def _is_plain(cell: Cell) -> TypeGuard[int | float]:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _merged_parts(cells: Sequence[Any]) -> tuple[Part, ...] | None:
    """Return cells of several numbers as one; None if the words between them are not the same, or their number."""
    if len({len(cell) for cell in cells}) > 1:
        return None
    merged = []
    for parts in zip(*cells, strict=True):
        one = parts[0] if len(set(parts)) == 1 else _merged_numbers(parts)
        if one is None:
            return None
        merged.append(one)
    return tuple(merged)


def _merged_numbers(cells: Sequence[Any]) -> Quantity | None:
    """Return the median of numbers with its interval, with a bound if it lies among those of which only that is known;
    None if they are not all numbers of one unit, or bounds on both sides."""
    if not all(isinstance(cell, Quantity) for cell in cells) or len({cell.unit for cell in cells}) > 1:
        return None
    numbers = [cell for cell in cells if cell.is_measured]
    bounds = {cell.bound for cell in numbers} - {Bound.NONE}
    if len(bounds) > 1 or not numbers:
        return None
    bound = bounds.pop() if bounds else Bound.NONE
    sign = -1 if bound is Bound.AT_MOST else 1
    values = [cell.value for cell in numbers]
    is_known = is_median_known([sign * value for value in values], [cell.bound is Bound.NONE for cell in numbers])
    found = estimate(values)
    low, high = (found.low, found.high) if len(set(values)) > 1 else (None, None)
    first: Quantity = numbers[0]
    return replace(first, value=found.median, bound=Bound.NONE if is_known else bound, low=low, high=high)
