"""A training's checkpoints in a file system whose programs are processes of their own, on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cluster.checkpoints.contents import made, tensors_of
from cluster.checkpoints.manager import CheckpointManager
from cluster.checkpoints.tensors import Range
from cluster.platform.gang import Place, gathered
from cluster.platform.storage_saves import StorageSaves
from cluster.platform.training_saves import ModelSize, SavesLostError
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


def train(
    mount: MountPoint, world: int, steps: int, model: ModelSize | None = None, **how: Any
) -> list[tuple[int, int]]:
    """Return from which step each rank began, and the state it ended with."""
    master = ("127.0.0.1", held_port())

    def one(rank: int) -> tuple[int, int]:
        saves = StorageSaves(lambda: (mount, FABRIC.computes[rank].name), "/job7", 2, model)
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


MODEL = ModelSize(300_002, 3, 27e9)


def test_shards_of_a_model_are_restored_by_other_ranks_and_past_half_and_wrongly_written_ones(
    place: MountPoint, capfd: pytest.CaptureFixture[str]
) -> None:
    assert train(place, 2, 7, MODEL) == [(0, state_after(7))] * 2
    with FileSystem(place, FABRIC.computes[0].name) as files:
        manager = CheckpointManager(files.files, "/job7", copy_Bps=None)
        index = files.run(manager.index(7))
        model = tensors_of(MODEL.size_bytes, MODEL.tensors)
        assert index.tensors[-3:] == model and index.size_bytes == 8 * VALUES + MODEL.size_bytes
        for one in (Range(one.name, 0, one.size_bytes) for one in model):
            assert files.run(manager.restore(index, [one]))[one.tensor].data == made(place.seed, 7, one)
        (piece,) = index.pieces_of(Range(model[1].name, 5, 10))
        first, start = index.place_of(piece.chunk)
        fd = files.open(f"/job7/7/{first}", writes=True)
        files.write(fd, start + piece.offset, b"wrong")
        files.close(fd)
        files.mkdir("/job7/9")
        fd = files.create("/job7/9/0")  # A writer was killed before the index was there.
        files.write(fd, 0, b"half")
        files.close(fd)
    wrote = [int(line.split()[1]) for line in capfd.readouterr().out.splitlines() if line.startswith("wrote ")]
    assert sum(wrote) == 3 * (8 * VALUES + MODEL.size_bytes), "of steps 3, 6 and 7"
    assert train(place, 3, 12, MODEL) == [(6, state_after(12))] * 3
    read = [int(line.split()[1]) for line in capfd.readouterr().out.splitlines() if line.startswith("read ")]
    assert len(read) >= 3 and sum(read[-3:]) == 3 * 8 * VALUES + MODEL.size_bytes, "each a shard of its own"
    with FileSystem(place, FABRIC.computes[0].name) as files:
        assert sorted(int(one.name) for one in files.list("/job7")) == [9, 12]
    assert train(place, 1, 12, MODEL) == [(12, state_after(12))]


def test_a_model_of_other_bytes_or_size_is_not_taken(place: MountPoint) -> None:
    train(replace(place, seed=place.seed + 1), 2, 2, MODEL)
    with pytest.raises(SavesLostError, match=r"step 2: it has 380002 bytes in 11 tensors; this training has 480000 in"):
        train(place, 2, 5, ModelSize(400_000, 3, None))
    with pytest.raises(SavesLostError, match=r"bytes \d+ to \d+ of layer0000 are not the step's|not on all ranks"):
        train(place, 2, 5, MODEL)
    assert train(place, 2, 5, MODEL) == [(0, state_after(5))] * 2, "the wrong one is removed"
