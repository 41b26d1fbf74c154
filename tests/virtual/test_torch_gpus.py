"""GPUs that are not there, on hosts: a script that says ``cuda`` and ``nccl`` takes as long as a closed form says."""

from __future__ import annotations

import re
import shutil
import sys

import pytest

from experiments.libraries.catalogue import library_named
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import ROOT, VirtualCommand
from traffic.torch_gpus.catalogue import gpu_named
from traffic.torch_gpus.roofline import Work, duration_ns

pytestmark = [pytest.mark.guest, pytest.mark.soak]
LAYERS, WIDTH, ROWS = 8, 4096, 8192
"""Of ``linear_layers.py``."""
LAYER_BYTES = 2 * WIDTH * WIDTH
ACTIVATION_BYTES = 2 * ROWS * WIDTH
PAYLOAD_BPS = 196.15e9
FABRIC = ("head_of_line_200g", "--queueing", "lossless_lanes", "--gpu", "h100")


def took(*works: Work) -> float:
    """Return how long operators take, in ms."""
    return sum(duration_ns(gpu_named("h100"), work) for work in works) / 1e6


def fsdp2_ms(ranks: int) -> float:
    """Return the time of a step of FSDP2, whose collectives follow each other and hide all computing: each all-gather
    waits until the one before is copied out. The root's layer is gathered once."""
    collective = (ranks - 1) / ranks * LAYER_BYTES * 8 / PAYLOAD_BPS * 1e3
    copied_out = took(Work(memory_bytes=2 * LAYER_BYTES))
    shards = LAYERS * LAYER_BYTES // ranks
    update = took(Work(memory_bytes=3 * shards), Work(memory_bytes=shards))
    return (2 * LAYERS - 1) * (collective + copied_out) + LAYERS * collective + update


def ddp_ms(ranks: int) -> float:
    """Return the time of a step of DDP: forward, the last layer's gradients, all allreduces, which hide the rest of
    backward, and the optimizer."""
    product = Work(2 * ROWS * WIDTH * WIDTH, "bf16", LAYER_BYTES + 2 * ACTIVATION_BYTES)
    forward = took(*[product] * LAYERS, Work(memory_bytes=ACTIVATION_BYTES))
    first_gradient = took(Work(), product, product, Work(memory_bytes=2 * LAYER_BYTES))
    allreduce = 2 * (ranks - 1) / ranks * LAYER_BYTES * 8 / PAYLOAD_BPS * 1e3
    update = took(Work(memory_bytes=3 * LAYERS * LAYER_BYTES), Work(memory_bytes=LAYERS * LAYER_BYTES))
    assert allreduce > took(product, product, Work(memory_bytes=2 * LAYER_BYTES)), "allreduces follow each other"
    return forward + first_gradient + LAYERS * allreduce + update


def play(command: VirtualCommand, sharding: str, hosts: list[str]) -> list[tuple[str, str, str]]:
    """Return step, time in ms and bytes of each line that ranks print, in order."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    try:
        home = install(library_named("gloo"))
    except EmulationError as error:
        pytest.skip(f"PyTorch cannot be installed here: {error}")
    packages = next(home.glob("lib/python3*/site-packages"))
    script = [sys.executable, str(ROOT / "tests" / "virtual" / "linear_layers.py"), sharding]
    done = command.run("exec", *FABRIC, *hosts, "--", *script, environment={"PYTHONPATH": f"{ROOT}:{packages}"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of the time is of operators by their bytes alone" in done.stdout + done.stderr
    return sorted(re.findall(r"step (\d): (\S+) ms, (\d+) B", done.stdout))


@pytest.mark.parametrize(("sharding", "ranks"), [("ddp", 2), ("ddp", 4), ("fsdp2", 2)])
def test_a_step_takes_as_long_as_a_closed_form_says(command: VirtualCommand, sharding: str, ranks: int) -> None:
    hosts = ["z0h000", "z0h002", "z0h001", "z0h003"][:ranks]
    steps = play(command, sharding, hosts)
    assert len(steps) == 3 * ranks
    ideal = ddp_ms(ranks) if sharding == "ddp" else fsdp2_ms(ranks)
    ratios = [float(ms) / ideal for step, ms, _ in steps if step != "0"]  # Step 0 connects.
    assert min(ratios) > 0.99, (ideal, steps)
    assert max(ratios) < 1.04, (ideal, steps)
    held = 2 * LAYERS * LAYER_BYTES // (1 if sharding == "ddp" else ranks) + ACTIVATION_BYTES
    assert {int(size) for _, _, size in steps} == {held}


def test_two_runs_are_the_same_to_the_last_digit(command: VirtualCommand) -> None:
    assert play(command, "ddp", ["z0h000", "z0h002"]) == play(command, "ddp", ["z0h000", "z0h002"])
