from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.storage.chains import ChunkId
from traffic.storage.service.resync import ChunkState, ResyncPlan, Why, after_resync, plan_resync

MIB = 1 << 20
CHUNK = ChunkId(1, 0)


def state(updated: int = 5, committed: int | None = None, chain: int = 3, checksum: int = 9) -> ChunkState:
    return ChunkState(updated, updated if committed is None else committed, chain, checksum, MIB)


def why(ours: ChunkState | None, theirs: ChunkState | None, chain_version: int = 4) -> Why:
    here = {CHUNK: ours} if ours else {}
    there = {CHUNK: theirs} if theirs else {}
    (found,) = plan_resync(here, there, chain_version).reasons
    return found


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        (state(), None, Why.MISSING_THERE),
        (None, state(), Why.MISSING_HERE),
        (state(), state(), Why.SAME),
        (state(6, chain=4), state(5, chain=3), Why.OLDER_CHAIN_THERE),
        (state(5), state(6, 5), Why.PENDING_THERE),
        (state(6, 5), state(6, 5), Why.PENDING_THERE),
        (state(6, 5, chain=3), state(6, chain=4), Why.BEING_WRITTEN),
        (state(6, 5, chain=4), state(5, chain=4), Why.BEING_WRITTEN),
        (state(7, chain=4), state(6, chain=4), Why.BEING_WRITTEN),
        (state(7, 6, chain=3), state(6, chain=3), Why.BEING_WRITTEN),
        (state(5, chain=3), state(5, chain=4), Why.NEWER_CHAIN_THERE),
        (state(5, chain=3), state(6, chain=3), Why.OTHER_VERSION_THERE),
        (state(checksum=1), state(checksum=2), Why.OTHER_DATA_THERE),
        (state(checksum=1, chain=4), state(checksum=2, chain=4), Why.BEING_WRITTEN),
    ],
)
def test_what_is_found_of_a_chunk(ours: ChunkState | None, theirs: ChunkState | None, found: Why) -> None:
    assert why(ours, theirs) is found


def test_a_fork_sends_nothing_and_names_the_chunks() -> None:
    here = {ChunkId(1, index): state() for index in range(3)}
    plan = plan_resync(here, {ChunkId(1, 2): state(chain=9)}, 4)
    assert plan.forked == (ChunkId(1, 2),)
    assert plan.size_bytes == 0
    assert plan.reasons == {Why.MISSING_THERE: 2, Why.NEWER_CHAIN_THERE: 1}


def test_the_bytes_are_those_of_what_was_written_meanwhile() -> None:
    """200 chunks; while the target is away 30 are written, some often, 12 are new and 7 are removed."""
    there = {ChunkId(1, index): state(chain=1, checksum=index) for index in range(200)}
    here = dict(there)
    for index in range(30):
        here[ChunkId(1, index)] = state(6 + index % 3, chain=2, checksum=1000 + index)
    here |= {ChunkId(2, index): state(1, chain=2) for index in range(12)}
    for index in range(190, 197):
        del here[ChunkId(1, index)]
    plan = plan_resync(here, there, chain_version=3)
    assert plan.size_bytes == (30 + 12) * MIB
    assert len(plan.removes) == 7
    again = plan_resync(here, after_resync(here, there, plan), 3)
    assert (again.size_bytes, again.removes) == (0, ())
    assert again.reasons == {Why.SAME: len(here)}


def test_an_empty_disk_is_filled_whole() -> None:
    here = {ChunkId(1, index): state() for index in range(50)}
    assert plan_resync(here, {}, 4).size_bytes == 50 * MIB


states = st.builds(
    lambda committed, pending, chain, checksum: ChunkState(committed + pending, committed, chain, checksum, MIB),
    st.integers(1, 3),
    st.integers(0, 1),
    st.integers(1, 3),
    st.integers(0, 1),
)
sides = st.dictionaries(st.builds(ChunkId, st.just(1), st.integers(0, 5)), states)


@settings(max_examples=200)
@given(sides, sides)
def test_a_resync_leaves_nothing_for_a_second_one(
    here: dict[ChunkId, ChunkState], there: dict[ChunkId, ChunkState]
) -> None:
    """With nothing pending here, as between writes; unless the two have forked."""
    here = {chunk: one._replace(updated=one.committed) for chunk, one in here.items()}
    plan = plan_resync(here, there, 3)
    assert isinstance(plan, ResyncPlan)
    assert sum(plan.reasons.values()) == len({*here, *there})
    if plan.forked:
        assert not plan.writes
        return
    again = plan_resync(here, after_resync(here, there, plan), 3)
    assert again.size_bytes == 0
    assert again.removes == ()
    assert Counter(again.reasons).keys() <= {Why.SAME, Why.BEING_WRITTEN}
