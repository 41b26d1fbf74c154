"""Jobs over time: exact where closed forms say what comes out, and in sum where they do not."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from cluster.checkpoints.intervals import expected_slowdown, youngs_interval_s
from cluster.faults.classes import DAY_S, Effect, Unit
from cluster.faults.drawing import Units, draw_faults
from cluster.faults.published import published
from cluster.nodes import Nodes
from cluster.policies import EASY, FIFO, HAI, POLICIES, Policy
from cluster.simulation.costs import Costs
from cluster.simulation.goodput import Cause
from cluster.simulation.lives import Job, Life
from cluster.simulation.play import NodeFault, Setup, Simulated, node_faults, simulate
from cluster.tasks import Priority, Users
from fabric.errors import ConfigError

FOUR = Nodes.grid(1, 1, 4)
COSTS = Costs(start=10, restore=20, interval=300, save=2, durable=5, answer=1, suspend_save=3, stop=5, detect_error=5)
HIGH = Priority.HIGH


def setup(policy: Policy = HAI, nodes: Nodes = FOUR, costs: Costs = COSTS) -> Setup:
    return Setup(nodes, Users(), policy, costs)


def check_whole(found: Simulated) -> None:
    """The causes sum to the whole, and steps of jobs that ended were kept once."""
    goodput = found.goodput
    assert math.fsum(goodput.node_s.values()) == pytest.approx(goodput.whole_node_s, rel=1e-9)
    assert min(goodput.node_s.values()) >= -1e-6
    assert goodput.total == pytest.approx(goodput.scheduling * goodput.runtime)
    if all(report.ended_s is not None for report in found.jobs):
        work_s = sum(report.job.nodes * report.job.work_s for report in found.jobs)
        assert goodput.node_s[Cause.KEPT] == pytest.approx(work_s, rel=1e-9)


def test_a_life_is_its_start_its_steps_and_its_checkpoints() -> None:
    job = Job(1, "ada", 2, work_s=1000)
    assert Life(job, 0.0, 0.0, COSTS).ends_s == 10 + 1000 + 3 * 2
    assert Life(job, 0.0, 400.0, COSTS).ends_s == 10 + 20 + 600 + 2
    assert Life(Job(1, "ada", 2, work_s=300), 0.0, 0.0, COSTS).ends_s == 310, "none is written at the end"


@pytest.mark.parametrize(
    ("killed_s", "kept_s", "lost_s", "save_s"),
    [
        (4, 0, 0, 0),
        (110, 0, 100, 0),
        (311, 0, 300, 1),
        (316.9, 0, 304.9, 2),  # The checkpoint is not complete yet.
        (317.1, 300, 5.1, 2),
        (700, 600, 86, 4),
    ],
)
def test_what_is_killed_keeps_the_steps_of_its_last_complete_checkpoint(
    killed_s: float, kept_s: float, lost_s: float, save_s: float
) -> None:
    life = Life(Job(1, "ada", 2, work_s=1000), 50.0, 0.0, COSTS)
    life.move(50 + killed_s)
    done_s, causes = life.ended(keeps_all=False)
    assert done_s == pytest.approx(kept_s)
    assert (causes[Cause.KEPT], causes[Cause.LOST], causes[Cause.SAVE]) == pytest.approx((kept_s, lost_s, save_s))
    assert math.fsum(causes.values()) == pytest.approx(killed_s)


@pytest.mark.parametrize(
    ("killed_s", "kept_s", "lost_s", "save_s"),
    [
        (110, 0, 100, 0),  # The first begins, ...
        (112, 0, 100, 2),
        (212, 0, 200, 2),
        (361.9, 0, 200, 151.9),  # ... and the second waits until it is complete, 250 s later.
        (362.1, 100, 100, 152.1),
        (374, 100, 110, 154),
        (613.9, 100, 200, 303.9),
        (614.1, 200, 100, 304.1),
    ],
)
def test_a_checkpoint_begins_when_the_last_one_is_complete(
    killed_s: float, kept_s: float, lost_s: float, save_s: float
) -> None:
    """As many as came due were written at once, for nothing: the shorter the interval, the less a failure lost."""
    costs = COSTS.model_copy(update={"interval": 100.0, "durable": 250.0})
    life = Life(Job(1, "ada", 2, work_s=1000), 50.0, 0.0, costs)
    assert life.ends_s == 50 + 10 + 1000 + 9 * 2 + 8 * 150
    life.move(50 + killed_s)
    done_s, causes = life.ended(keeps_all=False)
    assert done_s == pytest.approx(kept_s)
    assert (causes[Cause.KEPT], causes[Cause.LOST], causes[Cause.SAVE]) == pytest.approx((kept_s, lost_s, save_s))
    assert math.fsum(causes.values()) == pytest.approx(killed_s)


def test_one_suspend_costs_its_save_a_start_and_a_restore() -> None:
    """The higher one comes at 100 s: the lower one makes steps for 1 s more, saves for 3 s, and goes on when the higher
    one has ended, from where it was."""
    low, high = Job(1, "ada", 4, work_s=200), Job(2, "bo", 4, work_s=50, submitted_s=100, priority=HIGH)
    found = simulate(setup(), [low, high])
    first, second = found.jobs
    assert (second.first_start_s, second.waited_s, second.ended_s) == (104, 4, 164)
    steps_s = 101 - 10
    assert first.ended_s == 164 + 10 + 20 + (200 - steps_s)
    assert (first.suspends, first.lost_s, first.waited_s) == (1, 0, 60)
    check_whole(found)
    assert found.goodput.node_s[Cause.SUSPENDED] == 4 * 3
    assert found.goodput.node_s[Cause.RESTORE] == 4 * 20


@pytest.mark.parametrize("late", [{"answer": 6}, {"suspend_save": 6}])
def test_who_answers_or_saves_too_late_is_killed(late: dict[str, float]) -> None:
    low, high = Job(1, "ada", 4, work_s=500), Job(2, "bo", 4, work_s=50, submitted_s=100, priority=HIGH)
    found = simulate(setup(costs=COSTS.model_copy(update=late)), [low, high])
    leaves_s = 106 if "answer" in late else 107  # It is killed in a turn, and the next one sees that it is gone.
    assert found.jobs[1].first_start_s == leaves_s
    assert found.jobs[0].lost_s == pytest.approx(95 if "answer" in late else 91, abs=0.02)
    check_whole(found)


@pytest.mark.parametrize(("work_s", "suspends_s"), [(94.0, None), (96.0, 104.0)])
def test_who_is_told_in_its_last_step_ends_instead_of_answering(work_s: float, suspends_s: float | None) -> None:
    """Steps of 5 s: at 100 s the last of 94 s is under way, and of 96 s the last but one. By what was measured the
    notice is answered before the end in both cases."""
    costs = COSTS.model_copy(update={"step": 5.0})
    low, high = Job(1, "ada", 4, work_s), Job(2, "bo", 4, work_s=50, submitted_s=100, priority=HIGH)
    found = simulate(setup(costs=costs), [low, high])
    first, second = found.jobs
    assert second.first_start_s == (suspends_s or 10 + work_s)
    assert len([life for life in found.lives if life.job == 1]) == (1 if suspends_s is None else 2)
    assert first.lost_s == 0
    check_whole(found)


def test_a_failure_costs_steps_detection_and_restart_and_the_node_is_out() -> None:
    job = Job(1, "ada", 3, work_s=1000)
    fault = NodeFault(at_s=500, node=1, effect=Effect.GPU_ERROR, repair_s=3600)
    found = simulate(setup(), [job], [fault])
    report = found.jobs[0]
    made_s = 500 - 10 - 2
    assert report.lost_per_failure_s == [made_s - 300]
    assert report.failures == 1
    assert report.ended_s == 500 + 5 + 5 + 10 + 20 + 700 + 2 * 2
    node_s = found.goodput.node_s
    assert node_s[Cause.DETECTION] == 3 * 10
    assert node_s[Cause.OUT] == report.ended_s - 510, "while it is held by its task it counts there"
    check_whole(found)


def test_a_node_that_needs_no_repair_has_ended_its_job_all_the_same() -> None:
    found = simulate(setup(), [Job(1, "ada", 4, work_s=1000)], [NodeFault(500, 1, Effect.SILENT, 0)])
    assert found.jobs[0].ended_s == 500 + 60 + 5 + 10 + 20 + 700 + 2 * 2
    check_whole(found)


def test_without_a_spare_node_a_job_waits_for_the_repair() -> None:
    found = simulate(setup(), [Job(1, "ada", 4, work_s=1000)], [NodeFault(500, 1, Effect.GPU_ERROR, 3600)])
    assert found.jobs[0].waited_s == pytest.approx(500 + 5 + 3600 - 510)
    check_whole(found)
    assert found.goodput.node_s[Cause.QUEUED] == pytest.approx(3 * found.jobs[0].waited_s)


def test_a_slow_nic_straggles_until_it_is_found_and_then_saves() -> None:
    costs = COSTS.model_copy(update={"detect_slow": 100.0, "slowdown": 4.0})
    found = simulate(setup(costs=costs), [Job(1, "ada", 3, work_s=290)], [NodeFault(50, 0, Effect.SLOW_NIC, 1e4)])
    report = found.jobs[0]
    steps_s = 40 + 101 / 4
    assert report.ended_s == pytest.approx(154 + 30 + 290 - steps_s)
    assert report.lost_s == 0
    assert found.goodput.node_s[Cause.STRAGGLING] == pytest.approx(3 * 101 * 0.75)
    check_whole(found)


def test_above_normal_is_interrupted_after_half_an_hour_by_an_older_normal_one() -> None:
    jobs = [
        Job(1, "bo", 4, work_s=100),
        Job(2, "cy", 4, work_s=300, submitted_s=1),
        Job(3, "ada", 4, work_s=4000, submitted_s=50, priority=Priority.ABOVE_NORMAL),
    ]
    found = simulate(setup(), jobs)
    runs_s = found.jobs[2].first_start_s
    assert runs_s == 54
    assert found.jobs[0].suspends == 1
    assert found.jobs[0].ended_s == pytest.approx(54 + 1800 + 4 + 30 + 100 - 41)
    check_whole(found)


def random_jobs(seed: int, count: int, most_nodes: int) -> list[Job]:
    rng = random.Random(seed)
    levels = [Priority.HIGH, Priority.ABOVE_NORMAL, Priority.NORMAL, Priority.AUTO]
    jobs, at_s = [], 0.0
    for number in range(count):
        at_s += rng.expovariate(1 / 150)
        work_s = rng.lognormvariate(6, 1.5)
        nodes = min(most_nodes, rng.choice((1, 1, 2, 3, 4, 6, 9)))
        jobs.append(
            Job(number, f"u{rng.randrange(4)}", nodes, work_s, at_s, rng.choice(levels), limit_s=2 * work_s + 300)
        )
    return jobs


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_causes_sum_to_the_whole_under_every_policy_with_faults(name: str) -> None:
    nodes = Nodes.grid(2, 2, 3)
    rng = random.Random(5)
    effects = [Effect.GPU_ERROR, Effect.SILENT, Effect.SLOW_NIC]
    faults = [
        NodeFault(rng.uniform(0, 2e4), rng.randrange(12), rng.choice(effects), rng.uniform(100, 2e4)) for _ in range(60)
    ]
    jobs = random_jobs(2, 120, 9)
    found = simulate(setup(POLICIES[name], nodes), jobs, faults)
    check_whole(found)
    assert sum(report.failures for report in found.jobs) > 10
    assert found.most_crossing <= 1
    assert simulate(setup(POLICIES[name], nodes), jobs, faults) == found, "the same again"
    early = simulate(setup(POLICIES[name], nodes), jobs, faults, until_s=9000)
    check_whole(early)


def test_priorities_wait_less_and_backfilling_uses_more() -> None:
    """The same list under three policies."""
    nodes, jobs = Nodes.grid(1, 2, 6), random_jobs(3, 250, 9)
    played = {policy.name: simulate(setup(policy, nodes), jobs) for policy in (HAI, FIFO, EASY)}

    def waited_s(name: str, level: Priority) -> float:
        waits = [report.waited_s for report in played[name].jobs if report.job.priority is level]
        return sum(waits) / len(waits)

    assert waited_s("hai", HIGH) < 0.6 * waited_s("fifo", HIGH)
    assert waited_s("hai", Priority.NORMAL) > 1.5 * waited_s("hai", HIGH)
    mean = {name: sum(report.waited_s for report in one.jobs) / len(one.jobs) for name, one in played.items()}
    assert mean["easy"] < 0.9 * mean["fifo"]
    assert sum(report.suspends for report in played["fifo"].jobs) == 0 < sum(r.suspends for r in played["hai"].jobs)


def year(name: str, nodes: int, costs: Costs, days: float = 365) -> Simulated:
    """Return a year of one job on a machine with a published table's faults: four nodes stand for all of it, each with
    as many faults as a quarter has, and others are spare."""
    table = published(name)
    table = table.model_copy(update={"nodes": table.nodes * 4 / nodes})
    assert table.mtbf_s(4) == pytest.approx(published(name).mtbf_s(nodes))
    there = Nodes.grid(1, 1, 4 + 40)
    drawn = draw_faults(table, Units(there.names), days, seed=1)
    faults, _ = node_faults(drawn, there)
    found = simulate(setup(HAI, there, costs), [Job(1, "ada", 4, work_s=1e12)], faults, until_s=days * DAY_S)
    check_whole(found)
    return found


def test_five_minutes_at_most_are_lost_per_failure() -> None:
    """Steps lost by a failure spread evenly over the interval: 150 s on average; detection and restart come to it. Six
    of Llama 3's 419 are nodes that computed wrong: those lose one interval more."""
    found = year("llama3", 2048, Costs(save=0.5, durable=2), days=90)
    lost_s = found.jobs[0].lost_per_failure_s
    assert len(lost_s) > 600
    more = [seconds for seconds in lost_s if seconds > 300 + 2]
    assert 0 < len(more) / len(lost_s) < 4 * 6 / 419 and max(more) <= 600 + 2
    assert sum(lost_s) / len(lost_s) == pytest.approx(150 + 2 + 300 * 6 / 419, rel=0.05)


def test_llama3s_rates_leave_more_than_its_90_percent() -> None:
    found = year("llama3", 2048, Costs(start=120, restore=60, save=1, detect_silent=60), days=54)
    assert 0.9 < found.goodput.runtime < 0.99
    assert found.jobs[0].failures == pytest.approx(419, rel=0.15)


def test_the_best_interval_is_youngs() -> None:
    """A sweep of intervals beside the closed form, for a synchronous checkpoint; failures come every 1.8 h, as to 2,048
    nodes of RSC-1."""
    stall_s, mtbf_s = 20.0, published("rsc1").mtbf_s(2048)
    wasted = {}
    best_s = youngs_interval_s(stall_s, mtbf_s)
    for factor in (0.25, 1.0, 4.0):
        costs = Costs(interval=factor * best_s, save=stall_s, durable=0, start=60, restore=60, stop=5, detect_silent=30)
        found = year("rsc1", 2048, costs, days=60)
        held = found.goodput.runtime
        restart_s = 30 + costs.restart_s()
        wasted[factor] = 1 - held
        assert 1 / held == pytest.approx(expected_slowdown(costs.interval, stall_s, mtbf_s, restart_s), rel=0.02)
    assert min(wasted, key=lambda one: wasted[one]) == 1.0


def test_intervals_that_storage_cannot_keep_up_with_are_not_rewarded() -> None:
    """Beside the closed form, in which steps stand still for the rest of the last checkpoint, too."""
    mtbf_s, durable_s = published("rsc1").mtbf_s(2048), 60.0
    goodput = []
    for interval_s in (5.0, 30.0, 60.0, 300.0):
        costs = Costs(interval=interval_s, save=1, durable=durable_s, start=60, restore=60, stop=5, detect_silent=30)
        found = year("rsc1", 2048, costs, days=60)
        stall_s = 1 + max(0.0, durable_s - interval_s)
        assert costs.wait_s == stall_s - 1
        expected = 1 / expected_slowdown(interval_s, stall_s, mtbf_s, 30 + costs.restart_s() + durable_s)
        assert found.goodput.runtime == pytest.approx(expected, rel=0.02)
        goodput.append(found.goodput.runtime)
    assert goodput[0] < 0.1 and goodput[1] < 0.5 < 0.9 < goodput[2]


def test_faults_of_links_and_storage_are_counted_not_played() -> None:
    nodes = Nodes.grid(1, 1, 50)
    units = Units(nodes.names, links=tuple(f"z0l00:{number}" for number in range(1, 200)))
    found, others = node_faults(draw_faults(published("fire_flyer_2"), units, 2000, seed=1), nodes)
    assert set(others) == {Effect.LINK_CUT} and others[Effect.LINK_CUT] > 20
    assert {fault.effect for fault in found} == {Effect.GPU_ERROR, Effect.SILENT}
    with pytest.raises(ValueError, match="node3: is not one of the 50 nodes z0h000 to z0h049"):
        node_faults(draw_faults(published("rsc1"), Units.numbered({Unit.NODE: 9}), 200, 1), nodes)


def test_what_cannot_be_played_is_refused() -> None:
    with pytest.raises(ConfigError, match="the group training has 4; ask for 4 or fewer"):
        simulate(setup(), [Job(1, "ada", 5, work_s=1)])
    with pytest.raises(ValueError, match="no job and no time until which to play"):
        simulate(setup(), [])
    with pytest.raises(ValueError, match="it needs at least one node, some work"):
        Job(1, "ada", 0, 1)
    with pytest.raises(ValueError, match="is not link_cut"):
        NodeFault(0, 0, Effect.LINK_CUT, 1)


def ended(found: Simulated) -> Sequence[float | None]:
    return [report.ended_s for report in found.jobs]


def test_what_happens_at_the_time_of_a_tick_and_after_it_is_decided_on_too() -> None:
    """The tick at 120 s is expected from 101 s on; at 120 s the node is repaired, and the job has been stopped."""
    jobs = [Job(1, "ada", 4, work_s=1000), Job(2, "bo", 1, work_s=10, submitted_s=101)]
    faults = [NodeFault(110, 0, Effect.GPU_ERROR, repair_s=5)]
    found = simulate(Setup(FOUR, Users(), FIFO, COSTS, tick_s=30), jobs, faults)
    assert found.jobs[0].waited_s == 0
    check_whole(found)


def test_a_rare_tick_only_delays_starts() -> None:
    jobs = random_jobs(4, 30, 4)
    rare = simulate(Setup(FOUR, Users(), FIFO, COSTS, tick_s=30), jobs)
    check_whole(rare)
    assert all(report.first_start_s is not None and report.first_start_s % 30 == 0 for report in rare.jobs)
    assert ended(rare) != ended(simulate(setup(FIFO), jobs))
