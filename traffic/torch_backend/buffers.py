"""Arrays as what schedules read pieces of and write pieces into: at a place of the whole, or several in a row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from traffic.collectives.elements import Elements


@dataclass(frozen=True)
class NumpyType:
    """A type of elements by NumPy's."""

    numpy: np.dtype[Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of an element."""
        return self.numpy.itemsize


class ArraysInRow:
    """Arrays of one type, each of shape (elements,); the first begins at element ``first`` of the whole."""

    def __init__(self, arrays: Sequence[Elements], first: int = 0) -> None:
        self._arrays = [one for one in arrays if one.size]
        self._starts = list(accumulate((one.size for one in self._arrays), initial=first))[:-1]

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return the elements of a piece: a view, unless it reaches over several arrays."""
        parts = [array[part] for array, part, _ in self._parts(piece)]
        if not parts:
            return np.empty(0, np.uint8)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def put(self, piece: slice, found: Elements) -> None:
        """Write a piece."""
        for array, part, place in self._parts(piece):
            array[part] = found[place : place + part.stop - part.start]

    def _parts(self, piece: slice) -> Iterator[tuple[Elements, slice, int]]:
        """Yield what is in each array: the array, the part of it, and where in the piece that begins."""
        at, number = piece.start, bisect_right(self._starts, piece.start) - 1
        while at < piece.stop:
            array, start = self._arrays[number], self._starts[number]
            stop = min(piece.stop, start + array.size)
            yield array, slice(at - start, stop - start), at - piece.start
            at, number = stop, number + 1
