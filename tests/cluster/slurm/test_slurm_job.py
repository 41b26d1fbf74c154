"""Slurm as a run plays it: its daemons and ranks are processes on this machine, on ports of their own."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from cluster.platform.config import PlatformConfig
from cluster.slurm.daemons import Daemon
from cluster.slurm.installed import missing
from cluster.slurm.job import SlurmJob
from cluster.slurm.programs import _ordered
from fabric.config import checked
from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent, AgentPool
from tests.ports import held_ports
from topologies.load import load_fabric
from traffic.job import Job, Stage

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(missing()), reason=f"no {', '.join(missing())}; tools/setup.sh test installs them"),
]
FABRIC = load_fabric("fire_flyer_2_small")
NODES = FABRIC.computes[:9]
LONG_S = 240.0
"""Longer than a machine takes that has much else to do."""
COUNTS = """
import os, sys, time
from cluster.platform.user import go_suspend, receive_suspend_command, saved, saved_step
begun = saved_step()
step = begun or 0
if os.environ["RANK"] == "0":
    print(*(os.environ[name] for name in ("WORLD_SIZE", "MASTER_IP")), flush=True)
while step < ({steps} or (10**6 if begun is None else begun + 10)):
    time.sleep(0.02)
    step += 1
    if os.environ["RANK"] == "0":
        print(step, flush=True)
    if receive_suspend_command():
        saved(step)
        go_suspend()
"""


def counts(steps: int) -> list[str]:
    """Return a program that counts; with 0 until it is suspended, and then for 10 steps more."""
    return [sys.executable, "-c", COUNTS.format(steps=steps)]


@pytest.fixture
def pool() -> Iterator[AgentPool]:
    pool = AgentPool()
    yield pool
    pool.stop()


@pytest.fixture
def ports() -> Iterator[list[int]]:
    with held_ports(len(NODES)) as found:
        yield found


def await_that(what: str, is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < until_s, f"waited {LONG_S:g} s: {what}"
        time.sleep(0.1)


def processes_of(job: SlurmJob) -> list[str]:
    """Return the commands of the processes that Slurm has started, or that are it."""
    mark, found = f"SLURM_CONF={job.folder}/".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def slurm_job(pool: AgentPool, logs: Path, ports: list[int], jobs: list[dict[str, Any]], **config: Any) -> SlurmJob:
    checked_config = checked(PlatformConfig, {"engine": "slurm", "jobs": jobs, **config}, "test")

    def at(node: NodeId) -> tuple[str, int]:
        return "127.0.0.1", ports[NODES.index(node)]

    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=logs)
    return SlurmJob(stage, checked_config, NODES, ServiceLevel.OTHER, at=at)


def tell(rows: list[dict[str, Any]], began_s: float) -> None:
    for row in rows:
        print(f"{row['at_s'] - began_s:6.2f}", *(row[name] for name in ("event", "life", "nodes", "why")))


def close_partition(platform: SlurmJob, name: str) -> dict[str, str]:
    """Let jobs of a partition wait until it is opened; return the environment of whoever opens it."""
    assert platform.folder is not None
    config = platform.folder / "slurm.conf"
    lines = config.read_text().splitlines()
    (place,) = [place for place, line in enumerate(lines) if line.startswith(f"PartitionName={name} ")]
    assert lines[place].endswith(" State=UP")
    lines[place] = lines[place].replace(" State=UP", " State=DOWN")
    config.write_text("\n".join(lines) + "\n")
    return {"SLURM_CONF": str(config), "PATH": "/usr/bin:/bin"}


def have_begun(platform: Path, ranks: int) -> bool:
    """Return whether all ranks of the first job have begun."""
    return len(list(platform.glob("*/job1.0-*/log"))) == ranks


def has_saved_start(platform: SlurmJob, logs: Path) -> bool:
    """Return whether slurmctld has saved its jobs since it started the last one. It does some seconds later: killed
    before, it knows nothing of that, starts the job once more, and nodes that end the one life end the other."""
    assert platform.folder is not None
    starts = re.findall(r"\[(\S+)\] sched: Allocate", (logs / "slurmctld.log").read_text())
    saved = (platform.folder / "state" / "job_state").stat().st_mtime
    return saved > datetime.fromisoformat(starts[-1]).timestamp()


def has_counted(platform: Path) -> bool:
    return any(len(log.read_text().split()) > 3 for log in platform.glob("*/job1.0-0/log"))


def test_jobs_of_two_users_run_yield_and_go_on_and_nothing_is_left(
    pool: AgentPool, tmp_path: Path, ports: list[int]
) -> None:
    jobs = [
        {"name": "low", "user": "ada", "nodes": 6, "command": counts(0)},
        {"name": "high", "user": "bo", "nodes": 4, "command": counts(5), "priority": "HIGH"},
        {"name": "bad", "user": "cy", "nodes": 1, "command": ["false"]},
    ]
    platform = slurm_job(pool, tmp_path, ports, jobs)
    job: Job = platform
    try:
        job.start()
        environment = close_partition(platform, "HIGH")  # Else it would be first where daemons come up slowly.
        began_s = time.monotonic()
        job.play("alone")
        with pytest.raises(TrafficError, match="have not ended within 0 s\nnodes as Slurm has them: "):
            platform.finish(0.0)
        logs = tmp_path / "platform"
        await_that("low counts, and all its ranks have begun", lambda: have_begun(logs, 6) and has_counted(logs))
        told = [platform.so_far()]
        subprocess.run(
            ["scontrol", "update", "PartitionName=HIGH", "State=UP"], env=environment, check=True, timeout=60
        )
        platform.finish(LONG_S)
        told.append(platform.so_far())
        records = job.halt()
        rows = records.rows("platform_events")
        told.append(platform.so_far())
        during = processes_of(platform)
    finally:
        job.close()
    assert not during, "daemons end with the phase"
    early, late, nothing = (one.rows("platform_events") for one in told)
    assert "started" in {row["event"] for row in early} and "finished" not in {row["event"] for row in early}
    of_jobs = [row for row in rows if row["event"] != "up"]
    assert [*early, *late] == of_jobs[: len(early) + len(late)], "told while it played"
    assert {"finished", "suspend"} <= {row["event"] for row in late} and not nothing
    (first_told, *_) = (one.rows("platform_jobs") for one in told)
    assert [row["name"] for row in first_told] == [row["name"] for row in records.rows("platform_jobs")]
    tell(rows, began_s)
    events = [(row["event"], row["life"]) for row in rows if row["event"] != "saved"]
    names = {row["why"]: row["number"] for row in rows if row["event"] == "submitted"}
    low, high, bad = (names[name] for name in ("low", "high", "bad"))
    again = next(row["life"] for row in rows if row["number"] == low and row["life"] != low)
    of_low = [event for event, life in events if life in (low, again)]
    assert of_low == ["submitted", "started", "suspend", "left", "started", "finished"]
    assert [event for event, life in events if life == high] == ["submitted", "started", "finished"]
    assert [event for event, life in events if life == bad] == ["submitted", "started", "fail", "left"]
    assert {row["phase"] for row in rows} == {"alone"} and events[0] == ("up", 0)
    assert all(began_s <= row["at_s"] <= time.monotonic() for row in rows)
    starts = {row["life"]: row["nodes"].split() for row in rows if row["event"] == "started"}
    first, second = (
        (tmp_path / "platform" / starts[life][0] / f"{life}-0" / "log").read_text().split() for life in (low, again)
    )
    assert first[:2] == second[:2] == ["6", "127.0.0.1"]
    steps = [int(step) for step in first[2:] + second[2:]]
    assert steps == list(range(1, steps[-1] + 1)), "no step is lost or done twice"
    assert len(second[2:]) == 10
    assert processes_of(platform) == []


def test_a_daemon_that_ends_by_itself_is_noticed_at_once(tmp_path: Path) -> None:
    ours, theirs = Pipe()
    daemon = Daemon("here", ["sh", "-c", "echo no port; exit 3"], {}, tmp_path / "said")
    assert daemon.end is None
    daemon.start()
    try:
        ours.send("order")
        assert _ordered(Agent("here", theirs), daemon) == "order"
        with pytest.raises(TrafficError, match=r"here: sh ended with 3; it said last:\nno port"):
            _ordered(Agent("here", theirs), daemon)
    finally:
        daemon.stop()


@pytest.mark.soak
def test_killed_daemons_are_noticed_and_come_back_and_a_second_phase_begins_anew(
    pool: AgentPool, tmp_path: Path, ports: list[int]
) -> None:
    """A slurmd that is killed takes its ranks along, as a host that is lost; slurmctld goes on from its state."""
    seconds = ["sh", "-c", "sleep 15"]
    jobs = [{"name": "wide", "user": "ada", "nodes": 6, "command": seconds}]
    timers = {"failed_after": "3 s", "beat": "0.9 s"}
    platform = slurm_job(pool, tmp_path, ports, jobs, timers=timers, policy="fifo")
    slurmds, controller = platform.failing_programs
    try:
        platform.start()
        began_s = time.monotonic()
        platform.play("first")
        logs = tmp_path / "platform"
        await_that("all ranks have begun", lambda: have_begun(logs, 6))
        await_that("slurmctld has saved that they have", lambda: has_saved_start(platform, logs))
        lost, manager = NODES[1].name, NODES[0].name
        slurmds.kill_on(lost)
        controller.kill_on(manager)
        assert (lost in slurmds.hosts, manager in controller.hosts) == (False, False)
        time.sleep(1)
        controller.restart_on(manager)
        platform.finish(LONG_S)
        slurmds.restart_on(lost)
        await_that(f"{lost} is back", lambda: '"node_back"' in (logs / "journal").read_text())
        first = platform.halt().rows("platform_events")
        tell(first, began_s)
        platform.play("second")
        platform.finish(LONG_S)
        second = platform.halt().rows("platform_events")
        tell(second, began_s)
    finally:
        platform.close()
    events = [row["event"] for row in first]
    assert [row["nodes"] for row in first if row["event"] in ("node_out", "node_back")] == [lost, lost]
    assert events.index("node_out") < events.index("restart") < events.index("finished")
    _, again = (row["nodes"].split() for row in first if row["event"] == "started")
    assert lost not in again
    assert [row["event"] for row in second] == ["up", "submitted", "started", "finished"]
    *_, last = (logs / "slurmctld.log").read_text().split(" started on cluster ")
    assert last.count("sched: Allocate") == 1, "no job of the first phase is begun in the second"
    assert {row["number"] for row in second} == {0, 3}, "numbers go on"
    assert processes_of(platform) == []
