"""A short run of the isolation experiment in virtual time: whole, believed, and the same again for the same seed."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fabric.results import TABLES
from tests.virtual.command import VirtualCommand

pytestmark = pytest.mark.timeout(2400)
SHORT = ("--set", "alone_time=1", "--set", "together_time=2", "--set", "hfreduce.size=256 KiB")
Done = tuple[subprocess.CompletedProcess[str], Path]


def played(command: VirtualCommand, seed: int, name: str) -> Done:
    done = command.run("run", "isolation", *SHORT, "--seed", str(seed), "--out", name)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, command.here / name


@pytest.fixture(scope="module")
def first(shared_command: VirtualCommand) -> Done:
    return played(shared_command, 7, "a")


def read(directory: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / name).read_text())
    return found


def metrics(directory: Path) -> dict[str, float]:
    found: dict[str, float] = read(directory, "summary.json")["metrics"]
    return found


def test_a_run_writes_its_whole_directory_on_the_host(first: Done, shared_command: VirtualCommand) -> None:
    done, directory = first
    names = {path.name for path in directory.iterdir()}
    assert {"config.yaml", "fabric.json", "manifest.json", "summary.json", "report.html", "figures", "logs"} <= names
    tables = {path.name for path in (directory / "samples").iterdir()}
    assert tables == {f"{table}.parquet" for table in TABLES}
    assert list(shared_command.temporary.iterdir()) == []
    assert f"result: {directory}" in done.stdout
    assert "wall time" in done.stderr


def test_a_run_is_believed_and_accounts_for_every_packet(first: Done) -> None:
    manifest = read(first[1], "manifest.json")
    assert manifest["engine"] == "virtual"
    assert manifest["seed"] == 7
    assert manifest["verdict"]["status"] == "faithful", manifest["verdict"]
    assert len(manifest["conservation"]) == 6
    assert all(not phase["unaccounted"] for phase in manifest["conservation"].values())
    assert all(phase["unaccounted_bytes"] == 0 for phase in manifest["conservation"].values())


def test_the_same_seed_gives_the_same_figures(first: Done, shared_command: VirtualCommand) -> None:
    """Also with a longer name for its directory: nothing in the guest may depend on that."""
    again = metrics(played(shared_command, 7, "another_name_for_the_same")[1])
    before = metrics(first[1])
    assert before.keys() == again.keys()
    assert [name for name, value in before.items() if not math.isclose(value, again[name], rel_tol=5e-5)] == []


def test_another_seed_gives_others(first: Done, shared_command: VirtualCommand) -> None:
    other = metrics(played(shared_command, 8, "other")[1])
    before = metrics(first[1])
    assert any(not math.isclose(value, other.get(name, math.inf), rel_tol=1e-3) for name, value in before.items())
