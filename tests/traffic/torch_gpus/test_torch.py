"""GPUs that are not there as PyTorch's programs see them, where the libraries of docs/libraries.md have PyTorch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.libraries.catalogue import library_named
from traffic.torch_gpus.startup import FOLDER
from traffic.torch_gpus.variables import COUNT, GPU, NAN, VALUES

ROOT = Path(__file__).parents[3]


def play(case: str, **variables: str) -> str:
    """Play a case of ``one_gpu.py`` with our Python and the library's PyTorch; return its stderr."""
    home = library_named("gloo").home()
    if home is None:
        pytest.skip("PyTorch is not there: python -m experiments.libraries.installing gloo")
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler: apt-get install g++")
    packages = next(home.glob("lib/python3*/site-packages"))
    if packages.parent.name != f"python{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip(f"PyTorch there is {packages.parent.name}'s, and this is {sys.version}")
    surroundings = os.environ | {"PYTHONPATH": f"{FOLDER}:{ROOT}:{packages}", **variables}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("one_gpu.py")), case]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize("case", ["device", "memory", "order", "training", "reads"])
def test_a_script_that_says_cuda_has_it(case: str) -> None:
    said = play(case, **{GPU: "h100", COUNT: "2"})
    assert case in ("device", "reads") or "operators by their bytes alone" in said


def test_reads_are_answered_where_the_user_asked_for_it() -> None:
    play("answered", **{GPU: "h100", VALUES: NAN})


def test_python_without_the_variable_loads_nothing_of_it() -> None:
    program = "import sys; print([name for name in sys.modules if name.startswith('traffic.torch_gpus.m')])"
    surroundings = {name: value for name, value in os.environ.items() if name != GPU}
    surroundings["PYTHONPATH"] = f"{FOLDER}:{ROOT}"
    done = subprocess.run([sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
