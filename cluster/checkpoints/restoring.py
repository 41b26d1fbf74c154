"""From an index to what each node reads: all or a part, whoever wrote it, by any number of nodes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.checkpoints.index import Index, Piece
from cluster.checkpoints.tensors import Held, Range
from fabric.errors import FabricError


class WrongDataError(FabricError):
    """A checkpoint has not the bytes that were written."""


class WrongChunkError(WrongDataError):
    """A whole chunk of it has not, by its length or its checksum."""


@dataclass(frozen=True)
class Read:
    """Bytes of a chunk that are read at once, and what of tensors is in them."""

    chunk: int
    offset: int
    size_bytes: int
    pieces: tuple[Piece, ...]


def plan_restore(index: Index, wanted: Held) -> dict[int, tuple[Read, ...]]:
    """Return what each node reads to have what it wants, by its number: parts that follow each other in a chunk at
    once. Raises ConfigError for bytes that the checkpoint does not have."""
    return {node: tuple(_reads(index, ranges)) for node, ranges in wanted.items()}


def _reads(index: Index, ranges: Sequence[Range]) -> list[Read]:
    pieces = [piece for one in ranges for piece in index.pieces_of(one)]
    found: list[Read] = []
    for piece in sorted(pieces, key=lambda one: (one.chunk, one.offset, one.what)):
        last = found[-1] if found else None
        if last is not None and last.chunk == piece.chunk and last.offset + last.size_bytes == piece.offset:
            size = last.size_bytes + piece.what.size_bytes
            found[-1] = Read(last.chunk, last.offset, size, (*last.pieces, piece))
        else:
            found.append(Read(piece.chunk, piece.offset, piece.what.size_bytes, (piece,)))
    return found


def placed(read: Read, data: bytes, into: Mapping[str, bytearray], base: Mapping[str, int] | None = None) -> None:
    """Put what was read into tensors' bytes, by their names; ``base``: the first byte of a tensor in its array."""
    if len(data) != read.size_bytes:
        raise WrongDataError(f"chunk {read.chunk}: {len(data)} bytes were read of {read.size_bytes}; read it again")
    for piece in read.pieces:
        begin = piece.offset - read.offset
        first = piece.what.begin - (base or {}).get(piece.what.tensor, 0)
        size = piece.what.size_bytes
        into[piece.what.tensor][first : first + size] = data[begin : begin + size]


def verify_chunk(index: Index, chunk: int, data: bytes) -> None:
    """Raise WrongChunkError unless a whole chunk is as it was written."""
    if len(data) != index.chunk_sizes[chunk] or (index.checksums and zlib.crc32(data) != index.checksums[chunk]):
        raise WrongChunkError(
            f"checkpoint of step {index.step}, chunk {chunk}: its bytes are not those that were written; take an older "
            "checkpoint"
        )
