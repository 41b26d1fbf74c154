"""An experiment's own tables over several runs: where their cells differ, the median and its interval."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from fabric.estimates import estimate, is_median_known

_FACTORS = {
    "s": ("s", 1.0), "ms": ("s", 1e-3), "us": ("s", 1e-6), "min": ("s", 60.0),
    "bit/s": ("bit/s", 1.0), "kbit/s": ("bit/s", 1e3), "Mbit/s": ("bit/s", 1e6), "Gbit/s": ("bit/s", 1e9),
    "B/s": ("B/s", 1.0), "kB/s": ("B/s", 1e3), "MB/s": ("B/s", 1e6), "GB/s": ("B/s", 1e9),
    "B": ("B", 1.0), "KiB": ("B", 2.0**10), "MiB": ("B", 2.0**20), "GiB": ("B", 2.0**30),
}  # fmt: skip
"""Units that a number may have in one run and not in another: of what, and how much of it."""
_UNITS = "|".join(sorted(map(re.escape, _FACTORS), key=len, reverse=True))
_TIMES_S = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
"""Units that a time of several has, as in 2 h 05 min."""
_PART = rf"[0-9]+ (?:{'|'.join(_TIMES_S)})(?![A-Za-z0-9/])"
_NUMBER = re.compile(
    rf"(?<![A-Za-z0-9_.:,])(?:(?P<times>{_PART}(?: {_PART})+)|"
    rf"(?P<digits>[+-]?[0-9][0-9,]*(?:\.[0-9]+)?)(?P<exponent>e[+-]?[0-9]+(?![A-Za-z0-9]))?"
    rf"(?:(?P<space> ?)(?P<unit>{_UNITS})(?![A-Za-z0-9/]))?)"
)
"""A time of several units, or a number with its unit; not one that is a part of a name, as in p99 or z0l00:7."""
_MOST_SHOWN = 3
_WHOLE_FROM, _SHOWN_DIGITS = 1000, 4
"""Of numbers that are no text: from where on without a fraction, and how many digits below."""
_PLAIN = re.compile(r"(?:#|%| x(?![A-Za-z])|\(#-#\)|[ ,;()])*")
_COUNTED = re.compile(r"# [A-Za-z][A-Za-z/]*")
"""Texts, ``#`` for each number, that are numbers with their units and nothing else: ``# (#-#)``, ``#, #``, ``#%``; and
``# steps``. All others are words with numbers in them: a date, ``# of #``, ``rank # of``."""
_MISSING = (None, "", "-")
_PARTIAL = "a cell that some runs lack is of those that have it"
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class _Number:
    """A number of a cell: ``value`` in what its unit is of, ``factor`` that unit, ``digits`` those after the point.
    ``significant``: how many digits it has, if it has an exponent; ``times``: the units of a time of several, each
    with how many digits it has at least."""

    value: float
    kind: str
    factor: float
    unit: str
    digits: int
    significant: int = 0
    times: tuple[tuple[str, int], ...] = ()


def merged_tables(summaries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tables of several runs as one: of each cell the median over runs and, in brackets, its 95 % interval.

    Tables are the same by title and columns; rows by their names, which are their first cells without a number. A row
    that not all runs have says how many have it. A cell that is the same in all runs keeps its type; one that some runs
    lack (None, or a dash) is of those that have it, and the table's note says so. Texts with numbers in them, such as a
    date, are no numbers: those that differ stand side by side. What notes of all runs say stays, between their
    semicolons; what only some say, as the name of a port, does not.
    """
    found: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for summary in summaries:
        for table in summary["tables"]:
            found.setdefault((table["title"], *table["columns"]), []).append(table)
    return [_merged(tables, len(summaries)) for tables in found.values()]


def _merged(tables: Sequence[Mapping[str, Any]], runs: int) -> dict[str, Any]:
    rows, is_partial = _merged_rows(tables, runs)
    notes = [*_common_notes(tables), *([_PARTIAL] if is_partial else [])]
    kept = {key: value for key, value in tables[0].items() if key != "note"}
    return {**kept, "rows": rows, **({"note": "; ".join(notes)} if notes else {})}


def _common_notes(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = [table["note"].split("; ") if table.get("note") else [] for table in tables]
    return [part for part in parts[0] if all(part in others for others in parts[1:])]


def _merged_rows(tables: Sequence[Mapping[str, Any]], runs: int) -> tuple[list[list[Cell]], bool]:
    """Return the rows, and whether one has a cell that only some of its runs have."""
    found: dict[tuple[str, ...], list[list[Cell]]] = {}
    are_texts = _columns_of_texts([row for table in tables for row in table["rows"]])
    for table in tables:
        for name, row in _named_rows(table["rows"], are_texts):
            found.setdefault(name, []).append(row)
    merged, is_partial = [], False
    for rows in found.values():
        columns = list(zip(*rows, strict=True))
        cells = [merged_cell(column) for column in columns]
        is_partial = is_partial or any(map(_is_partial, columns[1:]))
        if _is_empty(rows[0][0]) or any(_is_empty(row[0]) for row in rows):
            cells[0] = rows[0][0]
        if len(rows) < runs:
            cells[0] = f"{_text(cells[0])} ({len(rows)} of {runs} runs)".strip()
        merged.append(cells)
    return merged, is_partial


def _is_empty(cell: Cell) -> bool:
    return cell is None or cell == ""


def _text(cell: Cell) -> str:
    return "" if cell is None else str(cell)


def _is_partial(cells: Sequence[Cell]) -> bool:
    return 0 < sum(cell in _MISSING for cell in cells) < len(cells)


def _columns_of_texts(rows: Sequence[Sequence[Cell]]) -> list[bool]:
    """Return of each column whether no cell of any run is a number, or has one in it."""
    return [
        all(cell in _MISSING or (isinstance(cell, str) and not _NUMBER.search(cell)) for cell in column)
        for column in zip(*rows, strict=True)
    ]


def _named_rows(
    rows: Sequence[Sequence[Cell]], are_texts: Sequence[bool]
) -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    """Yield each row's name, which no other has, and its cells. An empty first cell means that of the row above. A cell
    that is missing is a part of the name only among texts: elsewhere it is a number that the run does not have."""
    seen: Counter[tuple[str, ...]] = Counter()
    group = ""
    for row in rows:
        cells = list(row)
        group = _text(cells[0]) or group
        named = takewhile(lambda one: _is_name(*one), zip(cells[1:], are_texts[1:], strict=True))
        name = (group, *(str(cell) for cell, _ in named))
        yield (*name, str(seen[name])), cells
        seen[name] += 1


def _is_name(cell: Cell, is_text: bool) -> bool:
    return is_text if cell in _MISSING else isinstance(cell, str) and not _NUMBER.search(cell)


def merged_cell(cells: Sequence[Cell]) -> Cell:
    """Return what a cell is in several runs, of those that have it: itself, with its type, if it is the same in them; a
    median with its interval, if what differs are numbers; else the several texts."""
    present = [cell for cell in cells if cell is not None and cell not in _MISSING]
    if not present:
        return next((cell for cell in cells if cell), cells[0])
    if len({(type(cell), cell) for cell in present}) == 1:
        return present[0]
    if all(_is_number(cell) for cell in present):
        return _interval([float(cell) for cell in present])
    return _merged_text([str(cell) for cell in present])


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _interval(values: Sequence[float]) -> Cell:
    """Return the median of numbers with its interval; the number, if they are all the same, as 1 and 1.0 are."""
    if len(set(values)) == 1:
        return values[0]
    found = estimate(values)
    ends = [_written_number(end) for end in (found.low, found.high) if end is not None]
    return f"{_written_number(found.median)} [{', '.join(ends)}]"


def _written_number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) or abs(value) >= _WHOLE_FROM else f"{value:.{_SHOWN_DIGITS}g}"


_AT_LEAST = "> "


def _merged_least(texts: Sequence[str]) -> str:
    """Return what cells say together of which some know only the least that their number can be, as in ``> 10.1 s``."""
    plain = [text.removeprefix(_AT_LEAST) for text in texts]
    numbers = [_read(text)[1] for text in plain]
    values = [found[0].value for found in numbers if len(found) == 1]
    are_known = [not text.startswith(_AT_LEAST) for text in texts]
    is_known = len(values) == len(texts) and is_median_known(values, are_known)
    return ("" if is_known else _AT_LEAST) + str(merged_cell(plain))


def _merged_text(texts: Sequence[str]) -> str:
    if any(text.startswith(_AT_LEAST) for text in texts):
        return _merged_least(texts)
    words, numbers = zip(*map(_read, texts), strict=True)
    kinds = {tuple(number.kind for number in found) for found in numbers}
    if len(set(words)) > 1 or len(kinds) > 1 or not _are_measures(words[0], list(zip(*numbers, strict=True))):
        distinct = list(dict.fromkeys(texts))
        return " or ".join(distinct[:_MOST_SHOWN]) + (" or ..." if len(distinct) > _MOST_SHOWN else "")
    merged = [*map(_written, zip(*numbers, strict=True)), ""]
    return "".join(part for pair in zip(words[0], merged, strict=True) for part in pair)


def _are_measures(words: Sequence[str], numbers: Sequence[Sequence[_Number]]) -> bool:
    """Return whether the numbers in texts of the same words are measures, of which there is a median: texts are numbers
    with units, or in words only numbers with a unit of their own differ."""
    text = "#".join(words)
    if _PLAIN.fullmatch(text) or _COUNTED.fullmatch(text):
        return True
    after = [word.startswith(("%", " x")) for word in words[1:]]
    has_unit = [bool(found[0].kind) or is_share for found, is_share in zip(numbers, after, strict=True)]
    return all(known or len({one.value for one in found}) == 1 for known, found in zip(has_unit, numbers, strict=True))


def _read(text: str) -> tuple[tuple[str, ...], tuple[_Number, ...]]:
    """Return the words around a cell's numbers, and the numbers."""
    words, numbers, at = [], [], 0
    for match in _NUMBER.finditer(text):
        words.append(text[at : match.start()])
        numbers.append(_time_of(match["times"]) if match["times"] else _number_of(match))
        at = match.end()
    return (*words, text[at:]), tuple(numbers)


def _number_of(match: re.Match[str]) -> _Number:
    digits, exponent, space, unit = (match[name] or "" for name in ("digits", "exponent", "space", "unit"))
    kind, factor = _FACTORS.get(unit, ("", 1.0))
    value = float(digits.replace(",", "") + exponent) * factor
    significant = sum(sign.isdigit() for sign in digits) if exponent else 0
    return _Number(value, kind, factor, space + unit, len(digits.partition(".")[2]), significant)


def _time_of(text: str) -> _Number:
    words = text.split()
    parts = list(zip(words[::2], words[1::2], strict=True))
    value = sum(int(digits) * _TIMES_S[unit] for digits, unit in parts)
    times = tuple((unit, len(digits) if digits[0] == "0" else 1) for digits, unit in parts)
    return _Number(float(value), "s", 1.0, "", 0, times=times)


def _written(numbers: Sequence[_Number]) -> str:
    """Return the median and the interval in the unit of the middle one, with as many digits as the most exact of that
    unit has; a number that is the same in all runs as it is."""
    found = estimate([number.value for number in numbers])
    middle = min(numbers, key=lambda number: abs(number.value - found.median))
    digits = max(number.digits for number in numbers if number.unit == middle.unit)
    significant = max(number.significant for number in numbers)
    times = {unit: max(dict(number.times).get(unit, 1) for number in numbers) for unit, _ in middle.times}

    def text(value: float | None) -> str:
        if value is None:
            return ""
        if times:
            return _written_time(value, times)
        if significant:
            return f"{value / middle.factor:.{significant}g}"
        return f"{value / middle.factor:,.{digits}f}"

    interval = f" [{text(found.low)}, {text(found.high)}]" if len({number.value for number in numbers}) > 1 else ""
    return f"{text(found.median)}{middle.unit}{interval}"


def _written_time(value_s: float, times: Mapping[str, int]) -> str:
    """Return a time in several units, of which the last is rounded to; each has so many digits at least."""
    *_, last = times
    left = round(value_s / _TIMES_S[last]) * _TIMES_S[last]
    parts = []
    for unit, digits in times.items():
        count, left = divmod(left, _TIMES_S[unit])
        parts.append(f"{count:0{digits}d} {unit}")
    return " ".join(parts)
