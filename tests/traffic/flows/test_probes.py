"""Probes: what a list of arrivals says, against its plain meaning, and real ones over loopback."""

from __future__ import annotations

import socket
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.errors import TrafficError
from fabric.tables import TABLES
from fabric.world.programs.agents import AgentPool
from tests.waiting import played_until, until
from topologies.load import load_fabric
from traffic.flows.arrival_clock import _TIMESPEC, ArrivalClock, stamped_packet
from traffic.flows.probes import (
    _PROBE,
    ProbeArrivals,
    ProbeConfig,
    ProbeFlow,
    ProbeHostArguments,
    ProbeJob,
    _probe_socket,
    _Sink,
    report_of,
)
from traffic.job import Stage

PERIOD_S = 0.001
FABRIC = load_fabric("fire_flyer_2_small")


def arrivals(numbers: list[int], at_s: list[float] | None = None) -> ProbeArrivals:
    times = [number * PERIOD_S for number in numbers] if at_s is None else at_s
    return ProbeArrivals(np.array(numbers, np.int64), np.array(times, np.float64))


def test_a_stretch_of_lost_probes_is_a_blackout() -> None:
    report = report_of(arrivals([0, 1, 5, 6, 7, 9]), 10, 0.0, 0.010)
    assert (report.sent, report.lost, report.reordered, report.duplicated) == (10, 4, 0, 0)
    assert [one.lost_packets for one in report.blackouts] == [3, 1]
    assert [one.began_s for one in report.blackouts] == pytest.approx([0.001, 0.007])
    assert [one.ended_s for one in report.blackouts] == pytest.approx([0.005, 0.009])
    assert max(blackout.seconds for blackout in report.blackouts) == pytest.approx(0.004)


def test_a_late_probe_is_no_blackout_but_a_gap() -> None:
    report = report_of(arrivals([0, 1, 2], [0.0, 0.5, 0.5]), 3, 0.0, 0.003)
    assert report.blackouts == ()
    assert report.longest_gap_s == pytest.approx(0.5)


def test_lost_at_the_ends_counts_from_begin_to_end() -> None:
    report = report_of(arrivals([2, 3]), 6, 0.0, 0.006)
    assert [one.lost_packets for one in report.blackouts] == [2, 2]
    assert [one.began_s for one in report.blackouts] == pytest.approx([0.0, 0.003])
    assert [one.ended_s for one in report.blackouts] == pytest.approx([0.002, 0.006])


def test_a_flow_of_which_nothing_came_is_dark_throughout() -> None:
    report = report_of(arrivals([]), 6, 1.0, 1.006)
    assert [(one.began_s, one.ended_s, one.lost_packets) for one in report.blackouts] == [(1.0, 1.006, 6)]
    assert report.lost == 6


def test_reordered_and_duplicated_probes_are_counted_once() -> None:
    report = report_of(arrivals([0, 2, 1, 3, 3], [0.0, 0.001, 0.002, 0.003, 0.004]), 4, 0.0, 0.004)
    assert (report.lost, report.reordered, report.duplicated, report.blackouts) == (0, 1, 1, ())


@given(st.sets(st.integers(0, 40)), st.randoms())
def test_blackouts_hold_exactly_the_lost_probes(numbers: set[int], random: object) -> None:
    order = sorted(numbers)
    random.shuffle(order)  # type: ignore[attr-defined]
    report = report_of(arrivals(order, sorted(number * PERIOD_S for number in order)), 41, 0.0, 0.041)
    assert report.lost == 41 - len(numbers) == sum(one.lost_packets for one in report.blackouts)
    assert all(one.ended_s >= one.began_s for one in report.blackouts)


def test_real_probes_over_loopback_and_a_stopped_sink(request: pytest.FixtureRequest) -> None:
    pool = AgentPool()
    request.addfinalizer(pool.stop)
    a, b = FABRIC.computes[:2]
    stage = Stage(FABRIC, pool, lambda node: None, seed=1)
    job = ProbeJob(stage, ProbeConfig(period=0.005), [ProbeFlow(a, b)], address_of={a: "127.0.0.1", b: "127.0.0.1"})
    job.start()
    began_s = time.monotonic()
    records = played_until(
        job, "phase", lambda _: all(one.sent > 20 for one in job.reports.values()), "21 probes", window_s=0.5
    )
    (report,) = job.reports.values()
    print(report)
    assert 20 < report.sent < (time.monotonic() - began_s) / 0.005 + 2
    assert (report.lost, report.duplicated, report.blackouts, records.rows("blackouts")) == (0, 0, (), [])
    assert records.rows("probes")[0]["flow"] == "z0h000>z0h001"
    assert 0.004 < report.longest_gap_s < time.monotonic() - began_s
    assert set(records.rows("probes")[0]) == set(TABLES["probes"].columns)


def test_a_clock_that_is_set_while_probes_come_makes_no_blackout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink's stamps are the kernel's; what its program takes for the real time jumps by an hour, and so do they."""
    sock = _probe_socket(ProbeHostArguments("127.0.0.1", {}, 0, 0.001))
    steps_ns = [0]
    monkeypatch.setattr("traffic.flows.probes.ArrivalClock", lambda: ArrivalClock(lambda: time.time_ns() + steps_ns[0]))
    with sock:
        sink = _Sink(_SteppedStamps(sock, steps_ns))  # type: ignore[arg-type]
        sink.begin()
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for number in range(40):
            if number == 20:
                until(lambda: heard_by(sink) == 20, "the probes before the step to be heard")
                steps_ns[0] = 3600 * 10**9
            sender.sendto(_PROBE.pack(0, number, 0) + bytes(48), sock.getsockname())
            time.sleep(0.002)
        sender.close()
        until(lambda: heard_by(sink) == 40, "all probes to be heard")
        heard = sink.end()
    assert list(heard.clock_steps_s) == [pytest.approx(3600, abs=1)]
    gaps = np.diff(heard.arrivals[0].at_s)
    assert len(gaps) == 39
    assert np.all(np.abs(gaps) < 60), f"a gap of an hour: {gaps}"


def heard_by(sink: _Sink) -> int:
    return sum(len(numbers) for numbers, _ in sink._found.values())


def test_probes_that_have_come_by_the_end_count_though_their_sink_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    with _probe_socket(ProbeHostArguments("127.0.0.1", {}, 0, 0.001)) as sock:
        sink = _Sink(sock)

        def late(*words: Any) -> tuple[bytes, int]:
            until(sink._halting.is_set, "the end")
            return stamped_packet(*words)

        monkeypatch.setattr("traffic.flows.probes.stamped_packet", late)
        sink.begin()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(5):
                sender.sendto(_PROBE.pack(0, number, 0) + bytes(48), sock.getsockname())
        assert sink.end().arrivals[0].numbers.tolist() == list(range(5))


class _SteppedStamps:
    """A probe socket whose stamps follow a clock that is set."""

    def __init__(self, sock: socket.socket, steps_ns: list[int]) -> None:
        self._sock, self._steps_ns = sock, steps_ns

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)

    def recvmsg(self, *sizes: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        step_s = self._steps_ns[0] // 10**9
        data, ((level, kind, stamp),), flags, address = self._sock.recvmsg(*sizes)
        seconds, nanoseconds = _TIMESPEC.unpack(stamp)
        return data, [(level, kind, _TIMESPEC.pack(seconds + step_s, nanoseconds))], flags, address


def test_a_host_with_two_nics_takes_part_in_one_zone() -> None:
    stage = Stage(FABRIC, AgentPool(), lambda node: None, seed=1)
    storage, near, far = FABRIC.storages[0], FABRIC.with_role(FABRIC.computes[0].role, 0)[0], FABRIC.computes[-1]
    with pytest.raises(TrafficError, match="st000 would speak by two NICs"):
        ProbeJob(stage, ProbeConfig(), [ProbeFlow(near, storage), ProbeFlow(far, storage)])
