"""What ``fabric cluster`` prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from fabric.config import read_yaml
from fabric.failures.config import FailureConfig, schedule_failures
from topologies.load import load_fabric


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["cluster", *words, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_faults_are_drawn_beside_their_table_and_written_as_failures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = {row["class"]: row for row in rows_of(capsys, "faults", "fire_flyer_2")}
    assert (rows["network"]["in 183 days"], rows["network"]["expected"]) == (89, 89)
    out = tmp_path / "failures.yaml"
    words = ("faults", "fire_flyer_2", "--topology", "fire_flyer_2_tiny", "--days", "365", "--faster", "1e5")
    drawn = sum(row["drawn"] for row in rows_of(capsys, *words, "--out", str(out)))
    lines = read_yaml(out)["failures"]
    assert len(lines) == drawn > 0
    fabric = load_fabric("fire_flyer_2_tiny")
    for line in lines:
        assert schedule_failures([FailureConfig.model_validate(line)], fabric, seed=1)


def test_a_list_of_jobs_is_played_under_policies(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "play", "--count", "60", "--nodes", "64", "--policy", "fifo", "--policy", "hai")
    assert [row["policy"] for row in rows] == ["fifo", "hai"]
    assert rows[0]["suspends"] == 0
    assert rows == rows_of(capsys, "play", "--count", "60", "--nodes", "64", "--policy", "fifo", "--policy", "hai")


def test_a_machines_goodput_stands_beside_what_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("goodput", "llama3", "--nodes", "512", "--days", "20", "--repeat", "3")
    rows = {row["of its time"]: row["llama3"] for row in rows_of(capsys, *words)}
    assert rows["nodes"] == "512"
    assert rows["published"] == "more than 90 % effective training time"
    assert float(rows["runtime goodput"].partition("%")[0]) > 98
    assert "Young's interval" in rows
    rare = {row["of its time"]: row["llama3"] for row in rows_of(capsys, *words, "--set", "interval=120 min")}
    assert float(rare["runtime goodput"].partition("%")[0]) < 97


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("faults", "lama3"), "'lama3': no such table; use 'fire_flyer_2'"),
        (("faults", "llama3", "--days", "0"), "--days: 0.0; give more than 0 and 36500 at most"),
        (("play", "--policy", "slurm"), "--policy: slurm; use hai"),
        (("play", "--jobs", "pai"), "'pai': no such cluster; use 'seren'"),
        (("play", "--trace", "/nowhere.csv"), "/nowhere.csv"),
        (("play", "--nodes", "1"), "--nodes: 1; give 2 to 10000"),
        (("goodput", "llama3", "--set", "saves=1"), "saves"),
        (("goodput", "llama3", "--set", "slowdown=0.5"), "slowdown"),
        (("goodput", "llama3", "--repeat", "0"), "--repeat: 0; give 1 to 1000"),
    ],
)
def test_what_is_wrong_is_named_and_ends_with_code_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str
) -> None:
    assert main(["cluster", *words]) == 2
    assert error in capsys.readouterr().err
