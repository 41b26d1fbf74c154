from __future__ import annotations

import numpy as np
import pytest

from fabric.delivered import Flow
from fabric.stalls.victims import VICTIM_SHARE, Slowing, Way, flows_frame, slowing
from fabric.tables import TABLES
from tests.fabric.stalls.chain import FULL, HELD, PHASE, WIRES, lane, seen

TO_X: Way = (lane("a:0"), lane("s:3"), lane("t:1"))
TO_Y: Way = (lane("b:0"), lane("s:3"), lane("t:2"))
APART: Way = (lane("y:0"), lane("t:3"))


def become(ways: list[Way], sizes: list[float], congested: list[bool]) -> Slowing:
    """What becomes of a flow while x is full in some seconds."""
    time, found = seen([FULL if full else {} for full in congested], [HELD] * (len(congested) + 1))
    return slowing(np.array(sizes), [ways] * len(sizes), found, time, WIRES)


def test_a_flow_behind_a_root_that_it_does_not_cross_is_a_victim() -> None:
    found = become([TO_Y], [100, 100], [True, True])
    assert found.is_victim
    assert (found.active_s, found.own_s) == (2, 0)
    assert found.slowed_s == pytest.approx(1.0)  # The stillest lane of its way, b:0, stood still for half of each.
    assert found.idle_bits == pytest.approx(2 * 0.4 * 8_000)  # s:3, the fullest, sent for 0.6 of the time.
    assert list(found.roots) == [lane("t:1")]


def test_a_flow_through_the_root_is_none_and_one_apart_is_not_slowed() -> None:
    through, apart = (become([way], [100, 100], [True, True]) for way in (TO_X, APART))
    assert (through.slowed_s, through.own_s, through.is_victim) == (0, 2, False)
    assert (apart.slowed_s, apart.own_s, apart.is_victim) == (0, 0, False)


def test_only_time_in_which_the_flow_had_something_under_way_counts() -> None:
    found = become([TO_Y], [100, 0, 100, 0], [False, True, True, True])
    assert found.active_s == 2
    assert found.slowed_s == pytest.approx(0.5)


def test_a_flow_slowed_for_less_than_a_tenth_of_its_time_is_no_victim() -> None:
    assert become([TO_Y], [100] * 4, [True, False, False, False]).is_victim  # 0.5 s of 4 s.
    assert not Slowing(active_s=10, slowed_s=10 * VICTIM_SHARE).is_victim
    assert not Slowing(active_s=10, slowed_s=5, own_s=1.1).is_victim


def test_of_several_ways_none_may_cross_a_root_and_all_must_stand_still() -> None:
    assert become([TO_Y, TO_X], [100], [True]).own_s == 1
    beside = become([TO_Y, APART], [100], [True])
    assert (beside.slowed_s, beside.own_s) == (0, 0)


def test_flows_that_no_tree_touches_are_all_there_is_without_congestion() -> None:
    assert become([TO_X], [100], [False]) == Slowing(active_s=1.0)


def test_a_row_tells_who_was_slowed_by_which_root_and_what_it_could_have_had() -> None:
    time, found = seen([FULL, {}], [HELD] * 3)
    flow = Flow("storage", "b", "y")
    frame = flows_frame(PHASE, {flow: np.array([300.0, 500.0])}, {flow: [[TO_Y]] * 2}, found, time, WIRES)
    assert list(frame) == list(TABLES["flow_stalls"].columns)
    (row,) = frame.to_dict("records")
    assert (row["host"], row["peer"], row["root_port"], row["root_lane"]) == ("b", "y", "t:1", "lossless")
    assert (row["delivered_bytes"], row["rate_bps"], row["idle_bps"]) == (800, 3_200, pytest.approx(1_600))
    assert row["victim"]
