"""Faults of what all tasks share, NICs that are slow until somebody finds them, and who looks for these."""

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
from cluster.simulation.play import NodeFault, Setup, SharedFault, Simulated, simulate
from cluster.tasks import Users

FOUR = Nodes.grid(1, 1, 4)
COSTS = Costs(start=10, restore=20, interval=300, save=2, durable=5, stop=5, cut=12, slowdown=4, detect_slow=100)


def cut(at_s: float) -> SharedFault:
    return SharedFault(at_s, Cause.CUT, COSTS.cut)


def setup(costs: Costs = COSTS) -> Setup:
    return Setup(FOUR, Users(), HAI, costs)


def check_whole(found: Simulated) -> None:
    assert math.fsum(found.goodput.node_s.values()) == pytest.approx(found.goodput.whole_node_s, rel=1e-9)
    assert min(found.goodput.node_s.values()) >= -1e-6


def test_a_cut_costs_its_time_and_no_step() -> None:
    """Two that overlap come to one; one that comes while the job is stopped costs nothing."""
    job = Job(1, "ada", 4, work_s=200)
    found = simulate(setup(), [job], shared=[cut(50.0), cut(58.0), cut(400.0)])
    assert found.jobs[0].ended_s == pytest.approx(10 + 200 + 20)
    assert found.goodput.node_s[Cause.CUT] == pytest.approx(4 * 20)
    check_whole(found)


def test_a_node_that_fails_during_a_cut_stops_the_job() -> None:
    job = Job(1, "ada", 3, work_s=200)
    fault = NodeFault(55.0, 0, Effect.GPU_ERROR, repair_s=1e5)
    found = simulate(setup(), [job], [fault], until_s=1e4, shared=[cut(50.0)])
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


def test_storage_stops_steps_and_a_spine_slows_them_as_long_as_it_is_away() -> None:
    """From 110 to 310 s a step takes twice as long, by the spine that costs most; storage stands between them; a node
    with a slow NIC, which slows more, counts as what slows from 510 s on."""
    slow = [SharedFault(110, Cause.CAPACITY, 0, 310, 2.0), SharedFault(150, Cause.CAPACITY, 0, 200, 1.5)]
    shared = [*slow, SharedFault(30, Cause.STORAGE, 25), SharedFault(40, Cause.CUT, 5)]
    faults = [NodeFault(510.0, 0, Effect.SLOW_NIC, repair_s=1e6, noticed_s=1e5)]
    found = simulate(setup(), [Job(1, "ada", 4, work_s=600)], faults, until_s=1e4, shared=shared)
    node_s = found.goodput.node_s
    assert (node_s[Cause.STORAGE], node_s[Cause.CUT]) == pytest.approx((4 * 25, 0)), "the cut is over before"
    assert node_s[Cause.CAPACITY] == pytest.approx(4 * 100)
    steps_left_s = 600 - (30 - 10) - (110 - 55) - 100 - (510 - 310 - 2)
    assert node_s[Cause.STRAGGLING] == pytest.approx(4 * 3 * steps_left_s)
    check_whole(found)
    with pytest.raises(ValueError, match="is not steps lost"):
        SharedFault(0, Cause.LOST, 1)


def test_a_leaf_takes_all_its_nodes_along_and_who_is_left_is_too_few() -> None:
    """Two of four nodes are gone: a job of three waits until they are back, one of two does not."""
    leaf = NodeFault(100.0, 0, Effect.SILENT, repair_s=500, beside=(1,))
    three = simulate(setup(), [Job(1, "ada", 3, work_s=200)], [leaf])
    noticed_s = 100 + COSTS.detect_silent
    assert three.jobs[0].failures == 1
    assert three.goodput.node_s[Cause.OUT] == pytest.approx(2 * (500 - COSTS.stop))
    assert three.jobs[0].ended_s == pytest.approx(noticed_s + 500 + 10 + 200, abs=1)
    two = simulate(setup(), [Job(1, "ada", 2, work_s=200)], [leaf], until_s=1e4)
    assert two.jobs[0].ended_s == pytest.approx(noticed_s + COSTS.stop + 10 + 200, abs=1)
    check_whole(three)
    check_whole(two)
    machine = Machine(9, 1, 1.0, leaves=3)
    assert [list(machine.below(leaf)) for leaf in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]
    with pytest.raises(ValueError, match="11 leaves for 10 nodes"):
        Machine(9, 1, 1.0, leaves=11)


def test_who_computed_wrong_goes_back_to_the_checkpoint_before_the_last() -> None:
    """It has checkpoints of 300 and 600 s when it fails at 700 s of steps, reads the last one in vain, and goes on from
    300; if it fails before its first one it loses an interval of the life before."""
    costs = COSTS.model_copy(update={"wrong": 7.0})
    fault = NodeFault(10 + 700 + 4, 0, Effect.CORRUPTION, repair_s=1e6)
    found = simulate(setup(costs), [Job(1, "ada", 3, work_s=900)], [fault], until_s=1e5)
    assert found.jobs[0].lost_s == pytest.approx(400)
    assert found.goodput.node_s[Cause.RESTORE] == pytest.approx(3 * (20 + 7))
    again = NodeFault(10 + 700 + 4 + 5 + 5 + 10 + 27 + 50, 1, Effect.CORRUPTION, repair_s=0)
    twice = simulate(setup(costs), [Job(1, "ada", 3, work_s=900)], [fault, again], until_s=1e5)
    assert twice.jobs[0].lost_s == pytest.approx(400 + 300 + 50, abs=1.5)
    assert twice.goodput.node_s[Cause.KEPT] == pytest.approx(3 * 900)
    check_whole(found)
    check_whole(twice)


def test_a_machines_storage_nodes_and_switches_fail_by_its_table() -> None:
    costs = COSTS.model_copy(update={"interval": math.inf, "storage": 30.0, "spine": 2.0, "spine_slowdown": 1.25})
    machine = Machine(50, 10, 20, leaves=10, spines=10, storage_nodes=100)
    lost = play_machine(table("storage_down", 500), machine, costs, seed=1)
    assert lost.goodput.share(Cause.STORAGE) == pytest.approx(50 / 60 * 0.6 * 500 * 2 * 30 / (20 * DAY_S), rel=0.15)
    switches = play_machine(table("switch_down", 40), machine, costs, seed=1)
    assert switches.goodput.node_s[Cause.CAPACITY] > 0 < switches.goodput.node_s[Cause.OUT]
    assert switches.jobs[0].failures >= 1
    none = play_machine(table("switch_down", 40), Machine(50, 10, 20), costs, seed=1)
    assert none.jobs[0].failures == 0 == none.goodput.node_s[Cause.CAPACITY]
    check_whole(lost)
    check_whole(switches)


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
