"""Health as a scheduler and agents keep it, in time that jumps: who is taken out and comes back, and what jobs do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from cluster.health.checks import Check, Occasion, Verdict
from cluster.nodes import Nodes
from cluster.platform.events import Started
from cluster.platform.journal import Journal
from cluster.platform.state import JobState, PlatformState
from cluster.tasks import Users
from tests.cluster.health.healthy_cluster import HealthyCluster
from tests.traffic.storage.true_timers import run

SIX = Nodes.grid(1, 2, 3)
BEFORE: dict[str, Any] = {"validate": {"before_job": True}, "repair": "60 s", "lemon": None}
Scene = Callable[[HealthyCluster], Coroutine[None, None, None]]


def play(
    folder: Path, health: dict[str, Any], scene: Scene, nodes: Nodes = SIX, kind: type[HealthyCluster] = HealthyCluster
) -> HealthyCluster:
    """Return a cluster after a scene, whose journal is a history that can have been."""
    found: list[HealthyCluster] = []

    async def be() -> None:
        cluster = kind(folder, nodes, health)
        found.append(cluster)
        await cluster.start()
        await scene(cluster)
        cluster.kill_scheduler()

    run(be())
    with Journal(folder / "journal") as journal:
        PlatformState(nodes, Users(), journal.events())
    return found[0]


def starts(cluster: HealthyCluster) -> list[tuple[str, ...]]:
    return [event.nodes for event in cluster.scheduler.journal.events() if isinstance(event, Started)]


def test_a_slow_nic_is_found_before_a_job_and_is_back_once_it_is_repaired(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        cluster.hosts["z0h001"].share = 0.25
        job = cluster.submit("train", 4, 20)
        await asyncio.sleep(30)
        cluster.hosts["z0h001"].share = 1.0
        await cluster.until_over(job)
        assert cluster.disk.sums(job) == list(range(1, 21))
        _, second = cluster.scheduler.state.jobs[job].lives
        assert cluster.begun == {second}, "no rank ran before its nodes were sound"
        await asyncio.sleep(60)

    cluster = play(tmp_path, BEFORE, scene)
    (out, back) = cluster.moves()
    assert out[:2] == ("out", "z0h001") and out[2].startswith(
        "validator: bandwidth: NIC 0: 2.42 Mbit/s of 10 Mbit/s with"
    )
    assert back == ("back", "z0h001", "the validator passed it")
    first, second = starts(cluster)
    assert "z0h001" in first and "z0h001" not in second
    bandwidth = [one for _, one in cluster.results() if one.check is Check.BANDWIDTH]
    assert [one.node for one in bandwidth if one.verdict is Verdict.FAILED] == ["z0h001"]
    assert cluster.scheduler.state.out == {}


def test_a_repair_that_does_not_help_is_seen_and_makes_a_lemon(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        cluster.hosts["z0h001"].share = 0.25
        await cluster.until_over(cluster.submit("train", 4, 5))
        await asyncio.sleep(300)

    cluster = play(tmp_path, {**BEFORE, "lemon": {"tickets": 3}}, scene)
    words = [(way, why.split(":")[0]) for way, _, why in cluster.moves()]
    assert words == [
        ("out", "validator"),
        ("out", "validator after a repair"),
        ("out", "validator after a repair"),
        ("out", "lemon, out for good"),
    ]
    assert cluster.scheduler.state.out["z0h001"] == "lemon, out for good: 3 repairs in 28 d (limit 3)"


def test_a_repaired_node_waits_until_somebody_can_measure_with_it(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        cluster.hosts["z0h001"].share = 0.25
        job = cluster.submit("train", 5, 200)
        await asyncio.sleep(150)
        assert list(cluster.scheduler.state.out) == ["z0h001"], "all others are in use, and it is slow"
        await cluster.until_over(job)
        await asyncio.sleep(30)
        assert cluster.moves()[-1][2].startswith("validator after a repair: bandwidth")

    play(tmp_path, BEFORE, scene)


def test_a_gpu_error_takes_the_node_out_and_the_job_goes_on_elsewhere(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        job = cluster.submit("train", 4, 40)
        await asyncio.sleep(15)
        cluster.hosts["z0h002"].breaks(79, gpu=3)
        await cluster.until_over(job)
        assert cluster.scheduler.state.jobs[job].code == 0
        assert sorted(set(cluster.disk.sums(job))) == list(range(1, 41))
        await asyncio.sleep(100)
        assert cluster.scheduler.state.out == {}, "it was repaired"
        cluster.kill_agent("z0h002")
        cluster.network.end("z0h002")
        cluster.start_agent("z0h002")
        await asyncio.sleep(100)
        assert cluster.scheduler.state.out == {}, "an agent that begins again does not take old errors for new ones"

    cluster = play(tmp_path, BEFORE, scene)
    assert cluster.moves() == [
        ("out", "z0h002", "unwell: GPU 3: Xid 79: GPU has fallen off the bus"),
        ("back", "z0h002", "the validator passed it"),
    ]


def test_an_error_of_the_program_leaves_the_node_in(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        job = cluster.submit("train", 2, 40)
        await asyncio.sleep(15)
        cluster.hosts[cluster.scheduler.state.nodes_of(1)[1]].breaks(31)
        await cluster.until_over(job)
        assert cluster.scheduler.state.jobs[job].code != 0, "the program failed, as of its own"

    assert play(tmp_path, BEFORE, scene).moves() == []


def test_idle_nodes_are_validated_in_turn(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        await asyncio.sleep(1)
        cluster.hosts["z0h004"].share = 0.5
        await asyncio.sleep(130)
        weekly = [one.node for why, one in cluster.results() if why is Occasion.WEEKLY]
        assert set(weekly) == set(SIX.names), "each was validated"

    cluster = play(tmp_path, {"validate": {"every": "100 s"}, "repair": "1 d"}, scene)
    (out,) = cluster.moves()
    assert out[1] == "z0h004", "not the neighbours that measured with it"


def test_a_silent_node_is_back_only_by_the_validator(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        cluster.silence("z0h003")
        await asyncio.sleep(100)
        cluster.hosts["z0h003"].carrier = False
        cluster.network.mend()
        await asyncio.sleep(120)
        assert "z0h003" in cluster.scheduler.state.out
        cluster.hosts["z0h003"].carrier = True
        await asyncio.sleep(100)

    moves = play(tmp_path, BEFORE, scene).moves()
    assert [(way, why.split(":")[0][:14]) for way, _, why in moves[:2]] == [
        ("out", "not heard for "),
        ("out", "validator afte"),
    ]
    assert moves[-1] == ("back", "z0h003", "the validator passed it")


def test_a_scheduler_that_dies_in_a_validation_goes_on(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        cluster.hosts["z0h001"].share = 0.25
        job = cluster.submit("train", 4, 20)
        await asyncio.sleep(1.5)
        cluster.kill_scheduler()
        cluster.network.end("manager")
        await asyncio.sleep(2)
        cluster.start_scheduler()
        await cluster.until_over(job)
        assert cluster.scheduler.state.jobs[job].state is JobState.FINISHED
        assert cluster.disk.sums(job) == list(range(1, 21))
        cluster.kill_scheduler()
        cluster.network.end("manager")
        cluster.start_scheduler()
        await asyncio.sleep(5)
        assert list(cluster.scheduler.state.out) == ["z0h001"], "who is out is out after that, too"

    cluster = play(tmp_path, BEFORE, scene)
    found = {(one.node, one.verdict) for why, one in cluster.results() if one.check is Check.BANDWIDTH}
    assert ("z0h001", Verdict.FAILED) in found and ("z0h000", Verdict.PASSED) in found, "results outlive schedulers"


def test_a_scheduler_that_was_killed_knows_who_was_validated(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        for _ in range(4):
            await asyncio.sleep(40)
            cluster.kill_scheduler()
            cluster.network.end("manager")
            cluster.start_scheduler()
        await asyncio.sleep(20)

    cluster = play(tmp_path, {"validate": {"every": "90 s", "checks": ["answer"]}}, scene)
    weekly = [one.node for why, one in cluster.results() if why is Occasion.WEEKLY]
    assert set(weekly) == set(SIX.names), "else who comes first would be validated again and again"
    assert max(map(weekly.count, weekly)) <= 2


@pytest.mark.parametrize("tries", [1, 3])
def test_a_sound_node_is_not_condemned_by_what_is_in_the_way(tmp_path: Path, tries: int) -> None:
    """Two tests of each neighbour and one alone are slow, as on a busy machine."""

    async def scene(cluster: HealthyCluster) -> None:
        cluster.busy["z0h001"] = 5
        await cluster.until_over(cluster.submit("train", 4, 5))

    health = {**BEFORE, "validate": {"before_job": True, "tries": tries}}
    assert bool(play(tmp_path, health, scene).moves()) is (tries == 1)


def test_users_have_nodes_validated(tmp_path: Path) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        cluster.hosts["z0h000"].dropped = 500
        assert await cluster.ask({"kind": "validate", "nodes": ["z0h000", "z0h001"]}) == {"kind": "done"}
        await asyncio.sleep(10)
        (refused,) = (await cluster.ask({"kind": "validate", "nodes": ["z9h000"]}))["faults"]
        assert refused == "nodes: the cluster has no 'z9h000'"

    cluster = play(tmp_path, {"repair": "1 d"}, scene)
    assert [why for _, _, why in cluster.moves()] == ["unwell: NIC 0: 500 of 1500 frames dropped"]


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_user_asked_to_validate_outlives_the_scheduler(tmp_path: Path, begun: bool) -> None:
    """It is killed before the nodes are idle, or while they are validated; once the result is known nothing is due."""
    asked = {"kind": "validate", "nodes": ["z0h000", "z0h001"]}

    async def again(cluster: HealthyCluster) -> None:
        cluster.kill_scheduler()
        cluster.network.end("manager")
        cluster.start_scheduler()

    async def scene(cluster: HealthyCluster) -> None:
        job = cluster.submit("train", 6, 15)
        await asyncio.sleep(2)
        assert await cluster.ask(asked) == {"kind": "done"}
        health, ends_s = cluster.scheduler.health, time.monotonic() + 60
        while begun and not (health and health._validations):
            assert time.monotonic() < ends_s, "waited 60 s for the validation to begin"
            await asyncio.sleep(0.05)
        assert cluster.results() == []
        await again(cluster)
        await cluster.until_over(job)
        await asyncio.sleep(30)
        assert cluster.results(), "it was validated once its nodes were idle"
        await again(cluster)
        await asyncio.sleep(60)

    cluster = play(tmp_path, {"validate": {"checks": ["answer", "bandwidth"]}}, scene)
    found = sorted((why, one.node, one.check, one.verdict) for why, one in cluster.results())
    checks = (Check.ANSWER, Check.BANDWIDTH)
    assert found == [
        (Occasion.DEMAND, node, check, Verdict.PASSED) for node in ("z0h000", "z0h001") for check in checks
    ]


class SteppingCluster(HealthyCluster):
    """Ranks tell the steps that their job has made; the rank on ``stuck`` is a step behind once it stands still."""

    stuck = ""
    stands = False

    def steps_on(self, name: str) -> Callable[[], dict[int, tuple[int, int]]]:
        def steps() -> dict[int, tuple[int, int]]:
            found = {}
            for life in self.ranks[name].running:
                made = self.disk.sums(self.scheduler.state.job_of(life).number)
                step = (made or [0])[-1]
                if self.stands:
                    step = self.stopped.setdefault(life, step)
                    step += bool(self.stuck) and name != self.stuck
                if step:
                    found[life] = (self.scheduler.state.nodes_of(life).index(name), step)
            return found

        return steps

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.stopped: dict[int, int] = {}


@pytest.mark.parametrize("stuck", ["z0h002", ""])
def test_a_job_that_stands_still_begins_again_without_the_node_that_is_to_blame(tmp_path: Path, stuck: str) -> None:
    async def scene(cluster: HealthyCluster) -> None:
        assert isinstance(cluster, SteppingCluster)
        cluster.stuck = stuck
        job = cluster.submit("train", 4, 90)
        await asyncio.sleep(20)
        cluster.stands = True
        await asyncio.sleep(40)
        cluster.stands = False
        assert len(cluster.scheduler.state.jobs[job].lives) == 2
        assert cluster.scheduler.state.jobs[job].why.startswith(
            "stalled: no rank has moved for 30 s, and a step takes 1 s"
        )
        await cluster.until_over(job)

    health = {"stall": {"factor": 5, "least": "30 s"}, "repair": "1 d"}
    cluster = play(tmp_path, health, scene, kind=SteppingCluster)
    assert [node for _, node, _ in cluster.moves()] == ([stuck] if stuck else [])
    _, second = starts(cluster)
    assert ("z0h002" in second) is not bool(stuck)
