"""Was what clients and targets saw right? Pure checks of recorded histories; a chunk is a register.

Every write has a number of its own, and whoever commits it gives it a version. So the order of a chunk's writes is
known, and what is to be asked is only whether it is that of real time (:func:`violations`, in O(n log n)):

- a version has one write, and a write one version;
- what began after an operation with a version had ended has that version or a later one; a write, a later one;
- nothing is read before its write began.

That holds through kills, partitions, pauses and returns, whatever their causes. A write that nobody answered may take
effect at any time from its start, or never. A *relaxed* read also gets what is pending: it must be no older than what
was acknowledged before it, but a later read may be older than it, and its version may become another write's.

What the bytes of a version must be, if writes are of parts, is for :mod:`traffic.storage.content_history`.

The other checks are of chains (:func:`chain_faults`), of what targets have (:func:`replica_faults`,
:func:`commit_faults`), and of who answered (:func:`misplaced`).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import NamedTuple

from traffic.storage.chain_states import ChainState
from traffic.storage.chains import ChunkId, Target
from traffic.storage.service.resync import ChunkState
from traffic.storage.updates import Change

MAYBE = math.inf
"""The end of a write that nobody answered."""
INITIAL = 0
"""The number of the write that a chunk has before the first one; its version is the least that is known, or 0."""


class Kind(str, Enum):
    """What an operation was."""

    WRITE = "write"
    READ = "read"
    RELAXED_READ = "relaxed_read"


class Seen(NamedTuple):
    """What a read got: the checksum of the bytes from ``offset`` on, of which it asked for ``length``, and the length
    of the whole chunk."""

    offset: int
    length: int
    checksum: int
    chunk_bytes: int


class Event(NamedTuple):
    """A write of a chunk or a read of it, between two times of one clock.

    ``request``: the number of the write, or of that whose bytes were read; ``version``: that of the answer, None for a
    write that nobody answered. ``server``: the target that answered; ``chain``: the chain's number and version that it
    went by, if they are known. ``change``: what a write did to the chunk, ``seen``: what a read got of it, if the bytes
    of versions are to be checked (:mod:`traffic.storage.content_history`).
    """

    kind: Kind
    chunk: ChunkId
    request: int
    version: int | None
    started_s: float
    ended_s: float
    server: Target | None = None
    chain: tuple[int, int] | None = None
    change: Change | None = None
    seen: Seen | None = None

    @property
    def words(self) -> str:
        """It as messages say it."""
        where = f" on {self.server}" if self.server else ""
        when = (
            f"{self.started_s:.6f} to {self.ended_s:.6f} s" if self.ended_s < MAYBE else f"from {self.started_s:.6f} s"
        )
        return f"{self.kind.value} {self.request:#x} (version {self.version}){where}, {when}"


def violations(events: Iterable[Event]) -> list[str]:
    """Return a line for each operation that does not fit; none if all strict ones are linearizable in the order of
    their versions, and relaxed reads got what was committed or pending."""
    return [f"{chunk}: {fault}" for chunk, of_it in _by_chunk(events) for fault in _faults(of_it)]


def stale(events: Iterable[Event]) -> list[tuple[Event, Event]]:
    """Return the operations that are older than one that had ended when they began, each with the newest such one."""
    return [pair for _, of_it in _by_chunk(events) for pair in _out_of_order(_with_versions(of_it))]


def _by_chunk(events: Iterable[Event]) -> list[tuple[ChunkId, list[Event]]]:
    found: defaultdict[ChunkId, list[Event]] = defaultdict(list)
    for event in events:
        found[event.chunk].append(event)
    return sorted(found.items())


def _with_versions(events: Sequence[Event]) -> list[Event]:
    """Return the events; a write that nobody answered has the version that its readers saw, and that of relaxed ones it
    had once."""
    of_write: dict[int, int] = {}
    for one in sorted(events, key=attrgetter("ended_s")):
        if one.version is not None and one.kind is not Kind.RELAXED_READ:
            of_write.setdefault(one.request, one.version)
    writes = {one.request: one for one in events if one.kind is Kind.WRITE}
    known = [one._replace(version=of_write.get(one.request, one.version)) for one in events]
    pending = [
        writes[one.request]._replace(version=one.version, ended_s=MAYBE)
        for one in events
        if one.kind is Kind.RELAXED_READ and one.request in writes and of_write.get(one.request) != one.version
    ]
    return [*known, *pending]


def _faults(events: Sequence[Event]) -> Iterator[str]:
    writes = {one.request: one for one in events if one.kind is Kind.WRITE}
    versions: dict[int, Event] = {}
    of_write: dict[int, int] = {}
    for one in sorted(events, key=attrgetter("ended_s")):
        if one.version is None:
            continue
        if one.kind is not Kind.WRITE and one.request != INITIAL:
            if one.request not in writes:
                yield f"{one.words}: never written"
                continue
            if one.ended_s < writes[one.request].started_s:
                yield f"{one.words}: before its write began, at {writes[one.request].started_s:.6f} s"
        if one.kind is Kind.RELAXED_READ:
            continue  # A head that dies takes what only it had pending along: the version may be another's then.
        if (other := versions.setdefault(one.version, one)).request != one.request:
            yield f"{one.words}: the version is that of {other.request:#x}, too"
        if of_write.setdefault(one.request, one.version) != one.version:
            yield f"{one.words}: the write has version {of_write[one.request]}, too"
    for one, newest in _out_of_order(_with_versions(events)):
        yield f"{one.words}: stale, after {newest.words}"


def _out_of_order(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield the operations that are older than one that had ended when they began, with the newest such one."""
    known = [one for one in events if one.version is not None]
    begun = sorted(known, key=attrgetter("started_s"))
    ended = sorted((one for one in known if one.kind is not Kind.RELAXED_READ), key=attrgetter("ended_s"))
    newest: Event | None = None
    place = 0
    for one in begun:
        while place < len(ended) and ended[place].ended_s < one.started_s:
            newest = _newer(newest, ended[place])
            place += 1
        if newest is None:
            continue
        assert one.version is not None and newest.version is not None
        is_after = one.version > newest.version if one.kind is Kind.WRITE else one.version >= newest.version
        if not is_after:
            yield one, newest


def _newer(one: Event | None, other: Event) -> Event:
    if one is None or one.version is None:
        return other
    return other if other.version is not None and other.version > one.version else one


def misplaced(events: Iterable[Event], chains: Mapping[tuple[int, int], ChainState]) -> list[str]:
    """Return the operations that were answered by a target that may not do so: a read by one that does not serve, a
    write by one that is not the head, each in the version of its chain that the target went by."""
    found = []
    for one in events:
        if one.server is None or one.chain is None:
            continue
        if one.chain not in chains:
            found.append(f"{one.words}: chain {one.chain[0]} has had no version {one.chain[1]}")
            continue
        serving = chains[one.chain].serving
        if one.server not in (serving[:1] if one.kind is Kind.WRITE else serving):
            role = "not the head" if one.kind is Kind.WRITE else "not serving"
            found.append(f"{one.words}: it was {role} in version {one.chain[1]} of chain {one.chain[0]}")
    return found


def chain_faults(history: Sequence[ChainState]) -> list[str]:
    """Return what is wrong with a chain's states, one after the other: each by itself, and that its version grows by 1
    with each change and its targets stay."""
    found = [fault for state in history for fault in state.faults]
    for before, after in itertools.pairwise(history):
        where = f"chain {after.number} version {after.version}"
        if after.version != before.version + 1:
            found.append(f"{where}: the version before is {before.version}")
        if {target for target, _ in before.targets} != {target for target, _ in after.targets}:
            found.append(f"{where}: it has other targets than before")
    return found


@dataclass(frozen=True)
class Held:
    """What the targets of a chain have while nothing is written: by target, its chunks."""

    chain: ChainState
    by_target: Mapping[Target, Mapping[ChunkId, ChunkState]]


def replica_faults(held: Held, acknowledged: Mapping[ChunkId, int]) -> list[str]:
    """Return what is wrong with the chunks of a chain at rest. ``acknowledged``: the latest version of each that its
    writer was told of. Every target that serves has it or a later one, committed, and all have the same."""
    found = []
    serving = held.chain.serving
    for target in serving:
        for chunk, state in held.by_target.get(target, {}).items():
            where = f"{chunk} on {target}"
            if state.updated - state.committed not in (0, 1):
                found.append(f"{where}: version {state.updated} is pending, {state.committed} committed")
            if state.chain_version > held.chain.version:
                found.append(
                    f"{where}: written under version {state.chain_version} of {held.chain.version} of its chain"
                )
    for chunk, version in acknowledged.items():
        for target in serving:
            has = held.by_target.get(target, {}).get(chunk)
            if has is None or has.committed < version:
                shown = f"it has {has.committed}" if has else "it is not there"
                found.append(f"{chunk} on {target}: version {version} was acknowledged; {shown}")
    return [*found, *_differences(held, serving)]


def _differences(held: Held, serving: Sequence[Target]) -> Iterator[str]:
    chunks = {chunk for target in serving for chunk in held.by_target.get(target, {})}
    for chunk in sorted(chunks):
        states = {target: held.by_target.get(target, {}).get(chunk) for target in serving}
        kinds = {(state.committed, state.checksum) if state else None for state in states.values()}
        if len(kinds) > 1:
            shown = ", ".join(f"{target} {state.committed if state else 'nothing'}" for target, state in states.items())
            found = {state.committed for state in states.values() if state}
            what = "versions" if len(found) > 1 or None in kinds else "data of one version"
            yield f"{chunk}: targets that serve have different {what}: {shown}"


def commit_faults(
    before: Mapping[ChunkId, ChunkState], after: Mapping[ChunkId, ChunkState], replaced: Iterable[ChunkId] = ()
) -> list[str]:
    """Return the chunks of one target whose committed version went back between two looks; ``replaced``: those that
    were written whole by a resync or removed meanwhile, which may."""
    may = set(replaced)
    return [
        f"{chunk}: committed version {state.committed}, later {after[chunk].committed if chunk in after else 'nothing'}"
        for chunk, state in sorted(before.items())
        if chunk not in may and (chunk not in after or after[chunk].committed < state.committed)
    ]
