"""Did reads get the bytes that the writes before them make? Pure.

Writes may be of parts of a chunk, appends, truncations and removals. A version has one write, so the bytes of each
version follow from those of the one before. A write that nobody answered may have a version that nobody's answer names:
then each such write is tried in its place, and a history fits if one of them explains all that was read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from traffic.storage.chains import ChunkId
from traffic.storage.history import INITIAL, Event, Kind
from traffic.storage.payload import ChunkContent, Removed, checksum_of
from traffic.storage.updates import after

MOST_TRIES = 10_000


class Undecided(ValueError):  # noqa: N818 - what happened, as its callers name it
    """So many writes were not answered that not all of their orders were tried."""


def content_faults(events: Iterable[Event], initial: Mapping[ChunkId, ChunkContent] | None = None) -> list[str]:
    """Return a line for each chunk of which a read got other bytes than its version has; ``initial``: what chunks were
    before the history, at the least version that is known of them. Reads without ``seen`` are not checked, and from a
    write without ``change`` on, nothing is known of a chunk. Raises Undecided after ``MOST_TRIES`` of a chunk."""
    by_chunk: defaultdict[ChunkId, list[Event]] = defaultdict(list)
    for event in events:
        by_chunk[event.chunk].append(event)
    found = []
    for chunk, of_it in sorted(by_chunk.items()):
        first = (initial or {}).get(chunk, Removed())
        if fault := _Versions.of(of_it).fault(first):
            found.append(f"{chunk}: {fault}")
    return found


@dataclass
class _Versions:
    """A chunk's history by version: its write, its reads; and the writes whose versions nobody knows."""

    writes: dict[int, Event]
    reads: dict[int, list[Event]]
    spare: list[Event]
    first: int
    last: int
    tries: int = 0

    @classmethod
    def of(cls, events: Sequence[Event]) -> _Versions:
        writes = {one.request: one for one in events if one.kind is Kind.WRITE}
        reads: defaultdict[int, list[Event]] = defaultdict(list)
        of_version: dict[int, Event] = {one.version: one for one in writes.values() if one.version is not None}
        first = 0
        for one in events:
            if one.kind is Kind.WRITE or one.version is None:
                continue
            reads[one.version].append(one)
            if one.kind is Kind.RELAXED_READ:
                continue
            if one.request == INITIAL:
                first = one.version
            elif one.request in writes:
                of_version.setdefault(one.version, writes[one.request])
        placed = {one.request for one in of_version.values()}
        spare = [one for one in writes.values() if one.request not in placed]
        strict = (one.version or 0 for one in events if one.kind is Kind.READ)
        return cls(of_version, reads, spare, first, max([first, *of_version, *strict]))

    def fault(self, initial: ChunkContent) -> str:
        """Return what does not fit; nothing if all does."""
        return self._wrong_reads(self.first, initial, None) or self._fault_after(self.first, initial, self.spare)

    def _fault_after(self, version: int, content: ChunkContent, spare: list[Event]) -> str:
        """Return what does not fit of the versions after one that has a content."""
        while version < self.last:
            version += 1
            write = self.writes.get(version)
            if write is None:
                return self._fault_of_any(version, content, spare)
            if write.change is None:
                return ""
            content = after(write.change, content, 0, 0).content
            if wrong := self._wrong_reads(version, content, write):
                return wrong
        return ""

    def _fault_of_any(self, version: int, content: ChunkContent, spare: list[Event]) -> str:
        """Return what does not fit whichever write that nobody answered made a version."""
        fault = f"version {version} is nobody's write"
        for place, write in enumerate(spare):
            self.tries += 1
            if self.tries > MOST_TRIES:
                raise Undecided(f"{write.chunk}: {len(self.spare)} writes were not answered; shorten the history")
            if write.change is None:
                return ""
            made = after(write.change, content, 0, 0).content
            rest = spare[:place] + spare[place + 1 :]
            fault = self._wrong_reads(version, made, write) or self._fault_after(version, made, rest)
            if not fault:
                return ""
        return fault

    def _wrong_reads(self, version: int, content: ChunkContent, write: Event | None) -> str:
        for one in self.reads.get(version, []):
            seen = one.seen
            if seen is None or (one.kind is Kind.RELAXED_READ and write is not None and write.request != one.request):
                continue  # What was pending then, and was never committed.
            if seen.chunk_bytes != content.size_bytes:
                return f"{one.words}: of {seen.chunk_bytes} B, instead of {content.size_bytes}"
            length = max(0, min(seen.length, content.size_bytes - seen.offset))
            right = checksum_of(content.pieces(seen.offset, length)) if length else 0
            if right != seen.checksum:
                return f"{one.words}: checksum {seen.checksum:08x} at {seen.offset}, instead of {right:08x}"
        return ""
