"""Waits, use, losses and fairness of a list, by hand; lists that are made to fit; and which bound quotas set."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.jobs.spans import End, LifeSpan
from cluster.nodes import Nodes
from cluster.policies import HAI, HAI_BACKFILL
from cluster.sharing.bounds import bounded_waits, longest_wait_s, nodes_before
from cluster.sharing.composed import Cluster, grid_of, play_list, sweep
from cluster.sharing.lists import GivenChoices, ListConfig, fitted_list
from cluster.sharing.measures import jain, measure, shares, size_of
from cluster.simulation.costs import Costs
from cluster.simulation.lives import Job
from cluster.tasks import Priority, Users
from fabric.config import checked
from fabric.errors import ConfigError
from tests.cluster.jobs.test_jobs import ACME

COSTS = Costs(start=1, restore=0, interval=30, save=0, durable=0, answer=1, suspend_save=2)
HIGH, NORMAL = Priority.HIGH, Priority.NORMAL


def test_a_lists_measures_are_those_of_its_lives() -> None:
    """Four nodes. Ada's job has all of them for 10 s, is suspended, and has them again from 20 s on; Bo's has two in
    between, from 12 s on."""
    ada = Job(0, "ada", 4, 20.0)
    bo = Job(1, "bo", 2, 8.0, submitted_s=8.0, priority=HIGH)
    every, two = (0, 1, 2, 3), (0, 1)
    lives = [
        LifeSpan(0, 0.0, 0.0, 10.0, every, End.KILLED, told_s=8.0, lost_s=3.0),
        LifeSpan(1, 8.0, 12.0, 20.0, two, End.FINISHED),
        LifeSpan(0, 10.0, 20.0, 32.0, every, End.FINISHED),
    ]
    found = measure([ada, bo], lives, 4)
    assert (found.waits.mean_s, found.waits.most_s) == (7.0, 10.0)
    assert (found.by_priority["high"].mean_s, found.by_priority["normal"].mean_s) == (4.0, 10.0)
    assert {name: waits.jobs for name, waits in found.by_size.items()} == {"2_to_4": 2}
    assert found.use.whole == pytest.approx((40 + 16 + 48) / (4 * 32))
    assert found.use.arriving == 1.0, "until Bo's came"
    assert found.use.waiting == pytest.approx((8 + 16) / (4 * 12)), "from 8 to 20 s one of them waits"
    assert found.use.waited_fraction == 0.0
    assert (found.suspends, found.kills, found.makespan_s) == (0, 1, 32.0)
    assert found.lost_node_s[End.KILLED] == 12.0
    part = shares([ada, bo], lives)
    assert part == {"ada": pytest.approx(22 / 32), "bo": pytest.approx(8 / 12)}
    assert found.fairness == pytest.approx(jain(part.values()))
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert [size_of(replace(ada, nodes=nodes)) for nodes in (1, 4, 5, 128, 129)] == [
        "1", "2_to_4", "5_to_16", "17_to_128", "129_and_more",
    ]  # fmt: skip


def test_measures_are_what_the_simulations_own_account_says() -> None:
    listed = fitted_list(ListConfig(count=200, users=8, load=1.2, given=GivenChoices(deaf=0.5)), 32, COSTS, seed=3)
    for policy in (HAI, HAI_BACKFILL):
        from cluster.simulation.goodput import Cause
        from cluster.simulation.play import Setup, simulate

        found = simulate(Setup(grid_of(32), Users(), policy, COSTS, seed=1), listed.jobs)
        measures = measure(listed.jobs, found.lives, 32)
        assert measures.use.whole == pytest.approx(found.goodput.scheduling, rel=1e-6)
        assert sum(measures.lost_node_s.values()) == pytest.approx(found.goodput.node_s[Cause.LOST], rel=1e-6)
        told = [life for life in found.lives if life.told_s is not None]
        assert len(told) == sum(report.suspends for report in found.jobs)
        assert measures.suspends + measures.kills == sum(life.end is not End.FINISHED for life in told) > 0
        assert measures.kills > 0
        waited_s = [report.waited_s for report in found.jobs]
        assert measures.waits.mean_s == pytest.approx(sum(waited_s) / len(waited_s))


def test_what_does_not_fit_a_list_is_counted(tmp_path: Path) -> None:
    config = ListConfig(count=300, gpus_per_node=64, shortest=30, longest=900, faster=2, step=1.0, load=1.5)
    listed = fitted_list(config, 16, COSTS, seed=1)
    assert len(listed.jobs) + sum(listed.left_out.values()) == 300
    assert set(listed.left_out) == {"ran for less than 30 s", "ran for more than 900 s"}
    for job in listed.jobs:
        assert 30 <= job.work_s <= 900
        assert job.work_s == int(job.work_s)
        assert job.submitted_s % 1 == 0.5
    work_s, last_s = sum(job.nodes * job.work_s for job in listed.jobs), listed.jobs[-1].submitted_s
    assert work_s / (16 * last_s) == pytest.approx(1.5, rel=0.02)
    small = fitted_list(config.model_copy(update={"largest": 2}), 16, COSTS, seed=1)
    assert max(job.nodes for job in small.jobs) == 2
    assert small.left_out["larger than the cluster"] > 0
    trace = tmp_path / "trace.csv"
    trace.write_text(ACME)
    of_trace = fitted_list(checked(ListConfig, {"jobs_from": str(trace)}, "test"), 4, COSTS, seed=1)
    assert ([job.work_s for job in of_trace.jobs], of_trace.what) == ([117.0, 2693.0], "Acme, trace.csv")
    assert sum(
        not job.answers for job in fitted_list(ListConfig(count=500, given=GivenChoices(deaf=0.3)), 200, COSTS, 1).jobs
    ) == (pytest.approx(150, abs=40))
    for keys, words in (
        ({"jobs_from": "pai"}, "'pai' is not a file, and none of seren, kalos"),
        ({"given": {"high": 0.7, "under_normal": 0.5}}, "high, under_normal: 0.7 and 0.5 are more than all"),
        ({"shortest": 10, "longest": 5}, "longest: 5 s is not above shortest"),
    ):
        with pytest.raises(ConfigError, match=words):
            checked(ListConfig, keys, "test")
    with pytest.raises(ConfigError, match=r"none of 20 jobs fits: .*; change its limits or nodes"):
        fitted_list(ListConfig(count=20, shortest=9e5), 16, COSTS, seed=1)


def test_all_policies_play_the_same_lists() -> None:
    points = sweep(
        ListConfig(count=40), Cluster(grid_of(16), COSTS), [HAI, HAI_BACKFILL], [0.5, 2.0], [1, 2], lambda words: None
    )
    assert [(one.policy, one.load, one.seed) for one in points[:3]] == [
        ("hai", 0.5, 1), ("hai_backfill", 0.5, 1), ("hai", 0.5, 2),
    ]  # fmt: skip
    assert {one.measures.waits.jobs for one in points if one.seed == 1} == {points[0].measures.waits.jobs}


def stream(seed: int, users: int, count: int) -> list[Job]:
    """Jobs of HIGH that come all the time, some of NORMAL, and many that yield to all."""
    rng = random.Random(seed)
    jobs = []
    for number in range(count):
        level = rng.choices([HIGH, NORMAL, Priority.UNDER_NORMAL], [6, 2, 4])[0]
        user = f"u{number % users}" if level is HIGH else f"n{number}"
        nodes = rng.randint(1, 3) if level is HIGH else rng.randint(1, 8)
        jobs.append(Job(number, user, nodes, rng.uniform(20, 200), number * rng.uniform(3, 6), level))
    return sorted(jobs, key=lambda job: job.submitted_s)


@pytest.mark.parametrize("policy", [HAI, HAI_BACKFILL], ids=lambda policy: policy.name)
def test_with_quotas_nobody_waits_longer_than_the_bound(policy: object) -> None:
    """HIGH jobs of four users may have 8 of 16 nodes, so one of NORMAL with 8 has room beside them."""
    assert policy in (HAI, HAI_BACKFILL)
    nodes = Nodes.grid(1, 2, 8)
    names = [f"u{number}" for number in range(4)]
    quotas = {(name, HIGH, "training"): 2 for name in names} | {
        (name, level, "training"): 0 for name in names for level in (Priority.EXTREME_HIGH, Priority.VERY_HIGH)
    }
    users = Users(quotas)
    assert nodes_before(NORMAL, Users(), names) is None
    for seed in range(6):
        jobs = [replace(job, number=n, nodes=min(job.nodes, 2 if job.priority is HIGH else 8))
                for n, job in enumerate(stream(seed, 4, 120))]  # fmt: skip
        quota = Users({**quotas, **{(name, Priority.ABOVE_NORMAL, "training"): 0 for name in names}})
        assert nodes_before(NORMAL, quota, names) == 8
        played = play_list(jobs, HAI if policy is HAI else HAI_BACKFILL, Cluster(nodes, COSTS, users), seed)
        by_hand = check_bound(played.jobs, list(played.lives))
        found = {one.job: one for one in bounded_waits(played.jobs, played.lives, quota, nodes, 1.0)}
        assert {number: found[number].bound_s for number in by_hand} == by_hand
        assert all(one.waited_s <= one.bound_s for one in found.values())
        levels = {played.jobs[number].priority for number in found}
        assert levels == {NORMAL}, "quotas of HIGH are its jobs' own, and UNDER_NORMAL has no room beside NORMAL"
        assert bounded_waits(played.jobs, played.lives, Users(), nodes, 1.0)[0].job not in by_hand, "HIGH only"
        narrow = replace(played.jobs[max(by_hand)], nodes=9)
        jobs_with_a_wide_one = [narrow if job.number == narrow.number else job for job in played.jobs]
        fewer = bounded_waits(jobs_with_a_wide_one, played.lives, quota, nodes, 1.0)
        assert narrow.number not in {one.job for one in fewer}


def check_bound(jobs: tuple[Job, ...], lives: list[LifeSpan]) -> dict[int, float]:
    """Each job of NORMAL got its nodes in time; return how long each may have waited."""
    bounds = {}
    for job in jobs:
        if job.priority is not NORMAL:
            continue
        first = min((life for life in lives if life.job == job.number), key=lambda life: life.began_s)
        ended = {life.job: life.left_s for life in lives if life.end is End.FINISHED}
        older = [one for one in jobs if one.priority is NORMAL and one.number < job.number]
        older = [one for one in older if ended[one.number] > job.submitted_s]
        higher = {one.number for one in jobs if one.priority > NORMAL}
        began = sum(life.job in higher and job.submitted_s <= life.began_s <= first.began_s for life in lives)
        had_s = max(
            (sum(life.left_s - life.began_s for life in lives if life.job == one.number) for one in older), default=0.0
        )
        bound_s = longest_wait_s(len(older), had_s, began, 1.0)
        assert first.waited_s <= bound_s, (job, first.waited_s, bound_s, len(older), began)
        bounds[job.number] = bound_s
    return bounds


def test_without_quotas_jobs_of_a_higher_priority_starve_others() -> None:
    """HIGH jobs come faster than they can be done: the longer they do, the longer one of NORMAL waits."""
    nodes = Nodes.grid(1, 1, 4)
    waits = []
    for count in (50, 100, 200):
        low = Job(0, "low", 2, 60.0, 30.5)
        high = [Job(n, f"u{n}", 2, 20.0, n * 9.5, HIGH) for n in range(1, count)]
        played = play_list([low, *high], HAI, Cluster(nodes, COSTS), 1)
        (first,) = [life for life in played.lives if life.job == 0][:1]
        waits.append(first.waited_s)
    assert waits[1] > 1.8 * waits[0]
    assert waits[2] > 1.8 * waits[1]


@pytest.mark.parametrize("name", ["kalos", "seren", "philly", "helios"])
@pytest.mark.parametrize("step_s", [1.0, 10.0, 60.0])
def test_a_list_of_whole_steps_has_the_load_that_was_asked_for_and_no_job_beyond_its_limit(
    name: str, step_s: float
) -> None:
    """Jobs of seconds became whole minutes after arrivals had been spread by what they took before: a load of 2.6 in
    place of 0.9, and nine of ten jobs ran for longer than the limit on which backfilling counts."""
    nodes, costs = 32, Costs()
    jobs = fitted_list(ListConfig(jobs_from=name, count=500, load=0.9, step=step_s, faster=60.0), nodes, costs, 1).jobs
    length_s = max(job.submitted_s for job in jobs)
    assert sum(job.nodes * job.work_s for job in jobs) / nodes / length_s == pytest.approx(0.9, rel=0.02)
    assert all(job.work_s % step_s == 0 and job.submitted_s % step_s == step_s / 2 for job in jobs)
    assert all(job.limit_s is not None and costs.start + job.work_s <= job.limit_s for job in jobs)
