"""From what nodes hold to what each writes: every byte once, by one who has it, evenly, in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from cluster.checkpoints.index import Index, Piece
from cluster.checkpoints.tensors import Held, Range, Tensor, verify
from fabric.errors import ConfigError


@dataclass(frozen=True)
class WritePlan:
    """A checkpoint as it will be: its index, and the numbers of the chunks that each node writes, all into one file."""

    index: Index
    chunks_of: Mapping[int, tuple[int, ...]]

    def bytes_of(self, node: int) -> int:
        """Return how many bytes a node writes."""
        return sum(self.index.chunk_sizes[chunk] for chunk in self.chunks_of[node])

    def pieces_of(self, chunk: int) -> list[Piece]:
        """Return what is in a chunk, in order."""
        return self._by_chunk[chunk]

    @cached_property
    def _by_chunk(self) -> dict[int, list[Piece]]:
        found: dict[int, list[Piece]] = {chunk: [] for chunk in range(len(self.index.chunk_sizes))}
        for piece in sorted(self.index.pieces, key=lambda one: one.offset):
            found[piece.chunk].append(piece)
        return found


def plan_write(step: int, tensors: Sequence[Tensor], held: Held, chunk_bytes: int) -> WritePlan:
    """Return who writes what: bytes that several nodes hold by the one with the least to write so far.

    Raises ConfigError for bytes that no node holds, and for ranges that are none.
    """
    if chunk_bytes < 1:
        raise ConfigError("checkpoint", [f"chunk_bytes: {chunk_bytes}; a chunk has 1 byte or more"])
    verify(tensors, held)
    load = dict.fromkeys(sorted(held), 0)
    mine: dict[int, list[Range]] = {node: [] for node in load}
    parts = [part for one in tensors for part in _parts(one, held, chunk_bytes)]
    # Those whom only one can write first, then the largest.
    for part, holders in sorted(parts, key=lambda one: (len(one[1]) > 1, -one[0].size_bytes, one[0])):
        writer = min(holders, key=lambda node: (load[node], node))
        load[writer] += part.size_bytes
        mine[writer].append(part)
    pieces: list[Piece] = []
    sizes: list[int] = []
    chunks_of: dict[int, tuple[int, ...]] = {}
    for node, ranges in mine.items():
        first = len(sizes)
        for piece in _packed(_joined(sorted(ranges)), chunk_bytes, first):
            if piece.chunk == len(sizes):
                sizes.append(0)
            sizes[piece.chunk] = piece.offset + piece.what.size_bytes
            pieces.append(piece)
        chunks_of[node] = tuple(range(first, len(sizes)))
    order = {one.name: number for number, one in enumerate(tensors)}
    pieces.sort(key=lambda one: (order[one.what.tensor], one.what.begin))
    files = tuple(chunks[0] for chunks in chunks_of.values() if chunks)
    return WritePlan(Index(step, tuple(tensors), tuple(pieces), tuple(sizes), files=files), chunks_of)


def _parts(tensor: Tensor, held: Held, chunk_bytes: int) -> Iterator[tuple[Range, list[int]]]:
    """Yield parts of a tensor that the same nodes hold, of a chunk's size at most, with these nodes."""
    ranges = [(one.begin, one.end, node) for node, mine in held.items() for one in mine if one.tensor == tensor.name]
    edges = sorted({0, tensor.size_bytes, *(begin for begin, _, _ in ranges), *(end for _, end, _ in ranges)})
    missing = []
    for begin, end in pairwise(edges):
        holders = sorted({node for first, last, node in ranges if first <= begin and end <= last})
        if not holders:
            missing.append(f"{tensor.name}: no node holds bytes {begin} to {end}")
        for at in range(begin, end, chunk_bytes):
            yield Range(tensor.name, at, min(end, at + chunk_bytes)), holders
    if missing:
        raise ConfigError("checkpoint", missing)


def _joined(ranges: Sequence[Range]) -> Iterator[Range]:
    """Yield sorted ranges, those that follow each other as one."""
    last: Range | None = None
    for one in ranges:
        if last is not None and (last.tensor, last.end) == (one.tensor, one.begin):
            last = Range(last.tensor, last.begin, one.end)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _packed(ranges: Iterator[Range], chunk_bytes: int, first: int) -> Iterator[Piece]:
    """Yield ranges as pieces one after the other in chunks, from the number ``first`` on."""
    chunk, offset = first, 0
    for one in ranges:
        begin = one.begin
        while begin < one.end:
            if offset == chunk_bytes:
                chunk, offset = chunk + 1, 0
            end = min(one.end, begin + chunk_bytes - offset)
            yield Piece(Range(one.tensor, begin, end), chunk, offset)
            offset += end - begin
            begin = end
