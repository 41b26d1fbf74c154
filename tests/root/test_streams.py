"""What other programs read while a fabric runs, in real time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.packets import icmp_packets, packets_on
from tests.sflow import COUNTED, Collector, require_export
from tests.worlds import TINY, Command, nothing_left

pytestmark = pytest.mark.root

PING = ("ping", "-q", "-c", "5", "-i", "0.1", "z0h001")
_PATIENCE_S = 120.0


def test_a_port_is_captured_on_stdout_and_all_else_is_on_stderr(command: Command) -> None:
    with nothing_left(command):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": False}
        process = command.start("exec", TINY, "--capture", "z0l00:1=-", "z0h000", "--", *PING, **options)
        out, err = process.communicate(timeout=_PATIENCE_S)
    assert process.returncode == 0, err
    assert icmp_packets(out) == 10
    assert b"5 packets transmitted, 5 received" in err


def test_packets_arrive_as_they_pass(command: Command) -> None:
    with nothing_left(command):
        started = command.start(
            "exec", TINY, "--capture=z0l00:1=-", "z0h000", "--", "ping", "z0h001", text=False, bufsize=0
        )
        assert started.stdout is not None
        packets = packets_on(started.stdout.fileno())
        first, *_, last = [next(packets) for _ in range(4)]
        assert time.time() - last < 10, "a buffer of 4 kB holds 20 s of packets"
        assert 0.4 < last - first < 10, "two pings, a second apart"
        os.killpg(started.pid, signal.SIGINT)  # As a terminal does.
        started.communicate(timeout=_PATIENCE_S)
        assert started.returncode == 130


def test_a_fifo_is_written_to_once_it_is_read(command: Command) -> None:
    fifo = command.here / "port"
    os.mkfifo(fifo)
    with nothing_left(command), subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE) as reader:
        done = command.run("exec", TINY, "--capture", "z0l00:1=port", "z0h000", "--", *PING)
        out, _ = reader.communicate(timeout=_PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert icmp_packets(out) == 10


def test_a_fifo_whose_reader_goes_is_told_and_the_programs_go_on(command: Command, tmp_path: Path) -> None:
    fifo, gone = command.here / "port", tmp_path / "gone"
    os.mkfifo(fifo)
    reader = ["sh", "-c", f"head -c 10 {fifo} > /dev/null; touch {gone}"]
    program = ["sh", "-c", f"until [ -e {gone} ]; do sleep 0.05; done; {' '.join(PING)}"]
    with nothing_left(command), subprocess.Popen(reader):
        done = command.run("exec", TINY, "--capture", "z0l00:1=port", "z0h000", "--", *program)
    assert done.returncode == 0, done.stderr
    assert "5 packets transmitted, 5 received" in done.stdout
    assert "capture: port ends early: its reader has gone" in done.stderr


def test_a_run_has_a_port_on_stdout_and_its_answer_on_stderr(command: Command, tmp_path: Path) -> None:
    sizes = (
        f"topology={TINY}",
        "nccl_nodes=4",
        "alone_time=0.3",
        "together_time=0.5",
        "heavy_load=0",
        "phase_attempts=1",
    )
    settings = [word for size in sizes for word in ("--set", size)]
    captured = tmp_path / "port.pcap"
    with captured.open("wb") as file:
        done = command.run("run", "isolation", "--no-figures", *settings, "--capture", "z0l00:1=-", stdout=file)
    assert done.returncode in (0, 3), done.stderr
    assert "verdict" in done.stderr
    assert len(list(packets_on(os.open(captured, os.O_RDONLY)))) > 100


def test_switches_export_samples_and_counters_to_a_collector(command: Command) -> None:
    with nothing_left(command), Collector() as collector:
        collector.start()
        words = ("exec", TINY, "--sflow", collector.address, "--sflow-sampling", "10", "--sflow-polling", "1")
        done = command.run(*words, "--background", "z0h001=iperf3 -s", "z0h000", "--", "sh", "-c", COUNTED)
        assert done.returncode == 0, done.stderr
        require_export(collector.received(), TINY, rate=10, way=("z0l00", "z0l01"))
