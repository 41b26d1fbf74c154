"""Samples of a data set, and which of them a reader has in an epoch. Pure.

A file has its samples one after another, of log-uniform sizes, as FFRecord's format has them: none is aligned (3FS
design notes: from a few KB to several MB, "typically not 4K-aligned"). An epoch has each sample once.
"""

from __future__ import annotations

import math
import random
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from traffic.storage.load_config import SampleOrder

MOST_SAMPLES = 1_000_000
"""Samples of a data set: their places and an epoch's order take some 40 bytes each in every process of readers."""


@dataclass(frozen=True)
class SampleShape:
    """What decides where samples are: so many files of a size, and sizes of samples."""

    files: int
    file_bytes: int
    least_bytes: int
    most_bytes: int

    @property
    def mean_bytes(self) -> float:
        """The mean size of a sample."""
        low, high = self.least_bytes, self.most_bytes
        return low if low == high else (high - low) / math.log(high / low)

    @property
    def expected(self) -> float:
        """About how many samples there are."""
        return self.files * self.file_bytes / self.mean_bytes


def draw_size(least_bytes: int, most_bytes: int, rng: random.Random) -> int:
    """Return a log-uniform size."""
    size = round(math.exp(rng.uniform(math.log(least_bytes), math.log(most_bytes))))
    return min(most_bytes, max(least_bytes, size))


class SampleTable:
    """Where each sample is, by its number in the data set."""

    def __init__(self, shape: SampleShape, seed: int) -> None:
        self._ends: list[array[int]] = [_ends_in_file(shape, f"{seed}/samples of file {n}") for n in range(shape.files)]
        self._first: list[int] = [0]
        for ends in self._ends:
            self._first.append(self._first[-1] + len(ends))

    @property
    def count(self) -> int:
        """How many samples there are."""
        return self._first[-1]

    def place(self, number: int) -> tuple[int, int, int]:
        """Return a sample's file, offset and size. Raises IndexError if there is none of the number."""
        if not 0 <= number < self.count:
            raise IndexError(f"sample {number} of {self.count}")
        file = bisect_right(self._first, number) - 1
        ends, place = self._ends[file], number - self._first[file]
        offset = ends[place - 1] if place else 0
        return file, offset, ends[place] - offset


def _ends_in_file(shape: SampleShape, seed: str) -> array[int]:
    rng, found, end = random.Random(seed), array("Q"), 0
    while (end := end + draw_size(shape.least_bytes, shape.most_bytes, rng)) <= shape.file_bytes:
        found.append(end)
    return found


@lru_cache(maxsize=2)
def sample_table(shape: SampleShape, seed: int) -> SampleTable:
    """Return the table of a data set; readers of one process share it."""
    return SampleTable(shape, seed)


@lru_cache(maxsize=2)
def _shuffled(count: int, seed: int, epoch: int) -> Sequence[int]:
    order = array("Q", range(count))
    random.Random(f"{seed}/epoch {epoch}").shuffle(order)
    return order


@dataclass(frozen=True)
class ReaderPlace:
    """A reader's number among all readers, from 0, and how many there are."""

    number: int
    readers: int


def epoch_batches(
    table: SampleTable, order: SampleOrder, batch: int, place: ReaderPlace, seed: int, epoch: int
) -> Iterator[Sequence[int]]:
    """Yield the whole batches of samples, by their numbers, that a reader has in an epoch: each reader equally many,
    and none that another one has."""
    own = table.count // place.readers
    if order is SampleOrder.SHUFFLED:
        mine = _shuffled(table.count, seed, epoch)[place.number : own * place.readers : place.readers]
    else:
        mine = range(place.number * own, (place.number + 1) * own)
    for first in range(0, own - batch + 1, batch):
        yield mine[first : first + batch]


def batches_in_epoch(samples: int, batch: int, readers: int) -> int:
    """Return how many whole batches each reader has in an epoch."""
    return samples // readers // batch
