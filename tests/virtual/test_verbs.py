"""Unmodified RDMA programs on hosts, in virtual time: their devices, and figures beside theory."""

from __future__ import annotations

import shutil

import pytest

from tests.virtual.command import VirtualCommand

pytestmark = pytest.mark.guest
FRAME_BYTES, HEADERS_BYTES = 4096, 58
"""What a frame of RoCE v2 carries at most, and Ethernet, IPv4, UDP, BTH and ICRC on top."""
LINK_GBIT_S = 200
BANDWIDTH = "ib_write_bw -F --report_gbits -s 65536 -n 100"
LOOK = "cd /sys/class/infiniband/mlx5_0; cat ports/1/gids/0 ports/1/rate ports/1/state /sys/class/net/eth0/speed; ls .."


def test_a_program_writes_to_another_hosts_memory_at_the_rate_of_the_link(command: VirtualCommand) -> None:
    if shutil.which("ib_write_bw") is None:
        pytest.skip("no perftest; apt-get install perftest")
    client = f"{LOOK}; sleep 1; {BANDWIDTH} z0h003"
    options = ["--verbs", "--queueing", "lossless", "--background", f"z0h003={BANDWIDTH}"]
    done = command.run("exec", "head_of_line_200g", "z0h000", *options, "--", "sh", "-c", client)
    assert done.returncode == 0, done.stdout + done.stderr
    device = ["0000:0000:0000:0000:0000:ffff:0a00:0001", "200 Gb/sec (4X HDR)", "4: ACTIVE", "200000", "mlx5_0"]
    assert done.stdout.splitlines()[: len(device)] == device
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(" 65536")]
    theory = LINK_GBIT_S * FRAME_BYTES / (FRAME_BYTES + HEADERS_BYTES)
    assert rows, done.stdout
    assert all(float(row[3]) == pytest.approx(theory, rel=0.005) for row in rows)
