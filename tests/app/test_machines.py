"""Guests of one run on several machines, started by what users have: a Slurm of two nodes and a Ray of two, all daemons
on this machine; and what is wrong use."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.machines import Machines
from experiments import RunSpec, launch
from fabric.errors import EmulationError, UsageError
from fabric.world.virtual.meeting import Meeting
from runs.launching.events import Event, Note
from tests.slurm_cluster import missing_programs, slurm

ROOT = Path(__file__).parents[2]
REQUEST = (
    str(ROOT / "experiments" / "hfreduce_vs_nccl" / "points.yaml"), "--engine", "virtual", "--no-figures",
    "--guests", "2", "--set", "nodes=[4]", "--set", "variants=[hfreduce_zone_aware]", "--set", "size=1MiB",
    "--set", "topology.compute=4", "--set", "topology.storage=0",
)  # fmt: skip
ENDS_IN_S = 1200.0


def run(directory: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", "run", *REQUEST, "--out", str(directory), *more]


def figures(directory: Path) -> tuple[Any, Any]:
    summary, manifest = (json.loads((directory / name).read_text()) for name in ("summary.json", "manifest.json"))
    return summary["metrics"], manifest["conservation"]


def started(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=ENDS_IN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.root
@pytest.mark.guest
@pytest.mark.soak  # Two runs of two guests.
@pytest.mark.timeout(2 * ENDS_IN_S)
def test_nodes_of_an_allocation_play_what_one_machine_plays(tmp_path: Path) -> None:
    if missing := missing_programs():
        pytest.skip(f"no {', '.join(missing)}; tools/setup.sh test installs them")
    (tmp_path / "slurm").mkdir()
    script = tmp_path / "job.sh"
    there = shlex.join(run(tmp_path / "two", "--on", "slurm", "--address", "127.0.0.1"))
    script.write_text(f"#!/bin/sh\ncd {shlex.quote(str(ROOT))}\nexec {there}\n")
    with slurm(tmp_path / "slurm", nodes=2, memory_mib=8000) as environment:
        each = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", f"--output={tmp_path / 'job.out'}"]
        started(["sbatch", "--wait", *each, str(script)], environment)
    started(run(tmp_path / "one"), os.environ)
    assert figures(tmp_path / "two") == figures(tmp_path / "one")


@pytest.mark.guest
@pytest.mark.soak
@pytest.mark.timeout(2 * ENDS_IN_S)
def test_nodes_of_a_placement_group_play_what_one_machine_plays(tmp_path: Path) -> None:
    cluster_of = pytest.importorskip("ray.cluster_utils").Cluster
    cluster = cluster_of(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        words = run(tmp_path / "two", "--on", "ray", "--machines", "2", "--address", "127.0.0.1")
        started(words, {**os.environ, "RAY_ADDRESS": cluster.address})
    finally:
        cluster.shutdown()
    started(run(tmp_path / "one"), os.environ)
    assert figures(tmp_path / "two") == figures(tmp_path / "one")


@pytest.mark.guest
@pytest.mark.soak
def test_a_run_from_python_is_shared_with_a_machine_that_is_started_by_hand(tmp_path: Path) -> None:
    others: list[subprocess.Popen[bytes]] = []

    def heard(event: Event) -> None:
        if isinstance(event, Note) and (words := re.search(r"start on the other machine: +(.*)", event.text)):
            others.append(subprocess.Popen(words[1], shell=True))

    def spec(name: str) -> RunSpec:
        overrides = [word for word in REQUEST if "=" in word]
        return RunSpec(
            REQUEST[0], overrides=overrides, engine="virtual", directory=tmp_path / name, draws=False, guests=2
        )

    launch(spec("two"), heard, Machines("hand", 2, "127.0.0.1"))
    assert [other.wait(ENDS_IN_S) for other in others] == [0]
    launch(spec("one"), heard)
    assert figures(tmp_path / "two") == figures(tmp_path / "one")


def met(on: str, count: int | None, address: str = "127.0.0.1", guests: int = 2) -> Meeting:
    with Machines(on, count, address).met(guests, print) as meeting:
        return meeting


def test_wrong_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    with pytest.raises(UsageError, match=r"--on slurm: SLURM_JOB_NUM_NODES is not set.*sbatch --nodes=2"):
        met("slurm", None)
    with pytest.raises(UsageError, match="machines on mpi: there are hand, slurm, ray"):
        met("mpi", 2)
    with pytest.raises(UsageError, match="--on hand: machines share guests, and there is one"):
        met("hand", 2, guests=1)
    with pytest.raises(UsageError, match=r"--on hand: on how many machines\? Give --machines 2"):
        met("hand", None)
    with pytest.raises(UsageError, match="--on hand --machines 1: a run on one machine needs neither"):
        met("hand", 1)
    with pytest.raises(UsageError, match="--machines 3: with --guests 2 some would have none"):
        met("hand", 3)
    with pytest.raises(EmulationError, match=r"--address 192\.0\.2\.1: cannot listen there"):
        met("hand", 2, "192.0.2.1")


def test_by_hand_the_command_for_the_other_machine_is_shown() -> None:
    shown: list[str] = []
    with Machines("hand", 2, "127.0.0.1").met(2, shown.append) as meeting:
        assert meeting.key in shown[0]
    assert "fabric.world.other_machine 127.0.0.1" in shown[0]
