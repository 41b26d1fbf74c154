"""The README's Python, run as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import load

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.guest
SHORTENED = {
    "[0.1, 0.3, 0.5]}, seeds=2": "[0.1, 0.5]}",
    '"nccl_nodes": 4, "alone_time": "0.5 s"': '"nccl_nodes": 2, "topology.compute": 4, "alone_time": "0.1 s"',
    '"together_time": "2 s"': '"queueings": ["lanes"], "together_time": "0.4 s"',
}
"""What a reader waits longer for: shares show soon, and over few hosts."""


def test_the_readmes_sweep_runs_and_draws(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(script.splitlines()) <= 20
    for longer, shorter in SHORTENED.items():
        assert script.count(longer) == 1, longer
        script = script.replace(longer, shorter)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "FABRIC_ENGINE": "virtual"},
        capture_output=True, text=True, timeout=1100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "share.png").stat().st_size > 5000
    results = [load(directory) for directory in (tmp_path / "results" / "sweep-isolation" / "runs").iterdir()]
    assert len(results) == 2
    by_share = {}
    for result in results:
        rows = result.metrics.query("phase == 'lanes' and job == 'hfreduce' and name == 'algbw_Bps'")
        by_share[result.config["queues"]["lanes"]["hfreduce"]["share"]] = rows["value"].item()
        assert rows["unit"].item() == "B/s"
        assert result.verdict["status"] == "faithful", result.verdict["reasons"]
        assert not result.table("steps").empty
    assert by_share[0.5] > by_share[0.1]
