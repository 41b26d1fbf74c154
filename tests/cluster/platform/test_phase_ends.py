"""A phase ends while jobs are suspended, preempted or begun again; a cluster goes on with its config's jobs."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from app.commands.cluster_up import submissions_of
from cluster.platform.event_rows import EVENTS
from cluster.platform.events import EndKind, JobSpec
from cluster.platform.journal import events_in
from cluster.platform.programs import GoOn, Submission, _Phase
from cluster.tasks import Priority
from tests.cluster.platform.fake_nodes import FakeCluster
from tests.cluster.platform.test_programs import play
from traffic.storage.wire.calls import Tasks


def spec(nodes: int, program: str, steps: int, priority: Priority = Priority.NORMAL) -> JobSpec:
    return JobSpec(program, "ada", nodes, (program, str(steps)), priority)


async def lose_a_node(cluster: FakeCluster) -> None:
    """End an agent with its rank, and begin it again; another rank of the job takes two seconds to end."""
    nodes = cluster.scheduler.state.nodes_of(1)
    slow, loop = cluster.ranks[nodes[2]], asyncio.get_running_loop()
    stop = slow.stop
    slow.stop = lambda life: loop.call_later(2.0, stop, life)  # type: ignore[assignment,method-assign]
    cluster.kill_agent(nodes[1])
    await asyncio.sleep(2)
    cluster.start_agent(nodes[1])
    while not cluster.scheduler.state.told:
        await asyncio.sleep(0.01)


async def by_its_user(cluster: FakeCluster) -> None:
    cluster.scheduler.suspend(1)


async def by_another(cluster: FakeCluster) -> None:
    """It was submitted two seconds ago."""


@pytest.mark.parametrize(
    ("program", "is_preempted", "happens", "how"),
    [
        ("counts", False, lose_a_node, EndKind.RESTART),
        ("counts", False, by_its_user, EndKind.SUSPEND),
        ("counts", True, by_another, EndKind.SUSPEND),
        ("deaf", True, by_another, EndKind.SUSPEND),
    ],
)
def test_a_phase_ends_whatever_its_jobs_were_told(
    tmp_path: Path, program: str, is_preempted: bool, happens: type, how: EndKind
) -> None:
    async def scene(cluster: FakeCluster) -> None:
        jobs = [Submission(0.0, spec(3, program, 400))]
        if is_preempted:
            jobs.append(Submission(30.0, spec(3, "counts", 10, Priority.HIGH)))
        cluster.turns.cancel()
        phase = _Phase(cluster.scheduler, tuple(jobs), Tasks())
        phase.go_on(GoOn("p", time.monotonic(), before=0))
        await asyncio.sleep(32)
        await happens(cluster)
        assert cluster.scheduler.state.told == {1: how}
        began_s = time.monotonic()
        rows = (await phase.end()).rows(EVENTS)
        assert time.monotonic() - began_s < 10
        assert [row["event"] for row in rows].count("submitted") == len(jobs)
        ended = {row["number"] for row in rows if row["event"] == "left"}
        assert (ended, cluster.scheduler.state.jobs[1].lives) == ({job + 1 for job in range(len(jobs))}, [1])

    play(tmp_path, scene)


def test_jobs_of_a_config_that_the_journal_lacks_are_submitted_when_it_goes_on(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        jobs = (Submission(0.0, spec(1, "counts", 1)), Submission(600.0, spec(1, "counts", 1)))
        cluster.turns.cancel()
        zero_s, name = time.monotonic(), submissions_of([])
        first = _Phase(cluster.scheduler, jobs, Tasks())
        first.go_on(GoOn("cluster", zero_s, 0, name))
        await asyncio.sleep(30)
        await first.drain()
        before = len(list(events_in(tmp_path / "journal")))
        for _ in range(2):  # Nothing comes twice, however often it is up.
            cluster.kill_scheduler()
            cluster.start_scheduler()
            cluster.turns.cancel()
            state = cluster.scheduler.state
            assert submissions_of(state.tokens) == name
            again = _Phase(cluster.scheduler, jobs, Tasks())
            again.go_on(GoOn("cluster", time.monotonic(), before, name, zero_s))
            await asyncio.sleep(640)
            await again.drain()
            assert [round(job.submitted_s - zero_s) for job in state.jobs.values()] == [0, 600]
        assert {job.code for job in state.jobs.values()} == {0}

    play(tmp_path, scene)


def test_a_journal_tells_what_a_configs_jobs_are_called_in_it() -> None:
    assert submissions_of([]) == submissions_of(["3f09ab"]) == "cluster 0"
    assert submissions_of(["3f09ab", "cluster 3: 0", "cluster 3: 1"]) == "cluster 3"
