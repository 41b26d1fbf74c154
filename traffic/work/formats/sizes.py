"""The size S of a collective by nccl-tests' convention, from what other formats call its size.

The same word means different things: an all-gather's is per rank where a file counts a rank's input, as Chakra,
ASTRA-sim and PyTorch do, and the total where it counts the result, as SimAI, AICB and nccl-tests do.
"""

from __future__ import annotations

from traffic.work.formats import names

_OF_A_RANK = {names.ALL_GATHER, names.GATHER}
"""Collectives whose S is what all ranks put in together."""


def of_inputs(collective: str, input_bytes: int, ranks: int) -> int:
    """Return S in bytes, from the bytes of one rank's input; a scatter's is its root's."""
    return input_bytes * ranks if collective in _OF_A_RANK else input_bytes


def input_of(collective: str, size_bytes: int, ranks: int) -> int:
    """Return the bytes of one rank's input, rounded up, from S."""
    return -(-size_bytes // ranks) if collective in _OF_A_RANK else size_bytes
