"""Parse and print rates, sizes and times as users of tc, iperf3 and fio write them.

Rates are bits per second (decimal prefixes), sizes are bytes (``KiB`` binary, ``KB`` decimal), times are seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
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


_UNKNOWN = "-"
"""What a person reads where nothing was measured, which is NaN among numbers."""


def _scaled(value: float, steps: list[tuple[float, str]]) -> str:
    if math.isnan(value):
        return _UNKNOWN
    factor, unit = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    # Three digits, but never 1e+03: all whole digits are shown.
    text = f"{value / factor:.3g}" if abs(value) / factor < 999.5 else f"{value / factor:.0f}"
    return f"{_unsigned_zero(text)} {unit}"


def _unsigned_zero(text: str) -> str:
    """Return a number as text, without a sign if nothing but zeros is left of it."""
    return text if any(digit in text for digit in "123456789") else text.lstrip("+-")


def format_rate(rate_bps: float) -> str:
    """Return a rate as a person reads it, e.g. ``20 Mbit/s``."""
    return _scaled(rate_bps, [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")])


def format_bandwidth(bytes_per_s: float) -> str:
    """Return bytes per second as a person reads them, e.g. ``0.726 MB/s``: in two units, so that columns compare."""
    if math.isnan(bytes_per_s):
        return _UNKNOWN
    factor, unit = (1e9, "GB/s") if abs(bytes_per_s) >= 1e9 else (1e6, "MB/s")
    return f"{_unsigned_zero(f'{bytes_per_s / factor:.3f}')} {unit}"


def format_size(size_bytes: float) -> str:
    """Return a size as a person reads it, e.g. ``4 MiB``."""
    return _scaled(size_bytes, [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")])


def format_time(time_s: float) -> str:
    """Return a time as a person reads it, e.g. ``1.5 ms``."""
    return _scaled(time_s, [(1, "s"), (1e-3, "ms"), (1e-6, "us")])


_EXACT = {format_rate: "bit/s", format_size: "B", format_time: "s"}


def told_apart(value: float, limit: float, form: Callable[[float], str]) -> tuple[str, str]:
    """Return a value and a limit that it is not equal to as a person reads them, both exactly where they would round to
    the same text. ``form``: :func:`format_rate`, :func:`format_size` or :func:`format_time`."""
    texts = form(value), form(limit)
    if texts[0] != texts[1]:
        return texts
    unit = _EXACT[form]
    return f"{value!r} {unit}", f"{limit!r} {unit}"


def format_share(fraction: float, digits: int = 0) -> str:
    """Return a part of a whole as a person reads it, with so many digits after the point, e.g. ``44%``."""
    return _UNKNOWN if math.isnan(fraction) else _unsigned_zero(f"{fraction:.{digits}%}")


def format_change(fraction: float, digits: int = 1) -> str:
    """Return how far something is from something else as a person reads it, e.g. ``+4.1%``; ``0.0%`` for what rounds
    to nothing, from either side."""
    return _UNKNOWN if math.isnan(fraction) else _unsigned_zero(f"{fraction:+.{digits}%}")


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
    return _scaled(number, [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1, "")]).rstrip()
