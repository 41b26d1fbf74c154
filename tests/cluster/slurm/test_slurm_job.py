"""Slurm as a run plays it: its daemons and ranks are processes on this machine, on ports of their own."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.platform.config import PlatformConfig
from cluster.slurm.installed import missing
from cluster.slurm.job import SlurmJob
from fabric.config import checked
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from topologies.load import load_fabric
from traffic.job import Job, Stage

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(missing()), reason=f"no {', '.join(missing())}; tools/setup.sh test installs them"),
]
FABRIC = load_fabric("fire_flyer_2_small")
NODES = FABRIC.computes[:9]
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


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


def processes_of(job: SlurmJob) -> list[str]:
    """Return the commands of the processes that Slurm has started, or that are it."""
    mark, found = f"SLURM_CONF={job.folder}/".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def slurm_job(pool: AgentPool, logs: Path, jobs: list[dict[str, Any]], **config: Any) -> SlurmJob:
    checked_config = checked(PlatformConfig, {"engine": "slurm", "jobs": jobs, **config}, "test")
    ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))

    def at(node: NodeId) -> tuple[str, int]:
        return "127.0.0.1", ports[node]

    stage = Stage(FABRIC, pool, lambda _: None, seed=7, logs=logs)
    return SlurmJob(stage, checked_config, NODES, ServiceLevel.OTHER, at=at)


def test_jobs_of_two_users_run_yield_and_go_on_and_nothing_is_left(pool: AgentPool, tmp_path: Path) -> None:
    jobs = [
        {"name": "low", "user": "ada", "nodes": 6, "command": counts(0)},
        {"name": "high", "user": "bo", "nodes": 4, "command": counts(5), "priority": "HIGH", "at": "5 s"},
        {"name": "bad", "user": "cy", "nodes": 1, "command": ["false"]},
    ]
    platform = slurm_job(pool, tmp_path, jobs)
    job: Job = platform
    try:
        job.start()
        began_s = time.monotonic()
        job.play("alone")
        platform.finish(60.0)
        rows = job.halt().rows("platform_events")
        during = processes_of(platform)
    finally:
        job.close()
    assert not during, "daemons end with the phase"
    events = [(row["event"], row["life"]) for row in rows]
    print(
        *(f"{row['at_s'] - began_s:6.2f} {row['event']} {row['life']} {row['nodes']} {row['why']}" for row in rows),
        sep="\n",
    )
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
