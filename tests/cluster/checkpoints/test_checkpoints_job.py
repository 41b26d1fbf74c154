"""Checkpoints as a job, in programs of their own on loopback addresses."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from cluster.checkpoints.config import CheckpointsConfig
from cluster.checkpoints.job import CheckpointsJob
from cluster.checkpoints.kinds import CHECKPOINTING, CHECKPOINTS, checkpoint_numbers
from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.traffic.storage.conftest import FABRIC, loopback
from traffic.job import FiniteJob, Stage


def job_of(pool: AgentPool, nodes: int, **settings: Any) -> CheckpointsJob:
    stage = Stage(FABRIC, pool, lambda _: None, seed=7)
    config = checked(CheckpointsConfig, {"chunk_size": "16 KiB", "stripe": 4, **settings}, "test")
    return CheckpointsJob(stage, config, FABRIC.computes[:nodes], loopback, level=ServiceLevel.STORAGE, name="ckpt")


def test_a_job_writes_keeps_some_and_restores_by_other_numbers_of_nodes() -> None:
    pool = AgentPool(CHECKPOINTING.preload)
    job = job_of(pool, 3, writers=2, size="100 KiB", tensors=5, count=3, every="1 ms", keep=1, restored_by=[1, 3])
    assert isinstance(job, FiniteJob)
    try:
        job.start()
        job.play("test")
        job.finish()
        records = job.halt()
    finally:
        job.close()
        pool.stop()
    rows = pd.DataFrame(records.rows("checkpoints"))
    assert list(rows.columns) == [name for name in CHECKPOINTS.columns if name != "job"]
    found = [(one["operation"], one["step"], one["nodes"], one["size_bytes"]) for one in records.rows("checkpoints")]
    whole = 200 * 1024
    assert found[:6] == [("write", step, 2, whole // 2) for step in (1, 1, 2, 2, 3, 3)]
    assert found[6] == ("restore", 3, 1, whole)
    assert [one[:3] for one in found[7:]] == [("restore", 3, 3)] * 3
    assert sum(one[3] for one in found[7:]) == whole
    times = rows[["started_s", "ready_s", "done_s", "ended_s"]]
    assert (times.diff(axis=1).iloc[:, 1:] >= 0).all().all()
    numbers = checkpoint_numbers(rows)
    assert (numbers["checkpoint.count"], numbers["checkpoint.failed"], numbers["restore.count"]) == (3, 0, 2)
    assert numbers["restore_3.node_Bps"] > 0 < numbers["checkpoint.node_Bps"]
    kinds = {row["operation"] for row in records.rows("operations")}
    assert kinds >= {"write", "read"}


def test_what_cannot_be_is_named() -> None:
    for settings, words in (
        ({"restored_by": [1]}, "restored_by: is played once `count` checkpoints are written; set count"),
        ({"restored_by": [1, 1], "count": 1}, "names a number twice"),
        ({"size": "1 KiB", "tensors": 1000}, "size: 1024 B are fewer than a value for each of 1000 tensors"),
    ):
        with pytest.raises(ConfigError, match=words):
            checked(CheckpointsConfig, settings, "test")
    pool = AgentPool(())
    with pytest.raises(ConfigError) as caught:
        job_of(pool, 2, writers=3, count=1, restored_by=[2, 4])
    assert caught.value.faults == (
        "writers: 3, but the job has 2 nodes; lower it or raise nodes",
        "restored_by: 4, but the job has 2 nodes; lower it or raise nodes",
    )
    pool.stop()
