"""Unmodified RDMA programs on hosts, in virtual time: their devices, and figures beside theory."""

from __future__ import annotations

import json
import shutil
import sys

import pandas as pd
import pytest

from experiments.libraries.catalogue import library_named
from tests.virtual.command import ROOT, VirtualCommand
from tests.virtual.test_libraries import installed

pytestmark = pytest.mark.guest
FRAME_BYTES, HEADERS_BYTES = 4096, 58
"""What a frame of RoCE v2 carries at most, and Ethernet, IPv4, UDP, BTH and ICRC on top."""
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


CNP_OPCODE, DSCP_OF_CNPS, UDP_OF_ROCE, CE, ECT0 = 0x81, 48, 4791, 3, 2
CNP_INTERVAL_S = 50e-6


def test_queue_pairs_obey_cnps_that_receivers_of_marked_frames_send(command: VirtualCommand) -> None:
    """Two hosts write to a third. Its uplink's leaf marks, it answers with CNPs, and they share its link."""
    write = "ib_write_bw -F --report_gbits -s 65536 -n 3000 -p"
    servers = [word for port in (1, 2) for word in ("--background", f"z0h003={write} {port}1000")]
    client = f"sleep 1; p=$([ $(hostname) = z0h000 ] && echo 1 || echo 2); {write} ${{p}}1000 z0h003"
    marking = "queues.marking={kmin: 25 KB, kmax: 100 KB, pmax: 0.01}"
    options = ["--verbs", "--queueing", "lossless", "--set", marking, "--capture", "z0h003-eth0=roce.pcap", *servers]
    done = command.run("exec", "head_of_line_200g", "z0h000", "z0h002", *options, "--", "sh", "-c", client)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
