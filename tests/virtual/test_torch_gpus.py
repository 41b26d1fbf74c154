"""GPUs that are not there, on hosts: a script that says ``cuda`` and ``nccl`` takes as long as a closed form says."""

from __future__ import annotations

import re
import shutil
import sys

import pytest

from experiments import load
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


def pipeline_ms(stages: int, layers: int, rows: int, microbatches: int) -> float:
    """Return the time of a step of 1F1B on the first stage: each stage does what its order says once that has come, and
    what it sends follows what it has sent. Gradients are scaled, then the optimizer steps."""
    activation = 2 * rows * WIDTH
    product = took(Work(2 * rows * WIDTH * WIDTH, "bf16", LAYER_BYTES + 2 * activation))
    message = activation * 8 / PAYLOAD_BPS * 1e3
    loss = took(Work(memory_bytes=3 * activation), Work(memory_bytes=activation))

    def length(kind: str, number: int, stage: int) -> float:
        """Return how long a microbatch takes a stage; its first needs no gradients for its input, the last a loss."""
        of_loss = loss if stage == stages - 1 else 0.0
        if kind == "forward":
            return layers * product + of_loss
        added = layers * took(Work(memory_bytes=3 * LAYER_BYTES)) if number else 0.0
        return (2 * layers - (stage == 0)) * product + added + of_loss

    orders = [one_forward_one_backward(min(microbatches, stages - 1 - stage), microbatches) for stage in range(stages)]
    now, came = [0.0] * stages, {("forward", number, -1): 0.0 for number in range(microbatches)}
    came |= {("backward", number, stages): 0.0 for number in range(microbatches)}
    busy: dict[tuple[int, int], float] = {}
    while any(orders):
        for stage, order in enumerate(orders):
            while order and (before := (*order[0], stage - 1 if order[0][0] == "forward" else stage + 1)) in came:
                kind, number = order.pop(0)
                now[stage] = max(now[stage], came[before]) + length(kind, number, stage)
                way = (stage, stage + 1 if kind == "forward" else stage - 1)
                busy[way] = came[kind, number, stage] = max(now[stage], busy.get(way, 0.0)) + message
    scaled = layers * took(Work(memory_bytes=2 * LAYER_BYTES))
    return now[0] + scaled + took(Work(memory_bytes=3 * layers * LAYER_BYTES))


def one_forward_one_backward(ahead: int, microbatches: int) -> list[tuple[str, int]]:
    """Return what a stage does: so many forward passes, then one and one, then the backward ones that are left."""
    order = [("forward", number) for number in range(ahead)]
    for number in range(microbatches):
        if ahead + number < microbatches:
            order.append(("forward", ahead + number))
        order.append(("backward", number))
    return order


def tensor_parallel_ms(ranks: int, layers: int, rows: int) -> float:
    """Return the time of a step of tensor parallelism, whose allreduces nothing hides: one of each layer's output, and
    one of the gradients of its input, but for the first's."""
    width, part = WIDTH, 4 * WIDTH // ranks
    whole, split, weight = 2 * rows * width, 2 * rows * part, 2 * width * part
    product = took(Work(2 * rows * width * part, "bf16", whole + split + weight))
    allreduce = 2 * (ranks - 1) / ranks * whole * 8 / PAYLOAD_BPS * 1e3
    forward = 2 * product + took(Work(memory_bytes=2 * split), Work(memory_bytes=3 * whole))
    backward = 4 * product + took(Work(memory_bytes=3 * split), Work(memory_bytes=3 * whole))
    update = took(Work(memory_bytes=layers * 2 * 7 * weight))
    return layers * (forward + backward + 2 * allreduce) - allreduce - product + update


def play(command: VirtualCommand, sharding: str, hosts: list[str]) -> list[tuple[str, str, str]]:
    """Return step, time in ms and bytes of each line that ranks print, in order."""
    script = [sys.executable, str(ROOT / "tests" / "virtual" / "linear_layers.py"), sharding]
    return sorted(re.findall(r"step (\d): (\S+) ms, (\d+) B", said_by(command, script, hosts)))


def said_by(command: VirtualCommand, script: list[str], hosts: list[str], *options: str, stream: str = "stdout") -> str:
    """Return what a script prints on hosts with GPUs that are not there."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    try:
        home = install(library_named("gloo"))
    except EmulationError as error:
        pytest.skip(f"PyTorch cannot be installed here: {error}")
    packages = next(home.glob("lib/python3*/site-packages"))
    around = {"PYTHONPATH": f"{ROOT}:{packages}"}
    done = command.run("exec", *FABRIC, *hosts, *options, "--", *script, environment=around)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of the time is of operators by their bytes alone" in done.stdout + done.stderr
    return str(getattr(done, stream))


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


@pytest.mark.parametrize("program", ["pipeline", "tensor_parallel"])
def test_a_program_of_the_documents_takes_as_long_as_theory_says(command: VirtualCommand, program: str) -> None:
    hosts, words, ideal = {
        "pipeline": (4, ["--layers", "16", "--rows", "1024"], pipeline_ms(4, 16, 1024, 8)),
        "tensor_parallel": (2, ["--layers", "2", "--rows", "2048"], tensor_parallel_ms(2, 2, 2048)),
    }[program]
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    script = [*torchrun, str(ROOT / "docs" / "programs" / f"{program}.py"), *words]
    said = said_by(command, script, ["z0h000", "z0h002", "z0h001", "z0h003"][:hosts])
    steps = [float(ms) for ms in re.findall(r"step [12]: (\S+) ms", said)]
    assert len(steps) == 2, said
    assert ideal <= min(steps), (ideal, steps)
    assert max(steps) < 1.04 * ideal, (ideal, steps)


def test_a_recorded_script_takes_nearly_as_long_when_it_is_replayed(command: VirtualCommand) -> None:
    """Ranks are the programs themselves: torchrun's agents look for their ends every 100 ms, which would hide much. The
    replay takes 2.8 to 3.6 % longer (36.58 ms for 35.30); the cause has not been found."""
    file, out = command.here / "tensors.goal", command.here / "replayed"
    script = [sys.executable, str(ROOT / "docs" / "programs" / "tensor_parallel.py"), "--layers", "2", "--rows", "2048"]
    said = said_by(command, script, ["z0h000", "z0h002"], "--record", str(file), stream="stderr")
    recorded = re.search(r"tensors.goal: 2 ranks, .* ([\d.]+) ms from the first byte to the last", said)
    assert recorded, said
    done = command.run(
        "replay", str(file), "--topology", FABRIC[0], "--set", "queueing=lossless_lanes", "--out", str(out)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = load(out)
    assert result.verdict["status"] == "faithful"
    assert result.metric("replay.tensors.step_s") * 1e3 == pytest.approx(float(recorded[1]), rel=0.05)
