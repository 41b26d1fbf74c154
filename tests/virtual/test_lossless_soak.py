"""A short soak of a lossless fabric: random flows in all lanes, links cut under both repairs, and all promises kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.virtual.command import VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
SHORT = ("topology.compute=4", "rounds=1", "round_time=5", "flaps.count=4", "flaps.longest=1 s", "stall_limit=60 ms")


@pytest.fixture(scope="module")
def played(shared_command: VirtualCommand) -> Path:
    """The directory of a run of two rounds."""
    settings = [word for setting in SHORT for word in ("--set", setting)]
    done = shared_command.run("run", "lossless_soak", *settings, "--out", "soak")
    assert done.returncode == 0, done.stdout + done.stderr
    return shared_command.here / "soak"


def read(directory: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / name).read_text())
    return found


def test_nothing_is_dropped_leaked_or_left_unexplained(played: Path) -> None:
    metrics = read(played, "summary.json")["metrics"]
    print(metrics)
    assert (metrics["drops"], metrics["leaked_bytes"], metrics["unexplained_stalls"]) == (0, 0, 0)
    assert metrics["unaccounted_packets"] == 0


def test_it_was_put_through_something(played: Path) -> None:
    metrics = read(played, "summary.json")["metrics"]
    assert metrics["flows_completed"] > 200
    assert 6 <= metrics["flaps"] <= 8, "two of one link may be one"
    assert metrics["lost_in_cuts"] > 0
    assert metrics["long_stalls"] > 3


def test_its_verdict_rests_on_the_promises(played: Path) -> None:
    verdict = read(played, "manifest.json")["verdict"]
    assert verdict["status"] == "faithful", verdict["reasons"]
    assert {"lossless_drops", "leaked_bytes", "unexplained_stalls"} <= {check["name"] for check in verdict["checks"]}
