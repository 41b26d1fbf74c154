"""Conservation where links were cut: what may be booked on a cut, what may not, and where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric.failures.report import FaultReport, LinkChange
from fabric.failures.schedule import DOWN, WHOLE
from fabric.measure.census import conservation
from fabric.measure.fidelity import conservation_checks
from fabric.measure.verdict import Status
from fabric.records.conservation import Conservation
from tests.fabric.measure.test_census import FABRIC, FRAME, HOST_0, LEAF, LEAF_TO_0, LEAF_TO_1, census, received, sent


def change(faults: FaultReport, arrived: int, left: int, delivered: int) -> Conservation:
    """Host 0 sends 10, of which ``arrived`` reach the leaf, ``left`` leave it, and ``delivered`` reach host 1."""
    after = census(host_0=sent(10), leaf_to_0=received(arrived), leaf_to_1=sent(left), host_1=received(delivered))
    return conservation(FABRIC, census(), after, faults)


def test_what_is_missing_in_a_switch_with_a_dead_port_went_with_the_cut() -> None:
    found = change(FaultReport(in_switches={LEAF: 5}), 10, 6, 6)
    assert (found.lost_in_cuts, found.unaccounted, found.unaccounted_bytes) == ({"switch z0l00": 4}, {}, 0)
    assert found.lost_in_cuts_packets == 4


def test_more_than_the_port_can_have_held_is_unaccounted_for() -> None:
    found = change(FaultReport(in_switches={LEAF: 3}), 10, 6, 6)
    assert (found.lost_in_cuts, found.unaccounted) == ({"switch z0l00": 3}, {"switch z0l00": 1})
    assert found.unaccounted_bytes == FRAME


def test_a_cut_excuses_nothing_elsewhere() -> None:
    found = change(FaultReport(in_switches={LEAF: 5}, on_wires={LEAF_TO_0: 5}), 8, 8, 7)
    wires = {f"wire {HOST_0} to {LEAF_TO_0}": 2, f"wire {LEAF_TO_1} to z0h001:0": 1}
    assert (found.lost_in_cuts, found.unaccounted, found.unaccounted_bytes) == ({}, wires, 300)


def test_what_was_on_a_cut_wire_went_with_it() -> None:
    found = change(FaultReport(on_wires={HOST_0: 2}), 8, 8, 8)
    assert (found.lost_in_cuts, found.unaccounted, found.unaccounted_bytes) == (
        {f"wire {HOST_0} to {LEAF_TO_0}": 2},
        {},
        0,
    )


def test_what_a_hosts_nic_drops_while_its_link_fails_is_no_loss_of_the_emulation() -> None:
    after = census(host_0=sent(10, dropped_packets=5), leaf_to_0=received(10), leaf_to_1=sent(10), host_1=received(10))
    link = FABRIC.link_at[HOST_0]
    asked = FaultReport(changes=(LinkChange(link, DOWN, 1.0, 1.0, 1.0), LinkChange(link, WHOLE, 2.0, 2.0, 2.0)))
    assert conservation(FABRIC, census(), after, asked).dropped_at_senders == {}
    assert conservation(FABRIC, census(), after).dropped_at_senders == {str(HOST_0): 5}


def test_packets_that_came_of_nothing_are_no_cuts_doing() -> None:
    found = change(FaultReport(in_switches={LEAF: 5}, on_wires={HOST_0: 5}), 10, 12, 12)
    assert (found.lost_in_cuts, found.unaccounted) == ({}, {"switch z0l00": -2})


def test_frames_that_injected_loss_counted_are_accounted_for() -> None:
    found = change(FaultReport(by_loss={LEAF_TO_1: 3}), 10, 7, 7)
    assert (found.lost_by_faults, found.lost_in_cuts, found.unaccounted) == (3, {}, {})


def test_a_run_with_cuts_is_faithful_if_all_else_is_in_order() -> None:
    (check,) = conservation_checks([change(FaultReport(in_switches={LEAF: 5}), 10, 6, 6)])
    assert check.status is Status.FAITHFUL
    assert check.text == "all 10 packets are accounted for, 4 of them were lost in cuts"
    (check,) = conservation_checks([change(FaultReport(in_switches={LEAF: 3}), 10, 6, 6)])
    assert check.status is not Status.FAITHFUL


@pytest.mark.parametrize("dropped", [0, 2])
def test_drops_of_queues_come_first(dropped: int) -> None:
    after = census(
        host_0=sent(10), leaf_to_0=received(10), leaf_to_1=replace(sent(6), dropped_packets=dropped), host_1=received(6)
    )
    found = conservation(FABRIC, census(), after, FaultReport(in_switches={LEAF: 5}))
    assert found.lost_in_cuts_packets == 4 - dropped


@pytest.mark.parametrize(
    ("counted", "left", "unaccounted"),
    [(4, 6, {}), (9, 6, {}), (3, 6, {"switch z0l00": 1}), (2, 12, {"switch z0l00": -2})],
)
def test_beside_failures_what_rules_counted_as_dropped_is_a_bound(
    counted: int, left: int, unaccounted: dict[str, int]
) -> None:
    """Open vSwitch credits what an old rule had sent on to the new one, which may drop."""
    link = FABRIC.link_at[LEAF_TO_1]
    faults = FaultReport(changes=(LinkChange(link, DOWN, 0.0, 0.0, 0.0), LinkChange(link, WHOLE, 1.0, 1.0, 1.0)))
    after = census(counted, host_0=sent(10), leaf_to_0=received(10), leaf_to_1=sent(left), host_1=received(left))
    assert conservation(FABRIC, census(), after, faults).unaccounted == unaccounted
    exact = {"switch z0l00": 10 - left - counted} if left + counted != 10 else {}
    assert conservation(FABRIC, census(), after).unaccounted == exact
