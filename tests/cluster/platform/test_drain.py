"""A platform that goes down in good order and on from its journal: programs in processes of their own, over TCP."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from app.commands.cluster_up import supervisor_of
from cluster.platform import supervision
from cluster.platform.client import asked
from cluster.platform.config import PlatformConfig
from cluster.platform.events import to_line
from cluster.platform.job import PlatformJob
from cluster.platform.journal import events_in
from cluster.platform.supervision import SupervisedPrograms
from fabric.config import checked
from fabric.errors import TrafficError
from fabric.world.programs.agents import AgentPool
from tests.cluster.platform.test_job import FABRIC, TIMERS, TRANSPORT, counts, loopback, until_counting
from tests.waiting import until
from traffic.job import Stage


def begun(pool: AgentPool, folder: Path, config: PlatformConfig) -> PlatformJob:
    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=folder)
    job = PlatformJob(stage, config, FABRIC.computes[:3], address_of=loopback)
    job.start()
    job.play("one")
    return job


def told(folder: Path) -> list[str]:
    """Return what has happened, in the journal's words."""
    lines = [to_line(event) for event in events_in(folder / "platform" / "journal")]
    return [line.split('"')[3] for line in lines]


def test_what_runs_saves_and_goes_on_when_it_comes_up_again(tmp_path: Path) -> None:
    one: dict[str, Any] = {"name": "counts", "user": "ada", "nodes": 2, "command": counts(0)}
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": [one, one | {"name": "waits"}]}, "test")
    pool = AgentPool()
    try:
        began_s = time.monotonic()
        job = begun(pool, tmp_path, config)
        until_counting(tmp_path)
        job.drain()
        took_s = time.monotonic() - began_s
        job.close()
        wanted = ("submitted", "started", "told", "left")
        assert [what for what in told(tmp_path) if what in wanted] == ["submitted", *wanted]
        last_s = max(event.at_s for event in events_in(tmp_path / "platform" / "journal"))
        assert 0 < last_s < took_s, "the journal's time begins with the cluster"
        again = begun(pool, tmp_path, config.model_copy(update={"jobs": ()}))
        until_counting(tmp_path, life=3)
        again.drain()
        again.close()
    finally:
        pool.stop()
    made = []
    for life in (1, 3):
        (log,) = (tmp_path / "platform").glob(f"*/{life}-0/log")
        made += [int(step) for step in log.read_text().split()]
    assert made == list(range(1, len(made) + 1)) and made, "no step is lost or made twice"
    later = [event for event in events_in(tmp_path / "platform" / "journal") if event.at_s > last_s]
    assert later and later[0].at_s < last_s + 30, "time goes on where it was"


def test_programs_of_a_cluster_that_is_up_are_begun_again_when_they_are_killed(tmp_path: Path) -> None:
    """The scheduler goes on from its journal at the same address; ranks of an agent that is killed begin again."""
    jobs = [{"name": "counts", "user": "ada", "nodes": 2, "command": counts(0)}]
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": jobs}, "test")
    pool = AgentPool()

    async def lives() -> int:
        (found,) = (await asked(TRANSPORT, job.endpoint, "", {"kind": "list"}))["jobs"]
        return int(found["lives"]) if found["state"] == "running" else 0

    def until_begun(programs: SupervisedPrograms, count: int) -> None:
        handle = next(iter(programs.group.living.values()))
        os.kill(handle.process.pid, signal.SIGKILL)
        assert handle.pipe.poll(10), "its end is seen"
        supervisor.look()
        until(lambda: asyncio.run(lives()) == count, f"the job to play in its {count}. life")

    try:
        job = begun(pool, tmp_path, config)
        agents, scheduler = job.failing_programs
        supervisor = supervisor_of(job)
        until(lambda: any(tmp_path.glob("platform/*/1-0/log")), "the job to begin")
        until_begun(scheduler, 1)
        until_begun(agents, 2)
        job.drain()
        job.close()
    finally:
        pool.stop()


def test_programs_of_a_cluster_that_is_up_are_begun_again_when_they_fail_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent, whose job begins again, until it fails again and again; then the scheduler, without which nothing
    goes on."""
    jobs = [{"name": "counts", "user": "ada", "nodes": 2, "command": counts(0)}]
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": jobs}, "test")
    monkeypatch.setattr(supervision, "FAILURES_S", 3600.0)  # However busy the machine is.
    pool = AgentPool()

    def fail(programs: SupervisedPrograms) -> None:
        handle = min(programs.group.living.values(), key=lambda one: one.host)
        handle.pipe.send("no order")
        assert handle.pipe.poll(30), "its end is seen"
        handle.process.join(30)
        supervisor.look()

    try:
        job = begun(pool, tmp_path, config)
        agents, scheduler = job.failing_programs
        supervisor = supervisor_of(job)
        until(lambda: any(tmp_path.glob("platform/*/1-0/log")), "the job to begin")
        count = len(agents.hosts)
        fail(agents)
        assert len(agents.hosts) == count
        until(lambda: any(tmp_path.glob("platform/*/2-0/log")), "the job to begin again")
        fail(scheduler)
        fail(agents)
        fail(agents)
        assert len(agents.hosts) == count - 1, "given up"
        fail(scheduler)
        with pytest.raises(TrafficError, match=r"(?s)scheduler on .*: has failed 3 times .* knows no order"):
            fail(scheduler)
        told = capsys.readouterr().err
        assert told.count("agent: z0h001: knows no order 'no order'") == 3, "why"
        assert "agent on z0h001 is begun again" in told
        assert "has failed 3 times within 3600 s; its node stays out until the cluster comes up anew" in told
        job.close()
    finally:
        pool.stop()
