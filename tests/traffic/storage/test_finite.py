"""Loads that have an end, as a run plays them: services and clients in processes of their own."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest

from fabric.errors import ConfigError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from traffic.job import FiniteJob, Stage
from traffic.storage.finite import FiniteStorageJob, storage_job
from traffic.storage.job import StorageJob
from traffic.storage.load_measures import loader_numbers, restore_numbers
from traffic.storage.tables import LOADER_BATCHES

from .conftest import FABRIC, config_of, loopback

SAMPLES = {"files": 4, "file_size": "1 MiB", "sample_min": "16 KiB", "sample_max": "64 KiB"}


def job_of(pool: AgentPool, clients: int, settings: Mapping[str, object]) -> StorageJob:
    stage = Stage(FABRIC, pool, lambda _: None, seed=7)
    found = storage_job(
        stage, config_of(settings), FABRIC.computes[:clients], level=ServiceLevel.STORAGE, name="storage"
    )
    found.address_of = loopback
    return found


def test_a_job_whose_load_has_an_end_is_one_that_ends(pool: AgentPool) -> None:
    restores = {"dataloader": {"share": 0.0}, "restore": {"share": 1.0}}
    assert isinstance(job_of(pool, 1, restores), FiniteJob)
    assert not isinstance(job_of(pool, 1, {"restore": {"share": 1.0}}), FiniteJob)


def test_two_epochs_and_a_restore_are_played_to_their_end(pool: AgentPool) -> None:
    epochs = {**SAMPLES, "share": 0.5, "batch": 2, "epochs": {"count": 2, "batches": 3, "compute": "10 ms"}}
    job = job_of(pool, 4, {"dataloader": epochs, "restore": {"share": 1.0, "size": "1 MiB", "piece": "256 KiB"}})
    assert isinstance(job, FiniteStorageJob)
    try:
        job.start()
        for number, phase in enumerate(("one", "two")):
            job.play(phase)
            job.finish()
            records = job.halt()
            batches = pd.DataFrame(records.rows("loader_batches"))
            assert list(batches.columns) == [one for one in LOADER_BATCHES.columns if one != "job"]
            assert set(batches["phase"]) == {phase}
            assert len(batches) == 2 * 2 * 3, "readers, epochs, batches"
            assert set(batches["epoch"]) == {2 * number, 2 * number + 1}
            found = loader_numbers(batches)
            assert found["loader.computing_s"] >= 3 * 0.010
            assert found["loader.epoch_s"] >= found["loader.computing_s"]
            restored = restore_numbers(pd.DataFrame(records.rows("operations")))
            assert (restored["restore.clients"], restored["restore.failed"]) == (4, 0)
    finally:
        job.close()


def test_patience_grows_with_what_is_read_and_computed(pool: AgentPool) -> None:
    def patience_s(settings: Mapping[str, object]) -> float:
        job = job_of(pool, 4, settings)
        assert isinstance(job, FiniteStorageJob)
        return job.patience_s

    restores = {"dataloader": {"share": 0.0}}
    small, large = (patience_s({**restores, "restore": {"share": 1.0, "size": size}}) for size in ("1 MiB", "101 MiB"))
    nic_bytes_per_s = FABRIC.nic_rate_bps / 8
    assert large - small == pytest.approx(50 * 100 * 2**20 * 4 / len(FABRIC.storages) / nic_bytes_per_s)
    epochs = {**SAMPLES, "batch": 2, "epochs": {"count": 5, "batches": 3, "compute": "2 s"}}
    assert patience_s({"dataloader": epochs}) > 50 * 5 * 3 * 2


def test_an_epoch_without_a_batch_for_each_reader_is_refused(pool: AgentPool) -> None:
    few = {**SAMPLES, "files": 1, "batch": 40, "epochs": {"count": 1}}
    with pytest.raises(ConfigError, match=r"are 0 batches of 40 for each of 4 readers, less than the 1 of an epoch"):
        job_of(pool, 4, {"dataloader": few})
