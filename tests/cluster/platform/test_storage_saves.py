"""A training's checkpoints in a file system whose programs are processes of their own, on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cluster.platform.gang import Place, gathered
from cluster.platform.storage_saves import StorageSaves
from cluster.platform.training_steps import SAMPLES, Trainer, Training, factor, pattern
from fabric.config import checked
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.ports import held_port
from tests.traffic.storage.conftest import FABRIC, loopback
from traffic.job import Stage
from traffic.storage.metadata.job import PRELOAD, FilesJob
from traffic.storage.metadata.job_config import FilesConfig
from traffic.storage.metadata.mounting import MountPoint
from traffic.storage.metadata.usrbio import FileSystem

VALUES = 10_000


@pytest.fixture
def place() -> Iterator[MountPoint]:
    pool = AgentPool(PRELOAD)
    config = checked(FilesConfig, {"chunk_size": "8 KiB", "stripe": 4, "replicas": 2}, "test")
    stage = Stage(FABRIC, pool, lambda _: None, seed=7)
    job = FilesJob(stage, config, FABRIC.computes[:1], loopback, level=ServiceLevel.STORAGE, name="files")
    try:
        job.start()
        job.play("test")
        assert job.place is not None
        yield job.place
    finally:
        job.close()
        pool.stop()


def train(mount: MountPoint, world: int, steps: int, **how: Any) -> list[tuple[int, int]]:
    """Return from which step each rank began, and the state it ended with."""
    master = ("127.0.0.1", held_port())

    def one(rank: int) -> tuple[int, int]:
        saves = StorageSaves(lambda: (mount, FABRIC.computes[rank].name), "/job7", keep=2)
        with saves, gathered(Place(rank, world, master), 20, 20) as gang:
            trainer = Trainer(Training(steps, 0.0, VALUES, every=3, **how), gang, saves)
            trainer.restore()
            began = trainer.state.step
            assert trainer.train()
            return began, trainer.state.value

    with ThreadPoolExecutor(world) as threads:
        return list(threads.map(one, range(world)))


def state_after(steps: int) -> int:
    return pattern(VALUES) * sum(factor(step, range(SAMPLES)) for step in range(1, steps + 1))


def test_a_training_goes_on_from_storage_with_other_ranks_and_past_a_broken_checkpoint(place: MountPoint) -> None:
    assert train(place, 2, 7, waits=True) == [(0, state_after(7))] * 2
    with FileSystem(place, FABRIC.computes[0].name) as files:
        assert [one.name for one in files.list("/job7")] == ["6", "7"]
        fd = files.open("/job7/7/0", writes=True)
        files.write(fd, 5, b"wrong")
        files.close(fd)
        files.mkdir("/job7/9")
    assert train(place, 3, 12) == [(6, state_after(12))] * 3
    with FileSystem(place, FABRIC.computes[0].name) as files:
        assert sorted(int(one.name) for one in files.list("/job7")) == [9, 12]
    assert train(place, 1, 12) == [(12, state_after(12))], "nothing is left to do"
