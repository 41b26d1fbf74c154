"""Where samples are, and which a reader has in an epoch."""

from __future__ import annotations

import random

import pytest

from traffic.storage.client.samples import (
    ReaderPlace,
    SampleShape,
    SampleTable,
    batches_in_epoch,
    draw_size,
    epoch_batches,
)
from traffic.storage.load_config import SampleOrder

SHAPE = SampleShape(files=5, file_bytes=100_000, least_bytes=500, most_bytes=5_000)


def epoch_of(table: SampleTable, order: SampleOrder, readers: int, epoch: int = 0, seed: int = 3) -> list[list[int]]:
    """Return what each reader reads, in its order."""
    places = (ReaderPlace(number, readers) for number in range(readers))
    return [[one for batch in epoch_batches(table, order, 4, place, seed, epoch) for one in batch] for place in places]


def test_samples_lie_one_after_another_in_each_file_and_fill_it() -> None:
    table = SampleTable(SHAPE, 1)
    places = [table.place(number) for number in range(table.count)]
    assert sorted({file for file, _, _ in places}) == list(range(SHAPE.files))
    for file in range(SHAPE.files):
        end = 0
        for _, offset, size in (place for place in places if place[0] == file):
            assert offset == end
            assert SHAPE.least_bytes <= size <= SHAPE.most_bytes
            end = offset + size
        assert SHAPE.file_bytes - SHAPE.most_bytes < end <= SHAPE.file_bytes
    assert table.count == pytest.approx(SHAPE.expected, rel=0.1)
    for number in (-1, table.count):
        with pytest.raises(IndexError, match=f"sample {number} of"):
            table.place(number)


def test_sizes_are_log_uniform() -> None:
    rng = random.Random(1)
    sizes = [draw_size(1000, 100_000, rng) for _ in range(20_000)]
    assert sum(size < 10_000 for size in sizes) / len(sizes) == pytest.approx(0.5, abs=0.02)
    assert sum(sizes) / len(sizes) == pytest.approx(SampleShape(1, 1, 1000, 100_000).mean_bytes, rel=0.03)
    assert draw_size(7, 7, rng) == 7
    assert SampleShape(1, 70, 7, 7).expected == 10


@pytest.mark.parametrize("order", SampleOrder)
@pytest.mark.parametrize("readers", [1, 3, 7])
def test_readers_share_an_epoch_evenly_and_no_sample_is_read_twice(order: SampleOrder, readers: int) -> None:
    table = SampleTable(SHAPE, 1)
    read = epoch_of(table, order, readers)
    own = batches_in_epoch(table.count, 4, readers) * 4
    assert [len(one) for one in read] == [own] * readers
    numbers = [number for one in read for number in one]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= set(range(table.count))
    assert table.count - len(numbers) < readers + readers * 4, "only what makes no whole batch is left out"


def test_a_shuffle_is_over_the_whole_data_set_and_another_one_in_each_epoch() -> None:
    table = SampleTable(SHAPE, 1)
    first, again, second = (epoch_of(table, SampleOrder.SHUFFLED, 3, epoch) for epoch in (0, 0, 1))
    assert first == again
    assert first != second
    assert epoch_of(table, SampleOrder.SHUFFLED, 3, seed=4) != first
    for mine in first:
        assert {table.place(number)[0] for number in mine} == set(range(SHAPE.files)), "from all files"


def test_in_order_each_reader_has_a_part_of_its_own() -> None:
    table = SampleTable(SHAPE, 1)
    for number, mine in enumerate(epoch_of(table, SampleOrder.IN_ORDER, 3)):
        first = number * (table.count // 3)
        assert mine == list(range(first, first + len(mine)))
