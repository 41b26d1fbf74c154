"""A short run of the isolation experiment in virtual time: whole, believed, and the same again for the same seed.

That another seed gives other figures is seen by the repeats of tests/docs/test_tutorials.py."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabric.tables import TABLES
from fabric.world.virtual import bytecode, kernel
from tests.virtual.command import TINY, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
SIZES = (
    f"topology={TINY}",
    "topology.compute=4",
    "queueings=[lanes]",
    "nccl_nodes=2",
    "hfreduce.size=256 KiB",
    "alone_time=0.2",
    "together_time=0.4",
    "background.load=0.4",
)
SHORT = [word for size in SIZES for word in ("--set", size)]
UNDRAWN = "--no-figures"
Done = tuple[subprocess.CompletedProcess[str], Path]


def played(
    command: VirtualCommand, seed: int, name: str, *options: str, environment: Mapping[str, str] | None = None
) -> Done:
    words = ("run", "isolation", *SHORT, "--seed", str(seed), "--out", name, *options)
    done = command.run(*words, environment=environment)
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
    assert f"report: {directory}/report.html" in done.stdout
    assert "wall time" in done.stderr


def test_a_run_is_believed_and_accounts_for_every_packet(first: Done) -> None:
    manifest = read(first[1], "manifest.json")
    assert manifest["engine"] == "virtual"
    assert manifest["seed"] == 7
    assert manifest["verdict"]["status"] == "faithful", manifest["verdict"]
    assert len(manifest["conservation"]) == 6
    assert all(not phase["unaccounted"] for phase in manifest["conservation"].values())
    assert all(phase["unaccounted_bytes"] == 0 for phase in manifest["conservation"].values())


def test_the_same_seed_gives_the_same_figures_whoever_runs_it(
    first: Done, shared_command: VirtualCommand, tmp_path: Path
) -> None:
    """With another home, environment, directory and depth of it, and without the compiled modules beside the sources.

    Each of these shifts memory or how often files are looked for, and which modules are compiled also decides in which
    order sets are iterated.
    """
    deeper = shared_command.here / "a" / "place" / "deeper" / "by" / "far"
    deeper.mkdir(parents=True)
    other = {
        "HOME": str(tmp_path),
        "LANG": "de_DE.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "nothing is compiled here"),
        "PATH": f"{tmp_path / 'another directory of programs'}:{os.environ['PATH']}",
        "SOMETHING_LONG": "x" * 5000,
    }
    command = replace(shared_command, here=deeper)
    done, directory = played(command, 7, "the_same_by_another_name", UNDRAWN, environment=other)
    assert metrics(first[1]) == metrics(directory)
    assert list((directory / "figures").iterdir()) == []
    assert f"report: none yet; to draw it: fabric report {directory}" in done.stdout


def test_a_result_says_what_repeats_it(first: Done) -> None:
    assert read(first[1], "manifest.json")["repeatable_with"] == {
        "guest_kernel": kernel.require().release,
        "guest_kernel_changes": kernel.fingerprint(),
        "guest_memory": "4096 MiB",
        "software": bytecode.fingerprint(),
    }
