"""Backend ``fabric`` of ``torch.distributed`` on hosts, in virtual time: right, as fast as theory allows, and in NCCL's
lane."""

from __future__ import annotations

import re
import sys

import pytest

from experiments.libraries.catalogue import library_named
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
REGISTERED = (
    "import sys, runpy; from traffic.torch_backend.registration import register; register(); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs a script with the backend, whatever this environment's entry points are."""


@pytest.mark.parametrize(("sharding", "sent_bytes"), [("ddp", 33_587_200), ("fsdp2", 3 * 33_587_200 // 2)])
def test_training_is_right_and_as_fast_as_theory_allows(
    command: VirtualCommand, sharding: str, sent_bytes: int
) -> None:
    try:
        home = install(library_named("gloo"))
    except EmulationError as error:
        pytest.skip(f"PyTorch cannot be installed here: {error}")
    packages = next(home.glob("lib/python3*/site-packages"))
    script = [sys.executable, "-c", REGISTERED, str(ROOT / "docs" / "programs" / "training.py"), sharding, "fabric"]
    fabric = ["head_of_line_200g", "z0h000", "z0h002", "--queueing", "lossless_lanes"]
    done = command.run("exec", *fabric, "--", *script, environment={"PYTHONPATH": f"{ROOT}:{packages}"})
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"step (\d): (\S+) ms, (\d+) gradients wrong", done.stdout)
    assert sorted(step for step, _, _ in steps) == [str(step) for step in range(4) for _ in range(2)]
    assert {wrong for _, _, wrong in steps} == {"0"}
    ideal_ms = sent_bytes * 8 / 196.15e9 * 1e3
    ratios = [float(took_ms) / ideal_ms for step, took_ms, _ in steps if step != "0"]
    assert min(ratios) > 0.999
    assert max(ratios) < 1.03
    carried = re.search(r"nccl\s*│\s*(\d+) MiB", done.stderr)
    assert carried is not None, "all of it is in NCCL's lane"
