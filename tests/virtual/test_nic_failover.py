"""A NIC's link is cut under an allreduce over the NICs of four planes: the job goes on over the three that are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import RunSpec, launch

pytestmark = pytest.mark.guest

SETTINGS = {"stall_timeout": "300 ms", "cut_at": "500 ms", "phase_time": "2500 ms", "sample_period": "20 ms"}


def test_three_of_four_planes_carry_on(tmp_path: Path) -> None:
    spec = RunSpec(
        "nic_failover", SETTINGS, engine="virtual", memory_bytes=2 << 30, directory=tmp_path / "out", draws=False
    )
    result = launch(spec)
    found = result.metrics.set_index(["phase", "name"])["value"]
    assert found["cut", "left_fraction"] == pytest.approx(0.75, abs=0.03), found.to_string()
    assert 0.25 < found["cut", "again_after_s"] < 0.6  # Silence begins with the last byte, before the cut.
    assert found["whole", "busbw_Bps"] * 8 == pytest.approx(40e6, rel=0.05)
