"""The checker of histories: by examples, and beside one that tries every order."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.model.identity import NodeId, Role
from traffic.storage.chain_states import ChainState, PublicState
from traffic.storage.chains import ChunkId, Target
from traffic.storage.history import (
    MAYBE,
    Event,
    Held,
    Kind,
    chain_faults,
    commit_faults,
    misplaced,
    replica_faults,
    violations,
)
from traffic.storage.service.resync import ChunkState

CHUNK = ChunkId(0, 0)
TARGETS = tuple(Target(NodeId(Role.STORAGE, None, index), 0) for index in range(3))


def write(version: int | None, start: float, end: float = MAYBE, request: int | None = None) -> Event:
    return Event(Kind.WRITE, CHUNK, request or version or 99, version, start, end)


def read(version: int, start: float, end: float, kind: Kind = Kind.READ, request: int | None = None) -> Event:
    return Event(kind, CHUNK, version if request is None else request, version, start, end)


def relaxed(version: int, start: float, end: float) -> Event:
    return read(version, start, end, Kind.RELAXED_READ)


@pytest.mark.parametrize(
    "history",
    [
        [write(1, 0, 1), read(1, 2, 3)],
        [write(1, 0, 5), read(0, 1, 2), read(1, 3, 4)],
        [write(1, 0, 3), write(2, 1, 4), read(2, 5, 6)],
        [write(None, 0, request=1), read(0, 5, 6), read(1, 7, 8)],
        # A relaxed read sees what is pending, and a later strict one what is committed.
        [write(1, 0, 9), relaxed(1, 1, 2), read(0, 3, 4), relaxed(0, 5, 6), relaxed(1, 7, 8)],
        [read(3, 0, 1, request=0), write(4, 2, 3), read(4, 4, 5)],
    ],
)
def test_histories_that_fit(history: list[Event]) -> None:
    assert violations(history) == []


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([write(1, 0, 1), read(0, 2, 3)], "read 0x0 .* stale, after write 0x1"),
        ([write(1, 0, 5), read(1, 1, 2), read(0, 3, 4)], "read 0x0 .* stale, after read 0x1"),
        ([write(2, 0, 1), write(1, 2, 3)], "write 0x1 .* stale, after write 0x2"),
        ([write(1, 5, 6), read(1, 1, 2)], "before its write began, at 5"),
        ([read(9, 1, 2)], "never written"),
        ([write(1, 0, 1), write(1, 0, 1, request=7)], "the version is that of 0x1, too"),
        ([write(1, 0, 1), read(2, 2, 3, request=1)], "the write has version 1, too"),
        ([write(1, 0, 1), relaxed(0, 2, 3)], "relaxed_read 0x0 .* stale"),
        ([write(1, 5, 6), relaxed(1, 1, 2)], "before its write began"),
        # Pending below what was acknowledged before its write began.
        ([write(2, 0, 1), write(None, 2, request=1), relaxed(1, 0, 3)], "write 0x1 .* stale"),
    ],
)
def test_histories_that_do_not_fit(history: list[Event], fault: str) -> None:
    (found, *_) = violations(history)
    assert found.startswith("chunk 0 of file 0: ")
    assert re.search(fault, found)


def test_chunks_are_apart() -> None:
    other = Event(Kind.READ, ChunkId(0, 1), 0, 0, 2, 3)
    assert violations([write(1, 0, 1), other]) == []


def explained(history: list[Event]) -> bool:
    """The same by trying every order (Wing and Gong): of what happens at one moment, any operation that none of the
    others precedes may be next. A write has a moment from which it is pending, and one at which it is applied."""
    versions = {one.request: one.version for one in history if one.version is not None}
    writes = {one.request: versions.get(one.request) for one in history if one.kind is Kind.WRITE}
    if len(set(versions.values())) < len(versions) or any(
        one.version != versions[one.request] for one in history if one.version is not None
    ):
        return False
    if any(one.request not in writes for one in history if one.kind is not Kind.WRITE and one.request):
        return False
    items: list[tuple[str, int | None, float, float]] = []
    for one in history:
        if one.kind is Kind.WRITE:
            if (version := writes[one.request]) is None:
                continue  # Nobody knows of it.
            items.append(("pending", version, one.started_s, one.started_s))
            items.append(("write", version, one.started_s, one.ended_s))
        else:
            items.append((one.kind.value, one.version, one.started_s, one.ended_s))

    @functools.cache
    def can_go_on(left: frozenset[int], current: int, pending: frozenset[int]) -> bool:
        if all(items[one][3] == MAYBE for one in left):
            return True
        for one in left:
            if any(items[other][3] < items[one][2] for other in left):
                continue
            kind, version, _, _ = items[one]
            assert version is not None
            rest = left - {one}
            if kind == "pending":
                if version > current and can_go_on(rest, current, pending | {version}):
                    return True
            elif kind == "write":
                if version > current and version in pending and can_go_on(rest, version, pending - {version}):
                    return True
            elif is_read_of(kind, version, current, pending) and can_go_on(rest, current, pending):
                return True
        return False

    return can_go_on(frozenset(range(len(items))), 0, frozenset())


def is_read_of(kind: str, version: int, current: int, pending: frozenset[int]) -> bool:
    return current == version or (kind == "relaxed_read" and version in pending and version > current)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    count = draw(st.integers(1, 4))
    found = []
    for version in range(1, count + 1):
        start = draw(st.integers(0, 12))
        answered = draw(st.integers(0, 3)) > 0
        end = start + draw(st.integers(0, 6)) if answered else MAYBE
        found.append(write(version if answered else None, start, end, request=version))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, 14))
        kind = draw(st.sampled_from([Kind.READ, Kind.READ, Kind.RELAXED_READ]))
        found.append(read(draw(st.integers(0, count)), start, start + draw(st.integers(0, 6)), kind))
    return found


@settings(max_examples=500)
@given(histories())
def test_the_quick_answer_is_that_of_trying_every_order(history: list[Event]) -> None:
    assert (violations(history) == []) == explained(history)


def test_half_of_the_drawn_histories_fit_so_that_both_answers_are_tried() -> None:
    fits: list[bool] = []

    @settings(max_examples=300, database=None, derandomize=True)
    @given(histories())
    def look(history: list[Event]) -> None:
        fits.append(violations(history) == [])

    look()
    assert 0.1 < sum(fits) / len(fits) < 0.9


def test_a_hundred_thousand_operations_are_checked_quickly() -> None:
    events = [write(version, version * 2.0, version * 2.0 + 1) for version in range(1, 50_001)]
    events += [read(version, version * 2.0 + 1.2, version * 2.0 + 1.5) for version in range(1, 50_001)]
    assert violations(events) == []
    assert len(violations([*events, read(17, 5000, 5001)])) == 1


S, L, Y, W, O = PublicState  # noqa: E741 - serving, lastsrv, syncing, waiting, offline


def chain(version: int, *states: PublicState) -> ChainState:
    return ChainState(0, tuple(zip(TARGETS, states, strict=True)), version)


def test_who_may_not_answer_is_named() -> None:
    known = {(0, 4): chain(4, S, S, Y)}
    at = {(kind, place): Event(kind, CHUNK, 1, 1, 0, 1, TARGETS[place], (0, 4)) for kind in Kind for place in range(3)}
    found = {key for key, event in at.items() if misplaced([event], known)}
    assert found == {(Kind.WRITE, 1), (Kind.WRITE, 2), (Kind.READ, 2), (Kind.RELAXED_READ, 2)}
    assert "not serving in version 4 of chain 0" in misplaced([at[Kind.READ, 2]], known)[0]
    old = at[Kind.READ, 0]._replace(chain=(0, 9))
    assert "chain 0 has had no version 9" in misplaced([old], known)[0]
    assert misplaced([read(1, 0, 1)], {}) == []


def test_a_chain_that_jumps_or_has_other_targets_is_named() -> None:
    sound = [chain(1, S, S, S), chain(2, S, S, O), chain(3, S, S, Y)]
    assert chain_faults(sound) == []
    assert "the version before is 1" in chain_faults([sound[0], sound[2]])[0]
    assert "2 sync at once" in chain_faults([chain(1, S, Y, Y)])[0]
    others = ChainState(0, sound[1].targets[:2], 2)
    assert "other targets" in chain_faults([sound[0], others])[0]


def test_what_targets_lack_is_named() -> None:
    def found(*states: ChunkState | None, acknowledged: int = 5) -> list[str]:
        by_target = {target: {CHUNK: one} if one else {} for target, one in zip(TARGETS, states, strict=True)}
        return replica_faults(Held(chain(3, S, S, O), by_target), {CHUNK: acknowledged})

    good = ChunkState(5, 5, 3, 7, 100)
    assert found(good, good, None) == []
    assert "version 5 was acknowledged; it has 4" in found(good, good._replace(updated=4, committed=4), None)[0]
    assert "it is not there" in found(good, None, None)[0]
    assert "different data of one version" in found(good, good._replace(checksum=8), None)[0]
    assert "written under version 4 of 3" in found(good, good._replace(chain_version=4), None)[0]
    assert "version 7 is pending, 5 committed" in found(good, good._replace(updated=7), None)[0]
    assert "different versions" in " ".join(found(good, good._replace(updated=6, committed=6), None))


def test_a_committed_version_that_goes_back_is_named_unless_it_was_replaced() -> None:
    new, old = ({CHUNK: ChunkState(v, v, 1, 0, 1)} for v in (5, 4))
    assert commit_faults(old, new) == []
    assert commit_faults(new, old) == [f"{CHUNK}: committed version 5, later 4"]
    assert commit_faults(new, {}) == [f"{CHUNK}: committed version 5, later nothing"]
    assert commit_faults(new, old, [CHUNK]) == []
