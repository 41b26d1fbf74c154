"""Congestion controls as BPF programs, and ports that mark by one, with real sockets and frames in real time."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

from experiments import load
from fabric.world.kernel_api import libbpf
from fabric.world.kernel_api.struct_ops import cookie, register
from tests.real_time import Seen, in_real_time
from tests.root.congestion import CURVE_FRAMES, MARKING
from tests.worlds import TINY, Command, nothing_left

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(900),
    pytest.mark.skipif(libbpf.why_not() is not None, reason=str(libbpf.why_not())),
]

SCRIPT = Path(__file__).with_name("congestion.py")
LINK_BPS = 20e6
_PATIENCE_S = 120.0
RUN = [
    *("run", "isolation", "--engine", "namespace", "--no-figures", "--out", "result"),
    *(
        word
        for one in (f"topology={TINY}", "nccl_nodes=4", "queueings=[lanes]", "phase_attempts=1")
        for word in ("--set", one)
    ),
    *("--set", "congestion_control.storage=dcqcn", "--set", "congestion_control.nccl=line"),
]


def registered() -> list[str]:
    """Return the congestion controls of the machine's kernel."""
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()


def wait_until_nothing_is_registered() -> None:
    """Wait for the kernel, which takes out in its own time what nobody holds any more, and for runs that do."""
    deadline = time.monotonic() + _PATIENCE_S
    while here := {"dcqcn", "line"} & set(registered()):
        assert time.monotonic() < deadline, f"still registered after {_PATIENCE_S:g} s: {here}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> Seen:
    """What congestion.two_flows() saw."""
    return Seen(lambda: shared_command.play("two_flows", script=SCRIPT))


@in_real_time
def test_two_flows_share_a_link_and_hold_its_queue_at_the_marks(seen: Seen) -> None:
    """Cubic without marks fills it. The middle sample is judged: on a busy machine single ones are anywhere."""
    found = {name: statistics.median(seen[name]["backlogs"]) for name in ("dcqcn", "cubic")}
    first, second = seen["dcqcn"]["got"]
    print(found, {name: seen[name]["got"] for name in found}, seen["counted"], seen["dcqcn"]["marks"])
    assert 1 / 5 < first / second < 5
    assert 8 * (first + second) / 8.0 > 0.2 * LINK_BPS
    assert found["dcqcn"] < 1.5 * MARKING.kmax
    assert found["cubic"] > 3 * MARKING.kmax
    assert seen["dcqcn"]["marks"] > 0
    assert seen["counted"]["cnps"] > 0


def test_both_ends_of_a_dcqcn_flow_agree_on_ecn_and_of_others_none(seen: Seen) -> None:
    assert seen["dcqcn"]["ecn"] == [True] * 4
    assert seen["cubic"]["ecn"] == [False] * 4
    assert (seen["counted"]["flows"], seen["counted"]["flows_without_ecn"]) == (4, 0)


def test_a_port_marks_by_what_waits_in_the_frames_lane(shared_command: Command) -> None:
    """A burst into a slow port: nothing is marked up to kmin, everything above kmax, some of what is between.

    In front of a frame wait at most as many as after the one before it, at least as many as after it, but for itself.
    """
    seen = shared_command.play("curve", script=SCRIPT)
    kmin, kmax = CURVE_FRAMES
    for name, lane in (("ect", "storage"), ("other lane", "hfreduce")):
        marks, after = np.array(seen[name]["marks"]), np.array(seen[name]["waiting"])
        most, least = np.array([0, *after[:-1]]), after - 1
        print(name, marks, after)
        assert seen[name]["lanes"] == [lane]
        assert not marks[most <= kmin].any()
        assert marks[least > kmax].all()
        assert np.any(least > kmax)
        between = marks[(kmin < least) & (most <= kmax)]
        assert 0 < between.sum() < len(between)
    assert sum(seen["not ect"]["marks"]) == 0


def test_a_run_has_them_and_leaves_nothing_registered(shared_command: Command) -> None:
    """In real time, for short: what they were told, what they counted, that both ends agreed on ECN."""
    short = [word for one in ("alone_time=1", "together_time=2", "heavy_load=0") for word in ("--set", one)]
    done = shared_command.run(*RUN, *short)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    manifest = json.loads((shared_command.here / "result" / "manifest.json").read_text())
    assert manifest["congestion_control"]["storage"] == "dcqcn"
    assert manifest["dcqcn"]["counted"]["flows"] > 0
    assert manifest["dcqcn"]["counted"]["flows_without_ecn"] == 0
    ports = load(shared_command.here / "result").table("ports")
    marked = {str(lane): int(ports[ports["lane"] == lane]["marked_packets"].sum()) for lane in set(ports["lane"])}
    assert marked.pop("storage") > 0
    assert set(marked.values()) == {0}, marked
    wait_until_nothing_is_registered()


def test_an_unmodified_program_chooses_dcqcn_and_has_ecn(command: Command) -> None:
    """iperf3 sets it on connections that are there already, for which hosts must have asked for ECN by themselves."""
    look = "iperf3 -c z0h003 -C dcqcn -t 5 > /dev/null & sleep 3; ss -tino '( dport = :5201 )'; wait"
    settings = ("--set", "queues.marking={kmin: 25 KB, kmax: 100 KB, pmax: 0.1}")
    words = ("--background", "z0h003=iperf3 -s", "z0h000", "--", "sh", "-c", look)
    done = command.run("exec", TINY, "--engine", "namespace", *settings, *words)
    assert done.returncode == 0, done.stderr
    assert " ecn dcqcn " in done.stdout, done.stdout
    assert "had not agreed on ECN" not in done.stdout + done.stderr


def test_a_run_that_is_killed_leaves_nothing_registered(command: Command) -> None:
    with nothing_left(command):
        process = command.start(*RUN)
        deadline = time.monotonic() + _PATIENCE_S
        while "dcqcn" not in registered():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "dcqcn was not registered"
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=_PATIENCE_S)
        while command.processes() or "dcqcn" in registered():
            assert time.monotonic() < deadline, (command.processes(), registered())
            time.sleep(0.1)


def test_a_second_run_shares_the_registration_and_has_its_own_parameters() -> None:
    """And the first one may end before it. What an earlier run has left of its maps for a moment is not theirs."""
    ended = register("line")
    kept_hosts = os.dup(ended.hosts)
    ended.close()
    here = cookie(Path("/proc/self/ns/net"))
    first, second = register("line"), register("line")
    try:
        first.admit(here, bytes([1]) + bytes(15))
        second.admit(here + 1, bytes([2]) + bytes(15))
        assert [second.entry(one, 16)[0] for one in (here, here + 1)] == [1, 2]
    finally:
        first.close()
    try:
        assert "line" in registered()
    finally:
        second.close()
        os.close(kept_hosts)
    wait_until_nothing_is_registered()
