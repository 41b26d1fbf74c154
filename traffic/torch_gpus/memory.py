"""Bytes of a GPU that tensors have: allocated, in blocks of 512 B, and reserved, as by PyTorch's allocator."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_BYTES = 512
"""Of which each allocation takes whole ones."""
_SEGMENT_BYTES = 2 << 20
"""In which memory is reserved. How the allocator cuts segments up, and what that wastes, is not modelled."""


@dataclass(frozen=True)
class DoesNotFitError(Exception):
    """An allocation that a GPU has no room for, and what takes it."""

    asked_bytes: int
    allocated_bytes: int
    memory_bytes: int


class Memory:
    """The memory of a GPU. ``peak_bytes``: allocated at most since peaks were forgotten; ``most_bytes``: ever."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.allocated_bytes = self.peak_bytes = self.most_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0

    def allocate(self, asked_bytes: int) -> int:
        """Take room for so many bytes; return how many that takes. Raises DoesNotFitError."""
        taken = -(-asked_bytes // BLOCK_BYTES) * BLOCK_BYTES
        if self.allocated_bytes + taken > self.size_bytes:
            raise DoesNotFitError(asked_bytes, self.allocated_bytes, self.size_bytes)
        self.allocated_bytes += taken
        self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
        self.most_bytes = max(self.most_bytes, self.allocated_bytes)
        segments = min(-(-self.allocated_bytes // _SEGMENT_BYTES) * _SEGMENT_BYTES, self.size_bytes)
        self.reserved_bytes = max(self.reserved_bytes, segments)
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return taken

    def free(self, taken_bytes: int) -> None:
        """Give back what :meth:`allocate` took."""
        self.allocated_bytes -= taken_bytes

    def release(self) -> None:
        """Give back what is reserved and not allocated."""
        self.reserved_bytes = -(-self.allocated_bytes // _SEGMENT_BYTES) * _SEGMENT_BYTES

    def forget_peaks(self) -> None:
        """Count peaks from now on."""
        self.peak_bytes, self.peak_reserved_bytes = self.allocated_bytes, self.reserved_bytes
