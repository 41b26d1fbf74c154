"""A platform that goes down in good order and on from its journal: programs in processes of their own, over TCP."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cluster.platform.config import PlatformConfig
from cluster.platform.events import to_line
from cluster.platform.job import PlatformJob
from cluster.platform.journal import events_in
from fabric.config import checked
from fabric.world.programs.agents import AgentPool
from tests.cluster.platform.test_job import FABRIC, TIMERS, counts, loopback
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
    asked: dict[str, Any] = {"name": "counts", "user": "ada", "nodes": 2, "command": counts(0)}
    config = checked(PlatformConfig, {"timers": TIMERS, "jobs": [asked, asked | {"name": "waits"}]}, "test")
    pool = AgentPool()
    try:
        job = begun(pool, tmp_path, config)
        time.sleep(0.8)
        job.drain()
        job.close()
        assert [one for one in told(tmp_path) if one != "asked"] == [
            "submitted",
            "submitted",
            "started",
            "told",
            "left",
        ]
        last_s = max(event.at_s for event in events_in(tmp_path / "platform" / "journal"))
        assert 0.5 < last_s < 60, "the journal's time begins with the cluster"
        again = begun(pool, tmp_path, config.model_copy(update={"jobs": ()}))
        time.sleep(0.8)
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
