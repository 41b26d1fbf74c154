"""Unmodified RDMA programs on hosts, in virtual time: their devices, and figures beside theory."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from scapy.utils import RawPcapReader

from experiments.libraries.catalogue import library_named
from tests.sent_checks import sent_by
from tests.virtual.command import ROOT, VirtualCommand
from tests.virtual.test_libraries import installed

pytestmark = pytest.mark.guest
FRAME_BYTES, HEADERS_BYTES, ROCE_PORT = 4096, 58, 4791
"""What a frame of RoCE v2 carries at most, Ethernet, IPv4, UDP, BTH and ICRC on top, and its UDP port."""
LINK_GBIT_S = 200
PAYLOAD_GBIT_S = LINK_GBIT_S * FRAME_BYTES / (FRAME_BYTES + HEADERS_BYTES)
WAY_US = 0.5
"""Over two links."""
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
    assert rows, done.stdout
    assert all(float(row[3]) == pytest.approx(PAYLOAD_GBIT_S, rel=0.005) for row in rows)
    (sent,) = (size for (host, _), size in sent_by(done.stderr).items() if host == "z0h000")
    assert sent == pytest.approx(100 * 65536 * LINK_GBIT_S / PAYLOAD_GBIT_S, rel=0.01), "its writes, with their headers"


def test_ucx_takes_rdma_by_its_own_choice_and_is_as_fast_as_the_link(command: VirtualCommand) -> None:
    """It meets by datagrams, whose receiver looks at how mlx5 says that a frame came over IPv4."""
    ucx = library_named("ucx")
    home = installed(ucx)
    own = " ".join(f"{name}={value.format(home=home)}" for name, value in ucx.environment.items())
    perftest = f"env {own} {home}/usr/bin/ucx_perftest"
    tests = ("-p 13337 -t tag_lat -s 8 -n 100 -w 10", "-p 13338 -t tag_bw -s 4194304 -n 10 -w 2")
    client = "; ".join(f"sleep 1; {perftest} z0h003 {test} | grep Final" for test in tests)
    options = ["--verbs", "--queueing", "lossless"]
    options += [word for port in (13337, 13338) for word in ("--background", f"z0h003={perftest} -p {port}")]
    done = command.run("exec", "head_of_line_200g", "z0h000", *options, "--", "sh", "-c", client)
    assert done.returncode == 0, done.stdout + done.stderr
    one_way, stream = (line.split() for line in done.stdout.splitlines() if line.startswith("Final"))
    assert float(one_way[4]) == pytest.approx(WAY_US, abs=0.02)
    assert float(stream[6]) * 2**20 * 8 / 1e9 == pytest.approx(PAYLOAD_GBIT_S, rel=0.005)


def test_rdma_writes_keep_what_programs_count_on_of_a_transport(command: VirtualCommand) -> None:
    nics = "10.0.0.1 10.0.0.207 10.0.0.208"
    more = "; ".join(f"ip address add {address}/32 dev eth0" for address in nics.split()[1:])
    tests = f"{sys.executable} -m pytest -p no:xdist -p no:cacheprovider -q tests/traffic/transport/test_transports.py"
    program = f"{more}; cd {ROOT}; FABRIC_TEST_NICS='{nics}' {tests}"
    options = ["--verbs", "--queueing", "lossless"]
    done = command.run("exec", "head_of_line_200g", "z0h000", *options, "--", "sh", "-c", program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_ring_over_rdma_writes_adds_up_right_and_reaches_its_closed_form(command: VirtualCommand) -> None:
    settings = ["topology=head_of_line_200g", "ranks=[3]", "collectives=[allreduce]", "algorithms=[ring]"]
    settings += ["begin=4 MiB", "end=4 MiB", "in_place=false", "transport.kind=verbs"]
    words = [word for one in settings for word in ("--set", one)]
    done = command.run("run", "collectives", "--out", "run", "--no-figures", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((command.here / "run" / "summary.json").read_text())["metrics"]
    assert 0.88 < found["allreduce_ring_n3.of_closed_form_fraction"] <= 1, "pipelines are full after some 20 us of 250"
    trips_s = pd.read_parquet(command.here / "run" / "samples" / "flows.parquet")["rtt_s"]
    assert trips_s.isna().all(), "TCP would say how long a round trip takes"


CNP_OPCODE, ECT0, CE, TOS_OF_CNPS = 0x81, 2, 3, 48 << 2
CNP_INTERVAL_S = 50e-6
"""Of the paper's parameters, which ``fabric exec`` has."""


class RoceFrame(NamedTuple):
    """A frame of RoCE v2 over IPv4 as a capture has it."""

    at_s: float
    source: str
    sink: str
    tos: int
    opcode: int
    size_bytes: int


def roce_frames(pcap: Path) -> Iterator[RoceFrame]:
    """Frames of RoCE v2 of a capture without IP options."""
    with RawPcapReader(str(pcap)) as reader:
        tick_s = 1e-9 if reader.nano else 1e-6
        for frame, about in reader:
            source, sink = (socket.inet_ntoa(frame[start : start + 4]) for start in (26, 30))
            if frame[23] == socket.IPPROTO_UDP and int.from_bytes(frame[36:38], "big") == ROCE_PORT:
                yield RoceFrame(about.sec + about.usec * tick_s, source, sink, frame[15], frame[42], about.wirelen)


def test_queue_pairs_obey_cnps_that_receivers_of_marked_frames_send(command: VirtualCommand) -> None:
    """Two hosts write to a third, and the port towards it marks."""
    write = "ib_write_bw -F --report_gbits -s 65536 -n 300 -p"
    servers = [word for port in (11000, 12000) for word in ("--background", f"z0h003={write} {port}")]
    client = f"sleep 1; port=12000; [ $(hostname) != z0h000 ] || port=11000; {write} $port z0h003"
    marking = "queues.marking={kmin: 25 KB, kmax: 100 KB, pmax: 0.01}"
    options = ["--verbs", "--queueing", "lossless", "--set", marking, "--capture", "z0h000-eth0=roce.pcap", *servers]
    done = command.run("exec", "head_of_line_200g", "z0h000", "z0h002", *options, "--", "sh", "-c", client)
    assert done.returncode == 0, done.stdout + done.stderr
    frames = list(roce_frames(command.here / "roce.pcap"))
    sent = [frame for frame in frames if frame.source == "10.0.0.1" and frame.size_bytes > FRAME_BYTES]
    assert {frame.tos for frame in sent} == {ECT0}
    cnps = [frame for frame in frames if frame.opcode == CNP_OPCODE]
    assert {(frame.source, frame.sink, frame.tos) for frame in cnps} == {("10.0.0.4", "10.0.0.1", TOS_OF_CNPS)}
    first, second = cnps[0].at_s, cnps[1].at_s
    assert all(after.at_s - before.at_s >= CNP_INTERVAL_S - 1e-6 for before, after in itertools.pairwise(cnps))
    cut = [frame for frame in sent if first + 1e-6 < frame.at_s < min(second, first + CNP_INTERVAL_S)]
    rate_gbit_s = sum(frame.size_bytes for frame in cut[1:]) * 8e-9 / (cut[-1].at_s - cut[0].at_s)
    assert rate_gbit_s == pytest.approx(LINK_GBIT_S / 2, rel=0.05), "the first CNP halves the line's rate"


def test_without_marks_queue_pairs_have_no_ecn(command: VirtualCommand) -> None:
    write = "ib_write_bw -F --report_gbits -s 65536 -n 10"
    options = ["--verbs", "--queueing", "lossless", "--capture", "z0h000-eth0=roce.pcap"]
    options += ["--background", f"z0h003={write}"]
    done = command.run("exec", "head_of_line_200g", "z0h000", *options, "--", "sh", "-c", f"sleep 1; {write} z0h003")
    assert done.returncode == 0, done.stdout + done.stderr
    frames = list(roce_frames(command.here / "roce.pcap"))
    assert len(frames) > 10
    assert {frame.tos for frame in frames} == {0}
