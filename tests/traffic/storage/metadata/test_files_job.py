"""A file system as a job, in programs of their own on loopback addresses: what a user's program sees, and loads."""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import ConfigError, TrafficError, UsageError
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.rows import columns_of_programs
from tests.traffic.storage.conftest import FABRIC, loopback
from tests.waiting import played_until
from traffic.job import FiniteJob, Records, Stage
from traffic.measures import JobRows
from traffic.storage.metadata import calls, mounting
from traffic.storage.metadata.job import PRELOAD, FilesJob
from traffic.storage.metadata.job_config import FilesConfig
from traffic.storage.metadata.kinds import FILE_STEPS, of_file_steps
from traffic.storage.metadata.usrbio import FileError, FileSystem
from traffic.storage.wire.causes import Cause, sent_bytes

EXAMPLE = Path(__file__).parents[4] / "docs" / "programs" / "file_system.py"
JobOf = Callable[..., FilesJob]


@pytest.fixture(scope="module")
def files_pool() -> Iterator[AgentPool]:
    found = AgentPool(PRELOAD)
    yield found
    found.stop()


@pytest.fixture
def files_job(files_pool: AgentPool) -> Iterator[JobOf]:
    started: list[FilesJob] = []

    def start(clients: int = 1, **settings: Any) -> FilesJob:
        stage = Stage(FABRIC, files_pool, lambda _: None, seed=7)
        config = checked(FilesConfig, {"chunk_size": "64 KiB", "stripe": 4, **settings}, "test")
        job = FilesJob(stage, config, FABRIC.computes[:clients], loopback, level=ServiceLevel.STORAGE, name="files")
        started.append(job)
        job.start()
        return job

    yield start
    for job in started:
        job.close()


def played(job: FilesJob) -> tuple[Records, dict[str, float]]:
    """Play a load to its end; return its rows and numbers."""
    job.play("test")
    assert isinstance(job, FiniteJob)
    job.finish()
    records = job.halt()
    for name in ("operations", "file_steps"):
        frame = pd.DataFrame(records.rows(name))
        expected = columns_of_programs(name) if name == "operations" else [c for c in FILE_STEPS.columns if c != "job"]
        assert list(frame.columns) == expected
    return records, dict(of_file_steps(JobRows(lambda name: pd.DataFrame(records.rows(name)), [])))


def test_the_example_of_a_program_does_what_it_says(
    files_job: JobOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = files_job()
    assert job.place is not None
    monkeypatch.setattr(mounting, "DIRECTORY", tmp_path)
    monkeypatch.setenv("FABRIC_HOST", FABRIC.computes[0].name)
    with pytest.raises(UsageError, match="beside a job of kind files"):
        mounting.find_mount_point(None, None)
    job.place.publish()
    with pytest.raises(UsageError, match="no file system; those that do: files"):
        mounting.find_mount_point("other", None)
    runpy.run_path(str(EXAMPLE))
    assert capsys.readouterr().out.splitlines() == [
        "length after fsync: 1048576",
        "files: ['rank0']",
        "reads: 16 as written: True",
        "removed: ENOENT",
    ]


def test_two_programs_see_each_other_s_files(files_job: JobOf) -> None:
    job = files_job(clients=2)
    assert job.place is not None
    with FileSystem(job.place, FABRIC.computes[0].name) as one, FileSystem(job.place, FABRIC.computes[1].name) as other:
        fd = one.create("/f")
        one.write(fd, 100_000, b"far")
        one.close(fd)
        there = other.open("/f")
        assert other.read(there, 99_999, 10) == b"\0far"
        one.remove("/f")
        with pytest.raises(FileError, match="ENOENT"):
            other.open("/f")
        with pytest.raises(FileError, match="EEXIST"):
            other.mkdir("/")


def test_mdtest_makes_looks_at_reads_and_removes_all_of_its_files(files_job: JobOf) -> None:
    load = {"processes": 2, "files": 8, "depth": 1, "branch": 2, "write": 5000, "directories": True, "shift": 1}
    job = files_job(clients=2, mdtest=load)
    records, numbers = played(job)
    asked = sum(count for name, count in job.counts.items() if name.removeprefix("metadata_")[:1].isupper())
    sent = sent_bytes(job.counts)
    print(asked, sent)
    # A request and its answer are 270 bytes; what its server asks the store, and hears, four times as much.
    assert sent[Cause.METADATA] > 1000 * asked > 200_000
    assert job.counts["payload_write_bytes"] == job.counts["payload_read_bytes"] == 32 * 5000
    steps = {row["step"]: row["items"] for row in records.rows("file_steps")}
    files = {f"file_{phase}": 32 for phase in ("create", "stat", "read", "remove")}
    directories = {f"directory_{phase}": 32 for phase in ("create", "stat", "remove")}
    assert steps == {"tree_create": 2, **directories, **files, "tree_remove": 3}
    moved = {row["step"]: row["size_bytes"] for row in records.rows("file_steps")}
    assert moved["file_create"] == moved["file_read"] == 32 * 5000
    assert numbers["file_create.operations_per_s"] > 0
    assert numbers["file_stat.p50_s"] > 0
    assert {row["operation"] for row in records.rows("operations")} == {*steps}


def test_fio_writes_and_reads_what_it_was_told(files_job: JobOf) -> None:
    load = {"rw": "randrw", "bs": "16 KiB", "size": "512 KiB", "numjobs": 2, "iodepth": 4, "fsync": 8}
    records, numbers = played(files_job(clients=2, fio=load))
    (step,) = [row for row in records.rows("file_steps") if row["step"] == "fio"]
    assert step["items"] == 2 * 2 * 32
    assert step["size_bytes"] == 2 * 2 * (512 << 10)
    counts = pd.DataFrame(records.rows("operations")).groupby("operation").size()
    assert counts["read"] + counts["write"] == 128
    assert min(counts["read"], counts["write"]) > 20
    assert counts["layout"] == 128
    assert counts["fsync"] >= 4
    assert numbers["fio.bandwidth_Bps"] > 0


def test_a_load_goes_on_when_a_metadata_server_is_killed(files_job: JobOf) -> None:
    metadata = {"alive_every": 0.2, "dead_after": 0.6, "call_timeout": 0.3, "removal": {"delay": 0, "every": 0.2}}
    load = {"processes": 2, "files": 30, "write": 5000, "unique": True}
    job = files_job(clients=2, mdtest=load, metadata=metadata)
    job.play("test")
    time.sleep(0.3)
    servers = job.failing_programs[-1]
    assert servers.hosts == {"st000", "st001", "st003"}, "two servers, and the store"
    servers.kill_on("st000")
    job.finish()
    records = job.halt()
    operations = pd.DataFrame(records.rows("operations"))
    assert not operations["operation"].str.endswith("_failed").any()
    assert operations["retries"].sum() > 0
    steps = {row["step"]: row["items"] for row in records.rows("file_steps")}
    assert steps["file_create"] == steps["file_stat"] == steps["file_read"] == steps["file_remove"] == 120


def test_a_server_that_ends_by_itself_is_the_cause(files_job: JobOf) -> None:
    """What it cannot read ends it, as of any stream that is damaged; the load then fails for want of a server."""
    metadata = {"hosts": ["st001"], "call_timeout": 0.2, "operation_timeout": 5.0}
    job = files_job(metadata=metadata, mdtest={"files": 2000})
    assert job.place is not None
    job.play("test")
    with FileSystem(job.place, FABRIC.computes[0].name) as files, pytest.raises(TrafficError, match="st001"):
        ask = files.files.metadata._ask
        files._do(ask("st001", calls.Stat(5), 0.2))  # type: ignore[arg-type]
    with pytest.raises(TrafficError, match=r"(?s)metadata server on st001.*Stat has path, base"):
        job.finish()


def test_a_load_for_a_time_ends_when_it_is_told_to(files_job: JobOf) -> None:
    job = files_job(fio={"rw": "write", "bs": "16 KiB", "size": "64 KiB", "iodepth": 2, "runtime": 600})
    started = time.monotonic()
    played_until(job, "test", lambda seen: len(seen.rows("operations")) > 4, "five writes", window_s=0.5)
    assert time.monotonic() - started < 100


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"fio": {}, "mdtest": {}}, "give each a job of its own"),
        ({"fio": {"bs": "2 MiB", "size": "1 MiB"}}, "exceeds size"),
        ({"mdtest": {"files": 3, "depth": 2, "branch": 2}}, "fewer than one for each directory"),
        ({"mdtest": {"phases": ["stat", "create"]}}, "create comes first"),
        ({"mdtest": {"phases": ["stat"]}}, "nothing is made"),
        ({"chunk_size": "8 MiB"}, "must fit in one request"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked(FilesConfig, settings, "test")


def test_hosts_that_are_not_there_are_refused(files_pool: AgentPool) -> None:
    stage = Stage(FABRIC, files_pool, lambda _: None, seed=7)
    config = checked(FilesConfig, {"metadata": {"hosts": ["nobody"], "store": {"host": "nowhere"}}}, "test")
    with pytest.raises(ConfigError, match=r"nowhere is not a host.*\n?.*nobody is not a host"):
        FilesJob(stage, config, FABRIC.computes[:1], level=ServiceLevel.STORAGE, name="files")
