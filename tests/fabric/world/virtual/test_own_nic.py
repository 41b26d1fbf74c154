"""A host is slowed by its own NIC, whatever the delay of its link and wherever that is made. Needs no root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fabric.world.virtual.guest import GIB
from tests.guest_scripts import run_script

pytestmark = pytest.mark.guest
PROGRAM = Path(__file__).parent / "own_nic.py"
FRAME_S = 4190 * 8 / 1e9
DATAGRAMS = 1_000
SEND_BUFFER_BYTES = 212_992  # The kernel's default, which counts a frame's memory, not its bytes.


@pytest.mark.parametrize(
    ("where", "delay_ns"),
    [
        ("at_sender", 0),
        pytest.param("at_sender", 50_000, marks=pytest.mark.soak),
        ("at_sender", 3_000_000),
        ("at_arrival", 50_000),
    ],
)
def test_what_a_host_sends_waits_for_its_own_nic_and_is_not_dropped_there(where: str, delay_ns: int) -> None:
    found: dict[str, Any] = json.loads(run_script(PROGRAM, where, str(delay_ns), memory_bytes=GIB))
    assert found["lone_ns"] == pytest.approx(delay_ns, abs=1_000)
    flood, stream = found["flood"], found["stream"]
    assert flood["dropped"] == 0
    assert flood["arrived"] == DATAGRAMS
    assert flood["took_s"] == pytest.approx(DATAGRAMS * FRAME_S, abs=SEND_BUFFER_BYTES * 8 / 1e9)
    assert stream["dropped"] == 0
    assert stream["most_bytes"] < 2 * SEND_BUFFER_BYTES
    if delay_ns < 1_000_000:
        assert stream["rate_bps"] == pytest.approx(1e9, rel=0.03)
