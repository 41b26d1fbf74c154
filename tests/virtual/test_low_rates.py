"""Unmodified load generators at low rates, in virtual time: they send evenly, not all that is due at once."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.utils import rdpcap

from tests.virtual.command import TINY, VirtualCommand

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed: apt-get install iperf3"),
]


IPERF3 = ("iperf3", "-c", "z0h001", "-u", "-b", "100K", "-l", "200", "-t", "2")


def departures_s(pcap: Path, least_bytes: int) -> Sequence[float]:
    """When datagrams of at least so many bytes passed."""
    return [float(frame.time) for frame in rdpcap(str(pcap)) if UDP in frame and frame[IP].len >= least_bytes]


def test_iperf3_at_100_kbit_per_s_sends_a_datagram_every_16_ms(command: VirtualCommand, tmp_path: Path) -> None:
    """It divides by the microseconds since it began: where none passed, it sent the 118 datagrams of 1.9 s at once."""
    pcap = tmp_path / "sent.pcap"
    words = [TINY, "--set", "nic_rate=1 Gbit/s", "--capture", f"z0h000:0={pcap}", "--background", "z0h001=iperf3 -s -1"]
    done = command.run("exec", *words, "z0h000", "--", *IPERF3)
    assert done.returncode == 0, done.stdout + done.stderr
    gaps_s = np.diff(departures_s(pcap, 200))
    assert len(gaps_s) == pytest.approx(2 * 100_000 / 1600, abs=2)
    assert np.median(gaps_s) == pytest.approx(0.016, rel=0.07), "iperf3 looks every millisecond"
    assert (gaps_s < 0.001).sum() <= 2, "two at its begin"
