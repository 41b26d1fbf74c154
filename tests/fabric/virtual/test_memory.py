from __future__ import annotations

import pytest

from fabric.errors import UsageError
from fabric.virtual import memory
from fabric.virtual.guest import DEFAULT_MEMORY_BYTES, GIB
from topologies.load import load_fabric


def test_what_a_guest_gets_is_what_is_asked_for_or_the_default() -> None:
    small = load_fabric("fire_flyer_2_small")
    assert memory.choose_bytes(small, None) == DEFAULT_MEMORY_BYTES
    assert memory.choose_bytes(small, GIB) == GIB


def test_a_guest_too_small_for_its_fabric_is_refused_with_what_it_needs() -> None:
    full = load_fabric("fire_flyer_2")
    suggested = -(-memory.needed_bytes(full) // GIB)
    with pytest.raises(UsageError, match=rf"1380 hosts, 3200 links.* would have 4.0 GiB.*--memory {suggested}GiB"):
        memory.choose_bytes(full, None)
    assert memory.choose_bytes(full, suggested * GIB) == suggested * GIB
