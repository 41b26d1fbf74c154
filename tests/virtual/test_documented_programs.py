"""Programs of docs/libraries.md and docs/programs.md that no experiment plays: right, and as fast as theory allows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from experiments.libraries.catalogue import Library, library_named
from tests.virtual.command import ROOT, VirtualCommand
from tests.virtual.test_libraries import installed

pytestmark = [pytest.mark.guest, pytest.mark.soak]  # Up to two minutes of computing each.
FABRIC = ("head_of_line_200g", "--queueing", "lossless_lanes")
PAIR = (FABRIC[0], "z0h000", "z0h002", *FABRIC[1:])
PROGRAMS = ROOT / "docs" / "programs"
RATE_BPS = 196.15e9
"""What full TCP segments carry over a link of 200 Gbit/s."""
BUILD_TIMEOUT_S = 2400.0
ONECCL = Library(
    "oneccl", "oneCCL", (), programs=("c++",),
    wheels=("oneccl-cpu==2022.1.2", "oneccl-devel==2022.1.2", "impi-rt==2021.18.1", "impi-devel==2021.18.1"),
)  # fmt: skip
FIO = Library("nbdkit", "fio and nbdkit", (), programs=("fio",), packages=("nbdkit",))


def ran(command: VirtualCommand, words: list[str], environment: dict[str, str], *options: str) -> str:
    done = command.run("exec", *PAIR, *options, "--", *words, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def intel_surroundings(home: Path) -> dict[str, str]:
    return {"I_MPI_ROOT": str(home), "LD_LIBRARY_PATH": str(home / "lib"), "PATH": f"{home}/bin:{os.environ['PATH']}"}


def test_allreduces_of_intels_benchmark_take_what_theory_says(command: VirtualCommand) -> None:
    home = installed(library_named("intel_mpi"))
    words = ["mpirun", "-n", "2", "-ppn", "1", "IMB-MPI1", "-iter", "10", "-msglog", "20:23", "Allreduce"]
    said = ran(command, words, intel_surroundings(home), "--first-only")
    rows = [row.split() for row in said.splitlines() if re.match(r" +\d+ +\d+ +[\d.]+ +[\d.]+ +[\d.]+", row)]
    slowest_us = {int(size): float(slowest) for size, _, _, slowest, _ in rows}
    assert {2**20, 2**23} < slowest_us.keys()
    assert 0.999 < slowest_us[2**23] * 1e-6 / (2**23 * 8 / RATE_BPS) < 1.02


@pytest.mark.parametrize("how", [{}, {"CCL_ATL_TRANSPORT": "ofi"}, {"CCL_WORKER_OFFLOAD": "1"}], ids=str)
def test_oneccl_adds_up_at_the_rate_of_the_link(command: VirtualCommand, how: dict[str, str]) -> None:
    home = installed(ONECCL)
    program = command.here / "oneccl"
    places = [f"-I{home}/include", f"-L{home}/lib", f"-Wl,-rpath,{home}/lib"]
    words = ["c++", "-O2", "-std=c++17", str(PROGRAMS / "oneccl.cpp"), *places, "-lccl", "-lmpi", "-o", str(program)]
    subprocess.run(words, check=True, timeout=BUILD_TIMEOUT_S)
    own = {"CCL_ROOT": str(home), "CCL_KVS_IFACE": "eth0", **how}
    words = ["mpirun", "-n", "2", "-ppn", "1", str(program)]
    said = ran(command, words, intel_surroundings(home) | own, "--first-only")
    steps = re.findall(r"step (\d): ([\d.]+) ms, .* (\d+) wrong", said)
    assert [(step, wrong) for step, _, wrong in steps] == [(str(step), "0") for step in range(4)]
    ideal_ms = 2**24 * 8 / RATE_BPS * 1e3
    took = [float(took_ms) / ideal_ms for _, took_ms, _ in steps]
    assert min(took) > 0.99, "the first rank says it, and may leave the barrier some us after the other"
    assert took[-1] < 1.02, "windows have opened by then"


def test_fio_writes_to_a_disk_of_another_host_and_reads_back_what_it_wrote(command: VirtualCommand) -> None:
    home = installed(FIO)
    plugin = home / "usr/lib/x86_64-linux-gnu/nbdkit/plugins/nbdkit-memory-plugin.so"
    server = f"z0h002={home}/usr/bin/nbdkit -f {plugin} 64M"
    options = ["--ioengine=nbd", "--uri=nbd://z0h002", "--thread", "--bs=256k", "--iodepth=16", "--size=64M"]
    check = ["--rw=write", "--verify=crc32c", "--verify_fatal=1", "--output-format=json"]
    words = ["fio", "--name=disk", *options, *check]
    done = command.run("exec", FABRIC[0], "z0h000", *FABRIC[1:], "--background", server, "--", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert job["error"] == 0
    for direction in ("write", "read"):
        assert job[direction]["io_bytes"] == 64 << 20
        took_s = job[direction]["clat_ns"]["percentile"]["50.000000"] / 1e9
        assert 0.98 < took_s / (16 * 2**18 * 8 / RATE_BPS) < 1.03, f"{direction}: 16 of 256 KiB are on their way"
