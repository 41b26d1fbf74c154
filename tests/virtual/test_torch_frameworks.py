"""Frameworks on GPUs that are not there: each by its documented command, from a folder of its user's; what it asks
``nccl`` for is what its parallelism says, and two runs are the same to the last digit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from experiments.libraries.catalogue import FRAMEWORKS
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.soak]
PROGRAMS = ROOT / "docs" / "programs"
FABRIC = ("head_of_line_200g", "--queueing", "lossless_lanes", "--gpu", "h100", "z0h000", "z0h002")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
BF16, FP32 = 2, 4
SCALARS_BYTES = 4096
"""What norms, flags and losses take at most."""


@dataclass(frozen=True)
class Said:
    """What a run printed. ``asked``: calls and bytes of rank 0 by collective."""

    text: str
    asked: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, text: str) -> Said:
        found = re.findall(r"^\S*\s*(\w+): (\d+) of together (\d+) B", text, re.MULTILINE)
        return cls(text, {kind: (int(calls), int(size)) for kind, calls, size in found})

    @property
    def times(self) -> list[str]:
        """The lines that say how long something took; hosts print side by side, so sorted."""
        return sorted(line for line in self.text.splitlines() if re.search(r"step: +\d|took|under way", line))


@cache
def packages() -> Path:
    """Return where the frameworks are; skip the test if they cannot be installed."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    try:
        home = install(FRAMEWORKS)
    except EmulationError as error:
        pytest.skip(f"the frameworks cannot be installed here: {error}")
    return next(home.glob("lib/python3*/site-packages"))


def play(command: VirtualCommand, options: list[str], script: list[str]) -> Said:
    """Return the output of a script that runs on two hosts."""
    around = {"PYTHONPATH": f"{ROOT}:{packages()}", "PYTHONWARNINGS": "ignore"}
    done = command.run("exec", *FABRIC, *options, "--", *TORCHRUN, *script, environment=around)
    assert done.returncode == 0, done.stdout + done.stderr
    return Said.of(done.stdout + done.stderr)


def llama_debug_bytes(steps: int) -> dict[str, tuple[int, int]]:
    """Return what FSDP2 of TorchTitan's debug model gathers in BF16 and reduces in FP32: an embedding, six layers, and
    a head with its norm that stay until the backward pass; the others are gathered anew for that."""
    width, hidden, vocabulary, layers = 256, 768, 2048, 6
    embedding = vocabulary * width
    layer = 4 * width * width + 3 * width * hidden + 2 * width
    head = embedding + width
    gathered = BF16 * (2 * (embedding + layers * layer) + head)
    reduced = FP32 * (embedding + layers * layer + head)
    units = layers + 2
    return {
        "all_gather": (steps * (2 * units - 1), steps * gathered),
        "reduce_scatter": (steps * units, steps * reduced),
    }


def test_torchtitan_gathers_and_reduces_what_its_model_has_and_repeats_itself(
    command: VirtualCommand, tmp_path: Path
) -> None:
    files, steps = command.here / "titan", 2
    subprocess.run([sys.executable, PROGRAMS / "titan" / "files.py", files], check=True, timeout=60)
    config = PROGRAMS / "titan" / "debug_model.toml"
    words = ["-m", "torchtitan.train", "--job.config_file", str(config), "--training.steps", str(steps)]
    words += ["--model.hf_assets_path", f"{files}/tokenizer", "--training.dataset_path", f"{files}/text"]
    first, second = (play(command, ["--gpu-values", "nan"], words) for _ in range(2))
    for kind, (calls, size_bytes) in llama_debug_bytes(steps).items():
        assert first.asked[kind] == (calls, size_bytes), first.text
    rates = re.findall(r"tps: \D*([\d,]+)", first.text)
    assert len(rates) == 2 * steps, first.text
    assert len(first.times) > 2 * steps
    assert first.times == second.times


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_reduces_all_gradients_and_gathers_all_parameters_each_step(command: VirtualCommand, stage: int) -> None:
    said = play(command, ["--gpu-values", "nan"], [str(PROGRAMS / "zero_gpus.py"), str(stage)])
    steps, size_bytes = 4, BF16 * 8 * 4096**2
    assert len(re.findall(r"step \d: \S+ ms", said.text)) == steps, said.text
    reduced, gathered = said.asked["allreduce" if stage < 3 else "reduce_scatter"], said.asked["all_gather"]
    assert 0 <= reduced[1] - steps * size_bytes <= SCALARS_BYTES, said.text
    if stage < 3:
        assert gathered == (steps, steps * size_bytes), said.text
    else:
        layer_bytes = size_bytes // 8
        assert gathered[1] % layer_bytes == 0, "layers are gathered whole"
        assert steps * size_bytes < gathered[1] <= 2 * steps * size_bytes, "some stay until the backward pass"


def test_trainer_reduces_the_gradients_of_gpt_2_each_step(command: VirtualCommand) -> None:
    steps, parameters = 2, 124_439_808
    said = play(command, ["--gpu-values", "nan"], [str(PROGRAMS / "trainer.py"), "--steps", str(steps)])
    assert len(re.findall(r"step \d: \S+ ms", said.text)) == steps, said.text
    assert 0 <= said.asked["allreduce"][1] - steps * FP32 * parameters <= SCALARS_BYTES, said.text
    assert said.asked["broadcast"][1] == FP32 * parameters, "DDP gives all ranks the first one's"


def test_megatron_reduces_activations_of_each_layer(command: VirtualCommand) -> None:
    layers, microbatches, width, length, steps = 8, 4, 2048, 2048, 3
    said = play(command, [], [str(PROGRAMS / "megatron_gpt.py")])
    times = re.findall(r"step \d: (\S+) ms", said.text)
    assert len(times) == steps, said.text
    assert times[1] == times[2], "the same to the last digit"
    # Two of each layer forward, two backward; the embedding's output and the gradient of the head's input.
    activations = steps * microbatches * (4 * layers + 2) * length * width * BF16
    losses = steps * microbatches * 3 * length * FP32
    assert 0 <= said.asked["allreduce"][1] - activations - losses <= SCALARS_BYTES, said.text
