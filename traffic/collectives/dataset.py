"""The data of an allreduce: every rank's input buffers, the expected sum, and the check of a result against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt

from fabric.errors import TrafficError

Floats = npt.NDArray[np.float32]

ELEMENT_BYTES = 4
_BLOCK_ELEMENTS = 4096
"""Numpy adds up the rows of a matrix more than twice as fast in one call as in one a row, if the sum fits into the
first cache: 8 rows of 4,096 elements in 8 us for 20; of 65,536 elements at once in 265 us for 180."""


class Buffer(Protocol):
    """Elements to be read piece by piece; an array is one."""

    def __getitem__(self, piece: slice, /) -> Floats:
        """Return the elements from ``piece.start`` to ``piece.stop``, read-only."""


@dataclass(frozen=True)
class PeriodicBuffer:
    """A buffer of any length: element i is ``stored[(first + i) % period]``.

    ``stored`` goes on past its period by the longest piece that is asked for, so that every piece is a view.
    """

    stored: Floats
    period: int
    first: int

    def __getitem__(self, piece: slice, /) -> Floats:
        """Return a view. Raises ValueError for a piece longer than the dataset was made for."""
        start = (piece.start + self.first) % self.period
        stop = start + piece.stop - piece.start
        if stop > self.stored.size:
            raise ValueError(f"a piece of {piece.stop - piece.start} elements: the dataset was made for shorter ones")
        return self.stored[start:stop]


class ShiftedBuffers(Sequence[Buffer]):
    """A rank's buffers: one series, of which each begins a place after the one before it."""

    def __init__(self, stored: Floats, period: int, first: int, count: int) -> None:
        self._buffers = [PeriodicBuffer(stored, period, first + place) for place in range(count)]
        self._period, self._first = period, first
        shape, strides = (count, stored.size - count + 1), stored.strides * 2
        self._rows = np.lib.stride_tricks.as_strided(stored, shape, strides, writeable=False)

    def __len__(self) -> int:
        return len(self._buffers)

    @overload
    def __getitem__(self, place: int) -> Buffer: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Buffer]: ...

    def __getitem__(self, place: int | slice) -> Buffer | Sequence[Buffer]:
        return self._buffers[place]

    def sum_into(self, piece: slice, out: Floats) -> None:
        """Add up a piece of all buffers, element by element, block by block."""
        start = (piece.start + self._first) % self._period
        for first in range(0, out.size, _BLOCK_ELEMENTS):
            block = out[first : first + _BLOCK_ELEMENTS]
            np.add.reduce(self._rows[:, start + first : start + first + block.size], axis=0, out=block)


def adder_of(buffers: Sequence[Buffer]) -> Callable[[slice, Floats], None]:
    """Return what adds up a piece of all buffers into an array of its length."""
    return buffers.sum_into if isinstance(buffers, ShiftedBuffers) else partial(_add_up, buffers)


def _add_up(buffers: Sequence[Buffer], piece: slice, out: Floats) -> None:
    first, *others = buffers
    out[:] = first[piece]
    for buffer in others:
        np.add(out, buffer[piece], out=out)


@dataclass(frozen=True)
class Dataset:
    """The input buffers of all ranks and their expected sum, as two files that every rank maps.

    Values are whole numbers, so that float32 sums are exact in any order. All buffers are one random series, each begun
    a place further than the last one, so no two can stand in for one another unnoticed: 24 nodes of 8 GPUs share one
    buffer's memory. The series repeats after 480 kB, so a large allreduce touches little more memory than that; its
    period is a prime number of elements, so that all chunks of a buffer differ, whatever their size.
    """

    directory: Path
    ranks: int
    buffers_per_rank: int
    elements: int
    period: int

    _LARGEST_VALUE = 1023
    _EXACT_FLOAT32 = 2**24
    _LONGEST_PERIOD = 120_011

    @classmethod
    def write(
        cls, directory: Path, ranks: int, buffers_per_rank: int, elements: int, seed: int, longest_piece: int
    ) -> Dataset:
        """Return a dataset written under ``directory``, to be read in pieces of up to ``longest_piece`` elements.

        Raises TrafficError if its sums would not be exact.
        """
        buffers = ranks * buffers_per_rank
        if buffers * cls._LARGEST_VALUE >= cls._EXACT_FLOAT32:
            limit = cls._EXACT_FLOAT32 // cls._LARGEST_VALUE
            raise TrafficError(f"{buffers} buffers: float32 sums are exact up to {limit}; use fewer ranks or GPUs")
        period = min(elements + buffers - 1, cls._LONGEST_PERIOD)
        series = np.random.default_rng(seed).integers(0, cls._LARGEST_VALUE, period, endpoint=True)
        running = np.concatenate([[0], np.cumsum(np.concatenate([series, np.resize(series, buffers - 1)]))])
        sums = running[buffers:] - running[:-buffers]
        dataset = cls(directory, ranks, buffers_per_rank, elements, period)
        stored = period + min(longest_piece, elements) + buffers_per_rank
        np.resize(series, stored).astype(np.float32).tofile(dataset._series_path)
        np.resize(sums, stored).astype(np.float32).tofile(dataset._expected_path)
        return dataset

    @property
    def _series_path(self) -> Path:
        return self.directory / "series.f32"

    @property
    def _expected_path(self) -> Path:
        return self.directory / "expected.f32"

    def inputs(self, rank: int) -> ShiftedBuffers:
        """Return a rank's buffers, ``buffers_per_rank`` of ``elements`` each."""
        first = rank * self.buffers_per_rank
        return ShiftedBuffers(_mapped(self._series_path), self.period, first, self.buffers_per_rank)

    def expected(self) -> Buffer:
        """Return the sum of all buffers of all ranks, of ``elements``."""
        return PeriodicBuffer(_mapped(self._expected_path), self.period, 0)


def _mapped(path: Path) -> Floats:
    return np.asarray(np.memmap(path, dtype=np.float32, mode="r"))


class SumCheck:
    """Compares a rank's result with the expected sum, every element of it, as its pieces are finished."""

    def __init__(self, expected: Buffer, elements: int) -> None:
        self._expected = expected
        self._elements = elements
        self._who = ""
        self._checked: list[tuple[int, int]] = []

    def begin(self, who: str) -> None:
        """Begin a result, which messages will call ``who``."""
        self._who = who
        self._checked = []

    def piece(self, piece: slice, found: Floats) -> None:
        """Check a piece. Raises TrafficError naming its first element that is not as expected."""
        expected = self._expected[piece]
        if not np.logical_and.reduce(found == expected):
            wrong = np.flatnonzero(found != expected)
            first = int(wrong[0])
            raise TrafficError(
                f"{self._who}: element {piece.start + first} of {self._elements} is {found[first]:g}, expected "
                f"{expected[first]:g} ({len(wrong)} wrong elements in its chunk); the sum is not to be trusted"
            )
        self._checked.append((piece.start, piece.stop))

    def end(self) -> None:
        """Raise TrafficError unless every element was checked, and once."""
        reached = 0
        for start, stop in sorted(self._checked):
            if start != reached:
                break
            reached = stop
        if reached != self._elements or sum(stop - start for start, stop in self._checked) != self._elements:
            raise TrafficError(
                f"{self._who}: the result from element {reached} of {self._elements} on did not come, or came twice"
            )


def pieces(start: int, stop: int, length: int) -> Iterator[slice]:
    """Yield the slices of at most ``length`` that cover ``start`` to ``stop`` in order; none if it is empty."""
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))
