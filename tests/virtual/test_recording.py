"""A recorded program and its replay take equally long."""

from __future__ import annotations

import re
import sys

import pytest

from experiments import load
from tests.virtual.command import ROOT, VirtualCommand

pytestmark = pytest.mark.guest
RING = """
import os, socket, threading, time
rank, addresses = int(os.environ["RANK"]), os.environ["FABRIC_ADDRESSES"].split(",")
server = socket.create_server((addresses[rank], 5000))
while True:
    try:
        after = socket.create_connection((addresses[(rank + 1) % len(addresses)], 5000), 10)
        break
    except ConnectionRefusedError:
        time.sleep(0.001)
before, _ = server.accept()
def get(size):
    while size:
        size -= len(before.recv(min(size, 100_000)))
for step in range(4):
    sending = threading.Thread(target=lambda: after.sendall(bytes(4_000_000)))
    sending.start()
    get(4_000_000)
    sending.join()
    time.sleep(0.0002)
"""
"""A ring of ranks that send and receive 4 MB at once, and then compute."""
FABRIC = "head_of_line_200g"
HOSTS = ("z0h000", "z0h001", "z0h002")


@pytest.mark.soak  # Two runs; recordings are read and played in tests/traffic.
def test_a_recorded_ring_takes_as_long_when_it_is_replayed(command: VirtualCommand) -> None:
    """Computing is a sleep of 200 us, and the 50 us by which it is late."""
    file = command.here / "ring.goal"
    options = ["--queueing", "lossless_lanes", "--record", str(file)]
    done = command.run("exec", FABRIC, *HOSTS, *options, "--", sys.executable, "-c", RING)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"ring.goal: 3 ranks, .* ([\d.]+) ms from the first byte to the last", done.stderr)
    assert said, done.stderr
    lines = file.read_text().splitlines()
    assert [line for line in lines if line.startswith("// rank")] == [
        f"// rank {rank} was on {host}" for rank, host in enumerate(HOSTS)
    ]

    out = command.here / "replayed"
    done = command.run("replay", str(file), "--topology", FABRIC, "--set", "queueing=lossless_lanes", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    result = load(out)
    assert result.verdict["status"] == "faithful"
    step_ms = result.metric("replay.ring.step_s") * 1e3
    print(said[0], step_ms)
    assert step_ms == pytest.approx(float(said[1]), rel=0.05)
    assert result.metric("replay.ring.sent_bytes") == 3 * 4 * 4_000_000


@pytest.mark.soak
def test_a_slow_reader_holds_its_sender_back_in_the_replay_as_it_did(command: VirtualCommand) -> None:
    """It computes for 32 ms while it takes 64 MiB, and its sender for 10 ms behind its send: one after the other if it
    is held back, side by side if not."""
    file = command.here / "slow.goal"
    program = str(ROOT / "docs" / "programs" / "slow_reader.py")
    options = ["--queueing", "lossless_lanes", "--record", str(file)]
    done = command.run("exec", FABRIC, "z0h000", "z0h002", *options, "--", sys.executable, program)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"2 ranks, .* ([\d.]+) ms from the first byte to the last", done.stderr)
    assert said, done.stderr
    took = {}
    for reads in ("at_once", "when_received"):
        settings = ("--set", "queueing=lossless_lanes", "--set", f"reads={reads}", "--out", str(command.here / reads))
        done = command.run("replay", str(file), "--topology", FABRIC, *settings)
        assert done.returncode == 0, done.stdout + done.stderr
        took[reads] = load(command.here / reads).metric("replay.slow.step_s") * 1e3
    print(said[0], took)
    assert took["when_received"] == pytest.approx(float(said[1]), rel=0.05)
    assert took["at_once"] < 0.9 * float(said[1])
