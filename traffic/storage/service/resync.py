"""What a target that returns must be sent, by what it and its predecessor have of each chunk. Pure.

The predecessor compares both sides' descriptions, chunk by chunk, and makes a list of what to remove and what to write
whole (3FS: ``ResyncWorker::handleSync``). The rules of 3FS's design notes and of its code differ: by the notes a chunk
of equal chain version is sent if the local committed version is not the remote pending one. By the code it is sent if
the remote one is pending at all; with the remote one committed and another version here, a write is under way, or the
two have forked, which is fatal. This follows the code.

A chunk that is sent keeps its version and the version of the chain under which it was committed. So a second resync
right after the first finds nothing to send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from traffic.storage.chains import ChunkId


class ChunkState(NamedTuple):
    """What a target has of a chunk. ``updated`` is above ``committed`` by one while a version is pending;
    ``chain_version`` is that under which it was written last."""

    updated: int
    committed: int
    chain_version: int
    checksum: int
    size_bytes: int

    @property
    def is_committed(self) -> bool:
        """Whether no version is pending."""
        return self.updated == self.committed


class Why(str, Enum):
    """Why a chunk is sent, removed, or left."""

    MISSING_THERE = "missing_there"
    OLDER_CHAIN_THERE = "older_chain_there"
    PENDING_THERE = "pending_there"
    MISSING_HERE = "missing_here"
    SAME = "same"
    BEING_WRITTEN = "being_written"
    """A write under way brings it up to date."""
    NEWER_CHAIN_THERE = "newer_chain_there"
    OTHER_VERSION_THERE = "other_version_there"
    OTHER_DATA_THERE = "other_data_there"

    @property
    def is_sent(self) -> bool:
        """Whether the whole chunk is sent."""
        return self in (Why.MISSING_THERE, Why.OLDER_CHAIN_THERE, Why.PENDING_THERE)

    @property
    def is_fatal(self) -> bool:
        """Whether the two have forked: the target that returns is taken offline by force."""
        return self in (Why.NEWER_CHAIN_THERE, Why.OTHER_VERSION_THERE, Why.OTHER_DATA_THERE)


@dataclass(frozen=True)
class ResyncPlan:
    """What a predecessor does for a target that returns: ``writes`` whole, with their bytes, after ``removes``.
    ``reasons`` counts the chunks by what was found; ``forked`` are those that make it fatal: nothing is sent then."""

    writes: Mapping[ChunkId, int]
    removes: tuple[ChunkId, ...]
    reasons: Mapping[Why, int]
    forked: tuple[ChunkId, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The payload that it sends; none if the two have forked."""
        return sum(self.writes.values())


def plan_resync(
    here: Mapping[ChunkId, ChunkState], there: Mapping[ChunkId, ChunkState], chain_version: int
) -> ResyncPlan:
    """Return what a predecessor that has the chunks ``here`` sends to a target that has those ``there``, under a
    version of their chain."""
    found: dict[ChunkId, Why] = {}
    for chunk in sorted({*here, *there}):
        ours, theirs = here.get(chunk), there.get(chunk)
        if ours is None:
            found[chunk] = Why.MISSING_HERE
        elif theirs is None:
            found[chunk] = Why.MISSING_THERE
        else:
            found[chunk] = _why(ours, theirs, chain_version)
    reasons = Counter(found.values())
    if forked := tuple(chunk for chunk, why in found.items() if why.is_fatal):
        return ResyncPlan({}, (), reasons, forked)
    writes = {chunk: here[chunk].size_bytes for chunk, why in found.items() if why.is_sent}
    removes = tuple(chunk for chunk, why in found.items() if why is Why.MISSING_HERE)
    return ResyncPlan(writes, removes, reasons)


def _why(ours: ChunkState, theirs: ChunkState, chain_version: int) -> Why:
    """Return what is to be done with a chunk that both have. The order of the questions is 3FS's."""
    if ours.chain_version > theirs.chain_version:
        return Why.OLDER_CHAIN_THERE
    if not theirs.is_committed:
        return Why.PENDING_THERE
    if ours.chain_version < theirs.chain_version:
        return Why.NEWER_CHAIN_THERE if ours.is_committed else Why.BEING_WRITTEN
    is_of_this_chain = ours.chain_version == chain_version
    if ours.updated != theirs.committed:
        return Why.BEING_WRITTEN if is_of_this_chain or not ours.is_committed else Why.OTHER_VERSION_THERE
    if ours.checksum != theirs.checksum:
        return Why.BEING_WRITTEN if is_of_this_chain else Why.OTHER_DATA_THERE
    return Why.SAME


def after_resync(
    here: Mapping[ChunkId, ChunkState], there: Mapping[ChunkId, ChunkState], plan: ResyncPlan
) -> dict[ChunkId, ChunkState]:
    """Return what the target that returned has once a plan is carried out, nothing being written meanwhile."""
    kept = {chunk: state for chunk, state in there.items() if chunk not in plan.removes}
    return kept | {chunk: here[chunk]._replace(committed=here[chunk].updated) for chunk in plan.writes}
