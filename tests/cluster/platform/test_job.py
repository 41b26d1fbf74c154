"""The platform as a run plays it: the scheduler, agents and ranks in processes of their own, over TCP."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.health.checks import Check, CheckResult, Occasion, Verdict
from cluster.platform.client import asked
from cluster.platform.config import PlatformConfig
from cluster.platform.events import Validated
from cluster.platform.job import PlatformJob
from cluster.platform.journal import Journal
from cluster.platform.kinds import PLATFORM
from cluster.platform.ranks import left_in
from cluster.tasks import Priority
from fabric.config import checked
from fabric.errors import ConfigError, TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.cluster.platform.audit import audit, printed_steps
from tests.waiting import until
from topologies.load import load_fabric
from traffic.job import Job, Stage
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

FABRIC = load_fabric("fire_flyer_2_tiny")
ROOT = Path(__file__).parents[3]
TRANSPORT = TcpTransport(SocketOptions(ServiceLevel.CONTROL))
COUNTS = """
import sys, time
sys.path.insert(0, {root!r})
from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step
begun = saved_step()
step = begun or 0
while step < ({steps} or (10**6 if begun is None else begun + 10)):
    time.sleep(0.02)
    step += 1
    print(step, flush=True)
    if receive_suspend_command():
        saved(step)
        go_suspend()
"""
TIMERS = {"tick": 0.05, "beat": 0.2, "redial": 0.1}


def loopback(node: NodeId) -> str:
    return f"127.9.{node.zone}.{node.index + 1}"


def journal_of(folder: Path) -> str:
    """Return the lines of a platform's journal so far."""
    journal = folder / "platform" / "journal"
    return journal.read_text() if journal.exists() else ""


def until_counting(folder: Path, life: int = 1) -> None:
    """Wait until the program of a life of a job has made a step, and the scheduler knows that it has started."""

    def is_counting() -> bool:
        has_counted = any(log.stat().st_size for log in (folder / "platform").glob(f"*/{life}-0/log"))
        return has_counted and journal_of(folder).count('"started"') >= (life + 1) // 2

    until(is_counting, f"the first step of life {life}")


def counts(steps: int) -> list[str]:
    """Return a program that counts; with 0 until it is suspended, and then for 10 steps more."""
    return [sys.executable, "-c", COUNTS.format(root=str(ROOT), steps=steps)]


@pytest.fixture
def pool() -> Iterator[AgentPool]:
    pool = AgentPool()
    yield pool
    pool.stop()


def test_jobs_of_two_users_run_yield_and_go_on(pool: AgentPool, tmp_path: Path) -> None:
    config = checked(
        PlatformConfig,
        {
            "timers": TIMERS,
            "jobs": [
                {"name": "low", "user": "ada", "nodes": 3, "command": counts(0)},
            ],
        },
        "test",
    )
    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path)
    platform = PlatformJob(stage, config, FABRIC.computes[:4], address_of=loopback)
    job: Job = platform
    try:
        job.start()
        began_s = time.monotonic()
        job.play("alone")
        until_counting(tmp_path)
        high = {"name": "high", "user": "bo", "nodes": 2, "command": counts(5), "priority": Priority.HIGH}
        asyncio.run(asked(TRANSPORT, platform.endpoint, "", {"kind": "submit", "spec": high}))
        platform.finish(60.0)
        records = job.halt()
        rows = records.rows("platform_events")
    finally:
        job.close()
    assert [(row["event"], row["number"]) for row in rows] == [
        ("submitted", 1),
        ("asked", 1),
        ("started", 1),
        ("submitted", 2),
        ("suspend", 1),
        ("saved", 1),
        ("left", 1),
        ("asked", 2),
        ("started", 2),
        ("finished", 2),
        ("asked", 1),
        ("started", 1),
        ("finished", 1),
    ]
    assert {row["phase"] for row in rows} == {"alone"}
    assert all(began_s <= row["at_s"] <= time.monotonic() for row in rows)
    first, second = (tmp_path / "platform" / rows[2]["nodes"].split()[0] / f"{life}-0" / "log" for life in (1, 3))
    steps = [int(step) for step in (first.read_text() + second.read_text()).split()]
    assert steps == list(range(1, steps[-1] + 1)), "no step is lost or done twice"
    assert len(second.read_text().split()) == 10
    for table, found in records.items():
        assert all({*row, "job"} == set(PLATFORM.tables[table].columns) for row in found), table
    made = [
        (row["life"], row["step"]) for row in records.rows("platform_steps") if (row["number"], row["rank"]) == (1, 0)
    ]
    assert made == [(1 if step <= steps[-1] - 10 else 3, step) for step in steps]
    jobs = {
        row["name"]: (row["user"], row["priority"], row["asks"], row["lives"]) for row in records.rows("platform_jobs")
    }
    assert jobs == {"low": ("ada", "NORMAL", 3, 2), "high": ("bo", "HIGH", 2, 1)}


def test_a_job_that_goes_on_at_the_end_of_a_phase_is_stopped(pool: AgentPool, tmp_path: Path) -> None:
    jobs = [{"name": "long", "user": "ada", "nodes": 2, "command": counts(100_000)}]
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": jobs}, "test")
    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path)
    job = PlatformJob(stage, config, FABRIC.computes[:3], address_of=loopback)
    try:
        job.start()
        job.play("one")
        until_counting(tmp_path)
        rows = job.halt().rows("platform_events")
    finally:
        job.close()
    assert [row["event"] for row in rows] == ["submitted", "asked", "started", "cancel", "left"]


def counted(steps: int, until_there: Path) -> list[str]:
    """Return the counting program behind a shell, which does not end with its agent by itself, nor before a file is
    there."""
    program = f"{sys.executable} -m cluster.platform.counted_steps {steps} 10 0.02"
    return ["sh", "-c", f"{program} || exit $?; until [ -e {until_there} ]; do sleep 0.05; done"]


def test_killed_programs_are_begun_again_and_nothing_is_lost(pool: AgentPool, tmp_path: Path) -> None:
    """An agent by whoever injected the failure, the scheduler by what supervises it; the run waits for the end of all
    jobs meanwhile. However late they are killed, no job has ended before."""
    goes = tmp_path / "goes"
    config = checked(
        PlatformConfig,
        {
            "timers": {**TIMERS, "failed_after": 60.0, "ready": 10.0},  # Whoever begins again is not taken for lost.
            "restart": 0.3,
            "jobs": [{"name": "one", "user": "ada", "nodes": 3, "command": counted(60, goes)}],
        },
        "test",
    )
    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path)
    job = PlatformJob(stage, config, FABRIC.computes[:4], address_of=loopback)
    agents, scheduler = job.failing_programs
    manager, victim = FABRIC.computes[0].name, FABRIC.computes[2].name
    waiting = threading.Thread(target=job.finish, args=(120.0,), daemon=True)
    try:
        job.start()
        job.play("alone")
        waiting.start()
        until(lambda: '"saved"' in journal_of(tmp_path), "a step that is saved")
        agents.kill_on(victim)
        assert victim not in agents.hosts
        agents.restart_on(victim)
        scheduler.kill_on(manager)
        goes.touch()
        waiting.join(120)
        assert not waiting.is_alive()
        rows = job.halt().rows("platform_events")
    finally:
        job.close()
    assert left_in(tmp_path / "platform") == []
    assert audit(rows, printed_steps(tmp_path / "platform")) == []
    assert [row["event"] for row in rows].count("submitted") == 1, "it is not submitted again"
    first, *others = [row["why"] for row in rows if row["event"] == "restart"]
    assert first == f"{victim}: its rank is gone"
    # A scheduler that is killed between its journal and its orders has one life more to begin again.
    assert len(others) <= 1 and all(why.endswith(": its rank is gone") for why in others), others
    assert rows[-1]["event"] == "finished"


def test_a_scheduler_killed_for_good_leaves_its_journal(pool: AgentPool, tmp_path: Path) -> None:
    jobs = [{"name": "long", "user": "ada", "nodes": 2, "command": counts(100_000)}]
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": jobs}, "test")
    job = PlatformJob(
        Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path), config, FABRIC.computes[:3], address_of=loopback
    )
    try:
        job.start()
        job.play("one")
        until_counting(tmp_path)
        job.failing_programs[1].kill_on(FABRIC.computes[0].name)
        with pytest.raises(TrafficError, match=r"was killed, and was not begun again within 0\.2 s; give the failure"):
            job.finish(0.2)
        found = (CheckResult("z0h001", Check.GPU, Verdict.FAILED, 1.0, 0.0, "", "GPU 0: Xid 79"),)
        with Journal(tmp_path / "platform" / "journal") as journal:
            journal.write(Validated(time.monotonic(), Occasion.WEEKLY, ("z0h001",), found))
        records = job.halt()
        rows, checks = records.rows("platform_events"), records.rows("platform_health")
        with pytest.raises(TrafficError, match="its scheduler on z0h000 was killed, and was not begun again"):
            job.play("two")
    finally:
        job.close()
    assert [row["event"] for row in rows] == ["submitted", "asked", "started"]
    assert [(row["phase"], row["node"], row["check"], row["reason"]) for row in checks] == [
        ("one", "z0h001", "gpu", "GPU 0: Xid 79")
    ], "what its validations found is in there, too"
    assert {*checks[0], "job"} == set(PLATFORM.tables["platform_health"].columns)
    assert left_in(tmp_path / "platform") == []
    assert audit(rows) == ["job 1 (long): has not ended; its last event is started"]


@pytest.mark.parametrize("dead", [1, 3])
def test_a_run_whose_agents_end_by_themselves_ends_soon_and_names_them(
    pool: AgentPool, tmp_path: Path, dead: int
) -> None:
    """As by the kernel when memory runs out: no failure of the run has killed them, and nobody begins them again."""
    job = {"name": "long", "user": "ada", "nodes": 3, "command": counts(0)}
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": [job]}, "test")
    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path)
    platform = PlatformJob(stage, config, FABRIC.computes[:4], address_of=loopback)
    try:
        platform.start()
        platform.play("one")
        until_counting(tmp_path)
        platform.verify()
        with pytest.raises(TrafficError, match=r"platform: not all jobs have ended within 0\.5 s; see .*/journal"):
            platform.finish(0.5)
        agents, _ = platform.failing_programs
        for node in FABRIC.computes[1 : 1 + dead]:
            os.kill(agents.group.living[node].process.pid, signal.SIGKILL)
        names = ", ".join(node.name for node in FABRIC.computes[1 : 1 + dead])
        began_s = time.monotonic()
        with pytest.raises(TrafficError) as told:
            platform.finish(60.0)
        took_s = time.monotonic() - began_s
    finally:
        platform.close()
    assert str(told.value).startswith(
        f"platform: {dead} of 3 agents have ended by themselves, those on {names}: agent on {FABRIC.computes[1]}: "
        "ended with -9 before the end of the phase"
    )
    assert took_s < 30, "it is not waited for the time that jobs have"


def test_what_is_wrong_in_a_config_is_named(pool: AgentPool, tmp_path: Path) -> None:
    jobs = [{"name": "one", "user": "ada", "nodes": 1, "command": ["true"]}]
    for change, words in (
        ({"policy": "slurm"}, "policy: 'slurm' is not one of hai"),
        ({"jobs": []}, "jobs"),
        ({"jobs": [{**jobs[0], "priority": "TOP"}]}, "jobs.0.priority"),
        ({"timers": {"tick": 0}}, "timers.tick"),
    ):
        with pytest.raises(ConfigError, match=words):
            checked(PlatformConfig, {"jobs": jobs, **change}, "test")
    wide = checked(PlatformConfig, {"jobs": [{**jobs[0], "nodes": 3}]}, "test")
    with pytest.raises(TrafficError, match="job one asks for 3 nodes, and platform has 2 beside the scheduler's"):
        PlatformJob(Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path), wide, FABRIC.computes[:3])
    most = len(FABRIC.computes) - 1
    huge = checked(PlatformConfig, {"jobs": [jobs[0], {**jobs[0], "nodes": most + 1}]}, "test")
    assert list(PLATFORM.faults(huge, FABRIC)) == [
        f"jobs.1.nodes: {most + 1}, but {FABRIC.name} has {most} beside the scheduler's; lower it"
    ]
    config = checked(PlatformConfig, {"jobs": jobs}, "test")
    with pytest.raises(TrafficError, match="has 1 nodes; the scheduler needs one, and jobs one or more"):
        PlatformJob(Stage(FABRIC, pool, lambda _: None, seed=7, logs=tmp_path), config, FABRIC.computes[:1])
