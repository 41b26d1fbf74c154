"""Failures, repair and a crash of the controller on real Open vSwitch, in a network of its own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fabric.model.encoding import fabric_to_json
from fabric.model.network import Link, Nic
from tests.controllers.sizes import tree
from tests.fakes import reachable

WORLD = Path(__file__).with_name("world_of_failures.py")
FABRIC = tree(leaves=2, spines=2, compute=4, storage=1, exits=(2, 2))
PRIVATE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

pytestmark = pytest.mark.root


def seen(directory: Path, what: str, policy: str, repair: str) -> Any:
    """Return what world_of_failures.py saw."""
    report = directory / "report.json"
    (directory / "fabric.json").write_text(json.dumps(fabric_to_json(FABRIC)))
    root = WORLD.parents[3]
    done = subprocess.run(
        [*PRIVATE, sys.executable, str(WORLD), what, policy, repair, str(report)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root), "FABRIC_WORLD": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())


@pytest.mark.parametrize(
    ("policy", "repair"), [("static", "reroute"), ("ecmp", "fast_failover"), ("adaptive", "fast_failover")]
)
def test_after_failures_packets_take_what_is_left_and_rules_are_those_of_a_fresh_plan(
    tmp_path: Path, policy: str, repair: str
) -> None:
    found = seen(tmp_path, "sequence", policy, repair)
    assert [len(state["down"]) for state in found] == [2, 4, 6, 0]
    for state in found:
        assert state["stale"] == []
        assert state["lines"] > 50
        down = [link for link in FABRIC.links if str(link) in state["down"]]
        wanted = [[a.ip, b.ip] for a in FABRIC.nics for b in FABRIC.nics if a.node != b.node and joins(down, a, b)]
        assert state["arrived"] == sorted(wanted), state["down"]


def joins(down: list[Link], source: Nic, destination: Nic) -> bool:
    return reachable(FABRIC, down, source, destination)


@pytest.mark.parametrize("repair", ["fast_failover", "reroute"])
def test_a_stream_goes_on_after_a_cut(tmp_path: Path, repair: str) -> None:
    found = seen(tmp_path, "cuts", "static", repair)
    gaps = [gap for of_link in found["gaps_s"].values() for gap in of_link]
    print(f"{repair}: {found}")
    assert statistics.median(gaps) < 1, f"{found}; 7 ms measured on a machine that does nothing else"
    if repair == "reroute":
        times = found["controller_s"]
        assert 0 < times["port"] <= times["planned"] <= times["installed"] < 1.5, times


def test_a_controller_that_crashed_comes_back_without_disturbing_anything(tmp_path: Path) -> None:
    found = seen(tmp_path, "crash", "static", "reroute")
    assert found["arrived"] == found["sent"], found
    assert found["counted"] >= found["sent"], f"a rule's counter began anew: {found}"
    assert found["read"] == found["rules"], found
    outage = found["outage"]
    missing = outage["sent"] - outage["arrived"] - outage["dropped"]
    # Counters of rules and groups are credited late, to the rule that then delivers: of these 8 to 17 were missing.
    assert missing == 0, f"switches drop what they do not count: {outage}"
    assert 0 < found["messages"] < found["rules"] / 2, f"{found}; it must send what differs, no more"
    assert found["same_after"], found
    assert "limit 20000000" in found["flows_kept"], "or Open vSwitch forgets what it has learned of large fabrics"
