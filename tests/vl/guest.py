"""Runs the measurements of this directory in a guest: ``measured("links", "rate", 10**9, 10**7)``."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fabric.world.virtual import bytecode
from fabric.world.virtual.guest import GIB, run_in_guest

ROOT = Path(__file__).parents[2]
# Some package that is installed has a package "tests", too, and would be found instead of ours.
_PROGRAM = """
import importlib, json, sys, types
tests = types.ModuleType("tests")
tests.__path__ = [sys.argv[1] + "/tests"]
sys.modules["tests"] = tests
sys.path.insert(0, sys.argv[1])
measure = getattr(importlib.import_module("tests.vl." + sys.argv[2]), sys.argv[3])
from tests.vl.lab import load_module
load_module()
print("\\nresult", json.dumps(measure(*map(json.loads, sys.argv[4:]))), flush=True)
"""


def measured(module: str, function: str, *arguments: object, kernel_parameters: tuple[str, ...] = ()) -> Any:
    """Return what a function of ``tests/vl/MODULE.py`` returns in a guest that has the qdisc."""
    stdout = io.BytesIO()
    command = [sys.executable, "-c", _PROGRAM, str(ROOT), module, function, *map(json.dumps, arguments)]
    code = run_in_guest(
        command,
        seed=1,
        memory_bytes=GIB,
        stdout=stdout,
        kernel_parameters=kernel_parameters,
        bytecode=bytecode.prepare(),
    )
    words = stdout.getvalue().decode()
    results = [line for line in words.splitlines() if line.startswith("result ")]
    if code != 0 or len(results) != 1:
        pytest.fail(f"{function}{arguments} ended with {code} in the guest: {words}")
    return json.loads(results[0].removeprefix("result "))
