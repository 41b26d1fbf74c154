"""The plan on real Open vSwitch, in a network of its own that ends with the process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

WORLD = Path(__file__).with_name("world_of_bridges.py")
PRIVATE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces; run with sudo"),
    pytest.mark.skipif(shutil.which("ovs-vswitchd") is None, reason="needs openvswitch-switch"),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what world_of_bridges.py saw."""
    report = tmp_path_factory.mktemp("world") / "report.json"
    root = WORLD.parents[3]
    done = subprocess.run(
        [*PRIVATE, sys.executable, str(WORLD), str(report)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_every_rule_is_installed(seen: dict[str, Any]) -> None:
    assert seen["errors"] == []
    assert seen["installed_rules"] == seen["planned_rules"]


def test_switches_that_had_stale_rules_lost_them(seen: dict[str, Any]) -> None:
    assert seen["stale_rules"] == 0


def test_open_vswitch_forwards_on_the_planned_paths(seen: dict[str, Any]) -> None:
    assert seen["traced_outputs"] == seen["planned_outputs"]


def test_a_packet_leaves_by_the_port_that_it_came_in_by_if_a_route_says_so(seen: dict[str, Any]) -> None:
    """As it has to that was on a wire when rules changed. At an inter-zone switch, what comes back from the zone that
    it was sent to has no way left there: a rule counts it."""
    assert len(seen["going_back"]) == 18
    for switch, found in seen["going_back"].items():
        if switch.startswith("ix"):
            assert found["planned"] == ["Datapath actions: drop"]
            continue
        first, *_, actions = found["planned"]
        assert first.startswith("output:"), f"{switch}: {found}"
        assert actions != "Datapath actions: drop", f"{switch}: {found}"


def test_forgetting_the_port_of_arrival_is_what_does_it_and_costs_no_datapath_flow(seen: dict[str, Any]) -> None:
    for found in seen["going_back"].values():
        assert found["ignored"] == ["skipping output to input port", "passed on"]
        plain, forgets = found["megaflows"]
        assert plain == forgets


def test_switches_wait_for_a_controller_that_is_busy_planning(seen: dict[str, Any]) -> None:
    assert seen["disconnected"] == ["z1s00"], "the one that waits no longer than Open vSwitch does by default"


def test_dropped_packets_are_counted_by_purpose(seen: dict[str, Any]) -> None:
    assert seen["dropped"] == {"table_miss_packets": 2, "guard_packets": 3}


def test_switch_that_reconnects_gets_back_what_it_lost(seen: dict[str, Any]) -> None:
    assert seen["rules_after_reconnect"] == seen["planned_rules"]


def test_rules_are_in_place_soon(seen: dict[str, Any]) -> None:
    seconds = seen["ready_s"]
    assert isinstance(seconds, float)
    assert seconds < 60, f"18 switches took {seconds:.2f} s; 0.4 s measured on an idle machine"
