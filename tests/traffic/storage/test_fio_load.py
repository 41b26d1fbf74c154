"""Loads in fio's words: what they ask for, and that they play."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest

from fabric.config import checked
from fabric.errors import ConfigError
from tests.waiting import played_until
from traffic.job import Records
from traffic.storage.chains import Striping
from traffic.storage.client.fio_load import fio_files, places
from traffic.storage.config import StorageConfig
from traffic.storage.fio_config import ChunkIoConfig
from traffic.storage.kinds import DISKS

from .conftest import JobOf
from .rated import Nics, RatedCluster
from .true_timers import no_listeners_left, run


def io_of(**keys: Any) -> ChunkIoConfig:
    return ChunkIoConfig.model_validate(keys)


def first(count: int, seed: int = 1, **keys: Any) -> list[tuple[bool, int]]:
    return list(itertools.islice(places(io_of(**keys), random.Random(seed)), count))


def test_places_follow_each_other_or_are_drawn() -> None:
    assert first(5, rw="read", bs=1000, size=2500) == [(True, 0), (True, 1000), (True, 2000), (True, 0), (True, 1000)]
    assert {reads for reads, _ in first(50, rw="randwrite")} == {False}
    drawn = [place for _, place in first(200, rw="randread", bs=4096, size=1 << 20)]
    assert len(set(drawn)) > 100 and all(place % 4096 == 0 and place < 1 << 20 for place in drawn)
    for share in (0, 20, 100):
        mixed = first(2000, rw="randrw", rwmixread=share)
        assert abs(sum(reads for reads, _ in mixed) / 20 - share) < 4


def test_files_that_are_written_anew_are_others_on_the_same_chains_in_each_phase() -> None:
    striping = Striping(1 << 16, 3, 7, 1)
    for keys, is_anew in (({"rw": "write"}, True), ({"rw": "write", "overwrite": True}, False), ({"rw": "rw"}, False)):
        first, second = (fio_files(io_of(numjobs=2, **keys), striping, 5, play) for play in (0, 1))
        assert [one.chains for one in first] == [one.chains for one in second]
        assert {one.file for one in first}.isdisjoint(one.file for one in second) is is_anew
        assert first == fio_files(io_of(numjobs=2, **keys), striping, 5)


def test_a_phase_appends_as_the_one_before_did(job_of: JobOf) -> None:
    """The files are longer than what a phase writes."""
    job = job_of(chunk_size=1 << 16, stripe=4, chunk_io={"rw": "write", "bs": "4 KiB", "iodepth": 2, "size": "1 GiB"})
    for phase in ("alone", "together"):
        records = played_until(job, phase, lambda seen: len(seen.rows("operations")) > 10, "ten writes")
        assert copies_in(records) == 0


def test_files_of_reads_are_there_and_nobody_loads_data_beside() -> None:
    assert (
        io_of(rw="read").are_there and io_of(rw="randwrite").are_there and io_of(rw="write", overwrite=True).are_there
    )
    assert not io_of(rw="write").are_there
    config = checked(StorageConfig, {"chunk_io": {"rw": "write"}}, "test")
    assert config.dataloader.share == 0
    assert checked(StorageConfig, config.model_dump(mode="json"), "again") == config
    both = checked(StorageConfig, {"chunk_io": {}, "dataloader": {"share": 0.5}}, "test")
    assert both.dataloader.share == 0.5


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"bs": "8 MiB"}, "bs 8 MiB exceeds size 4 MiB; lower it"),
        ({"rw": "trim"}, "rw: "),
        ({"iodepth": 0}, "greater than or equal to 1"),
        ({"rwmixread": 101}, "less than or equal to 100"),
    ],
)
def test_faults_are_named(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        checked(StorageConfig, {"chunk_io": keys}, "test")


async def _played(io: dict[str, Any]) -> RatedCluster:
    keys = {"chunk_size": 1 << 16, "stripe": 3, "connections": "when_needed", "chunk_io": io}
    cluster = RatedCluster(StorageConfig.model_validate(keys), 3, Nics(1e9, 1e-5), clients=2)
    await cluster.start()
    await cluster.play(0.0, 0.02)
    return cluster


def test_all_patterns_play_and_what_was_written_is_there() -> None:
    for rw, copies in (("read", False), ("randread", False), ("write", False), ("randwrite", True), ("randrw", True)):
        with no_listeners_left():
            cluster = run(_played({"rw": rw, "bs": 10_000, "iodepth": 2, "numjobs": 2, "size": 100_000}))
        kinds = {one.kind for client in cluster.clients for one in client.operations}
        assert kinds == ({"read", "write"} if rw == "randrw" else {rw.removeprefix("rand")})
        counts = sum((service.counts for service in cluster.services.values()), start=Counter[str]())
        assert (counts["copies_on_write"] > 0) >= copies, rw
        assert (counts["writes_in_place"] > 0) is (rw == "write"), rw
        for service in cluster.services.values():
            service.require_sound()


def copies_in(records: Records) -> int:
    return sum(row["copies_on_write"] for row in records.rows("disks"))


def test_a_job_plays_it(job_of: JobOf) -> None:
    job = job_of(
        chunk_size=1 << 16, stripe=4, chunk_io={"rw": "randrw", "bs": "4 KiB", "iodepth": 4, "size": "256 KiB"}
    )
    copied: list[int] = []

    def is_enough(seen: Records) -> bool:
        copied.append(copies_in(seen))
        return len({row["operation"] for row in seen.rows("operations")}) == 2

    records = played_until(job, "io", is_enough, "reads and writes")
    assert {row["operation"] for row in records.rows("operations")} == {"read", "write"}
    disks = records.rows("disks")
    assert len(disks) == 4 * job.config.disks_per_node
    assert {name for row in disks for name in row} == DISKS.columns.keys() - {"job"}
    assert sum(copied) == job.counts["copies_on_write"], "of all phases"
    assert sum(row["reads"] for row in disks) > copied[-1] > 0
    assert job.verify_acknowledged(60).lost == ()
