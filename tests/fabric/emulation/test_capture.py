"""Captures: which port a text means, and what is told at their end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fabric.emulation import capture
from fabric.emulation.capture import Capture, parse_port
from fabric.errors import UsageError
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
    assert str(refused.value) == f"{text!r} is no port; write it like z0l03:7; {hint}"


NO_PACKETS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("listening on", file=sys.stderr, flush=True)
signal.sigwait({signal.SIGINT})
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
