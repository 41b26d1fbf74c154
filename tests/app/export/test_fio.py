"""The JSON has fio's keys, and its figures are those of the run's reads and writes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from app.export.choice import Choice
from app.export.fio import fio
from fabric.errors import UsageError
from fabric.results import Result, ResultWriter
from runs.counted_operations import operation_metrics
from tests.rows import table_of
from tests.synthetic_result import Recipe, write_result

TINY = "fire_flyer_2_tiny"
PHASE = "mixed_lanes"


def written(directory: Path, operations: list[tuple[Any, ...]], jobs: list[tuple[Any, ...]] = []) -> Result:  # noqa: B006
    """Return a result with these operations of ``mixed_lanes``: job, operation, bytes, start, end."""
    write_result(directory, Recipe(TINY, without=("jobs",)))
    rows = [
        (PHASE, job, "storage", operation, "st000", "z0h000", size, began, ended, 0)
        for job, operation, size, began, ended in operations
    ]
    ResultWriter(directory).write_table("operations", table_of("operations", rows))
    if jobs:
        ResultWriter(directory).write_table("jobs", table_of("jobs", jobs))
    return Result(directory)


def jobs_of(result: Result, **choice: Any) -> dict[str, Any]:
    found = json.loads(fio(result, Choice(**choice)).data)
    return {job["jobname"]: job for job in found["jobs"]}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return Result(write_result(tmp_path_factory.mktemp("results") / "one", Recipe(TINY)))


def began_s(result: Result) -> float:
    return next(phase.started_s for phase in result.phases if phase.name == PHASE)


# Keys of fio 3.33, from fio --name=a --rw=randrw --size=1m --output-format=json.
JOB_KEYS = {
    "jobname", "groupid", "error", "eta", "elapsed", "job options", "read", "write", "trim", "sync", "job_runtime",
    "usr_cpu", "sys_cpu", "ctx", "majf", "minf", "iodepth_level", "iodepth_submit", "iodepth_complete", "latency_ns",
    "latency_us", "latency_ms", "latency_depth", "latency_target", "latency_percentile", "latency_window",
}  # fmt: skip
SECTION_KEYS = {
    "io_bytes", "io_kbytes", "bw_bytes", "bw", "iops", "runtime", "total_ios", "short_ios", "drop_ios", "slat_ns",
    "clat_ns", "lat_ns", "bw_min", "bw_max", "bw_agg", "bw_mean", "bw_dev", "bw_samples", "iops_min", "iops_max",
    "iops_mean", "iops_stddev", "iops_samples",
}  # fmt: skip


def test_it_has_fios_keys(result: Result) -> None:
    found = json.loads(fio(result).data)
    assert found.keys() == {"fio version", "jobs", "disk_util"}  # The made-up run has no date.
    for job in found["jobs"]:
        assert job.keys() - {"fabric"} == JOB_KEYS
        for section in ("read", "write", "trim"):
            assert job[section].keys() == SECTION_KEYS
        assert list(job["read"]["clat_ns"]) == ["min", "max", "mean", "stddev", "N", "percentile"]
        for unit in ("ns", "us", "ms"):
            assert all(0 <= share <= 100 for share in job[f"latency_{unit}"].values())
        shares = sum(sum(job[f"latency_{unit}"].values()) for unit in ("ns", "us", "ms"))
        assert shares == pytest.approx(100)


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_the_fio_of_this_machine_has_no_other_keys(result: Result, tmp_path: Path) -> None:
    words = ["fio", "--name=a", "--rw=randrw", "--size=64k", "--bs=4k", f"--filename={tmp_path}/data"]
    done = subprocess.run(
        [*words, "--output-format=json"], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    (theirs,) = json.loads(done.stdout)["jobs"]
    ours = next(iter(jobs_of(result).values()))
    assert theirs.keys() <= ours.keys()
    for section in ("read", "write"):
        assert theirs[section].keys() <= ours[section].keys()
        assert theirs[section]["clat_ns"]["percentile"].keys() == ours[section]["clat_ns"]["percentile"].keys()
    for unit in ("ns", "us", "ms"):
        assert list(theirs[f"latency_{unit}"]) == list(ours[f"latency_{unit}"])


def test_figures_are_those_of_the_runs_own_metrics(result: Result) -> None:
    """Of one window: the load plays in all of the phase where the table jobs has no row."""
    phase = next(phase for phase in result.phases if phase.name == "storage_alone")
    operations = result.table("operations")
    operations = operations[operations["phase"] == phase.name]
    job = jobs_of(result)["storage_alone.storage"]
    for kind in ("read", "write"):
        own = operation_metrics(operations, kind, phase.load_s)
        section = job[kind]
        assert section["bw_bytes"] == pytest.approx(own[f"{kind}.bandwidth_Bps"], abs=1)
        assert section["bw"] == section["bw_bytes"] >> 10
        assert section["total_ios"] == section["clat_ns"]["N"] == own[f"{kind}.operations"]
        assert section["runtime"] == 10_000
        percentile = section["clat_ns"]["percentile"]
        for name, ours in (("50.000000", "p50"), ("99.000000", "p99"), ("99.900000", "p999")):
            assert percentile[name] == pytest.approx(1e9 * own[f"{kind}.{ours}_s"], abs=1)


def test_percentiles_are_of_nearest_rank_and_of_those_that_completed(tmp_path: Path) -> None:
    base = began_s(written(tmp_path / "r", [("s", "read", 1, 0.0, 1.0)]))
    rows = [("s", "read", 1000, base, base + number / 1000) for number in range(1, 1001)]
    rows += [("s", "read_failed", 0, base, base + 9.0)] * 3 + [("s", "write_failed", 0, base, base + 9.0)]
    exported = fio(written(tmp_path / "s", rows))
    (job,) = json.loads(exported.data)["jobs"]
    clat = job["read"]["clat_ns"]
    assert (clat["N"], clat["min"], clat["max"]) == (1000, 1_000_000, 1_000_000_000)
    assert clat["percentile"]["50.000000"] == 500_000_000
    assert clat["percentile"]["99.900000"] == 999_000_000
    assert clat["percentile"]["99.950000"] == 1_000_000_000
    assert clat["mean"] == pytest.approx(500.5e6)
    assert (job["error"], job["total_err"], job["first_error"]) == (5, 4, 5)
    assert job["fabric"]["read"] == {"failed": 3, "cut_off": 0}
    assert job["fabric"]["write"] == {"failed": 1, "cut_off": 0}
    assert job["write"]["clat_ns"] == {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    assert exported.notes == ("mixed_lanes.s: 4 operations were given up after their retries",)


def test_a_job_without_errors_has_none(result: Result) -> None:
    assert fio(result).notes == ()
    assert all(job["error"] == 0 and "total_err" not in job for job in jobs_of(result).values())


def test_the_runtime_is_the_time_in_which_the_job_played(tmp_path: Path) -> None:
    """In two windows; of what reaches over the end of one the part inside counts, and all of it as an operation."""
    base = began_s(written(tmp_path / "r", [("s", "read", 1, 0.0, 1.0)]))
    rows = [
        ("s", "read", 1000, base + 1.0, base + 3.0),
        ("s", "read", 1000, base + 1.5, base + 2.5),
        ("s", "read", 1000, base + 6.0, base + 7.0),
        ("s", "read", 1000, base + 4.0, base + 4.5),  # Between the windows.
    ]
    jobs = [(PHASE, "s", "storage", base + a, base + b, base + b + 2, None) for a, b in ((1.0, 2.0), (6.0, 8.0))]
    read = jobs_of(written(tmp_path / "s", rows, jobs))["mixed_lanes.s"]["read"]
    assert read["runtime"] == 3000
    assert read["io_bytes"] == 500 + 500 + 1000
    assert read["bw_bytes"] == round(2000 / 3)
    assert read["iops"] == pytest.approx(2 / 3)
    assert read["total_ios"] == 3


def test_a_job_is_one_phase_and_one_job_and_may_be_chosen(result: Result) -> None:
    assert list(jobs_of(result, phase="storage_alone")) == ["storage_alone.storage"]
    found = jobs_of(result)
    assert [job["groupid"] for job in found.values()] == list(range(len(found)))
    assert len(found) == result.table("operations")["phase"].nunique() > 1
    with pytest.raises(UsageError, match="--job nccl: has no place in this format; it has storage"):
        fio(result, Choice(job="nccl"))


def test_reads_with_names_of_their_own_are_reads_and_flows_are_not(tmp_path: Path) -> None:
    base = began_s(written(tmp_path / "r", [("s", "read", 1, 0.0, 1.0)]))
    rows = [
        ("a", "to_the_root", 10, base, base + 1),
        ("a", "to_the_root_failed", 0, base, base + 1),
        ("b", "flow", 10, base, base + 1),
        ("b", "flow_abandoned", 10, base, base + 1),
        ("c", "program_stopped", 10, base, base + 1),
        ("d", "write", 10, base, base + 1),
    ]
    found = jobs_of(written(tmp_path / "s", rows))
    assert found.keys() == {"mixed_lanes.a", "mixed_lanes.d"}
    assert (found["mixed_lanes.a"]["read"]["total_ios"], found["mixed_lanes.a"]["total_err"]) == (1, 1)
    assert found["mixed_lanes.a"]["job options"]["rw"] == "read"
    assert found["mixed_lanes.d"]["job options"]["rw"] == "write"


def test_a_run_without_storage_says_what_it_has(tmp_path: Path) -> None:
    result = written(tmp_path / "r", [("b", "flow", 10, 0.0, 1.0)])
    with pytest.raises(UsageError, match=r"has no reads or writes .*; it has hfreduce \(collective\), b \(flow\)"):
        fio(result)
    empty = Result(write_result(tmp_path / "s", Recipe(TINY, without=("operations", "steps", "rank_steps"))))
    with pytest.raises(UsageError, match="it has neither collectives nor operations"):
        fio(empty)


def test_what_took_no_time_is_no_fault(tmp_path: Path) -> None:
    base = began_s(written(tmp_path / "r", [("s", "read", 1, 0.0, 1.0)]))
    job = jobs_of(written(tmp_path / "s", [("s", "read", 10, base + 1, base + 1)]))["mixed_lanes.s"]
    assert (job["read"]["total_ios"], job["read"]["clat_ns"]["max"]) == (1, 0)
    assert job["latency_ns"]["2"] == 100.0


def test_a_date_is_told_as_fio_does(tmp_path: Path) -> None:
    result = written(tmp_path / "r", [("s", "read", 1, 0.0, 1.0)])
    result.manifest["started_at"] = "2026-11-27T09:47:54+00:00"
    found = json.loads(fio(result).data)
    assert (found["timestamp"], found["timestamp_ms"]) == (1795772874, 1795772874000)
    assert found["time"] == "Fri Nov 27 09:47:54 2026"
    assert pd.Timestamp(found["timestamp"], unit="s") == pd.Timestamp("2026-11-27 09:47:54")
