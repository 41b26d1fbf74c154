"""Libraries that users deploy, unmodified, in virtual time: right, and as fast as theory allows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from experiments.libraries.catalogue import LIBRARIES, Library, library_named
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import ROOT, TINY, VirtualCommand

pytestmark = pytest.mark.guest
RATIOS = {"ucx": 1.03, "ucc": 1.15, "intel_mpi": 1.02, "nixl": 1.03, "mooncake": 1.07}
"""Times over theory that are promised at most, of those for which some are: of messages of 4 KiB by UCX, of 8 MiB by
others."""
DEEPSPEED = Library(
    "deepspeed", "DeepSpeed", (), programs=("pdsh", "c++"),
    wheels=("torch==2.14.1", "deepspeed==0.18.9", "ninja==1.13.2", "numpy==2.4.6"),
)  # fmt: skip
"""It trains, and has no part in the experiment."""
BUILD_TIMEOUT_S = 1800.0
ZERO_BYTES = 3 * 33_587_200 // 2
"""What a rank of two sends per step of ZeRO-1: an allreduce of all gradients, and its half of the parameters."""


def installed(library: Library) -> Path:
    try:
        return install(library)
    except EmulationError as error:
        pytest.skip(f"{library.name} cannot be installed here: {error}")


def played(command: VirtualCommand, name: str, sizes: str, out: str, *settings: str) -> list[dict[str, Any]]:
    installed(library_named(name))
    begin, _, end = sizes.partition(", ")
    words = [f"libraries=[{name}]", f"begin={begin}", f"end={end or begin}", "factor=128", *settings]
    changes = (word for one in words for word in ("--set", one))
    done = command.run("run", "libraries", *changes, "--no-figures", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads((command.here / out / "summary.json").read_text())["libraries"]
    return found


def check(found: list[dict[str, Any]], name: str, size_bytes: int) -> None:
    of_library = [one for one in found if not one["is_own"] and one["size_bytes"] == size_bytes]
    assert {one["operation"] for one in of_library} == set(library_named(name).operations)
    for one in of_library:
        assert not one["wrong"], one
        assert 0.999 < one["time_s"] / one["ideal_s"] < RATIOS.get(name, 3.0), one


def test_messages_of_ucx_are_as_fast_as_theory_and_half_a_link_doubles_what_it_carries(command: VirtualCommand) -> None:
    transfers = "operations=[transfer]"
    whole = played(command, "ucx", "4 KiB, 512 KiB", "whole", transfers)
    check(whole, "ucx", 4096)
    half = played(command, "ucx", "512 KiB", "half", transfers, "failures=[{host: z0h000, at: 0 s, rate: 0.5}]")
    large = [one for found in (whole, half) for one in found if one["size_bytes"] == 2**19]
    for is_own in (True, False):
        before_s, after_s = (one["time_s"] for one in large if one["is_own"] == is_own)
        once_s = 2**19 * 8 / 196.15e9
        assert after_s - before_s == pytest.approx(once_s, rel=0.05), "one of the path's links takes twice as long"


def test_ucx_and_libfabric_find_no_rdma_device_on_a_host_and_offer_sockets(command: VirtualCommand) -> None:
    ucx, libfabric = installed(library_named("ucx")), installed(library_named("libfabric"))
    libraries = ":".join(
        f"{home}/{place}/x86_64-linux-gnu" for home in (ucx, libfabric) for place in ("usr/lib", "lib")
    )
    script = (
        f"export LD_LIBRARY_PATH={libraries} UCX_MODULE_DIR={ucx}/usr/lib/x86_64-linux-gnu/ucx; "
        f"{ucx}/usr/bin/ucx_info -d | grep Transport; {libfabric}/usr/bin/fi_info -p verbs; echo verbs $?; "
        f"{libfabric}/usr/bin/fi_info -p tcp | grep provider | head -1"
    )
    done = command.run("exec", TINY, "z0h000", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout + done.stderr
    transports = set(re.findall(r"Transport: (\w+)", done.stdout))
    assert "tcp" in transports
    assert not transports & {"rc_verbs", "ud_verbs", "rc_mlx5", "dc_mlx5", "ud_mlx5"}
    assert "verbs 61" in done.stdout, "no data available (ENODATA)"
    assert "provider: tcp" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("name", [one.name for one in LIBRARIES])
def test_a_library_is_as_fast_as_theory_allows_and_the_same_each_time(command: VirtualCommand, name: str) -> None:
    size, size_bytes = ("4 KiB", 4096) if name == "ucx" else ("8 MiB", 8 << 20)
    found = played(command, name, size, "first")
    check(found, name, size_bytes)
    assert played(command, name, size, "second") == found


@pytest.mark.soak
@pytest.mark.parametrize(("sharding", "sent_bytes"), [("ddp", 33_587_200), ("fsdp2", 2 * 33_587_200)])
def test_torchrun_trains_on_two_hosts_with_right_gradients(
    command: VirtualCommand, sharding: str, sent_bytes: int
) -> None:
    torchrun = str(installed(library_named("gloo")) / "bin" / "torchrun")
    meeting = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "z0h000:29500"]
    words = [torchrun, *meeting, str(ROOT / "docs" / "programs" / "training.py"), sharding]
    fabric = ["head_of_line_200g", "z0h000", "z0h002", "--queueing", "lossless_lanes"]
    done = command.run("exec", *fabric, "--", *words)
    check_steps(done, "gradients", sent_bytes)


def check_steps(done: subprocess.CompletedProcess[str], what: str, sent_bytes: int) -> None:
    """Four steps on each of two hosts, right, and, but for the first, as fast as what a rank sends allows."""
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(rf"step (\d): (\S+) ms, (\d+) {what} wrong", done.stdout)
    assert sorted(step for step, _, _ in steps) == [str(step) for step in range(4) for _ in range(2)]
    assert {wrong for _, _, wrong in steps} == {"0"}
    ideal_ms = sent_bytes * 8 / 196.15e9 * 1e3
    ratios = [float(took_ms) / ideal_ms for step, took_ms, _ in steps if step != "0"]
    assert min(ratios) > 0.999
    assert max(ratios) < 1.05, "the first step apart, in which libraries lay out their buckets"


@pytest.mark.soak
@pytest.mark.timeout(BUILD_TIMEOUT_S + 1200.0)
def test_deepspeed_by_its_launcher_learns_what_a_model_of_all_data_does(command: VirtualCommand) -> None:
    home = installed(DEEPSPEED)
    paths = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "TORCH_EXTENSIONS_DIR": str(home / "extensions")}
    surroundings = {**paths, "DS_ACCELERATOR": "cpu"}
    for lock in (home / "extensions").glob("*/lock"):
        lock.unlink()  # Of a build that was interrupted: the next would wait for it forever.
    build = "from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder as B; B().load()"
    python = [str(home / "bin" / "python"), "-c", build]
    subprocess.run(python, env=os.environ | surroundings, check=True, timeout=BUILD_TIMEOUT_S)
    fabric = ["head_of_line_200g", "z0h000", "z0h002", "--queueing", "lossless_lanes", "--first-only"]
    start = f"exec deepspeed --hostfile $FABRIC_HOSTFILE --launcher pdsh {ROOT}/docs/programs/zero.py 1"
    done = command.run("exec", *fabric, "--", "sh", "-c", start, environment=surroundings)
    check_steps(done, "parameters", ZERO_BYTES)
