"""The network of a world by real packets: what links carry, what lanes protect, and what is dropped."""

from __future__ import annotations

import pytest

from tests.real_time import Seen, in_real_time
from tests.root.scenarios import FRAMES, PINGS
from tests.worlds import Command

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

STRANGERS = {
    "unknown address of the fabric's network": "z0l00",
    "unknown address elsewhere": "z0l00",
    "IP broadcast": "z0l00",
    "ARP": "z0l00",
    "IPv6": "z0l00",
    "storage to another zone": "z0l00",
}


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> Seen:
    """What scenarios.networks() saw."""
    return Seen(lambda: shared_command.play("networks"))


def test_a_frame_for_a_host_is_seen_by_that_host_only(seen: Seen) -> None:
    assert seen["strangers"]["known"] == {"seen_by": ["z0h005"], "dropped": {}}


@pytest.mark.parametrize("name", STRANGERS)
def test_unknown_traffic_reaches_nobody_and_is_counted_where_it_enters(seen: Seen, name: str) -> None:
    assert seen["strangers"][name] == {"seen_by": [], "dropped": {STRANGERS[name]: FRAMES}}


@in_real_time
def test_storage_is_reached_in_its_zone_and_not_from_another(seen: Seen) -> None:
    assert seen["pings"] == {f"{a} {b}": 2 if a[1] == b[-1] else 0 for a, b in PINGS}


@in_real_time
def test_a_saturated_link_carries_its_rate(seen: Seen) -> None:
    """Measured at the switch's port, with headers, by one TCP flow; and no more than the rate."""
    print(seen["alone"])
    assert seen["alone"]["all"] == pytest.approx(1, abs=0.05)
    assert seen["alone"]["flow"] > 0.93


@in_real_time
def test_acknowledgements_that_go_ahead_are_not_starved_by_full_lanes(seen: Seen) -> None:
    """A flow in the lane with the smallest share keeps its link though data fills the way back twice over, in that lane
    and in storage's."""
    found = seen["against_full_lanes"]
    print(found)
    assert found["back"] > 0.9, "the way back was not full"
    assert found["dropped_back"] > 100, "the way back was not full"
    assert found["flow"] > 0.9 * seen["alone"]["flow"]
