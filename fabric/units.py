"""Parse and print rates, sizes and times as users of tc, iperf3 and fio write them.

Rates are bits per second (decimal prefixes), sizes are bytes (``KiB`` binary, ``KB`` decimal), times are seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

_QUANTITY = re.compile(r"^\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-zµ/]*)\s*$")

_ROUNDING = 1e-14
"""What two numbers differ by, at most, that are the same but for how they were computed."""
_MOST = 10**100
"""Of a number before its unit: products of it are still finite."""
_RATES_BPS = {
    "bit/s": 1,
    "kbit/s": 10**3,
    "Mbit/s": 10**6,
    "Gbit/s": 10**9,
    "Tbit/s": 10**12,
}
_SIZES_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_TIMES_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "h": 3600.0, "d": 86_400.0}


def _split(text: object, units: dict[str, int] | dict[str, float], kind: str, example: str) -> tuple[float, float]:
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a {kind}; write it like {example!r}")
    number, unit = match.groups()
    if unit not in units:
        what = f"unknown unit {unit!r} of a {kind}" if unit else f"a {kind} without a unit"
        raise ValueError(f"{text!r}: {what}; use one of {', '.join(units)}")
    value = float(number.replace("_", ""))
    if value > _MOST:
        raise ValueError(f"a {kind} of {len(number)} digits is more than anything has; lower it")
    return value, float(units[unit])


def parse_rate_bps(text: str | int) -> int:
    """Return bits per second from ``"20 Mbit/s"`` or a plain whole number of bit/s.

    Raises ValueError naming the text and the accepted units.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    number, unit = _split(text, _RATES_BPS, "rate", "20 Mbit/s")
    return round(number * unit)


def parse_size_bytes(text: str | int) -> int:
    """Return bytes from ``"4 MiB"`` or a plain whole number of bytes.

    Raises ValueError naming the text and the accepted units.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    number, unit = _split(text, _SIZES_BYTES, "size", "4 MiB")
    return round(number * unit)


def parse_time_s(text: str | float) -> float:
    """Return seconds from ``"50 ms"`` or a plain number of seconds.

    Raises ValueError naming the text and the accepted units.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        if isinstance(text, int) and abs(text) > _MOST:
            raise ValueError(f"a time of {len(str(text))} digits is more than anything has; lower it")
        return float(text)
    number, unit = _split(text, _TIMES_S, "time", "50 ms")
    return number * unit


UNKNOWN = "-"
"""What a person reads where nothing was measured, which is NaN among numbers."""


@dataclass(frozen=True)
class Scale:
    """Units in which a person reads a number, the largest first, each from how much on and with how much it is of the
    number's own ``unit``; ``spec``: how many digits it has in them, as Python's format has it; without one, four, and
    whole numbers all of theirs."""

    unit: str
    steps: tuple[tuple[float, str], ...]
    spec: str = ".3g"

    def step_of(self, value: float) -> tuple[float, str]:
        """Return the unit that a number is read in: how much it is, and its name."""
        return next((step for step in self.steps if abs(value) >= step[0]), self.steps[-1])

    def digits(self, value: float, factor: float) -> str:
        """Return a number in a unit that is ``factor`` of its own, without that unit's name."""
        return _unsigned_zero(f"{value / factor:{self._spec(value / factor, factor)}}")

    def _spec(self, scaled: float, factor: float) -> str:
        if not self.spec:
            return ",.0f" if abs(scaled) >= 1000 or scaled.is_integer() else ".4g"
        # Three digits, but never 1e+03: all whole digits are shown. A byte has no parts.
        is_whole = self.unit == "B" and factor == 1
        return ".0f" if self.spec == ".3g" and (abs(scaled) >= 999.5 or is_whole) else self.spec

    def words(self, value: float) -> str:
        """Return a number with its unit; a dash for NaN."""
        if math.isnan(value):
            return UNKNOWN
        factor, unit = self.step_of(value)
        return f"{self.digits(value, factor)} {unit}".rstrip()


RATE = Scale("bit/s", ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")))
BANDWIDTH = Scale("B/s", ((1e9, "GB/s"), (1e6, "MB/s")), ".3f")
SIZE = Scale("B", ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")))
TIME = Scale("s", ((1, "s"), (1e-3, "ms"), (1e-6, "us")))
DECIMAL = Scale("1", ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")))


def _unsigned_zero(text: str) -> str:
    """Return a number as text, without a sign if nothing but zeros is left of it."""
    return text if any(digit in text for digit in "123456789") else text.lstrip("+-")


def format_rate(rate_bps: float) -> str:
    """Return a rate as a person reads it, e.g. ``20 Mbit/s``."""
    return RATE.words(rate_bps)


def format_bandwidth(bytes_per_s: float) -> str:
    """Return bytes per second as a person reads them, e.g. ``0.726 MB/s``: in two units, so that columns compare."""
    return BANDWIDTH.words(bytes_per_s)


def format_size(size_bytes: float) -> str:
    """Return a size as a person reads it, e.g. ``4 MiB``."""
    return SIZE.words(size_bytes)


def format_time(time_s: float) -> str:
    """Return a time as a person reads it, e.g. ``1.5 ms``."""
    return TIME.words(time_s)


_EXACT = {format_rate: "bit/s", format_size: "B", format_time: "s"}


def format_apart(value: float, limit: float, form: Callable[[float], str]) -> tuple[str, str]:
    """Return a value and a limit that it is not equal to as a person reads them, both exactly where they would round to
    the same text. ``form``: :func:`format_rate`, :func:`format_size` or :func:`format_time`."""
    texts = form(value), form(limit)
    if texts[0] != texts[1]:
        return texts
    unit = _EXACT[form]
    return f"{value!r} {unit}", f"{limit!r} {unit}"


def format_share(fraction: float, digits: int = 0) -> str:
    """Return a part of a whole as a person reads it, with so many digits after the point, e.g. ``44%``."""
    return UNKNOWN if math.isnan(fraction) else _unsigned_zero(f"{fraction:.{digits}%}")


def format_change(fraction: float, digits: int = 1) -> str:
    """Return how far something is from something else as a person reads it, e.g. ``+4.1%``; ``0.0%`` for what rounds
    to nothing, from either side."""
    return UNKNOWN if math.isnan(fraction) else _unsigned_zero(f"{fraction:+.{digits}%}")


def exact(number: float) -> str:
    """Return a number in as few digits as tell it from every other one, e.g. ``0.2``: for names."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


def exact_in(number: float, per_unit: int) -> str:
    """Return a number in a unit of which it takes ``per_unit``, such as a time in microseconds, in as few digits as
    tell it from every other one but for rounding, e.g. ``100`` of 0.0001 in 1,000,000: for names."""
    scaled = number * per_unit
    texts = (f"{scaled:.{digits}g}" for digits in range(6, 18))
    return f"{Decimal(next(text for text in texts if math.isclose(float(text), scaled, rel_tol=_ROUNDING))):f}"


def format_decimal(number: float) -> str:
    """Return a number as a person reads it, to three digits, e.g. ``168 k``."""
    return DECIMAL.words(number)
