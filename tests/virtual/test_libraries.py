"""Libraries that users deploy, unmodified, in virtual time: right, and as fast as theory allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments.libraries.catalogue import LIBRARIES, library_named
from experiments.libraries.installing import install
from fabric.errors import EmulationError
from tests.virtual.command import VirtualCommand

pytestmark = pytest.mark.guest
CHEAP = ("ucx",)
"""Small to install, and soon done; the others play in `make soak`."""
RATIOS = {"ucx": 1.03, "intel_mpi": 1.02, "nixl": 1.03, "mooncake": 1.02}
"""Times over theory that are promised at most, of those for which some are: of messages of 4 KiB by UCX, of 8 MiB by
others."""


def played(command: VirtualCommand, name: str, size: str, out: str) -> list[dict[str, Any]]:
    try:
        install(library_named(name))
    except EmulationError as error:
        pytest.skip(f"{name} cannot be installed here: {error}")
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
