"""Whole runs: what their directories hold, what is done with them later, and a verdict that is not a formality."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.worlds import TINY, Command

pytestmark = pytest.mark.root

SIZES = ("hfreduce.size", "nccl.size", "storage.checkpoint.size")  # So that what is under way ends soon.
TIMES = ("alone_time=1", "together_time=2", "heavy_load=0")
SMALL_RUN = (f"topology={TINY}", "nccl_nodes=4", "phase_attempts=1", *TIMES, *(f"{size}=256 KiB" for size in SIZES))
SHORT = ["run", "isolation", "--seed", "7", *(word for setting in SMALL_RUN for word in ("--set", setting))]
# 10 hosts at 1 Gbit/s each, where userspace switching carries some hundreds of Mbit/s altogether.
TOO_MUCH = [f"topology.{name}=1 Gbit/s" for name in ("nic_rate", "uplink_rate", "inter_zone.rate")]
PHASES = ["hfreduce_alone", "nccl_alone", "storage_alone", "other_alone", "shared", "lanes"]
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def done(shared_command: Command) -> Done:
    """A short run that has ended; a machine that others load may make it invalid, and it is whole all the same."""
    ended = shared_command.run(*SHORT, "-v", "--out", "result", timeout_s=280)
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    assert shared_command.processes() == []
    return ended


@pytest.fixture(scope="module")
def directory(shared_command: Command, done: Done) -> Path:
    return shared_command.here / "result"


@pytest.fixture(scope="module")
def manifest(directory: Path) -> dict[str, Any]:
    return read(directory / "manifest.json")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_answer_and_verdict_come_first_then_where_the_result_is_then_tables(done: Done, directory: Path) -> None:
    lines = done.stdout.splitlines()
    starts = ("answer: ", "verdict: ", f"report: {directory}/report.html", f"to look inside: fabric view {directory}")
    places = [next(place for place, line in enumerate(lines) if line.startswith(start)) for start in starts]
    assert places == sorted(places)
    assert not any("│" in line for line in lines[: places[-1]])
    assert "see also: fabric run protection" in done.stdout


def test_the_run_makes_its_directory_and_nothing_else(shared_command: Command, directory: Path) -> None:
    assert [path for path in shared_command.files() if directory not in (path, *path.parents)] == []


def test_the_exit_code_is_the_verdicts(done: Done, manifest: dict[str, Any]) -> None:
    verdict = manifest["verdict"]
    print(verdict)
    assert verdict["status"] in ("faithful", "degraded", "invalid")
    assert done.returncode == (3 if verdict["status"] == "invalid" else 0)
    assert bool(verdict["reasons"]) == (verdict["status"] != "faithful")
    assert all(reason in done.stdout for reason in verdict["reasons"])


def test_the_manifest_says_what_was_run(manifest: dict[str, Any]) -> None:
    assert manifest["format_version"] >= 1
    assert (manifest["experiment"], manifest["engine"], manifest["seed"]) == ("isolation", "namespace", 7)
    assert [phase["name"] for phase in manifest["phases"]] == PHASES
    assert [phase["queueing"] for phase in manifest["phases"]] == [*["shared"] * 5, "lanes"]
    lengths = [phase["ended_s"] - phase["started_s"] for phase in manifest["phases"]]
    assert all(length >= wanted for length, wanted in zip(lengths, [1, 1, 1, 1, 2, 2], strict=True))
    assert manifest["versions"]["mininet"]


def test_how_near_the_checks_came_and_what_used_the_cpu_is_told(done: Done, manifest: dict[str, Any]) -> None:
    assert "Margins of the verdict" in done.stdout
    assert "CPU used" in done.stdout
    assert list(manifest["cpu"]) == PHASES
    for used in manifest["cpu"].values():
        # The kernel tells a process's time exactly, and by its ticks how much of it was its own: of 10 ms maybe none.
        assert used["switches_s"] + used["switches_kernel_s"] > 0
        assert used["programs_s"] > 0
    by_phase = {check["name"]: list(check["by_phase"]) for check in manifest["verdict"]["checks"]}
    assert by_phase["core_busy_fraction"] == by_phase["switch_stall_s"] == PHASES


def test_every_packet_of_every_phase_is_accounted_for(manifest: dict[str, Any]) -> None:
    """Unless the verdict says otherwise."""
    assert list(manifest["conservation"]) == PHASES
    for phase, found in manifest["conservation"].items():
        assert found["sent_packets"] > 100
        assert found["switched_bytes"] >= found["sent_bytes"]
        if found["unaccounted"]:
            reasons = [reason for reason in manifest["verdict"]["reasons"] if "unaccounted" in reason]
            assert reasons, f"{phase}: {found['unaccounted']} unaccounted for, and the verdict is silent"
        else:
            assert found["unaccounted_bytes"] == 0


def test_no_acknowledged_write_is_lost(directory: Path) -> None:
    writes = read(directory / "summary.json")["acknowledged_writes"]
    assert writes["checked"] > 0
    assert writes["lost"] == 0


def test_the_summary_answers_with_numbers_of_all_phases(directory: Path) -> None:
    summary = read(directory / "summary.json")
    assert "HFReduce" in summary["answer"]
    for phase in PHASES:
        assert summary["metrics"][f"{phase}.sent_packets"] > 100
    for phase in ("hfreduce_alone", "shared", "lanes"):
        assert summary["metrics"][f"{phase}.hfreduce.algbw_Bps"] > 0
    assert all(table["rows"] for table in summary["tables"])


def test_samples_figures_report_config_and_logs_are_all_there(directory: Path) -> None:
    for name in ("ports", "machine", "steps", "operations", "flows"):
        assert len(pd.read_parquet(directory / "samples" / f"{name}.parquet")) >= 4, name  # Few steps if slow.
    assert sorted(path.name for path in (directory / "figures").iterdir()) == ["isolation.png", "isolation.svg"]
    assert all(path.stat().st_size > 1000 for path in (directory / "figures").iterdir())
    assert (directory / "report.html").read_text().count("data:image/svg+xml;base64,") == 1
    assert "alone_time: 1" in (directory / "config.yaml").read_text()
    assert len(read(directory / "fabric.json")["links"]) == 24
    assert {path.name for path in (directory / "logs").iterdir()} >= {"controller.log", "ovs-vswitchd.log"}
    assert "dpif_" in (directory / "logs" / "ovs-coverage.txt").read_text(), "what the switches count of themselves"


def test_results_are_drawn_reported_and_compared_later(shared_command: Command, directory: Path) -> None:
    for path in (*(directory / "figures").iterdir(), directory / "report.html"):
        path.unlink()
    for arguments in (["report", "result"], ["compare", "result", "result"]):  # `fabric plot` draws as a report does.
        ended = shared_command.run(*arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert len(list((directory / "figures").glob("*.svg"))) >= 5
    assert (directory / "report.html").read_text().count("data:image/svg+xml;base64,") >= 5
    assert (directory / "report.html").stat().st_size > 10_000


def test_a_result_is_never_overwritten(shared_command: Command, directory: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}

    before = content()
    ended = shared_command.run(*SHORT, "--out", "result", timeout_s=60)
    assert ended.returncode == 2
    assert "already exists" in ended.stderr
    assert content() == before


def test_a_run_that_asks_for_more_than_the_machine_has_is_invalid_and_says_why(command: Command) -> None:
    parts = ("queueings=[shared]", "alone_time=0.3", "together_time=3", "heavy_load=0", "phase_attempts=1")
    settings = [f"topology={TINY}", "nccl_nodes=4", *parts, *(f"{name}=256 KiB" for name in SIZES), *TOO_MUCH]
    options = [text for setting in settings for text in ("--set", setting)]
    ended = command.run("run", "isolation", "--no-figures", "--out", "result", *options, timeout_s=280)
    print("\n".join(ended.stdout.splitlines()[-8:]))
    assert ended.returncode == 3, ended.stdout + ended.stderr
    verdict = read(command.here / "result" / "manifest.json")["verdict"]
    assert verdict["status"] == "invalid"
    assert any("of the link" in reason or "busy" in reason for reason in verdict["reasons"])
    assert "verdict: invalid" in ended.stdout
