"""What tensors of a played checkpoint hold: real bytes, made anew wherever they are needed, different in each step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from cluster.checkpoints.tensors import Range, Tensor

_BLOCK_BYTES = 1 << 16
_VALUE_BYTES = 2


def tensors_of(size_bytes: int, count: int) -> tuple[Tensor, ...]:
    """Return tensors of bfloat16 that have so many bytes together, the first ones a value more."""
    values = max(count, size_bytes // _VALUE_BYTES)
    bounds = [values * number // count for number in range(count + 1)]
    sizes = [end - begin for begin, end in pairwise(bounds)]
    return tuple(Tensor(f"layer{number:04}", "bfloat16", (size,)) for number, size in enumerate(sizes))


def made(seed: int, step: int, what: Range) -> bytes:
    """Return the bytes that a range of a tensor has after a step."""
    first, last = what.begin // _BLOCK_BYTES, -(-what.end // _BLOCK_BYTES)
    blocks = (
        random.Random(f"{seed}/{step}/{what.tensor}/{block}").randbytes(_BLOCK_BYTES) for block in range(first, last)
    )
    start = first * _BLOCK_BYTES
    return b"".join(blocks)[what.begin - start : what.end - start]


def made_all(seed: int, step: int, ranges: Sequence[Range]) -> dict[str, bytes]:
    """Return the bytes of ranges of different tensors, by the tensors' names."""
    return {one.tensor: made(seed, step, one) for one in ranges}
