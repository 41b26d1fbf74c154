"""Marking by the bytes that wait."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fabric.model.lanes import CONTROL, LaneConfig, QueueConfig, Queueing, plan_lanes
from fabric.model.marking import Marking

MARKING = Marking(kmin=1000, kmax=3000, pmax=0.5)
OWN = Marking(kmin=1, kmax=2, pmax=1.0)


def test_the_probability_rises_linearly_between_the_thresholds() -> None:
    waiting = [0, 1000, 1500, 2000, 3000, 3001]
    assert [MARKING.probability(size) for size in waiting] == [0.0, 0.0, 0.125, 0.25, 0.5, 1.0]


def test_thresholds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValidationError, match="kmin 3001 B is above kmax 3000 B; lower it"):
        Marking(kmin=3001, kmax=3000, pmax=0.5)


@pytest.mark.parametrize("queueing", Queueing)
def test_every_lane_of_data_marks_and_no_other_one(queueing: Queueing) -> None:
    plan = plan_lanes(QueueConfig(marking=MARKING), queueing)
    marking = {lane.name for lane in plan.lanes if lane.marking == MARKING}
    assert marking == {lane.name for lane in plan.lanes if lane.share and lane.name != CONTROL}
    assert all(lane.marking is None for lane in plan_lanes(QueueConfig(), queueing).lanes)


def test_a_lane_may_have_a_marking_of_its_own() -> None:
    lanes = dict(QueueConfig().lanes)
    lanes["storage"] = LaneConfig(share=0.35, service_levels=["storage"], marking=OWN)
    plan = plan_lanes(QueueConfig(lanes=lanes, marking=MARKING), Queueing.LANES)
    assert (plan.named("storage").marking, plan.named("nccl").marking) == (OWN, MARKING)
