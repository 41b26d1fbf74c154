"""Contents for tensors that have no data: as many bytes, known to every rank, and checked where they arrive."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from traffic.collectives.collective import Expected
from traffic.collectives.dataset import Buffer, Dataset, DatasetShape
from traffic.collectives.elements import Dtype, Elements
from traffic.collectives.result_check import ResultCheck

LONGEST_PIECE_BYTES = 1 << 20
_ANY_LENGTH = 1 << 40
_SEED = 20
_writing = threading.Lock()


def type_of(block_bytes: Sequence[int]) -> Dtype:
    """Return a type in which blocks of so many bytes are whole elements: FP32 if they can be, whose sums are fast."""
    return Dtype.FP8 if any(size % Dtype.FP32.size_bytes for size in block_bytes) else Dtype.FP32


def _dataset(ranks: int, dtype: Dtype) -> Dataset:
    """Return the data of so many ranks, the same in all processes: each writes it for itself, once."""
    with _writing:
        return _written(ranks, dtype)


@cache
def _written(ranks: int, dtype: Dtype) -> Dataset:
    directory = Path(_directory().name) / f"{ranks}-{dtype.value}"
    directory.mkdir()
    shape = DatasetShape(ranks, 1, _ANY_LENGTH, dtype)
    return Dataset.write(directory, shape, _SEED, LONGEST_PIECE_BYTES // dtype.size_bytes)


@cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    """Return a directory that goes with the process."""
    return tempfile.TemporaryDirectory(prefix="fabric-patterns-")


def input_of(rank: int, ranks: int, dtype: Dtype) -> Buffer:
    """Return what a rank has."""
    return _dataset(ranks, dtype).inputs(rank)[0]


def check_of(expected: Sequence[Expected], ranks: int, dtype: Dtype, elements: int) -> ResultCheck:
    """Return the check of what a rank gets."""
    return ResultCheck.of(_dataset(ranks, dtype), expected, elements)


@dataclass(frozen=True)
class AlikeBlocks:
    """What a rank has for others, in blocks that begin at ``starts``: each is the same series from its start, so that
    its receiver need not know where it was."""

    starts: tuple[int, ...]
    series: Buffer

    def __getitem__(self, piece: slice, /) -> Elements:
        """Return a piece of one block."""
        first = max(start for start in self.starts if start <= piece.start)
        return self.series[slice(piece.start - first, piece.stop - first)]
