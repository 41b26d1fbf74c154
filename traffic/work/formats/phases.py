"""Phases of one rank with their times, as a CSV: ``layer,stream,phase,after,duration_us`` and whatever else. Reader.

``after`` names phases of the same layer by spaces, or of the one before with ``[-1]`` behind the name. Phases of one
stream follow one another. There are no bytes: all phases take their times, those of communication, too.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.ordering import CircleError, in_order
from traffic.work.formats.trace import Asked, Trace, TraceFile, ranks_of
from traffic.work.formats.values import WHOLE, first_of, seconds, shown, text_of
from traffic.work.operations import Compute

FORMAT = "phases"
NEEDED = ("layer", "stream", "phase", "after", "duration_us")
MICROSECOND_S = 1e-6
_BEFORE = "[-1]"


def is_table(lines: Sequence[str]) -> bool:
    """Whether a text that begins with these lines is a table of phases."""
    return next((_is_header(line) for line in lines if not line.startswith("#")), False)


def _is_header(line: str) -> bool:
    return set(NEEDED) <= {word.strip() for word in line.split(",")}


def read_phases(file: TraceFile, asked: Asked) -> Trace:
    """Return the graph of a table. Raises ConfigError with the lines that cannot be read."""
    numbered = [(number, line) for number, line in enumerate(text_of(file).splitlines(), 1) if not line.startswith("#")]
    rows = list(csv.DictReader(line for _, line in numbered))
    lines = [number for number, line in numbered if line.strip()][1:]
    layers = list(dict.fromkeys(str(row.get("layer")) for row in rows))
    places = {(str(row.get("layer")), str(row.get("phase")).strip()): place for place, row in enumerate(rows)}
    faults: list[str] = []
    operations: list[Compute] = []
    if len(places) < len(rows):
        faults.append("a phase is there twice in a layer; give each a name of its own")
    for line, row in zip(lines, rows, strict=False):
        try:
            operations.append(_phase(row, places, layers))
        except ValueError as error:
            faults.append(f"line {line}: {error}")
    if not rows:
        faults.append(f"has no rows{WHOLE}")
    if not faults and any(other >= place for place, one in enumerate(operations) for other in one.after):
        try:
            in_order([one.after for one in operations])
            faults.append("a phase waits for one further down; put rows in an order in which they can run")
        except CircleError as error:
            faults.append(f"lines {', '.join(str(lines[place]) for place in error.places)} wait for each other")
    if faults:
        raise ConfigError(file.name, first_of(faults))
    program = tuple(operations)
    ranks = ranks_of(asked, None, file.name)
    notes = (f"{len(program):,} phases take the time that they took: the table has no bytes",)
    return Trace(file.name, FORMAT, ranks, lambda rank: program, alike=ranks > 1, notes=notes)


def _phase(row: Mapping[str, Any], places: Mapping[tuple[str, str], int], layers: Sequence[str]) -> Compute:
    if None in row.values():
        there = sum(value is not None for value in row.values())
        raise ValueError(f"has {there} columns, and there are {len(row)}{WHOLE}")
    layer = str(row.get("layer"))
    after = []
    for word in str(row.get("after") or "").split():
        name, of = word.removesuffix(_BEFORE), layer
        if name != word:
            if layers.index(layer) == 0:
                raise ValueError(f"after {shown(word)}: is of the layer before the first")
            of = layers[layers.index(layer) - 1]
        if (of, name) not in places:
            raise ValueError(f"after {shown(word)}: layer {shown(of)} has no such phase")
        after.append(places[(of, name)])
    duration_s = seconds(row.get("duration_us"), MICROSECOND_S, "duration_us")
    return Compute(
        after=tuple(after), stream=str(row.get("stream")), name=f"{row.get('phase')} {layer}", duration_s=duration_s
    )
