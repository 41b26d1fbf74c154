"""A result's raw rows and log of phases, read without the project's own code; and cells of tables, as a person reads
them. What is printed is derived from these once more, in another way."""

from __future__ import annotations

import bisect
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet

Row = Mapping[str, Any]
_UNITS = {
    "": 1.0, "%": 0.01, "x": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0,
    "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9,
    "bit/s": 1.0, "Mbit/s": 1e6, "Gbit/s": 1e9,
}  # fmt: skip
_CELL = re.compile(r"(?P<least>> )?(?P<sign>[+-]?)(?P<digits>[0-9][0-9,]*(?:\.[0-9]+)?) ?(?P<unit>[A-Za-z/%]*)")


@dataclass(frozen=True)
class Printed:
    """A number as a table has it; ``half`` is half of its last digit."""

    value: float
    half: float
    is_least: bool


def printed(cell: str) -> Printed:
    """Return what a cell says."""
    match = _CELL.fullmatch(cell.strip())
    assert match is not None, f"{cell!r} is not a number"
    digits, unit = match["digits"].replace(",", ""), _UNITS[match["unit"]]
    value = float(match["sign"] + digits) * unit
    return Printed(value, 0.5 * unit * 10.0 ** -len(digits.partition(".")[2]), match["least"] is not None)


@dataclass
class Tally:
    """How many cells were derived once more, and which of them differ by more than their last digit."""

    derived: int = 0
    differing: list[str] = field(default_factory=list)

    def compare(self, what: str, cell: str, value: float | None, is_least: bool = False) -> None:
        """Count a cell that should say ``value``; None: a dash."""
        self.derived += 1
        if value is None:
            agrees = cell == "-"
        else:
            found = printed(cell)
            agrees = abs(found.value - value) <= found.half * (1 + 1e-6) and found.is_least is is_least
        if not agrees:
            self.differing.append(f"{what}: printed {cell}, from the rows {'> ' if is_least else ''}{value!r}")


@dataclass(frozen=True)
class Phase:
    """A phase of the manifest."""

    name: str
    title: str
    queueing: str
    started_s: float
    ended_s: float
    loaded_from_s: float
    loaded_until_s: float

    @property
    def loaded_s(self) -> float:
        """How long its load played."""
        return self.loaded_until_s - self.loaded_from_s


class Raw:
    """The files of a result."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = json.loads((directory / "manifest.json").read_text())
        self.summary = json.loads((directory / "summary.json").read_text())
        self.fabric = json.loads((directory / "fabric.json").read_text())
        names = Phase.__dataclass_fields__
        self.phases = [Phase(**{name: one[name] for name in names}) for one in self.manifest["phases"]]
        self._tables: dict[str, list[Row]] = {}

    def rows(self, table: str) -> list[Row]:
        """Return all rows of a table."""
        if table not in self._tables:
            path = self.directory / "samples" / f"{table}.parquet"
            self._tables[table] = pyarrow.parquet.read_table(path).to_pylist() if path.exists() else []
        return self._tables[table]

    def cells(self, title: str) -> list[dict[str, str]]:
        """Return the rows of the table whose title begins so, by column."""
        (table,) = [one for one in self.summary["tables"] if one["title"].startswith(title)]
        return [dict(zip(table["columns"], map(str, row), strict=True)) for row in table["rows"]]

    @cached_property
    def counters(self) -> dict[tuple[str, str], list[Row]]:
        """The samples of each port and lane, in order of time."""
        found: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows("ports"):
            found[row["port"], row["lane"]].append(row)
        return {key: sorted(rows, key=lambda row: row["at_s"]) for key, rows in found.items()}

    @cached_property
    def rate_bps(self) -> dict[str, float]:
        """The rate of each port."""
        return {link[end]: float(link["rate_bps"]) for link in self.fabric["links"] for end in ("a", "b")}

    @cached_property
    def hosts(self) -> set[str]:
        """The names of hosts."""
        return {node["name"] for node in self.fabric["nodes"] if node["role"] in ("compute", "storage")}


def between(rows: Iterable[Row], from_s: float, until_s: float) -> list[Row]:
    """Return the samples of a stretch of time."""
    return [row for row in rows if from_s <= row["at_s"] <= until_s]


def at_time(rows: Sequence[Row], column: str, at_s: float) -> float:
    """Return a counter at a time, evenly between the samples before and after."""
    place = bisect.bisect_left([row["at_s"] for row in rows], at_s)
    if place == 0:
        return float(rows[0][column])
    if place == len(rows):
        return float(rows[-1][column])
    before, after = rows[place - 1], rows[place]
    part = (at_s - before["at_s"]) / (after["at_s"] - before["at_s"])
    return float(before[column] + part * (after[column] - before[column]))


def bandwidth(rows: Iterable[Row], from_s: float, until_s: float) -> float:
    """Return bytes per second by adding up a fine grid: what each operation brings evenly over its time."""
    total = 0.0
    for row in rows:
        took = row["ended_s"] - row["started_s"]
        inside = min(row["ended_s"], until_s) - max(row["started_s"], from_s)
        total += row["size_bytes"] * max(0.0, inside) / took if took else 0.0
    return total / (until_s - from_s)


def percentile(rows: Sequence[Row], kind: str, part: float) -> tuple[float, bool]:
    """Return a percentile over all operations that began, and whether it is but the least that it can be.

    Each has one part of the weight. Those cut off hand theirs to all that took longer, one by one, in the order of
    their times; what failed or was refused stands at the end.
    """
    cut_off = {f"{kind}_abandoned"}
    never = {f"{kind}_failed", f"{kind}_refused"}
    timed = sorted(
        (
            (row["ended_s"] - row["started_s"], row["operation"] in cut_off)
            for row in rows
            if row["operation"] == kind or row["operation"] in cut_off
        ),
        key=lambda one: (one[0], one[1]),
    )
    ends = sorted(row["ended_s"] - row["started_s"] for row in rows if row["operation"] in never)
    weights = [1.0] * (len(timed) + len(ends))
    for place, (_, is_cut_off) in enumerate(timed):
        right = len(weights) - place - 1
        if is_cut_off and right:
            share = weights[place] / right
            weights[place] = 0.0
            for other in range(place + 1, len(weights)):
                weights[other] += share
    wanted, gone = part * len(weights) - 1e-6, 0.0
    for place, weight in enumerate(weights):
        gone += weight
        if weight and gone >= wanted:
            if place < len(timed):
                return (timed[place][0], timed[place][1])
            longest = timed[-1][0] if timed else 0.0
            return max(longest, ends[place - len(timed)]), True
    return timed[-1][0], True


def median(values: Sequence[float]) -> float:
    """Return the middle of numbers, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def differs(value: float, other: float, part: float) -> bool:
    """Return whether two numbers differ by more than a part of the first."""
    return not math.isclose(value, other, rel_tol=part)
