"""Arrays of numbers as bytes that JavaScript reads as typed arrays, small: in the least type that holds them, zipped.

A cumulative counter is packed as its first row and its growth from row to row, which has few digits.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_KINDS = ("u1", "i1", "u2", "i2", "u4", "i4")
"""Little-endian types of whole numbers, the least first; what none of them holds is ``f8``, exact up to 2^53."""
_LEVEL = 5
_GZIP = 31  # What zlib calls gzip's format with its longest window.


@dataclass(frozen=True)
class Packed:
    """An array as gzip of its bytes, row by row."""

    kind: str
    shape: tuple[int, ...]
    zipped: bytes

    def described(self, where: str) -> dict[str, Any]:
        """Return what a page must know to read it from ``where``."""
        return {"kind": self.kind, "shape": list(self.shape), "blob": where}


def kind_for(values: npt.NDArray[Any]) -> str:
    """Return the least type that holds all values exactly."""
    if values.dtype.kind == "f":
        return "f8"
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for kind in _KINDS:
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return kind
    return "f8"


def packed(values: npt.NDArray[Any], level: int = _LEVEL) -> Packed:
    """Return an array as bytes."""
    kind = kind_for(values)
    return Packed(kind, values.shape, zipped(values.astype(f"<{kind}").tobytes(), level))


def zipped(content: bytes, level: int = _LEVEL) -> bytes:
    """Return bytes in gzip's format, without a date."""
    compressor = zlib.compressobj(level, zlib.DEFLATED, _GZIP)
    return compressor.compress(content) + compressor.flush()


def json_bytes(values: Any) -> bytes:
    """Return values as compact JSON."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()


def growth(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first row of counters, and by how much each grew from row to row (one row less)."""
    return values[:1], np.diff(values, axis=0)
