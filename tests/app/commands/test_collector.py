"""Datagrams of switches, sent on to a collector; which collectors are refused, and what goes with them."""

from __future__ import annotations

import os
import socket
from argparse import ArgumentParser
from pathlib import Path

import pytest

from app.commands.collector import CollectorFollower, collector_address
from app.commands.options import add_sflow_options
from app.commands.streams import begin_streams
from fabric.emulation.sflow import SflowExport, agents_of
from fabric.errors import UsageError
from runs.launching.order import Order
from runs.launching.spec import RunSpec, prepare
from tests.packets import pcap_of
from tests.waiting import LIMIT_S
from topologies.load import load_fabric


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("127.0.0.1", "write HOST:PORT, e.g. 127.0.0.1:6343"),
        (":6343", "write HOST:PORT"),
        ("::1:6343", r"write HOST:PORT, e.g. 127.0.0.1:6343 or \[::1\]:6343"),
        ("127.0.0.1:0", "port '0' must be 1 to 65535; sFlow's own is 6343"),
        ("127.0.0.1:65536", "port '65536' must be 1 to 65535"),
        ("127.0.0.1:x", "port 'x' must be 1 to 65535"),
        ("no.such.host.invalid:6343", "host 'no.such.host.invalid': .*; give a name that resolves, or an address"),
    ],
)
def test_what_is_no_collector_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=f"--sflow '{text.replace('.', '[.]')}': {words}"):
        collector_address(text)


def test_collectors_are_found_by_address_and_name() -> None:
    assert collector_address("127.0.0.1:6343") == (socket.AF_INET, ("127.0.0.1", 6343))
    assert collector_address("[::1]:7")[1][:2] == ("::1", 7)
    assert collector_address("localhost:7")[1][1] == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sflow-sampling", "3"], "--sflow-sampling 3: is for --sflow HOST:PORT, which is not given"),
        (["--sflow", "127.0.0.1:1", "--sflow-polling", "0"], "--sflow-polling 0: must be 1 to 4294967295"),
        (["--sflow", "127.0.0.1:1", "--sflow-sampling", "-1"], "--sflow-sampling -1: must be 1 to"),
        (["--sflow", "127.0.0.1"], "write HOST:PORT"),
    ],
)
def test_options_are_refused_before_anything_starts(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was started"))
    parser = ArgumentParser()
    add_sflow_options(parser)
    with pytest.raises(UsageError, match=words):
        begin_streams([], parser.parse_args(arguments))


def test_datagrams_go_on_whole_as_they_come(tmp_path: Path) -> None:
    datagrams = [bytes([number]) * (7 * number + 1) for number in range(100)]
    pcap, file = pcap_of(datagrams), tmp_path / "sflow.pcap"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(LIMIT_S)
        follower = CollectorFollower(file, (socket.AF_INET, collector.getsockname()))
        found: list[bytes] = []
        for end in (0, 10, 24, 30, 100, 5000, len(pcap)):
            file.write_bytes(pcap[:end])
            follower.pass_on()
        assert follower.is_done()
        while len(found) < len(datagrams):
            found.append(collector.recv(1 << 16))
    assert found == datagrams


def test_a_collector_that_does_not_listen_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = nobody.getsockname()
    file = tmp_path / "sflow.pcap"
    follower = CollectorFollower(file, (socket.AF_INET, address))
    file.write_bytes(pcap_of([b"one", b"two", b"three"]))
    follower.pass_on()
    assert follower.is_done()
    assert capsys.readouterr().err == ""


def test_each_switch_has_an_agent_of_its_own() -> None:
    fabric = load_fabric("fire_flyer_2")
    agents = agents_of(fabric.switches)
    assert agents[fabric.switches[0]] == "198.18.0.1"
    assert len(set(agents.values())) == len(fabric.switches)


def test_a_run_is_told_what_to_export_and_checks_it() -> None:
    export = SflowExport("/dev/shm/sflow.pcap", 10, 1)
    ordered = Order("isolation", "", {}, "results/x", (), (), sflow=export)
    assert Order.decoded(ordered.encoded()) == ordered
    assert prepare(RunSpec("isolation", engine="virtual", sflow=export), ()).order.sflow == export
    with pytest.raises(UsageError, match="sFlow sampling 0: must be 1 to 4294967295"):
        prepare(RunSpec("isolation", engine="virtual", sflow=SflowExport("a.pcap", 0)), ())
