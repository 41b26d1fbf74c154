"""GPUs that are not there as PyTorch's programs see them, where the libraries of docs/libraries.md have PyTorch."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.libraries.catalogue import library_named
from traffic.torch_gpus.startup import FOLDER
from traffic.torch_gpus.variables import COUNT, GPU, NAN, ROUTER, VALUES
from traffic.work.generators.buckets import DataKind, Gradient, buckets_of
from traffic.work.models.listing import model_of

ROOT = Path(__file__).parents[3]


def surroundings(**variables: str) -> dict[str, str]:
    """Return the environment of a script with our Python and the library's PyTorch."""
    home = library_named("gloo").home()
    if home is None:
        pytest.skip("PyTorch is not there: python -m experiments.libraries.installing gloo")
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    packages = next(home.glob("lib/python3*/site-packages"))
    if packages.parent.name != f"python{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"PyTorch there is {packages.parent.name}'s, and this is {sys.version}")
    return os.environ | {"PYTHONPATH": f"{FOLDER}:{ROOT}:{packages}", **variables}


def command(script: str, *arguments: str) -> list[str]:
    """Return the words that start a script of this folder."""
    return [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script)), *arguments]


def play(case: str, **variables: str) -> str:
    """Play a case of ``one_gpu.py``; return its stderr."""
    words, around = command("one_gpu.py", case), surroundings(**variables)
    done = subprocess.run(words, env=around, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("case", ["device", "memory", "order", "training", "reads", "values"])
def test_a_script_that_says_cuda_has_it(case: str) -> None:
    said = play(case, **{GPU: "h100", COUNT: "2"})
    assert case in ("device", "reads", "values") or "operators by their bytes alone" in said


def test_reads_are_answered_where_the_user_asked_for_it() -> None:
    play("answered", **{GPU: "h100", VALUES: NAN})


def test_experts_are_drawn_where_the_user_asked_for_it() -> None:
    play("routed", **{GPU: "h100", ROUTER: "1:1.5"})


def play_ranks(script: str, *arguments: str, ranks: int = 2) -> list[str]:
    """Play a script in several ranks of this machine; return what each said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {GPU: "h100", COUNT: str(ranks), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        subprocess.Popen(
            command(script, *arguments), env=surroundings(**both, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=280)[0] for rank in running]
    finally:
        for rank in running:
            rank.kill()
    assert [rank.returncode for rank in running] == [0] * ranks, said
    return said


def carried(said: str) -> dict[str, list[int]]:
    """Return the elements of operations by their kinds, of what ``counted.py`` says."""
    lines = [line.split() for line in said.splitlines() if re.fullmatch(r"[A-Z_]+( \d+)+", line)]
    return {kind: list(map(int, elements)) for kind, *elements in lines}


def test_fsdp2_and_ddp_call_what_they_call_on_gpus() -> None:
    play_ranks("two_gpus.py")


@pytest.mark.soak
@pytest.mark.parametrize("arguments", [["--fp32"], []])
def test_resnet50s_buckets_are_those_of_generators(arguments: list[str]) -> None:
    """From the second step on. Under autocast the last layer's weight is ready before its bias, of 4,000 B."""
    program = str(ROOT / "docs" / "programs" / "resnet50.py")
    gradients = [
        Gradient((place, 0), 4 * tensor.elements, DataKind("dp-cp"))
        for place, layer in enumerate(model_of("resnet50").all_layers())
        for tensor in layer.tensors
    ]
    expected = [bucket.size_bytes for bucket in buckets_of(gradients, 1 << 20, 25 << 20)]
    if not arguments:
        expected[:2] = [expected[0] - 4000, expected[1] + 4000]
    for said in play_ranks("counted.py", program, "--batch", "1", "--steps", "2", *arguments):
        whole, *buckets = [4 * elements for elements in carried(said)["ALLREDUCE"]]
        assert (whole, buckets) == (sum(expected), expected)


@pytest.mark.soak
@pytest.mark.parametrize("schedule", ["1F1B", "GPipe"])
def test_a_pipeline_of_four_stages_runs(schedule: str) -> None:
    words = ("--schedule", schedule, "--width", "64", "--rows", "4", "--microbatches", "6", "--steps", "2")
    said = play_ranks("counted.py", str(ROOT / "docs" / "programs" / "pipeline.py"), *words, ranks=4)
    neighbours = [1, 2, 2, 1]
    for rank, text in enumerate(said):
        found = carried(text)
        assert found["SEND"].count(4 * 64) == found["RECV"].count(4 * 64) == 2 * 6 * neighbours[rank], (rank, found)


def test_python_without_the_variable_loads_nothing_of_it() -> None:
    program = "import sys; print([name for name in sys.modules if name.startswith('traffic.torch_gpus.m')])"
    around = {name: value for name, value in os.environ.items() if name != GPU} | {"PYTHONPATH": f"{FOLDER}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", program], env=around, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
