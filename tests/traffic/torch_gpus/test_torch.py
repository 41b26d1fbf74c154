"""GPUs that are not there as PyTorch's programs see them, where the libraries of docs/libraries.md have PyTorch."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.libraries.catalogue import library_named
from traffic.torch_gpus.startup import FOLDER
from traffic.torch_gpus.variables import COUNT, GPU, NAN, VALUES

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


def test_fsdp2_and_ddp_call_what_they_call_on_gpus() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = {GPU: "h100", COUNT: "2", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            command("two_gpus.py"), env=surroundings(**both, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=280)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said


def test_python_without_the_variable_loads_nothing_of_it() -> None:
    program = "import sys; print([name for name in sys.modules if name.startswith('traffic.torch_gpus.m')])"
    around = {name: value for name, value in os.environ.items() if name != GPU} | {"PYTHONPATH": f"{FOLDER}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", program], env=around, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
