"""The platform's own programs and the simulation play one list alike; what its events and its ranks say is read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cluster.jobs.spans import End, LifeSpan
from cluster.nodes import Nodes
from cluster.platform.events import Asked, Event, JobSpec, Left, Started, Submitted
from cluster.platform.programs import job_numbers, row_of
from cluster.platform.state import PlatformState
from cluster.policies import POLICIES, Policy
from cluster.sharing.composed import Cluster, Played, play_list
from cluster.sharing.lists import GivenChoices, ListConfig, fitted_list
from cluster.sharing.measured_costs import measured_costs
from cluster.sharing.measures import measure
from cluster.sharing.packets import lives_of, printed, suspend_costs
from cluster.sharing.submissions import ProgramConfig, name_of, submissions
from cluster.simulation.costs import Costs
from cluster.simulation.lives import Job
from cluster.tasks import Priority, Users
from fabric.config import checked
from fabric.errors import ConfigError
from tests.cluster.platform.fake_nodes import FakeCluster
from tests.traffic.storage.true_timers import run

EIGHT = Nodes.grid(2, 1, 4)
COSTS = Costs(start=0, restore=0, interval=10, save=0, durable=0, answer=0.5, suspend_save=2)
LIST = ListConfig(
    count=60, users=8, gpus_per_node=128, shortest=20, longest=300, load=1.5, step=1.0, given=GivenChoices(deaf=0.15)
)


def played_on_the_platform(folder: Path, policy: Policy, jobs: Iterable[Job]) -> list[LifeSpan]:
    """Play a list by the scheduler's program and agents, in memory and in time that jumps."""
    events: list[Event] = []

    async def be() -> list[LifeSpan]:
        cluster = FakeCluster(folder, EIGHT)
        await cluster.start()
        cluster.turns.cancel()
        cluster.scheduler.policy = policy
        cluster.scheduler.on_event = events.append
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        cluster.turns = loop.create_task(cluster.scheduler.turn_on())
        for job in jobs:
            await asyncio.sleep(began_s + job.submitted_s - loop.time())
            command = ("counts" if job.answers else "deaf", str(round(job.work_s)))
            spec = JobSpec(name_of(job.number), job.user, job.nodes, command, job.priority, limit_s=job.limit_s)
            cluster.scheduler.submit(spec)
        await cluster.until_over(*cluster.scheduler.state.jobs, patience_s=20_000)
        rows = [row_of(event, job_numbers(cluster.scheduler.state)) for event in events]
        cluster.kill_scheduler()
        return lives_of(_from(rows, began_s), cluster.scheduler.state.places, _nothing, 1.0)

    return run(be())


def _from(rows: list[dict[str, Any]], began_s: float) -> list[dict[str, Any]]:
    return [{**row, "at_s": row["at_s"] - began_s} for row in rows]


def _nothing(node: str, life: int) -> Iterable[str]:
    return ()


def decisions(lives: Iterable[LifeSpan]) -> set[tuple[str, int, int, tuple[int, ...]]]:
    lives = list(lives)
    starts = {("start", life.job, round(life.began_s), life.nodes) for life in lives}
    return starts | {("leave", life.job, round(life.told_s), life.nodes) for life in lives if life.told_s is not None}


@pytest.mark.parametrize("name", POLICIES)
def test_the_simulation_decides_as_the_platform_does(name: str, tmp_path: Path) -> None:
    """The same list, decision for decision: who starts and who leaves in which turn, on which nodes."""
    jobs = fitted_list(LIST, len(EIGHT), COSTS, seed=5).jobs
    lives = played_on_the_platform(tmp_path, POLICIES[name], jobs)
    assert {life.job for life in lives if life.end is End.FINISHED} == {job.number for job in jobs}
    costs = COSTS.model_copy(update={"start": 0.001, "answer": 1.001})
    composed = play_list(jobs, POLICIES[name], Cluster(EIGHT, costs, reorder_s=1.0), seed=5)
    mine, others = decisions(lives), decisions(composed.lives)
    assert mine == others, sorted(mine ^ others, key=lambda one: one[2])[:10]
    if POLICIES[name].preempts:
        assert sum(one[0] == "leave" for one in mine) >= 3


def test_what_rank_0_printed_is_read() -> None:
    lines = ["begins 10 5.0", "rank 3: hm", "step 11 6.5", "step 12 8.0", "answers 12 8.0", "saved 12 10.0", "x"]
    found = printed(lines)
    assert (found.begins_s, found.begins_step, found.last_step, found.answers_s) == (5.0, 10, 12, 8.0)
    assert found.saved
    assert not printed(lines[:4]).saved


def rows() -> list[dict[str, Any]]:
    """Job 7 is told to leave two nodes for job 8, and goes on; job 8 is killed for it later."""
    columns = ("at_s", "event", "number", "life", "nodes", "why")
    return [
        dict(zip(columns, values, strict=True))
        for values in (
            (0.5, "submitted", 1, 1, "", name_of(7)),
            (1.0, "started", 1, 1, "a b", ""),
            (9.5, "submitted", 2, 2, "", name_of(8)),
            (10.0, "suspend", 1, 1, "", ""),
            (12.5, "left", 1, 1, "", "code 75, step 9"),
            (13.0, "started", 2, 2, "b", ""),
            (20.0, "suspend", 2, 2, "", ""),
            (25.1, "left", 2, 2, "", "code 137, step 5"),
            (26.0, "started", 1, 3, "a b", ""),
            (30.0, "finished", 1, 3, "", "code 0, step 13"),
            (31.0, "started", 2, 4, "b", ""),
            (33.0, "finished", 2, 4, "", "code 0, step 7"),
        )
    ]


PRINTED = {
    1: "begins 0 1.1|step 9 10.1|answers 9 10.1|saved 9 12.4",
    2: "begins 0 13.2|step 12 25.0",
    3: "begins 9 26.3|step 13 30.0",
    4: "begins 5 31.2|step 7 33.0",
}


def test_lives_and_the_cost_of_suspends_follow_from_events_and_what_was_printed() -> None:
    lives = lives_of(rows(), {"a": 0, "b": 1}, lambda node, life: PRINTED[life].split("|"), 1.0)
    assert [(life.job, life.end.value, life.lost_s) for life in lives] == [
        (7, "suspended", 0.0), (8, "killed", 7.0), (7, "finished", 0.0), (8, "finished", 0.0),
    ]  # fmt: skip
    assert lives[0] == LifeSpan(7, 0.5, 1.0, 12.5, (0, 1), End.SUSPENDED, 10.0, 10.1, 1.1)
    assert lives[2].queued_s == 12.5, "it waits again from when it has left"
    first, second = suspend_costs(lives)
    assert list(asdict(first).values()) == pytest.approx([0.1, 2.5, 3.0, 3.2, 16.2, 0.3, 0.0])
    assert (second.answered_s, second.lost_s) == (None, 7.0)
    assert second.others_start_s == pytest.approx(6.0)
    assert second.away_s == pytest.approx(31.2 - 25.1)
    jobs = (Job(7, "ada", 2, 13.0, 0.5), Job(8, "bo", 1, 7.0, 9.5), Job(9, "cy", 1, 10.0, 50.0))
    alone = LifeSpan(9, 50.0, 51.0, 61.2, (0,), End.FINISHED)
    played = Played("hai", jobs, (*lives, alone), measure(jobs, [*lives, alone], 2))
    costs = measured_costs([played], Costs(answer=3))
    assert [costs.answer, costs.suspend_save] == pytest.approx([0.1, 2.4])
    assert costs.start == pytest.approx(0.2)
    assert costs.interval == Costs().interval, "nobody measured it"
    assert measured_costs([], Costs(answer=3)).answer == 3, "nobody was suspended"


def test_a_list_is_submitted_as_it_is() -> None:
    job = Job(3, "ada", 2, 90.0, 4.5, Priority.HIGH, limit_s=200.0, answers=False)
    (found,) = submissions([job], 1.0, ProgramConfig(checkpoint=30, save=2.5))
    assert (found.name, found.user, found.nodes, found.priority, found.at, found.limit) == (
        "j00003", "ada", 2, "HIGH", 4.5, 200.0,
    )  # fmt: skip
    assert found.command[3:] == ("cluster.sharing.listed_job", "90", "1", "30", "0.3", "2.5", "0")
    assert found.submission.spec.limit_s == 200.0
    own = checked(ProgramConfig, {"command": ["train", "--steps={steps}", "{{x}}"]}, "test")
    assert submissions([job], 1.0, own)[0].command == ("train", "--steps=90", "{x}")
    with pytest.raises(ConfigError, match=r"'\{hours\}': KeyError: 'hours'; use \{steps\}"):
        checked(ProgramConfig, {"command": ["train", "{hours}"]}, "test")


def test_the_platform_keeps_the_account_that_fair_share_goes_by() -> None:
    """What users have used is in the state that follows from the events."""
    spec = JobSpec("a", "ada", 2, ("true",))
    events: list[Event] = [
        Submitted(0.0, 1, spec),
        Asked(10.0, 1, EIGHT.names[:2], ""),
        Started(10.0, 1, EIGHT.names[:2], ""),
        Submitted(12.0, 2, replace(spec, user="bo")),
        Left(60.0, 1, finished=True),
    ]
    state = PlatformState(EIGHT, Users(), events)
    assert state.at(60.0).users.usage == {"ada": pytest.approx(100.0, rel=1e-3)}
    assert state.at(60.0 + 7 * 86_400).users.usage["ada"] == pytest.approx(50.0, rel=1e-3)


def test_turns_are_due_a_tick_apart_however_long_one_takes(tmp_path: Path) -> None:
    """Some take a third of a tick, and one two and a half: the next is due when it would have been."""
    began: list[float] = []
    due: list[float | None] = []

    async def be() -> None:
        cluster = FakeCluster(tmp_path, EIGHT)
        cluster.start_scheduler()
        cluster.turns.cancel()
        clock: Any = time.monotonic

        def turn(now_s: float, due_s: float | None = None) -> None:
            began.append(now_s)
            due.append(due_s)
            clock.now_s += 2.5 if len(began) == 3 else 0.3

        cluster.scheduler.turn = turn  # type: ignore[method-assign]
        cluster.turns = asyncio.get_running_loop().create_task(cluster.scheduler.turn_on())
        await asyncio.sleep(8.9)
        cluster.kill_scheduler()

    run(be())
    assert [at_s - began[0] for at_s in began[:6]] == pytest.approx([0, 1, 2, 5, 6, 7])
    assert due[:6] == pytest.approx(began[:6])
