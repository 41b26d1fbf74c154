"""What the kernel says of memory."""

from __future__ import annotations

import pytest

from fabric.errors import UsageError
from fabric.free_memory import available_bytes


def test_free_memory_is_what_the_kernel_says_is_available() -> None:
    assert available_bytes("MemTotal: 9 kB\nMemAvailable:   2048 kB\n") == 2 * 2**20
    with pytest.raises(UsageError, match="has no MemAvailable"):
        available_bytes("MemTotal: 9 kB\n")
