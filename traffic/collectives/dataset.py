"""The data of a collective: every rank's input buffers, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, overload

import numpy as np
import numpy.typing as npt

from traffic.collectives.elements import Dtype, Elements, add

_BLOCK_ELEMENTS = 4096
"""One call for all rows takes 8 us instead of 20 us (8 rows of 4,096 elements), but 265 us instead of 180 us for
rows of 65,536: blocks stay within the L1 cache."""


_LARGEST_VALUE = 1023


class Buffer(Protocol):
    """Elements to be read piece by piece; an array is one."""

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return the elements from ``piece.start`` to ``piece.stop``, read-only."""


@dataclass(frozen=True)
class PeriodicBuffer:
    """A buffer of any length: element i is ``stored[(first + i) % period]``.

    ``stored`` goes on past its period by the longest piece that is asked for, so that every piece is a view.
    """

    stored: Elements
    period: int
    first: int

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return a view. Raises ValueError for a piece longer than the dataset was made for."""
        start = (piece.start + self.first) % self.period
        stop = start + piece.stop - piece.start
        if stop > self.stored.size:
            raise ValueError(f"a piece of {piece.stop - piece.start} elements: the dataset was made for shorter ones")
        return self.stored[start:stop]


class ShiftedBuffers(Sequence[Buffer]):
    """A rank's buffers: one series, of which each begins a place after the one before it."""

    def __init__(self, stored: Elements, period: int, first: int, count: int) -> None:
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

    def sum_into(self, piece: slice, out: Elements) -> None:
        """Add up a piece of all buffers, element by element, block by block."""
        if out.itemsize < 4:  # NumPy's reduction takes up to ten times as long for these types.
            _add_up(self._buffers, piece, out)
            return
        start = (piece.start + self._first) % self._period
        for first in range(0, out.size, _BLOCK_ELEMENTS):
            block = out[first : first + _BLOCK_ELEMENTS]
            np.add.reduce(self._rows[:, start + first : start + first + block.size], axis=0, out=block)


@dataclass(frozen=True)
class SumOfBuffers:
    """The sum of some buffers, added up where it is read."""

    buffers: Sequence[Buffer]
    dtype: Dtype

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return the sums of a piece."""
        out = np.empty(piece.stop - piece.start, self.dtype.numpy)
        _add_up(self.buffers, piece, out)
        return out


def adder_of(buffers: Sequence[Buffer]) -> Callable[[slice, Elements], None]:
    """Return what adds up a piece of all buffers into an array of its length."""
    return buffers.sum_into if isinstance(buffers, ShiftedBuffers) else partial(_add_up, buffers)


def _add_up(buffers: Sequence[Buffer], piece: slice, out: Elements) -> None:
    first, *others = buffers
    out[:] = first[piece]
    for buffer in others:
        add(out, buffer[piece], out)


@dataclass(frozen=True)
class DatasetShape:
    """How many ranks have how many buffers, of how many elements of a type."""

    ranks: int
    buffers_per_rank: int
    elements: int
    dtype: Dtype = Dtype.FP32


@dataclass(frozen=True)
class Dataset:
    """The input buffers of all ranks and their expected sum, as two files that every rank maps.

    Values are whole numbers, so small that sums are exact in any order in their type. Where even ones are too large for
    as many buffers, most values are zeros. All buffers are one random series, each begun a place further than the last
    one, so no two can stand in for one another unnoticed: 24 nodes of 8 GPUs share one buffer's memory. The series
    repeats after 120,011 elements, so a large allreduce touches little more memory than that; its period is a prime
    number, so that all chunks of a buffer differ, whatever their size.
    """

    directory: Path
    shape: DatasetShape
    period: int

    _LONGEST_PERIOD = 120_011

    @classmethod
    def write(cls, directory: Path, shape: DatasetShape, seed: int, longest_piece: int) -> Dataset:
        """Return a dataset written under ``directory``, to be read in pieces of up to ``longest_piece`` elements."""
        buffers, dtype = shape.ranks * shape.buffers_per_rank, shape.dtype
        period = min(shape.elements + buffers - 1, cls._LONGEST_PERIOD)
        series = series_of(period, buffers, dtype.exact_up_to, seed)
        running = np.concatenate([[0], np.cumsum(np.concatenate([series, np.resize(series, buffers - 1)]))])
        sums = running[buffers:] - running[:-buffers]
        dataset = cls(directory, shape, period)
        stored = period + min(longest_piece, shape.elements) + shape.buffers_per_rank
        np.resize(series, stored).astype(dtype.numpy).tofile(dataset._series_path)
        np.resize(sums, stored).astype(dtype.numpy).tofile(dataset._expected_path)
        return dataset

    @property
    def files(self) -> tuple[Path, Path]:
        """The two files."""
        return self._series_path, self._expected_path

    @property
    def _series_path(self) -> Path:
        return self.directory / f"series.{self.shape.dtype.value}"

    @property
    def _expected_path(self) -> Path:
        return self.directory / f"expected.{self.shape.dtype.value}"

    def inputs(self, rank: int) -> ShiftedBuffers:
        """Return a rank's buffers, ``buffers_per_rank`` of ``elements`` each."""
        each = self.shape.buffers_per_rank
        return ShiftedBuffers(self._mapped(self._series_path), self.period, rank * each, each)

    def expected(self) -> Buffer:
        """Return the sum of all buffers of all ranks, of ``elements``."""
        return PeriodicBuffer(self._mapped(self._expected_path), self.period, 0)

    def sums_of(self, groups: Iterable[Sequence[int]]) -> list[Buffer]:
        """Return, for each group of ranks, the sum of all their buffers; of one buffer, that itself."""
        series = self._mapped(self._series_path)  # Once: each mapping is one of the process's, which are not many.
        return [self.expected() if len(ranks) == self.shape.ranks else self._sum_of(ranks, series) for ranks in groups]

    def _sum_of(self, ranks: Sequence[int], series: Elements) -> Buffer:
        each = self.shape.buffers_per_rank
        numbers = (rank * each + place for rank in ranks for place in range(each))
        buffers = [PeriodicBuffer(series, self.period, number) for number in numbers]
        return buffers[0] if len(buffers) == 1 else SumOfBuffers(buffers, self.shape.dtype)

    def _mapped(self, path: Path) -> Elements:
        return np.asarray(np.memmap(path, dtype=self.shape.dtype.numpy, mode="r"))


def series_of(period: int, buffers: int, exact_up_to: int, seed: int) -> npt.NDArray[np.int64]:
    """Return random whole numbers, of which any ``buffers`` in a row, also across the end, add up to ``exact_up_to`` at
    most. If not even ones may be everywhere, there is one in each stretch of as many as it takes."""
    random = np.random.default_rng(seed)
    largest = min(_LARGEST_VALUE, exact_up_to // buffers)
    if largest:
        return random.integers(0, largest, period, endpoint=True)
    # As many in a row touch a stretch more than they have the length of, and at the end of the series one more.
    length = -(-buffers // (exact_up_to - 2))
    series = np.zeros(period, np.int64)
    firsts = np.arange(0, period, length)
    series[np.minimum(firsts + random.integers(0, length, firsts.size), period - 1)] = 1
    return series


def pieces(start: int, stop: int, length: int) -> Iterator[slice]:
    """Yield the slices of at most ``length`` that cover ``start`` to ``stop`` in order; none if it is empty."""
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))
