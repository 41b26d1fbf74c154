"""``fabric bench setup`` in namespaces; its figures are not tested, what it measures is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP
from controllers.routing import Repair, Routing
from topologies.load import load_fabric

pytestmark = pytest.mark.root
TINY = "fire_flyer_2_tiny"


def test_setup_is_measured_with_the_rules_of_the_routing_that_is_asked_for() -> None:
    words = ["bench", "setup", "--topology", TINY, "--routing", "ecmp", "--repair", "fast_failover", "--json"]
    command = [sys.executable, "-m", "app.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["title"].endswith("; routing ecmp, fast_failover")
    fabric = load_fabric(TINY)
    rules = plan_routes(fabric, Routing(policy=ECMP, repair=Repair.FAST_FAILOVER)).rule_count
    assert rules != plan_routes(fabric, Routing()).rule_count
    (installed,) = [row for row in found["rows"] if "rules are installed" in row[0]]
    assert f"until {rules} rules are installed" in installed[0]
    assert float(installed[1]) > 0
