"""What messages between ranks have in them: bytes that follow from who sent which message, so receivers check them all.

All messages are one random series, each begun at a place of its own, so that sending takes no memory for data.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fabric.errors import TrafficError

_PERIOD = 120_011
"""A prime number, so that all pieces of a message differ, whatever their size; little, so that it stays in caches."""
_STRIDES = (7_919, 104_729, 1_299_709, 15_485_863)
"""By how much messages of the next sender, tag, number and step begin later in the series."""


class Origin(NamedTuple):
    """Which message it is: of whom, with which tag, its number there, and in which step."""

    source: int
    tag: int
    number: int
    step: int


class Payload:
    """The bytes of messages, in pieces of up to ``piece_bytes``."""

    def __init__(self, piece_bytes: int) -> None:
        self.piece_bytes = piece_bytes
        self._series = _series(piece_bytes)
        self._bytes = self._series.data

    def piece(self, origin: Origin, offset: int, size_bytes: int) -> memoryview:
        """Return the bytes of a piece, read-only."""
        start = _start(origin, offset)
        return self._bytes[start : start + size_bytes]

    def verify(self, origin: Origin, offset: int, found: npt.NDArray[np.uint8]) -> None:
        """Raise TrafficError, naming the first wrong byte, unless a piece is as it was sent."""
        start = _start(origin, offset)
        right = self._series[start : start + found.size]
        if not np.logical_and.reduce(found == right):
            wrong = np.flatnonzero(found != right)
            first = int(wrong[0])
            raise TrafficError(
                f"message {origin.number} of tag {origin.tag} from rank {origin.source} in step {origin.step}: byte "
                f"{offset + first} is {found[first]}, expected {right[first]} ({len(wrong)} wrong bytes in its piece); "
                "the result is not to be trusted"
            )


def _start(origin: Origin, offset: int) -> int:
    return (sum(part * stride for part, stride in zip(origin, _STRIDES, strict=True)) + offset) % _PERIOD


@lru_cache(maxsize=4)
def _series(piece_bytes: int) -> npt.NDArray[np.uint8]:
    """Return the series, and as much more of it as a piece needs that begins at its end. Ranks of one process share
    it."""
    once = np.random.default_rng(_PERIOD).integers(0, 256, _PERIOD, dtype=np.uint8)
    series = np.resize(once, _PERIOD + piece_bytes)
    series.flags.writeable = False
    return series
