"""What an allreduce adds up: every rank's input buffers, the expected sum, and the check of a result against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fabric.errors import TrafficError

Floats = npt.NDArray[np.float32]

ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Dataset:
    """The input buffers of all ranks and their expected sum, as two files that every rank maps.

    Values are whole numbers, so that float32 sums are exact in any order. Each buffer is a window of ``elements`` into
    one random series, a place further than the last one's: 24 nodes of 8 GPUs then share one buffer's memory, and no
    two buffers, chunks or elements can stand in for one another unnoticed.
    """

    directory: Path
    ranks: int
    buffers_per_rank: int
    elements: int

    _LARGEST_VALUE = 1023
    _EXACT_FLOAT32 = 2**24

    @classmethod
    def write(cls, directory: Path, ranks: int, buffers_per_rank: int, elements: int, seed: int) -> Dataset:
        """Return a dataset written under ``directory``. Raises TrafficError if its sums would not be exact."""
        buffers = ranks * buffers_per_rank
        if buffers * cls._LARGEST_VALUE >= cls._EXACT_FLOAT32:
            limit = cls._EXACT_FLOAT32 // cls._LARGEST_VALUE
            raise TrafficError(f"{buffers} buffers: float32 sums are exact up to {limit}; use fewer ranks or GPUs")
        series = np.random.default_rng(seed).integers(0, cls._LARGEST_VALUE, elements + buffers - 1, endpoint=True)
        running = np.concatenate([[0], np.cumsum(series)])
        dataset = cls(directory, ranks, buffers_per_rank, elements)
        series.astype(np.float32).tofile(dataset._series_path)
        (running[buffers:] - running[:-buffers]).astype(np.float32).tofile(dataset._expected_path)
        return dataset

    @property
    def _series_path(self) -> Path:
        return self.directory / "series.f32"

    @property
    def _expected_path(self) -> Path:
        return self.directory / "expected.f32"

    def inputs(self, rank: int) -> tuple[Floats, ...]:
        """Return a rank's buffers, ``buffers_per_rank`` of shape (elements,), read-only."""
        series = _mapped(self._series_path)
        first = rank * self.buffers_per_rank
        return tuple(series[start : start + self.elements] for start in range(first, first + self.buffers_per_rank))

    def expected(self) -> Floats:
        """Return the sum of all buffers of all ranks, of shape (elements,), read-only."""
        return _mapped(self._expected_path)


def _mapped(path: Path) -> Floats:
    return np.asarray(np.memmap(path, dtype=np.float32, mode="r"))


def verify(result: Floats, expected: Floats, who: str) -> None:
    """Raise TrafficError naming ``who`` and the first element of ``result`` that is not as expected."""
    if np.array_equal(result, expected):
        return
    wrong = np.flatnonzero(result != expected)
    first = int(wrong[0])
    raise TrafficError(
        f"{who}: element {first} of {len(expected)} is {result[first]:g}, expected {expected[first]:g} "
        f"({len(wrong)} wrong elements); the sum is not to be trusted"
    )


def pieces(start: int, stop: int, length: int) -> Iterator[slice]:
    """Yield the slices of at most ``length`` that cover ``start`` to ``stop`` in order; none if it is empty."""
    for first in range(start, stop, length):
        yield slice(first, min(first + length, stop))
