"""What other programs read while a fabric runs in virtual time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.packets import packets_on
from tests.sflow import COUNTED, Collector, require_export
from tests.virtual.command import TINY, VirtualCommand

pytestmark = pytest.mark.guest

SHELL = "ping -q -c 3 z0h001 && until [ -e seen ]; do sleep 0.1; done"
"""Waits in the guest until whoever reads has seen what passed."""


def test_a_port_is_captured_on_stdout_while_the_program_runs(command: VirtualCommand) -> None:
    process: subprocess.Popen[Any] = command.start(
        "exec", TINY, "--capture", "z0l00:1=-", "z0h000", "--", "sh", "-c", SHELL, text=False, bufsize=0
    )
    assert process.stdout is not None
    packets = packets_on(process.stdout.fileno())
    times = [next(packets) for _ in range(6)]
    assert process.poll() is None
    assert times[-1] - times[0] == pytest.approx(2, abs=0.1)
    (command.here / "seen").touch()
    assert list(packets) == []
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert b"3 packets transmitted, 3 received" in err
    assert list(command.temporary.iterdir()) == []


@pytest.mark.soak  # In real time it is in tests/root.
def test_what_comes_on_stdout_is_what_a_file_has(command: VirtualCommand, tmp_path: Path) -> None:
    """Some 8,000 packets at 200 Gbit/s, of pages that have grown when the next is written."""
    options = ["--capture", "z0l00:1=-", "--capture", "z0l00:1=file.pcap", "--background", "z0h001=iperf3 -s"]
    program = ["iperf3", "-c", "z0h001", "-n", "16M"]
    with (tmp_path / "stdout.pcap").open("wb") as file:
        process = command.start("exec", "head_of_line_200g", *options, "z0h000", "--", *program, stdout=file)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    found, expected = (tmp_path / "stdout.pcap").read_bytes(), (command.here / "file.pcap").read_bytes()
    assert len(expected) > 16e6
    assert abs(len(found) - len(expected)) < 100_000, "the one that ends last has some packets of the connection's end"
    assert found[:16_000_000] == expected[:16_000_000]
    assert "capture:" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)])
def test_a_command_that_is_ended_leaves_a_capture_that_can_be_read(
    command: VirtualCommand, number: signal.Signals, code: int
) -> None:
    words = ("exec", TINY, "--capture", "z0l00:1=-", "z0h000", "--", "ping", "z0h001")
    process: subprocess.Popen[Any] = command.start(*words, text=False, bufsize=0, start_new_session=True)
    assert process.stdout is not None
    begun = process.stdout.read(1)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err
    assert (begun + out)[:4] == b"\xd4\xc3\xb2\xa1"
    assert b"Traceback" not in err
    assert list(command.temporary.iterdir()) == []


def test_switches_export_samples_and_counters_to_a_collector(command: VirtualCommand) -> None:
    with Collector() as collector:
        collector.start()
        words = ("exec", TINY, "--sflow", collector.address, "--sflow-sampling", "10", "--sflow-polling", "1")
        program = ("--background", "z0h001=iperf3 -s", "z0h000", "--", "sh", "-c", COUNTED)
        done = command.run(*words, *program)
        assert done.returncode == 0, done.stderr
        datagrams = collector.received()
    require_export(datagrams, TINY, rate=10, way=("z0l00", "z0l01"))
    counted = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[{")))[0]["stats64"]["tx"][
        "bytes"
    ]
    leaf = {one.name: one for datagram in datagrams for one in datagram.counters}["z0l00-eth1"]
    print(f"z0h000 sent {counted} bytes; its leaf's port received {leaf.in_bytes}")
    assert leaf.in_bytes == pytest.approx(counted, abs=300)
    assert list(command.temporary.iterdir()) == []


def test_without_a_collector_that_listens_a_run_ends_well_and_keeps_what_was_exported(command: VirtualCommand) -> None:
    sizes = ("queueings=[lossless_lanes]", "repeats=1", "time_scale=0.005")
    settings = [word for size in sizes for word in ("--set", size)]
    done = command.run("run", "head_of_line", "--no-figures", "--out", "result", *settings, "--sflow", "127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    logs = command.here / "result" / "logs"
    assert (logs / "sflow-agents.csv").read_text().splitlines()[:2] == ["agent,switch", "198.18.0.1,z0l00"]
    assert len(list(packets_on(os.open(logs / "sflow.pcap", os.O_RDONLY)))) > 3
    assert list(command.temporary.iterdir()) == []
