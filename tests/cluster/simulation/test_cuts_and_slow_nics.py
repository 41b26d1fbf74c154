"""Links that are cut and heal, NICs that are slow until somebody finds them, and who looks for these."""

from __future__ import annotations

import math

import pytest

from cluster.faults.classes import DAY_S, Effect, FaultTable, fault_table
from cluster.nodes import Nodes
from cluster.policies import HAI
from cluster.simulation.composing import Machine, Validator, play_machine
from cluster.simulation.costs import Costs
from cluster.simulation.goodput import Cause
from cluster.simulation.lives import Job
from cluster.simulation.play import NodeFault, Setup, Simulated, simulate
from cluster.tasks import Users

FOUR = Nodes.grid(1, 1, 4)
COSTS = Costs(start=10, restore=20, interval=300, save=2, durable=5, stop=5, cut=12, slowdown=4, detect_slow=100)


def setup(costs: Costs = COSTS) -> Setup:
    return Setup(FOUR, Users(), HAI, costs)


def check_whole(found: Simulated) -> None:
    assert math.fsum(found.goodput.node_s.values()) == pytest.approx(found.goodput.whole_node_s, rel=1e-9)
    assert min(found.goodput.node_s.values()) >= -1e-6


def test_a_cut_costs_its_time_and_no_step() -> None:
    """Two that overlap come to one; one that comes while the job is stopped costs nothing."""
    job = Job(1, "ada", 4, work_s=200)
    found = simulate(setup(), [job], cuts_s=[50.0, 58.0, 400.0])
    assert found.jobs[0].ended_s == pytest.approx(10 + 200 + 20)
    assert found.goodput.node_s[Cause.CUT] == pytest.approx(4 * 20)
    check_whole(found)


def test_a_node_that_fails_during_a_cut_stops_the_job() -> None:
    job = Job(1, "ada", 3, work_s=200)
    fault = NodeFault(55.0, 0, Effect.GPU_ERROR, repair_s=1e5)
    found = simulate(setup(), [job], [fault], until_s=1e4, cuts_s=[50.0])
    assert found.jobs[0].failures == 1
    assert found.goodput.node_s[Cause.CUT] == pytest.approx(3 * 5)
    assert found.goodput.node_s[Cause.LOST] == pytest.approx(3 * 40)
    check_whole(found)


def test_a_slow_nic_slows_whoever_gets_its_node_until_it_is_noticed() -> None:
    """It is there before the job, and taken out at 150 s: until then every fourth second is a step's."""
    faults = [NodeFault(1.0, 0, Effect.SLOW_NIC, repair_s=10, noticed_s=150.0)]
    job = Job(1, "ada", 4, work_s=200, submitted_s=10)
    found = simulate(setup(), [job], faults)
    assert found.goodput.node_s[Cause.STRAGGLING] == pytest.approx(4 * 0.75 * (141 - 0), rel=0.02)
    check_whole(found)


def test_what_another_fault_has_taken_out_is_not_slow_any_more() -> None:
    faults = [
        NodeFault(20.0, 0, Effect.SLOW_NIC, repair_s=1000, noticed_s=300.0),
        NodeFault(50.0, 0, Effect.GPU_ERROR, repair_s=10),
    ]
    found = simulate(setup(), [Job(1, "ada", 4, work_s=400)], faults)
    assert found.jobs[0].failures == 1, "it came back whole, and is not taken out at 300 s"
    check_whole(found)


def table(effect: str, events: float) -> FaultTable:
    return fault_table(
        {"source": "test", "nodes": 100, "days": 10, "classes": [{"name": "one", "events": events, "effect": effect}]},
        "test",
    )


def test_a_machines_cuts_come_by_its_table_and_cost_their_time() -> None:
    machine, costs = Machine(50, 0, 20), COSTS.model_copy(update={"interval": math.inf})
    found = play_machine(table("link_cut", 100), machine, costs, seed=1)
    assert found.goodput.share(Cause.CUT) == pytest.approx(100 * 12 / (20 * DAY_S), rel=0.25)
    free = play_machine(table("link_cut", 100), machine, costs.model_copy(update={"cut": 0.0}), seed=1)
    assert free.goodput.share(Cause.CUT) == 0
    check_whole(found)


def test_a_validator_takes_its_time_with_notice_and_finds_what_is_slow() -> None:
    machine = Machine(50, 5, 20)
    slow = table("slow_nic", 20)
    shares = {}
    for days in (1.0, 5.0):
        found = play_machine(slow, machine, COSTS, 1, None, Validator(days * DAY_S, 600))
        runs = math.ceil(20 / days) - 1
        assert found.goodput.node_s[Cause.VALIDATION] == pytest.approx(50 * 600 * runs)
        assert len(found.jobs) == 1 + runs and found.jobs[0].suspends >= runs - 1
        check_whole(found)
        shares[days] = found.goodput.share(Cause.STRAGGLING)
    assert shares[1.0] < shares[5.0] / 2
    assert Validator(100, 10).finds_s(201) == 310
    with pytest.raises(ValueError, match="0 < takes < period"):
        Validator(100, 100)
