"""Numbers and texts of files that anybody may have written: each is checked, and named if it is wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fabric.errors import ConfigError
from traffic.work.formats.trace import TraceFile

MOST_BYTES = 10**15
MOST_ID = 2**64 - 1
MOST_TIME_S = 1e6
_MOST_COUNT = 1e30
_SHOWN = 60
_MOST_DIGITS = 20
WHOLE = "; is the file whole?"
"""Where the end of a file is missing, or may be."""
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
"""A backslash of JSON, with what it stands for if that is something."""
_CUT = re.compile(r"(t(ru?)?|f(a(ls?)?)?|n(ul?)?|-|\\(u[0-9a-fA-F]{0,3})?)?")
"""What may stand at a place that is not JSON, if nothing follows."""


def shown(value: object) -> str:
    """Return a value as messages show it, cut if it is long."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def whole(value: Any, what: str, least: int = 0, most: int = MOST_ID) -> int:
    """Return a whole number, which may be a text or a float that is one. Raises ValueError, naming what it is."""
    found: int | None = None
    if isinstance(value, str) and len(value) <= _MOST_DIGITS:
        text = value.strip().removeprefix("-")
        found = int(value) if text.isascii() and text.isdigit() else None
    elif isinstance(value, float) and value.is_integer():
        found = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    if found is None or not least <= found <= most:
        raise ValueError(f"{what} {shown(value)}: must be a whole number, {least:,} to {most:,}")
    return found


def size_bytes(value: Any, what: str = "size") -> int:
    """Return a size in bytes. Raises ValueError."""
    return whole(value, what, 0, MOST_BYTES)


def seconds(value: Any, unit_s: float, what: str) -> float:
    """Return a time in seconds of one in units of ``unit_s``. Raises ValueError."""
    try:
        found = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    # Divided, so that whole nanoseconds become the float next to them.
    found = found / round(1 / unit_s) if unit_s < 1 else found * unit_s
    if not 0 <= found <= MOST_TIME_S:
        raise ValueError(f"{what} {shown(value)}: must be a time of 0 to {MOST_TIME_S:,.0f} s")
    return found


def text_of(file: TraceFile) -> str:
    """Return a file as text. Raises ConfigError if it is none."""
    try:
        return file.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            file.name, [f"byte {error.start:,}: is not UTF-8 text; give the file as it was written"]
        ) from None


def documents(file: TraceFile) -> list[Any]:
    """Return the JSON documents of a file, one after the other. Raises ConfigError.

    PyTorch's profiler writes names as they are: line breaks in them, and backslashes of paths, are read as they stand.
    """
    text = text_of(file)
    try:
        return list(_documents(text, file.name))
    except _EscapeError:
        as_meant = _BACKSLASH.sub(lambda one: one[0] if one[1] else r"\\", text)
        return list(_documents(as_meant, file.name))


class _EscapeError(ConfigError):
    """A backslash stands for itself."""


def _documents(text: str, source: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(strict=False)  # Infinity and NaN are refused by what needs a number there.
    at = _behind_space(text, 0)
    while at < len(text):
        try:
            found, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            what = f"line {error.lineno}, column {error.colno}: is not JSON: {error.msg}"
            ends = error.msg.startswith("Unterminated string") or _CUT.fullmatch(text[error.pos :].rstrip())
            if not ends and "escape" in error.msg:
                raise _EscapeError(source, [what]) from None
            raise ConfigError(source, [f"{what}{WHOLE if ends else ''}"]) from None
        except RecursionError:
            raise ConfigError(source, ["lists within lists, too many to read; this is not a trace"]) from None
        except ValueError as error:  # A number of thousands of digits.
            raise ConfigError(source, [f"holds a number that cannot be read: {error}"]) from None
        yield found
        at = _behind_space(text, end)


def _behind_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def count(value: Any, what: str) -> float:
    """Return a number of things, which may be too large to be counted exactly, as FLOPs. Raises ValueError."""
    found = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else value
    if not 0 <= found <= _MOST_COUNT:
        raise ValueError(f"{what} {shown(value)}: must be a number of 0 to {_MOST_COUNT:.0e}")
    return float(found)


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} {shown(value)}: must be an object in braces")
    return value


def sequence(value: Any, what: str) -> Sequence[Any]:
    """Return a JSON list. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(f"{what} {shown(value)}: must be a list in brackets")
    return value


def rank_list(value: Any, what: str) -> tuple[int, ...]:
    """Return ranks of a group, each once. Raises ValueError."""
    found = tuple(whole(one, what, 0, 10**6) for one in sequence(value, what))
    if len(set(found)) != len(found):
        raise ValueError(f"{what} {shown(value)}: has a rank more than once")
    return found


def first_of(faults: Sequence[str], most: int = 5) -> list[str]:
    """Return the first faults of many, and how many more there are."""
    more = [f"and {len(faults) - most:,} more of this kind"] if len(faults) > most else []
    return [*faults[:most], *more]
