"""Samples of a result as matrices: of each phase, a row per sample and a column per port and lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fabric.errors import ResultError
from fabric.results import Phase
from fabric.tables import TABLES, Column

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SAMPLED_TABLES = ("ports", "stalls")
"""The tables with a row per port, lane and sample."""


def sampled_columns() -> dict[str, Column]:
    """Return the columns of SAMPLED_TABLES that are samples of a queue."""
    return {name: column for table in SAMPLED_TABLES for name, column in TABLES[table].sampled.items()}


def labelled_columns() -> dict[str, Column]:
    """Return those that are shown wherever ports are looked into."""
    return {name: column for name, column in sampled_columns().items() if column.label}


def is_cumulative(column: str) -> bool:
    """Whether a column of SAMPLED_TABLES counts from the start of its queue."""
    return sampled_columns()[column].grows


@dataclass(frozen=True)
class Grid:
    """The samples of a phase.

    ``at_s`` (samples): seconds of the run. ``ports`` and ``lanes`` (keys): each column's, as places in the run's lists
    of ports and of lanes. ``columns``: samples x keys of each sampled column that the phase has, as the tables have
    them. ``left_out``: samples that did not tell of every key.
    """

    phase: str
    at_s: Floats
    ports: Ints
    lanes: Ints
    columns: Mapping[str, Ints]
    left_out: int = 0

    def thinned(self, step: int) -> Grid:
        """Return it with each ``step``-th sample, and always the last."""
        kept = np.unique(np.append(np.arange(0, len(self.at_s), step), len(self.at_s) - 1)) if len(self.at_s) else []
        columns = {name: values[kept] for name, values in self.columns.items()}
        return Grid(self.phase, self.at_s[kept], self.ports, self.lanes, columns, self.left_out)


def phase_of_each(at_s: Floats, phases: Sequence[Phase]) -> Ints:
    """Return the number of the phase that each time belongs to.

    The first sample of a phase is taken just before it begins, and the last just after it ends: the middle between two
    phases parts them.
    """
    middles = [(one.ended_s + other.started_s) / 2 for one, other in pairwise(phases)]
    return np.searchsorted(np.array(middles), at_s, side="right").astype(np.int64)


def grids_of(
    tables: Mapping[str, pd.DataFrame], phases: Sequence[Phase], ports: Sequence[str], lanes: Sequence[str]
) -> list[Grid]:
    """Return the samples of each phase from the tables named SAMPLED_TABLES; ports that are not known are left out.

    Raises ResultError if two rows tell of the same port, lane and time.
    """
    coded = {name: _coded(tables[name], phases, ports, lanes) for name in SAMPLED_TABLES}
    return [_grid(number, phase.name, coded) for number, phase in enumerate(phases)]


def _coded(
    frame: pd.DataFrame, phases: Sequence[Phase], ports: Sequence[str], lanes: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return a table's columns with numbers for names, in order of phase, time, port and lane."""
    at_s = frame["at_s"].to_numpy(dtype=float)
    port, lane = (_numbers(frame[name], known) for name, known in (("port", ports), ("lane", lanes)))
    phase = phase_of_each(at_s, phases)
    known = (port >= 0) & (lane >= 0)
    order = np.lexsort((lane, port, at_s, phase))
    order = order[known[order]]
    columns = {name: frame[name].to_numpy()[order] for name in frame.columns if name in sampled_columns()}
    return {"phase": phase[order], "at_s": at_s[order], "port": port[order], "lane": lane[order], **columns}


def _numbers(column: pd.Series[Any], known: Sequence[str]) -> Ints:
    """Return the place of each name in ``known``, -1 if it is not there."""
    names = column.astype("category").cat
    place = {name: number for number, name in enumerate(known)}
    of_code = np.array([*(place.get(str(name), -1) for name in names.categories), -1], dtype=np.int64)
    return of_code[names.codes.to_numpy()]


def _grid(number: int, name: str, coded: Mapping[str, Mapping[str, npt.NDArray[Any]]]) -> Grid:
    carried = _of_phase(coded["ports"], number)
    at_s, begins = np.unique(carried["at_s"], return_index=True)
    counts = np.diff(np.append(begins, len(carried["at_s"])))
    keys = int(counts.max(initial=0))
    if not keys:
        none = np.zeros(0, np.int64)
        return Grid(name, np.zeros(0), none, none, {})
    whole = counts == keys
    first = int(begins[whole][0])
    ports, lanes = (carried[part][first : first + keys] for part in ("port", "lane"))
    rows = np.repeat(whole, counts)
    columns = {
        column: values[rows].reshape(-1, keys).astype(np.int64)
        for column, values in carried.items()
        if column in sampled_columns()
    }
    _verify_same(name, carried, rows, ports, lanes)
    grid = Grid(name, at_s[whole], ports, lanes, columns, int((~whole).sum()))
    return _with_others(grid, _of_phase(coded["stalls"], number))


def _verify_same(
    name: str, carried: Mapping[str, npt.NDArray[Any]], rows: npt.NDArray[np.bool_], ports: Ints, lanes: Ints
) -> None:
    """Raise ResultError unless all whole samples tell of the same ports and lanes."""
    same = all(
        (carried[part][rows].reshape(-1, len(expected)) == expected).all() for part, expected in
        (("port", ports), ("lane", lanes))
    )  # fmt: skip
    if not same or len(set(zip(ports.tolist(), lanes.tolist(), strict=True))) < len(ports):
        raise ResultError(
            f"table ports: samples of phase {name} have different ports and lanes; the file may be of several runs"
        )


def _of_phase(coded: Mapping[str, npt.NDArray[Any]], number: int) -> dict[str, npt.NDArray[Any]]:
    begin, end = np.searchsorted(coded["phase"], [number, number + 1])
    return {name: values[begin:end] for name, values in coded.items()}


def _with_others(grid: Grid, more: Mapping[str, npt.NDArray[Any]]) -> Grid:
    """Return a grid with the columns of another table; lanes and samples that it does not tell of have 0."""
    if not len(more["at_s"]) or not len(grid.at_s):
        return grid
    lanes = int(max(grid.lanes.max(), more["lane"].max())) + 1
    place = np.full((int(max(grid.ports.max(), more["port"].max())) + 1) * lanes, -1)
    place[grid.ports * lanes + grid.lanes] = np.arange(len(grid.ports))
    columns = place[more["port"] * lanes + more["lane"]]
    rows = np.minimum(np.searchsorted(grid.at_s, more["at_s"]), len(grid.at_s) - 1)
    told = (columns >= 0) & (grid.at_s[rows] == more["at_s"])
    found = dict(grid.columns)
    for name, values in more.items():
        if name in sampled_columns():
            matrix = np.zeros((len(grid.at_s), len(grid.ports)), np.int64)
            matrix[rows[told], columns[told]] = values[told]
            found[name] = matrix
    return Grid(grid.phase, grid.at_s, grid.ports, grid.lanes, found, grid.left_out)
