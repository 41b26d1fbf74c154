"""The scheduler's program and agents over a transport, in time that jumps: jobs run, yield, fail and go on."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from cluster.health.messages import HealthOrder
from cluster.health.unwell import Unwell
from cluster.nodes import Nodes
from cluster.platform.agent_program import NodeAgent
from cluster.platform.events import EndKind, Event, JobSpec, Left, NodeOut, Saved
from cluster.platform.journal import Journal
from cluster.platform.kinds import PLATFORM_EVENTS
from cluster.platform.messages import AskReady, Noted, RankEnd, RankOrder, StartRank, to_values
from cluster.platform.programs import GoOn, Submission, _Phase, row_of
from cluster.platform.reasons import Silent
from cluster.platform.state import JobState
from cluster.platform.timers import Timers
from cluster.tasks import Priority, Users
from fabric.errors import ConfigError
from tests.cluster.platform.fake_nodes import FakeCluster
from tests.traffic.storage.true_timers import run
from traffic.storage.wire.calls import Tasks as StorageTasks

FOUR = Nodes.grid(1, 2, 2)
Scene = Callable[[FakeCluster], Coroutine[None, None, None]]


def play(folder: Path, scene: Scene, nodes: Nodes = FOUR, timers: Timers | None = None) -> FakeCluster:
    """Return a cluster after a scene, in which nothing is left."""
    found: list[FakeCluster] = []

    async def be() -> None:
        cluster = FakeCluster(folder, nodes, timers)
        found.append(cluster)
        await cluster.start()
        await scene(cluster)
        assert not cluster.scheduler.left
        assert not any(ranks.running for ranks in cluster.ranks.values()), "a rank is left"
        await asyncio.sleep(2)
        assert not any(agent.untold.ended or agent.untold.saved for agent in cluster.agents.values()), (
            "noted, and told no more"
        )
        assert not cluster.disk.faults, cluster.disk.faults
        cluster.kill_scheduler()

    run(be())
    check_journal(folder, nodes)
    return found[0]


def check_journal(folder: Path, nodes: Nodes) -> None:
    """What was written is a history that can have been: the state refuses any other."""
    from cluster.platform.state import PlatformState

    with Journal(folder / "journal") as journal:
        state = PlatformState(nodes, Users(), journal.events())
    assert not state.tasks


def check_steps(cluster: FakeCluster, job: int, steps: int, lost: int = 0) -> None:
    """Every step was made, in order within a life, and at most ``lost`` of them twice."""
    made = cluster.disk.sums(job)
    assert sorted(set(made)) == list(range(1, steps + 1))
    assert len(made) - steps <= lost
    if not lost:
        assert sum(made) == steps * (steps + 1) // 2


def test_a_job_runs_on_its_nodes_and_ends(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 3, 20)
        await cluster.until_over(job)
        status = cluster.scheduler.state.jobs[job]
        assert (status.code, status.step, status.lives) == (0, 20, [job])
        check_steps(cluster, job, 20)

    play(tmp_path, scene)


def test_a_higher_one_preempts_and_nothing_is_lost_or_done_twice(tmp_path: Path) -> None:
    """Notice, save, and resume from the saved step."""

    async def scene(cluster: FakeCluster) -> None:
        low = cluster.submit("counts", 4, 40)
        await asyncio.sleep(15)
        high = cluster.submit("counts", 2, 10, "bo", Priority.HIGH)
        await cluster.until_over(low, high)
        jobs = cluster.scheduler.state.jobs
        assert len(jobs[low].lives) == 2 and len(jobs[high].lives) == 1
        ended_s = [jobs[job].ended_s or 0.0 for job in (high, low)]
        assert 0 < ended_s[0] < ended_s[1]
        check_steps(cluster, low, 40)
        check_steps(cluster, high, 10)

    play(tmp_path, scene)


def test_who_does_not_answer_the_notice_is_killed_after_five_seconds(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        low = cluster.submit("deaf", 4, 40)
        await asyncio.sleep(15.2)
        began_s = asyncio.get_running_loop().time()
        high = cluster.submit("counts", 2, 10, "bo", Priority.HIGH)
        while cluster.scheduler.state.jobs[high].state is not JobState.RUNNING:
            await asyncio.sleep(0.1)
        assert 5 <= asyncio.get_running_loop().time() - began_s <= 8
        await cluster.until_over(low, high)
        check_steps(cluster, low, 40, lost=9)

    play(tmp_path, scene)


def test_who_ends_before_the_notice_is_over_has_ended(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        low = cluster.submit("deaf", 4, 18)
        await asyncio.sleep(15.2)
        high = cluster.submit("counts", 2, 10, "bo", Priority.HIGH)
        await cluster.until_over(low, high)
        jobs = cluster.scheduler.state.jobs
        assert (jobs[low].lives, jobs[low].code) == ([low], 0)
        assert "needs its nodes" in jobs[low].why, "it was told"
        check_steps(cluster, low, 18)

    play(tmp_path, scene)


def test_a_node_dies_silently_and_its_job_restarts_elsewhere(tmp_path: Path) -> None:
    """Nobody is told: after 60 s without a heartbeat the node is out, and the job goes on from its checkpoint."""

    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 3, 200)
        await asyncio.sleep(35)
        victim = cluster.scheduler.state.nodes_of(job)[1]
        cluster.silence(victim)
        await asyncio.sleep(90)
        state = cluster.scheduler.state
        assert state.out[victim].startswith("not heard")
        life = state.jobs[job].lives[-1]
        assert life != job and victim not in state.nodes_of(life)
        cluster.mend()
        await asyncio.sleep(70)
        assert victim not in state.out, "it is heard again"
        await cluster.until_over(job)
        # 60 s and a heartbeat passed before it was noticed; rank 0 went on counting meanwhile.
        check_steps(cluster, job, 200, lost=10)

    play(tmp_path, scene)


@pytest.mark.parametrize("fence_s", [None, 35.0])
def test_a_node_that_is_only_cut_off_counts_beside_its_successor_unless_it_is_fenced(
    tmp_path: Path, fence_s: float | None
) -> None:
    """Rank 0 goes on where nobody hears it, and writes checkpoints; with a fence it ends before others begin."""

    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 3, 200)
        await asyncio.sleep(35)
        victim = cluster.scheduler.state.nodes_of(job)[0]
        cluster.cut_off(victim)
        await asyncio.sleep(90)
        life = cluster.scheduler.state.jobs[job].lives[-1]
        assert life != job and victim not in cluster.scheduler.state.nodes_of(life)
        lives = [made for made, _ in cluster.disk.made[job]]
        first = lives.index(life)
        assert (job in lives[first:]) == (fence_s is None), "both count"
        assert bool(cluster.ranks[victim].running) == (fence_s is None)
        cluster.network.mend()
        await cluster.until_over(job)
        await asyncio.sleep(60)

    play(tmp_path, scene, timers=Timers(fence=fence_s))


def test_a_fence_must_come_before_a_successor() -> None:
    with pytest.raises(ValueError, match="fence: 50 s and two heartbeats of 10 s are more than failed_after, 60 s"):
        Timers(fence=50.0)


def test_a_rank_that_fails_ends_its_job_and_all_its_ranks(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("breaks", 3, 60)
        await cluster.until_over(job)
        status = cluster.scheduler.state.jobs[job]
        assert status.code == 3
        assert "ended with code 3" in status.why
        made = cluster.disk.sums(job)
        assert 9 <= len(made) <= 13, "others have 5 s more"

    play(tmp_path, scene)


def test_a_rank_that_lacks_a_mate_has_its_job_begin_again(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("lacks", 3, 30)
        await cluster.until_over(job)
        status = cluster.scheduler.state.jobs[job]
        assert (status.code, len(status.lives)) == (0, 2)
        assert status.why.endswith("its rank lacks others, or storage")
        made = cluster.disk.sums(job)
        assert sorted(set(made)) == list(range(1, 31))
        assert len(made) <= 30 + cluster.disk.every

    play(tmp_path, scene)


def test_an_agent_that_is_killed_takes_its_ranks_along_and_the_job_restarts(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 4, 60)
        await asyncio.sleep(25)
        cluster.kill_agent("z0h002")
        await asyncio.sleep(5)
        cluster.start_agent("z0h002")
        await cluster.until_over(job)
        assert len(cluster.scheduler.state.jobs[job].lives) == 2
        check_steps(cluster, job, 60, lost=20)

    play(tmp_path, scene)


def test_a_scheduler_that_is_killed_goes_on_from_its_journal_while_ranks_go_on(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job, waits = cluster.submit("counts", 4, 60), cluster.submit("counts", 1, 5, "bo")
        await asyncio.sleep(25)
        cluster.kill_scheduler()
        await asyncio.sleep(20)
        cluster.start_scheduler()
        await cluster.until_over(job, waits)
        assert cluster.scheduler.state.jobs[job].lives == [job], "it was not disturbed"
        check_steps(cluster, job, 60)

    play(tmp_path, scene)


def test_what_ends_while_the_scheduler_is_away_is_told_when_it_is_back(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 4, 20)
        await asyncio.sleep(10)
        cluster.kill_scheduler()
        await asyncio.sleep(40)
        cluster.start_scheduler()
        await cluster.until_over(job)
        status = cluster.scheduler.state.jobs[job]
        assert (status.code, status.lives, cluster.disk.sums(job)) == (0, [job], list(range(1, 21)))

    play(tmp_path, scene)


@dataclass
class Says:
    """A node's health that says one thing."""

    words: str = ""

    def unwell(self) -> Unwell:
        return Unwell(self.words)

    def hear(self, order: HealthOrder) -> None: ...


def test_an_unwell_node_is_taken_out_and_comes_back(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 2, 60)
        await asyncio.sleep(12)
        sick = cluster.scheduler.state.nodes_of(job)[0]
        cluster.agents[sick].health = Says("its NIC is at half its rate")
        await asyncio.sleep(25)
        state = cluster.scheduler.state
        assert state.out == {sick: "unwell: its NIC is at half its rate"}
        assert sick not in state.nodes_of(state.jobs[job].lives[-1])
        cluster.agents[sick].health = Says()
        await cluster.until_over(job)
        await asyncio.sleep(11)
        assert not state.out
        check_steps(cluster, job, 60, lost=20)

    play(tmp_path, scene)


def test_users_submit_list_suspend_and_stop_over_the_network(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        spec = {"name": "counts", "user": "ada", "nodes": 2, "command": ["counts", "500"], "priority": 10}
        for _ in range(2):  # Its answer may have been lost.
            asked = {"kind": "submit", "spec": spec, "token": "mine"}
            assert await cluster.ask(asked) == {"kind": "submitted", "number": 1}
        refused = await cluster.ask({"kind": "submit", "spec": {**spec, "nodes": 5}})
        assert refused == {"kind": "refused", "faults": ["nodes: 5, but the group training has 4; ask for 4 or fewer"]}
        assert (await cluster.ask({"kind": "sumbit"}))["faults"][0].startswith("'sumbit': ask one of submit")
        assert (await cluster.ask({"kind": "submit", "spec": {}}))["kind"] == "refused"
        await asyncio.sleep(20)
        assert await cluster.ask({"kind": "suspend", "number": 1}) == {"kind": "done"}
        await asyncio.sleep(20)
        (job,) = (await cluster.ask({"kind": "list"}))["jobs"]
        assert (job["state"], job["lives"], job["priority"]) == ("running", 2, "NORMAL")
        assert await cluster.ask({"kind": "cancel", "number": 1}) == {"kind": "done"}
        await cluster.until_over(1)
        (job,) = (await cluster.ask({"kind": "list"}))["jobs"]
        assert (job["state"], job["nodes"], job["why"]) == ("cancelled", [], "its user stopped it")
        assert (await cluster.ask({"kind": "cancel", "number": 1}))["kind"] == "refused"
        nodes = (await cluster.ask({"kind": "nodes"}))["nodes"]
        assert [node["name"] for node in nodes] == list(FOUR.names)

    play(tmp_path, scene)


def test_programs_killed_at_random_lose_no_job_and_leave_no_rank(tmp_path: Path) -> None:
    """Scheduler and agents, while three users' jobs of all priorities run."""
    for seed in range(8):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()

        async def scene(cluster: FakeCluster, rng: random.Random = rng) -> None:
            levels = (Priority.HIGH, Priority.NORMAL, Priority.UNDER_NORMAL)
            jobs = {
                cluster.submit("counts", rng.randint(1, 4), steps, f"u{rng.randrange(3)}", rng.choice(levels)): steps
                for steps in (rng.randint(5, 40) for _ in range(6))
            }
            for _ in range(6):
                await asyncio.sleep(rng.uniform(0.1, 20))
                if rng.random() < 0.5:
                    cluster.kill_scheduler()
                    await asyncio.sleep(rng.uniform(0, 10))
                    cluster.start_scheduler()
                else:
                    cluster.kill_agent(name := rng.choice(FOUR.names))
                    await asyncio.sleep(rng.uniform(0, 10))
                    cluster.start_agent(name)
            await cluster.until_over(*jobs)
            for job, steps in jobs.items():
                assert cluster.scheduler.state.jobs[job].code == 0
                check_steps(cluster, job, steps, lost=6 * 20)
            assert {one.spec.name for one in cluster.scheduler.state.jobs.values()} == {"counts"}

        play(folder, scene)


def lives_of(cluster: FakeCluster, job: int) -> list[int]:
    return cluster.scheduler.state.jobs[job].lives


def test_no_rank_starts_before_all_nodes_have_said_that_they_are_there(tmp_path: Path) -> None:
    """The host fell silent a moment ago, and nobody misses it: it is asked, does not answer, and is taken out. The job
    waits where it was, before one that came later."""

    async def scene(cluster: FakeCluster) -> None:
        await asyncio.sleep(12)
        cluster.silence("z0h000")
        await asyncio.sleep(3)
        first = cluster.submit("counts", 3, 20)
        await asyncio.sleep(5)
        assert not cluster.disk.started, "no rank has started"
        later = cluster.submit("counts", 3, 5, "bo")
        await cluster.until_over(first, later)
        assert (lives_of(cluster, first), lives_of(cluster, later)) == ([first], [later])
        ends_s = [cluster.scheduler.state.jobs[job].ended_s or 0.0 for job in (first, later)]
        assert ends_s[0] < ends_s[1], "it kept its place"
        assert {life: sorted(ranks) for life, ranks in cluster.disk.started.items()} == {1: [0, 1, 2], 2: [0, 1, 2]}
        assert "no answer within 5 s" in cluster.scheduler.state.out["z0h000"]
        cluster.mend()
        await asyncio.sleep(70)
        assert not cluster.scheduler.state.out

    play(tmp_path, scene)


def test_who_speaks_but_does_not_hear_is_not_asked_again_and_again(tmp_path: Path) -> None:
    """A cut from the scheduler to the node only: its heartbeats come, and do not count until it has heard an answer."""

    async def scene(cluster: FakeCluster) -> None:
        await asyncio.sleep(12)
        cluster.network.cut("manager", ["z0h000"], both_ways=False)
        job = cluster.submit("counts", 3, 20)
        await cluster.until_over(job)
        journal = (tmp_path / "journal").read_text()
        assert journal.count('"requeued"') == 1 and journal.count('"node_back"') == 0
        cluster.mend()
        await asyncio.sleep(70)
        assert not cluster.scheduler.state.out

    play(tmp_path, scene)


def test_an_agent_without_answers_dials_anew(tmp_path: Path) -> None:
    """Sooner than its connection ends by itself, after 30 s here: three heartbeats, and the next."""

    async def scene(cluster: FakeCluster) -> None:
        await asyncio.sleep(12)
        cluster.network.cut("manager", ["z0h000"], both_ways=False)
        await asyncio.sleep(14)
        assert cluster.agents["z0h000"]._channel is not None
        await asyncio.sleep(10)
        assert cluster.agents["z0h000"]._channel is None, "it dials"
        cluster.mend()
        await asyncio.sleep(12)
        assert cluster.agents["z0h000"]._channel is not None

    play(tmp_path, scene, timers=Timers(beat=5.0))


def test_an_agent_takes_a_life_once_no_rank_of_another_is_left() -> None:
    """What it still runs has ended to the scheduler: it is killed, and waited for before the answer."""
    said: list[dict[str, Any]] = []
    stopped: list[int] = []
    ranks: Any = SimpleNamespace(start=lambda order, words: None, stop=stopped.append)
    agent = NodeAgent("z0h000", ranks, Timers())
    agent._channel = SimpleNamespace(send=said.append)  # type: ignore[assignment]
    order = RankOrder(1, 1, 0, 1, "z0h000", ("counts", "9"))
    for told in (StartRank(order), AskReady(2, 5)):
        agent._hear(json.loads(json.dumps(to_values(told))))
    assert (stopped, said) == ([1], [])
    agent._has_ended(RankEnd(1, 137))
    assert [message["kind"] for message in said] == ["ended", "ready"]
    assert said[1] == {"kind": "ready", "life": 2, "turn": 5, "unwell": ""}


def test_a_life_that_is_asked_for_yields_and_is_stopped_before_it_starts(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        await asyncio.sleep(12)
        cluster.silence("z0h003")
        low = cluster.submit("counts", 4, 20)
        await asyncio.sleep(1.5)
        assert list(cluster.scheduler.state.asked) == [low]
        with pytest.raises(ConfigError, match="is not the number of a job that runs"):
            cluster.scheduler.suspend(low)
        high = cluster.submit("counts", 2, 5, "bo", Priority.HIGH)
        await asyncio.sleep(1.5)
        assert low not in cluster.scheduler.state.asked, "it gave its nodes back"
        await cluster.until_over(high)
        cluster.scheduler.cancel(low)
        other = cluster.submit("counts", 4, 20, "bo")
        await asyncio.sleep(1.5)
        if other in cluster.scheduler.state.asked:
            cluster.scheduler.cancel(other)
        cluster.mend()
        await cluster.until_over(low, high, other)
        assert set(cluster.disk.started) <= {high, other}
        await asyncio.sleep(70)

    play(tmp_path, scene)


def test_a_scheduler_killed_while_it_asks_asks_again(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        cluster.network.cut("manager", ["z0h001"], both_ways=False)
        job = cluster.submit("counts", 4, 20)
        await asyncio.sleep(2)
        assert list(cluster.scheduler.state.asked) == [job]
        cluster.kill_scheduler()
        cluster.mend()
        cluster.start_scheduler()
        assert list(cluster.scheduler.state.asked) == [job]
        await cluster.until_over(job)
        assert '"requeued"' not in (tmp_path / "journal").read_text()
        assert lives_of(cluster, job) == [job] and len(cluster.disk.started[job]) == 4

    play(tmp_path, scene)


def test_a_scheduler_that_does_not_hear_while_it_asks_takes_nobody_out(tmp_path: Path) -> None:
    """Its host is cut off for longer than nodes may take to answer; then agents dial again one after the other."""

    async def scene(cluster: FakeCluster) -> None:
        await asyncio.sleep(12)
        cluster.network.cut("manager", list(FOUR.names))
        jobs = [cluster.submit("counts", 3, 20), cluster.submit("counts", 1, 20)]
        await asyncio.sleep(45)
        assert list(cluster.scheduler.state.asked) == jobs
        cluster.network.silent = {ends for ends in cluster.network.silent if "z0h000" not in ends}
        await asyncio.sleep(5)
        assert list(cluster.scheduler.agents) == ["z0h000"]
        cluster.mend()
        await cluster.until_over(*jobs)
        journal = (tmp_path / "journal").read_text()
        assert '"node_out"' not in journal and '"requeued"' not in journal
        for job in jobs:
            check_steps(cluster, job, 20)

    play(tmp_path, scene, timers=Timers(dial=2.0))


@pytest.mark.parametrize("rank", [0, 1])
def test_what_was_saved_is_not_lost_with_the_node_that_saved_it(tmp_path: Path, rank: int) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 3, 60)
        await asyncio.sleep(27)
        cluster.silence(cluster.scheduler.state.nodes_of(job)[rank])
        await cluster.until_over(job)
        assert len(lives_of(cluster, job)) == 2
        check_steps(cluster, job, 60, lost=9)
        cluster.mend()
        await asyncio.sleep(70)

    play(tmp_path, scene)


def test_an_agent_that_is_begun_again_tells_what_its_ranks_had_saved(tmp_path: Path) -> None:
    """The scheduler was away when they saved, and the agent was killed before it was back."""

    async def scene(cluster: FakeCluster) -> None:
        job = await cluster.without_scheduler(3, 60, after_s=15)
        node = cluster.scheduler.state.nodes_of(job)[0]
        await asyncio.sleep(20)
        cluster.kill_agent(node)
        cluster.start_scheduler()
        await asyncio.sleep(3)
        cluster.start_agent(node)
        await cluster.until_over(job)
        check_steps(cluster, job, 60, lost=9)

    play(tmp_path, scene)


@pytest.mark.parametrize("fence_s", [None, 35.0])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_scheduler_that_was_away_takes_nobody_out_and_fails_no_job(
    tmp_path: Path, frozen: bool, fence_s: float | None
) -> None:
    """It stood still for 100 s, or its host was cut off. Agents that fence kill their ranks meanwhile; the jobs begin
    again, and have not failed."""

    async def scene(cluster: FakeCluster) -> None:
        jobs = [cluster.submit("counts", 2, 150), cluster.submit("counts", 1, 150, "bo")]
        await asyncio.sleep(25)
        if frozen:
            cluster.freeze_scheduler()
        else:
            cluster.network.cut("manager", list(FOUR.names))
        await asyncio.sleep(100)
        cluster.thaw_scheduler() if frozen else cluster.mend()
        await cluster.until_over(*jobs)
        assert '"node_out"' not in (tmp_path / "journal").read_text()
        for job in jobs:
            assert cluster.scheduler.state.jobs[job].code == 0
            assert len(lives_of(cluster, job)) == (1 if fence_s is None else 2)
            check_steps(cluster, job, 150, lost=0 if fence_s is None else 9)

    play(tmp_path, scene, timers=Timers(fence=fence_s))


def test_what_took_a_node_out_decides_when_it_comes_back_and_not_the_words(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        await asyncio.sleep(12)
        silent, other = list(cluster.agents)[:2]
        for node, why in ((silent, Silent(4.0, "an operator says so")), (other, "not heard: an operator says so")):
            cluster.scheduler.note(NodeOut(time.monotonic(), node, why))
        await asyncio.sleep(30)
        assert list(cluster.scheduler.state.out) == [other]

    play(tmp_path, scene)


def test_an_agent_that_is_not_heard_fences_though_it_hears(tmp_path: Path) -> None:
    """A cut from the node to the scheduler only: orders come, and do not count as answers to its heartbeats."""

    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 3, 150)
        await asyncio.sleep(25)
        node = cluster.scheduler.state.nodes_of(job)[0]
        cluster.network.cut(node, ["manager"], both_ways=False)
        for _ in range(5):
            await asyncio.sleep(10)
            cluster.scheduler.order(node, Noted(99))
        assert not cluster.ranks[node].running, "it was fenced"
        assert node not in cluster.scheduler.state.out
        await asyncio.sleep(25)
        assert cluster.scheduler.state.out[node].startswith("not heard for 6")
        cluster.mend()
        await cluster.until_over(job)
        await asyncio.sleep(70)

    play(tmp_path, scene, timers=Timers(fence=35.0))


def test_what_was_submitted_in_a_phase_is_known_by_the_journal_not_by_clocks(tmp_path: Path) -> None:
    """The run's clock may be nanoseconds ahead of the scheduler's: jobs of the first moment came twice."""

    async def scene(cluster: FakeCluster) -> None:
        spec = JobSpec("counts", "ada", 2, ("counts", "5"))
        submissions = (Submission(0.0, spec), Submission(9.0, spec))
        cluster.scheduler.submit(spec, "together 0: 0")
        cluster.kill_scheduler()
        cluster.start_scheduler()
        phase = _Phase(cluster.scheduler, submissions, StorageTasks())
        phase.go_on(GoOn("together", time.monotonic() + 1e-9, before=0))
        cluster.turns.cancel()
        await asyncio.sleep(20)
        assert [round(job.submitted_s, 6) for job in cluster.scheduler.state.jobs.values()] == [1000.5, 1009.5]
        assert [row["event"] for row in (await phase.end())["platform_events"]].count("submitted") == 2

    play(tmp_path, scene)


def test_a_job_ends_at_its_limit(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        spec = JobSpec("counts", "ada", 2, ("counts", "50"), limit_s=20.0)
        job = cluster.scheduler.submit(spec)
        await cluster.until_over(job)
        status = cluster.scheduler.state.jobs[job]
        assert (status.state, status.code) == (JobState.TIMEOUT, 137)
        assert status.why == "it has run for its limit of 20 s"
        assert 19 <= len(cluster.disk.sums(job)) <= 21

    play(tmp_path, scene)


def test_a_rank_that_has_ended_is_told_again_until_the_life_is_over(tmp_path: Path) -> None:
    """The scheduler is killed when one rank has ended well and another has not: the job has not to begin again."""

    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 2, 20)
        await asyncio.sleep(10)
        cluster.ranks[cluster.scheduler.state.nodes_of(job)[1]].stand_still = True
        await asyncio.sleep(15)
        cluster.kill_scheduler()
        await asyncio.sleep(5)
        cluster.start_scheduler()
        cluster.mend()
        await cluster.until_over(job)
        assert lives_of(cluster, job) == [job]
        check_steps(cluster, job, 20)

    play(tmp_path, scene)


@pytest.mark.parametrize(("fence_s", "out_s"), [(None, 7.0), (30.0, 46.0)])
def test_a_node_that_is_silent_when_its_rank_is_to_end_keeps_others_waiting_no_longer(
    tmp_path: Path, fence_s: float | None, out_s: float
) -> None:
    """Rank 1 ends since it lacks rank 2, as a program does whose mate is silent: nobody waits for 60 s then. With a
    fence the rank may still run, and is waited for until that has killed it."""

    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("lacks", 3, 20)
        await asyncio.sleep(3)
        *_, victim = cluster.scheduler.state.nodes_of(job)
        cluster.silence(victim)
        silent_s = time.monotonic()
        while victim not in cluster.scheduler.state.out:
            await asyncio.sleep(0.1)
            assert time.monotonic() - silent_s < 55
        gone_s = time.monotonic() - silent_s
        assert cluster.scheduler.state.out[victim] == f"not heard: asked to end task {job}, no word within 5 s"
        # Step 5 ends 2.5 s later; then 5 s pass, and a turn. A fence needs two heartbeats more.
        assert out_s <= gone_s <= out_s + 4, gone_s
        while len(lives_of(cluster, job)) < 2 or cluster.scheduler.state.asked:
            await asyncio.sleep(0.1)
        assert victim not in cluster.scheduler.state.nodes_of(lives_of(cluster, job)[-1])
        cluster.mend()
        await cluster.until_over(job)
        await asyncio.sleep(60)
        assert not cluster.scheduler.state.out, "it is heard again"

    play(tmp_path, scene, timers=Timers(fence=fence_s))


def test_a_node_that_is_heard_is_waited_for_however_long_its_rank_takes_to_end(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("lacks", 3, 60)
        await asyncio.sleep(3)
        slow = cluster.ranks[cluster.scheduler.state.nodes_of(job)[2]]
        end = slow.stop
        slow.stop = lambda life: asyncio.get_running_loop().call_later(30.0, end, life)  # type: ignore[method-assign,assignment]
        await asyncio.sleep(5)
        (idle,) = {*FOUR.names} - {*cluster.scheduler.state.nodes_of(job)}
        cluster.agents[idle].beat()  # The scheduler hears; no heartbeat of the slow one comes by chance.
        await asyncio.sleep(20)
        assert not cluster.scheduler.state.out and lives_of(cluster, job) == [job]
        slow.stop = end  # type: ignore[method-assign]
        await cluster.until_over(job)
        assert len(lives_of(cluster, job)) == 2

    play(tmp_path, scene, timers=Timers(beat=15.0))


def test_told_says_what_becomes_of_a_job() -> None:
    assert {one.value for one in EndKind} == {"suspend", "restart", "cancel", "timeout", "fail"}


def test_a_row_has_the_step_that_was_saved_as_a_number() -> None:
    events: list[Event] = [
        Saved(1.0, 1, 20, earlier_s=4.5),
        Left(2.0, 1, step=23),
        Left(3.0, 1),
        NodeOut(4.0, "a", "step 5"),
    ]
    assert [row_of(one, {1: 1})["step"] for one in events] == [20, 23, -1, -1]


def test_a_table_without_the_column_has_the_steps_in_words() -> None:
    said = {"saved": "step 20, complete 3.2 s before", "left": "code 75, step 3", "finished": "code 0, step None"}
    rows = pd.DataFrame({"event": [*said, "node_out"], "why": [*said.values(), "waited for step 7"], "job": "p"})
    assert list(PLATFORM_EVENTS.of_today(rows)["step"]) == [20, 3, -1, -1]
