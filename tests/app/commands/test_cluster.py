"""What ``fabric cluster`` prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from fabric.config import read_yaml
from fabric.failures.config import failure_line, schedule_failures
from tests.synthetic_result import Recipe, write_result
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
        assert schedule_failures([failure_line(line)], fabric, seed=1)


def test_a_list_of_jobs_is_played_under_policies(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "play", "--count", "60", "--nodes", "64", "--policy", "fifo", "--policy", "hai")
    assert [row["policy"] for row in rows] == ["fifo", "hai"]
    assert rows[0]["suspends"] == 0
    assert rows == rows_of(capsys, "play", "--count", "60", "--nodes", "64", "--policy", "fifo", "--policy", "hai")


@pytest.mark.parametrize(("asked", "played"), [(64, 64), (100, 128)])
def test_a_list_is_said_to_be_on_as_many_nodes_as_it_is_played_on(
    capsys: pytest.CaptureFixture[str], asked: int, played: int
) -> None:
    words = ("cluster", "play", "--count", "20", "--nodes", str(asked), "--policy", "fifo")
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["nodes"], said["nodes_asked"]) == (played, asked)
    assert main([*words]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"on {played} nodes" in shown
    assert (f"{asked} asked for" in shown) is (asked != played)


def test_a_machines_goodput_stands_beside_what_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("goodput", "llama3", "--nodes", "512", "--days", "20", "--repeat", "3")
    rows = {row["of its time"]: row["llama3"] for row in rows_of(capsys, *words)}
    assert rows["nodes"] == "512"
    assert rows["published"] == "more than 90 % effective training time"
    assert float(rows["runtime goodput"].partition("%")[0]) > 98
    assert "Young's interval" in rows
    rare = {row["of its time"]: row["llama3"] for row in rows_of(capsys, *words, "--set", "interval=120 min")}
    assert float(rare["runtime goodput"].partition("%")[0]) < 97


MEASURED = {
    "measured": {
        "detect_error": 2, "detect_silent": 60, "stop": 1, "start": 1, "answer": 1, "suspend_save": 3, "cut": 12,
        "slow_communication": 1.8, "restore_part": 0.9, "write_part": 0.9, "replicas": 3,
    },
    "given": {"initialise": 30},
    "machines": {"llama3": {"checkpoint": "5670 GB", "storage_rate": "16 Tbit/s"}},
}  # fmt: skip


def test_a_machines_goodput_is_composed_of_what_a_result_has_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    result = str(write_result(tmp_path / "r", Recipe(summary={"measured_costs": MEASURED})))
    words = ("goodput", "llama3", "--days", "20", "--repeat", "3", "--costs", result)
    rows = {row["of its time"]: row["llama3"] for row in rows_of(capsys, *words)}
    assert rows["nodes"] == "2048"
    slower = {row["of its time"]: row["llama3"] for row in rows_of(capsys, *words, "--set", "start=120 s")}
    kept, less = (float(one["runtime goodput"].partition("%")[0]) for one in (rows, slower))
    assert 90 < less < kept - 0.3, "a start of 120 s in the place of 31 s, every three hours"
    assert main(["cluster", *words]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "composed of costs measured with packets in" in shown
    assert main(["cluster", "goodput", "rsc1", "--costs", result]) == 2
    assert "it has no machine 'rsc1'; it has llama3" in capsys.readouterr().err
    other = str(write_result(tmp_path / "other", Recipe()))
    assert main(["cluster", "goodput", "llama3", "--costs", other]) == 2
    assert "measured_costs: missing; give a result of goodput_year" in capsys.readouterr().err


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
