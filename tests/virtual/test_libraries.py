"""Libraries that users deploy, unmodified, in virtual time: right, and as fast as theory allows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.libraries.catalogue import LIBRARIES, library_named
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = pytest.mark.guest
CHEAP = ("ucx",)
"""Small to install, and soon done; the others play in `make soak`."""
RATIOS = {"ucx": 1.03, "intel_mpi": 1.02, "nixl": 1.03, "mooncake": 1.02}
"""Times over theory that are promised at most, of those for which some are: of messages of 4 KiB by UCX, of 8 MiB by
others."""


def installed(name: str) -> Path:
    try:
        return install(library_named(name))
    except EmulationError as error:
        pytest.skip(f"{name} cannot be installed here: {error}")


def played(command: VirtualCommand, name: str, size: str, out: str) -> list[dict[str, Any]]:
    installed(name)
    sizes = ["--set", f"begin={size}", "--set", f"end={size}"]
    done = command.run("run", "libraries", "--set", f"libraries=[{name}]", *sizes, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((command.here / out / "summary.json").read_text())["libraries"]
    return [one for one in found if not one["is_own"]]


@pytest.mark.parametrize(
    "name", [one.name if one.name in CHEAP else pytest.param(one.name, marks=pytest.mark.soak) for one in LIBRARIES]
)
def test_a_library_is_as_fast_as_theory_allows_and_the_same_each_time(command: VirtualCommand, name: str) -> None:
    size = "4 KiB" if name == "ucx" else "8 MiB"
    found = played(command, name, size, "first")
    assert {one["operation"] for one in found} == set(library_named(name).operations)
    for one in found:
        assert not one["wrong"], one
        ratio = one["time_s"] / one["ideal_s"]
        assert 0.999 < ratio < RATIOS.get(name, 3.0), one
    assert played(command, name, size, "second") == found


@pytest.mark.soak
@pytest.mark.parametrize(("sharding", "sent_bytes"), [("ddp", 33_587_200), ("fsdp2", 2 * 33_587_200)])
def test_torchrun_trains_on_two_hosts_with_right_gradients(
    command: VirtualCommand, sharding: str, sent_bytes: int
) -> None:
    torchrun = str(installed("gloo") / "bin" / "torchrun")
    meeting = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "z0h000:29500"]
    words = [torchrun, *meeting, str(ROOT / "docs" / "programs" / "training.py"), sharding]
    fabric = ["head_of_line_200g", "z0h000", "z0h002", "--queueing", "lossless_lanes"]
    done = command.run("exec", *fabric, "--", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"step (\d): (\S+) ms, (\d+) gradients wrong", done.stdout)
    assert sorted(step for step, _, _ in steps) == [str(step) for step in range(4) for _ in range(2)]
    assert {wrong for _, _, wrong in steps} == {"0"}
    ideal_ms = sent_bytes * 8 / 196.15e9 * 1e3
    ratios = [float(took_ms) / ideal_ms for step, took_ms, _ in steps if step != "0"]
    assert min(ratios) > 0.999
    assert max(ratios) < 1.05, "the first step apart, in which DDP lays out its buckets"
