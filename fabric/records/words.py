"""Words of numbers: the one place that writes what cells of tables hold.

A number is written by its form, a text that a result can keep beside it:

``time`` ``rate`` ``bandwidth`` ``size`` ``decimal``
    in the unit that fits, as :mod:`fabric.units` has it
``,.0f`` ``.1%`` ``+.1%``
    as Python's format has it; without one, four digits, and whole numbers all of theirs
``.2f GB/s`` ``.2f x`` ``.0f chunks``
    in a unit, with its name
``.2f in GiB/s``
    in a unit, without its name, which the head of the column has
"""

from __future__ import annotations

import math
import re
from functools import cache

from fabric.metrics import is_fraction, unit_of
from fabric.units import BANDWIDTH, DECIMAL, RATE, SIZE, TIME, UNKNOWN, Scale

SCALES = {"time": TIME, "rate": RATE, "bandwidth": BANDWIDTH, "size": SIZE, "decimal": DECIMAL}
_FORM = re.compile(r"(?P<spec>(?:[+]?,?(?:\.\d+)?[fg%])?)(?: (?P<unnamed>in )?(?P<unit>\S.*))?")
_UNITS = {
    "bit/s": {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9},
    "B/s": {
        "B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "KiB/s": 2.0**10, "MiB/s": 2.0**20,
        "GiB/s": 2.0**30,
    },
    "B": {"B": 1.0, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "1/s": {"1/s": 1.0},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0},
}  # fmt: skip
_FORM_BY_UNIT = {"s": "time", "B": "size", "B/s": "bandwidth", "bit/s": "rate", "1/s": ",.0f"}


@cache
def scale_of(form: str) -> Scale:
    """Return in which units a form writes a number, and with which digits. Raises ValueError for other texts."""
    if form in SCALES:
        return SCALES[form]
    parts = _FORM.fullmatch(form)
    if parts is None:
        raise ValueError(f"unknown form {form!r} of a number; use {', '.join(SCALES)}, '.2f', '.1%' or '.2f GB/s'")
    name = parts["unit"] or ""
    unit, factor = next(((unit, units[name]) for unit, units in _UNITS.items() if name in units), ("1", 1.0))
    return Scale(unit, ((factor, "" if parts["unnamed"] else name),), parts["spec"])


def form_for(name: str) -> str:
    """Return the form of a measure by its name, which has its unit at its end."""
    return ".1%" if is_fraction(name) else _FORM_BY_UNIT.get(unit_of(name), "")


def number_words(
    value: float, form: str, bound: str = "", interval: tuple[float | None, float | None] = (None, None)
) -> str:
    """Return a number by its form: ``1.5 ms``, ``> 1.5 ms`` with a bound, ``1.5 ms [1.4, 1.7]`` with an interval,
    unless both its ends read as the number does; a dash for NaN."""
    if math.isnan(value):
        return UNKNOWN
    scale = scale_of(form)
    factor, _ = scale.step_of(value)
    ends = [scale.digits(end, factor) for end in interval if end is not None]
    shown = f" [{', '.join(ends)}]" if set(ends) - {scale.digits(value, factor)} else ""
    return f"{bound} {scale.words(value)}{shown}".lstrip()
