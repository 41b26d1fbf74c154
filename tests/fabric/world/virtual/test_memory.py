from __future__ import annotations

import pytest

from fabric.errors import UsageError
from fabric.world.engine import Guest
from fabric.world.engines import VIRTUAL
from fabric.world.virtual.guest import GIB
from fabric.world.virtual.memory import described, needed_bytes
from topologies.load import load_fabric


@pytest.mark.parametrize("guest", [Guest(1), Guest(1, memory_bytes=GIB)])
def test_a_guest_with_enough_memory_stays_as_it_is(guest: Guest) -> None:
    small = load_fabric("fire_flyer_2_small")
    assert VIRTUAL.guest_for(guest, needed_bytes(small), described(small)) == guest


def test_a_guest_for_a_large_fabric_has_the_memory_that_it_needs() -> None:
    full = load_fabric("fire_flyer_2")
    enough = -(-needed_bytes(full) // GIB)
    assert enough > 4
    assert VIRTUAL.guest_for(Guest(1), needed_bytes(full), described(full)) == Guest(1, memory_bytes=enough * GIB)


def test_a_guest_too_small_for_its_fabric_is_refused_with_what_it_needs() -> None:
    full = load_fabric("fire_flyer_2")
    suggested = -(-needed_bytes(full) // GIB)
    with pytest.raises(UsageError, match=rf"1380 hosts, 3200 links.* would have 4.0 GiB.*--memory {suggested}GiB"):
        VIRTUAL.guest_for(Guest(1, memory_bytes=4 * GIB), needed_bytes(full), described(full))
    enough = Guest(1, memory_bytes=suggested * GIB)
    assert VIRTUAL.guest_for(enough, needed_bytes(full), described(full)) == enough


def test_a_guest_that_lacks_little_memory_is_not_told_that_it_has_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"needs some 9\.1 GiB .* would have 9\.0 GiB.*--memory 10GiB"):
        VIRTUAL.guest_for(Guest(1, memory_bytes=9 * GIB), 9 * GIB + 1, "a fabric")
