"""What figures over runs say at their axes: keys and metrics in words, and values that are numbers at their places."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fabric.metrics import UNITS, is_fraction, unit_end, without_unit
from fabric.units import format_rate, format_size, format_time, parse_rate_bps, parse_size_bytes, parse_time_s

_NUMBER = re.compile(r"^[+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?$")
_LEAST_FACTOR, _LEAST_VALUES = 1.9, 3
"""From how many values on, each so many times the one before it, an axis is logarithmic."""


def _plain(text: str) -> float:
    if not _NUMBER.match(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


_KINDS: tuple[tuple[Callable[[str], float], Callable[[float], str] | None], ...] = (
    (_plain, None),
    (parse_size_bytes, format_size),
    (parse_rate_bps, format_rate),
    (parse_time_s, format_time),
)
"""How values of an axis are read, if all are of one kind, and written with their units."""


@dataclass(frozen=True)
class AxisPlaces:
    """Where values of an axis are, each at the place of its text; ``are_numbers``: at their numbers, else one after the
    other, and nothing lies between them. ``form``: writes a number with its unit; None for plain ones."""

    of: dict[str, float]
    are_numbers: bool
    form: Callable[[float], str] | None = None

    @property
    def double(self) -> bool:
        """Whether each value is about twice as large as the one before it, or more: then a logarithmic axis is even."""
        values = sorted(set(self.of.values()))
        pairs = itertools.pairwise(values)
        return (
            self.are_numbers
            and len(values) >= _LEAST_VALUES
            and values[0] > 0
            and all(later / earlier >= _LEAST_FACTOR for earlier, later in pairs)
        )


def places_of(values: Sequence[str]) -> AxisPlaces:
    """Return where values of an axis are: at their numbers if all are of one kind, such as sizes."""
    distinct = list(dict.fromkeys(values))
    for read, form in _KINDS:
        try:
            return AxisPlaces({text: float(read(text)) for text in distinct}, True, form)
        except ValueError:
            continue
    return AxisPlaces({text: float(place) for place, text in enumerate(distinct)}, False)


def key_words(key: str) -> str:
    """Return a key of a config in words: ``queues.lanes.storage.share`` is ``share of storage, lanes``."""
    *parts, name = key.split(".")
    of = [part for part in parts[-1:-3:-1] if part]
    return _words(name) + (f" of {', '.join(map(_words, of))}" if of else "")


def metric_words(path: str) -> str:
    """Return a metric in words, with its unit: ``lanes.hfreduce.algbw_Bps`` is ``algbw of hfreduce, lanes (B/s)``."""
    *parts, name = path.split(".")
    unit = "fraction" if is_fraction(name) else UNITS.get(unit_end(name), "number")
    of = f" of {', '.join(map(_words, reversed(parts)))}" if parts else ""
    return f"{_words(without_unit(name))}{of} ({unit})"


def _words(name: str) -> str:
    return name.strip("{}").replace("_", " ")
