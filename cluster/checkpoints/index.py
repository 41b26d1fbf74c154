"""Where each byte of each tensor of a checkpoint is: the index, which is written when all chunks are."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

from cluster.checkpoints.tensors import Range, Tensor
from fabric.errors import ConfigError

FORMAT = 2


@dataclass(frozen=True, order=True)
class Piece:
    """Bytes of a tensor, and where they are: in a chunk of the checkpoint, from ``offset`` on."""

    what: Range
    chunk: int
    offset: int


@dataclass(frozen=True)
class Index:
    """A checkpoint of a step. ``pieces`` cover every byte of every tensor once, sorted; ``chunk_sizes`` has the bytes
    of each chunk by its number, ``checksums`` their CRC-32 as far as they are known. ``files``: the first chunk of each
    file, which has those up to the next one's, one after the other; none: each chunk is a file. ``hashes``: SHA-256 of
    each tensor, in hexadecimal, if they are known; of one that nobody had as a whole, an empty text."""

    step: int
    tensors: tuple[Tensor, ...]
    pieces: tuple[Piece, ...]
    chunk_sizes: tuple[int, ...]
    checksums: tuple[int, ...] = field(default=())
    files: tuple[int, ...] = field(default=())
    hashes: tuple[str, ...] = field(default=())

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(one.size_bytes for one in self.tensors)

    def place_of(self, chunk: int) -> tuple[int, int]:
        """Return the file that a chunk is in, by its first chunk's number, and from which byte on it is there."""
        if not self.files:
            return chunk, 0
        first = self.files[bisect_right(self.files, chunk) - 1]
        return first, self._starts[chunk] - self._starts[first]

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate(self.chunk_sizes, initial=0))

    @cached_property
    def _by_tensor(self) -> dict[str, tuple[list[int], list[Piece]]]:
        found: dict[str, tuple[list[int], list[Piece]]] = {one.name: ([], []) for one in self.tensors}
        for piece in self.pieces:
            begins, pieces = found[piece.what.tensor]
            begins.append(piece.what.begin)
            pieces.append(piece)
        return found

    def pieces_of(self, wanted: Range) -> Iterator[Piece]:
        """Yield the parts of pieces that bytes of a tensor are in, in order. Raises ConfigError for bytes that the
        checkpoint does not have."""
        sizes = {one.name: one.size_bytes for one in self.tensors}
        if wanted.tensor not in sizes:
            raise ConfigError(f"checkpoint of step {self.step}", [f"it has no tensor {wanted.tensor!r}"])
        if not 0 <= wanted.begin < wanted.end <= sizes[wanted.tensor]:
            raise ConfigError(
                f"checkpoint of step {self.step}",
                [f"{wanted.tensor} has bytes 0 to {sizes[wanted.tensor]}, not {wanted.begin} to {wanted.end}"],
            )
        begins, pieces = self._by_tensor[wanted.tensor]
        for piece in pieces[max(0, bisect_right(begins, wanted.begin) - 1) :]:
            begin, end = max(piece.what.begin, wanted.begin), min(piece.what.end, wanted.end)
            if piece.what.begin >= wanted.end:
                break
            if begin < end:
                yield Piece(Range(wanted.tensor, begin, end), piece.chunk, piece.offset + begin - piece.what.begin)

    def to_json(self) -> str:
        """Return the index as text."""
        names = {one.name: number for number, one in enumerate(self.tensors)}
        return json.dumps(
            {
                "format": FORMAT,
                "step": self.step,
                "tensors": [[one.name, one.dtype, list(one.shape)] for one in self.tensors],
                "pieces": [
                    [names[one.what.tensor], one.what.begin, one.what.end, one.chunk, one.offset] for one in self.pieces
                ],
                "chunk_sizes": list(self.chunk_sizes),
                "checksums": list(self.checksums),
                "files": list(self.files),
                "hashes": list(self.hashes),
            }
        )

    @classmethod
    def from_json(cls, text: str, source: str) -> Index:
        """Return the index of a text. Raises ConfigError if it is none, or does not cover its tensors."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["format"] != FORMAT:
                raise ConfigError(source, [f"format {data['format']}; this version reads {FORMAT}"])
            tensors = tuple(Tensor(name, dtype, tuple(shape)) for name, dtype, shape in data["tensors"])
            pieces = tuple(
                Piece(Range(tensors[number].name, begin, end), chunk, offset)
                for number, begin, end, chunk, offset in data["pieces"]
            )
            rest = (tuple(data[key]) for key in ("chunk_sizes", "checksums", "files", "hashes"))
            index = cls(data["step"], tensors, pieces, *rest)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ConfigError(source, [f"is not an index of a checkpoint ({type(error).__name__}: {error})"]) from None
        index.verify(source)
        return index

    def verify(self, source: str) -> None:
        """Raise ConfigError unless each byte of each tensor is in one piece, and each piece inside its chunk."""
        faults = []
        for one in self.tensors:
            at = 0
            for piece in self._by_tensor[one.name][1]:
                if piece.what.begin != at:
                    faults.append(f"{one.name}: bytes {at} to {piece.what.begin} are in no piece, or in two")
                at = piece.what.end
            if at != one.size_bytes:
                faults.append(f"{one.name}: bytes {at} to {one.size_bytes} are in no piece")
        for piece in self.pieces:
            there = self.chunk_sizes[piece.chunk] if 0 <= piece.chunk < len(self.chunk_sizes) else 0
            if not 0 <= piece.offset <= there - piece.what.size_bytes:
                faults.append(f"{piece.what.tensor}: a piece ends behind the {there} bytes of chunk {piece.chunk}")
        if self.checksums and len(self.checksums) != len(self.chunk_sizes):
            faults.append(f"{len(self.checksums)} checksums for {len(self.chunk_sizes)} chunks")
        if self.hashes and len(self.hashes) != len(self.tensors):
            faults.append(f"{len(self.hashes)} hashes for {len(self.tensors)} tensors")
        if self.files and (self.files[0] != 0 or list(self.files) != sorted(set(self.files))):
            faults.append(f"files begin with chunks {', '.join(map(str, self.files))}; the first is 0, and they ascend")
        if faults:
            raise ConfigError(source, faults)
