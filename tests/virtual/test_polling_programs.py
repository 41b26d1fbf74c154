"""Unmodified programs that poll, on hosts of a fabric in virtual time."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.virtual.command import ROOT, VirtualCommand

SOURCE = ROOT / "docs" / "programs" / "allreduce.c"

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(
        shutil.which("mpirun") is None or shutil.which("mpicc") is None,
        reason="Open MPI is not installed: apt-get install openmpi-bin libopenmpi-dev",
    ),
]


@pytest.mark.parametrize(
    ("topology", "hosts", "most_us"),
    [
        ("head_of_line_200g", ["z0h000", "z0h002"], 1000),
        pytest.param("head_of_line_200g", [f"z0h{number:03}" for number in range(5)], 5000, marks=pytest.mark.soak),
        pytest.param(
            "fire_flyer_2_small_200g",
            [*(f"z0h{number:03}" for number in range(12)), "z1h000"],
            5000,
            marks=pytest.mark.soak,
        ),
    ],
    ids=["2 hosts", "5 hosts", "13 hosts"],
)
def test_mpirun_adds_up_right_without_a_library_that_waits_for_it(
    command: VirtualCommand, tmp_path: Path, topology: str, hosts: list[str], most_us: float
) -> None:
    program = tmp_path / "allreduce"
    subprocess.run(["mpicc", "-O2", "-o", str(program), str(SOURCE)], check=True, timeout=60)
    words = [topology, "--queueing", "lossless_lanes", *hosts, "--first-only"]
    done = command.run("exec", *words, "--", "mpirun", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"(\d+) ranks: ([\d.]+) us, (\d+) elements wrong", done.stdout)
    print(done.stdout)
    assert [(int(ranks), int(wrong)) for ranks, _, wrong in steps] == [(len(hosts), 0)] * 3
    assert all(300 < float(us) < most_us for _, us, _ in steps), "8 MiB take 336 us at 200 Gbit/s"
