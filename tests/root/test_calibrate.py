"""One measurement of ``fabric calibrate`` on a real fabric; the search over them is tested without one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.root
COMMAND = [sys.executable, "-m", "app.cli", "calibrate", "fire_flyer_2_tiny"]


def test_a_rate_is_measured_under_load() -> None:
    command = [*COMMAND, "--at", "5 Mbit/s", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rate_bps"] == 5_000_000
    assert found["value"] > 0.01
    assert found["limit"]
