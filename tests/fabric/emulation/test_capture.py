"""Captures: which port a text means, and what is told at their end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest
from scapy.utils import rdpcap

from fabric.emulation import capture
from fabric.emulation.capture import Capture, parse_port
from fabric.errors import UsageError
from fabric.measure.wiring import ETHERTYPE, measuring_frame
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink
from tests.links import wait_until_running
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")


@pytest.mark.parametrize(
    ("text", "port"),
    [("z0l03:7", "z0l03:7"), ("z0l03-eth7", "z0l03:7"), ("z0h000:0", "z0h000:0"), ("st001-eth1", "st001:1")],
)
def test_a_port_is_named_as_here_or_as_in_mininet(text: str, port: str) -> None:
    assert str(parse_port(SMALL, text)) == port


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("z0l00:99", "z0l00 has ports 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("z0l00", "z0l00 has ports 1, 2, 3, 4, 5, 6, 7, 8, 9"),
        ("st000:2", "st000 has ports 0, 1"),
        ("z9l00:1", "fire_flyer_2_small has no 'z9l00'; there are z0l00 to z1l03"),
        ("", "fire_flyer_2_small has no ''; switches run from z0l00 to ix1, hosts from z0h000 to st003"),
    ],
)
def test_a_port_that_is_none_is_refused_with_those_there_are(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_port(SMALL, text)
    assert str(refused.value) == f"{text!r} is not a port; write it like z0l03:7; {hint}"


NO_PACKETS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGUSR1})
print("listening on", file=sys.stderr, flush=True)
while signal.sigwait({signal.SIGINT, signal.SIGUSR1}) == signal.SIGUSR1:
    print("0 packets captured, 0 packets received by filter, 0 packets dropped by kernel", file=sys.stderr, flush=True)
"""
"""As tcpdump on an interface by which nothing comes."""


@pytest.mark.parametrize("goes", [True, False])
def test_a_fifo_whose_reader_has_gone_is_told_though_no_packet_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    fifo = tmp_path / "port"
    os.mkfifo(fifo)
    monkeypatch.setattr(capture, "require_tcpdump", lambda: "tcpdump")
    captured = Capture([sys.executable, "-c", NO_PACKETS], "lo", fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    captured.start()
    if goes:
        os.close(reader)
    assert captured.stop() == (f"{fifo} ends early: its reader has gone" if goes else None)
    if not goes:
        os.close(reader)


PACKETS = 10
ENDS = LinkEnd("left", 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")


@pytest.mark.root
@pytest.mark.parametrize("interface", ["lo", "left", "right"])
def test_packets_that_tcpdump_has_still_to_take_when_it_is_to_end_are_in_the_file(
    private_network: None, tmp_path: Path, interface: str
) -> None:
    """It waits for a core for a second: stopped, it is as if."""
    with Netlink() as link:
        up = [netlink.link_state(number, name, up=True) for number, name in ((1, "lo"), (11, "left"), (12, "right"))]
        link.send([netlink.veth_pair(*ENDS, 1500), *up])
        wait_until_running(link, [11, 12])
    captured = Capture([], interface, tmp_path / "port.pcap", "ether proto 0x88b5")
    captured.start()
    assert captured._process is not None
    os.kill(captured._process.pid, signal.SIGSTOP)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        for _ in range(PACKETS):
            sock.sendto(measuring_frame(60), ("lo" if interface == "lo" else "left", ETHERTYPE))
    threading.Timer(1.0, captured._process.send_signal, (signal.SIGCONT,)).start()
    assert captured.stop() is None
    assert len(rdpcap(str(tmp_path / "port.pcap"))) == PACKETS
