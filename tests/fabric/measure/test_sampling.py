"""Samples: a timetable that skips what it cannot catch up with, and the process that takes them."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fabric.errors import DeadlockError, TrafficError
from fabric.measure import sampling
from fabric.measure.frames import machine_frame
from fabric.measure.sampling import BeginAt, Deadlock, EndSeries, Sampler, SamplerSetup
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.queueing.counters import COUNTERS
from fabric.queueing.htb import ShapedPort, install_requests, replace_requests
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink
from fabric.world.programs.agents import AgentPool
from fabric.world.virtual.joining import Together

LANES = plan_lanes(QueueConfig(), Queueing.LANES)
PORT = ShapedPort("left", 11, 20_000_000, 1500)
PERIOD_S = 0.02


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        (99.0, 0.0),  # It is not due yet.
        (100.0, 0.0),
        (100.049, 0.0),  # Late, but the next one can be in time.
        (100.051, 0.05),
        (100.149, 0.10),
        (103.001, 3.0),
    ],
)
def test_a_timetable_skips_whole_periods_that_it_missed(
    monkeypatch: pytest.MonkeyPatch, now: float, moved: float
) -> None:
    monkeypatch.setattr(sampling, "time", SimpleNamespace(monotonic=lambda: now))
    assert sampling._skipped(100.0, 0.05) == pytest.approx(moved)


def test_waiting_for_words_does_not_make_a_sample_late() -> None:
    """A pipe is polled in whole milliseconds, rounded up."""
    polled: list[float] = []
    agent = SimpleNamespace(pipe=SimpleNamespace(poll=lambda timeout_s: polled.append(timeout_s)))
    due = time.monotonic() + 0.0029
    assert not sampling._told_by(due, cast("Any", agent))
    assert time.monotonic() >= due
    assert [math.ceil(timeout_s * 1e3) <= 2 for timeout_s in polled] == [True]


def series(number: int, samples: int, **machine: float) -> sampling.Series:
    """The samples of a guest with one queue."""
    rows = np.zeros(samples, sampling.MACHINE)
    for name, value in machine.items():
        rows[name] = value
    return sampling.Series([(number, 11, 0)], np.zeros((samples, 1), COUNTERS), rows, read_at=np.zeros((samples, 2)))


def test_of_several_guests_the_worst_counts_and_the_sum_of_what_they_count() -> None:
    parts = [
        series(0, 3, softnet_drops=10, softnet_squeezed=1, lateness=2e-6, softnet_backlog=4),
        series(1, 3, softnet_drops=5, softnet_squeezed=7, lateness=5e-6, softnet_backlog=-1),
    ]
    (row, *_) = sampling.joined(parts).machine
    assert (row["softnet_drops"], row["softnet_squeezed"]) == (15, 8)
    assert (row["lateness"], row["softnet_backlog"]) == (5e-6, 4)


@pytest.mark.parametrize(("lookahead_ns", "least_s"), [(1000, 1e-4), (5_000_000, 0.01), (20_000_000, 0.04)])
def test_samplers_end_when_the_furthest_can_have_heard_of_it(
    monkeypatch: pytest.MonkeyPatch, lookahead_ns: int, least_s: float
) -> None:
    """An order takes a delay of the links between guests."""
    monkeypatch.setattr(Together, "read", classmethod(lambda cls, _: Together(0, 2, lookahead_ns)))
    told: list[Any] = []
    agents = [SimpleNamespace(send=told.append, receive=lambda *_: series(0, 2)) for _ in range(2)]
    several = Sampler.__new__(Sampler)
    several._agents = cast("Any", agents)
    now = time.monotonic()
    several.begin({})
    several.end()
    begins, ends = ([order.at_s for order in told if isinstance(order, kind)] for kind in (BeginAt, EndSeries))
    for moments in (begins, ends):
        assert len(moments) == 2
        assert moments[0] == moments[1]
        assert now + least_s <= moments[0] <= time.monotonic() + least_s


def sampler_of(*said: object) -> Sampler:
    """Return the handle of a sampling process that says something, and takes any order."""
    messages = iter(said)
    agent = SimpleNamespace(send=lambda _: None, receive=lambda *_: next(messages))
    found = Sampler.__new__(Sampler)
    found._agents = cast("Any", [agent])
    return found


def test_a_deadlock_that_is_reported_while_the_series_ends_is_not_forgotten() -> None:
    one = sampler_of("begun", Deadlock("z0l00:1 waits for itself"), Deadlock("again"), series(0, 2))
    one.begin({})
    with pytest.raises(DeadlockError, match="z0l00:1 waits for itself"):
        one.end()
    one.abandon()  # It has ended: the process is asked for nothing more.


def test_a_series_that_is_abandoned_is_ended_once_whatever_its_deadlocks() -> None:
    one = sampler_of("begun", Deadlock("z0l00:1 waits for itself"), series(0, 2), "begun", series(0, 2))
    one.begin({})
    one.abandon()
    one.abandon()
    one.begin({})
    assert len(one.end().machine) == 2


# The sampling process ------------------------------------------------------------------------------------------------


@pytest.fixture
def sampler(private_network: None) -> Iterator[Sampler]:
    """A sampler every 20 ms of a private network with one interface in lanes."""
    end, other = LinkEnd("left", 11, "02:00:0a:00:00:01"), LinkEnd("right", 12, "02:00:0a:00:00:02")
    with Netlink() as link:
        link.send([netlink.veth_pair(end, other, 1500), *install_requests(PORT, LANES)])
    here = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/ns/net")
    pool = AgentPool(preload=("fabric.measure.sampling",))
    setup = SamplerSetup(namespaces=(here,), switch_pid=os.getpid(), has_input_queues=False, period_s=PERIOD_S)
    yield Sampler(pool, setup)
    pool.stop()


@pytest.mark.root
def test_a_series_has_a_sample_a_period_from_begin_to_end(sampler: Sampler) -> None:
    window_s, long_ones = 0.3, 0
    while long_ones < 2:  # A sampler that has to wait for a core skips what it missed.
        started = time.monotonic()
        sampler.begin({})
        time.sleep(window_s)
        taken = sampler.end()
        ended = time.monotonic()
        at = taken.machine["at"]
        assert started <= at[0] <= at[-1] <= ended
        assert at[-1] - at[0] >= window_s
        long_ones += len(at) >= 5
        assert long_ones or window_s < 20, f"{len(at)} samples in {window_s} s"
        window_s *= 1 if long_ones else 2
        assert len(at) <= (ended - started) / PERIOD_S + 2
        assert np.all(np.diff(at) > 0)
        assert np.all(taken.machine["lateness"] >= 0)
        assert sorted(taken.keys) == [(0, 11, lane.number) for lane in LANES.lanes]
        assert taken.counters.shape == (len(at), len(LANES.lanes))
        assert taken.read_at.shape == (len(at), 2)
        assert np.all(np.diff(taken.read_at.reshape(-1)) > 0)
        assert taken.cores.shape == (len(taken.cores_at), len(taken.core_numbers))
        assert (taken.cores_at[0], taken.cores_at[-1]) == (at[0], at[-1])


@pytest.mark.root
def test_a_series_that_ends_as_it_begins_has_a_sample_of_each(sampler: Sampler) -> None:
    for _ in range(3):
        sampler.begin({})
        begun = time.monotonic()
        taken = sampler.end()
        # A busy machine may let a period pass in between; never is there less than one sample of each.
        assert len(taken.machine) >= 2
        assert taken.machine["at"][0] <= begun <= taken.machine["at"][-1]
        assert len(machine_frame(taken, origin=0.0)) == len(taken.machine) - 1


@pytest.mark.root
def test_queues_that_change_within_a_series_are_told(sampler: Sampler) -> None:
    sampler.begin({})
    with Netlink() as link:
        time.sleep(0.1)
        link.send(replace_requests(PORT, plan_lanes(QueueConfig(), Queueing.SHARED)))
    time.sleep(0.1)
    with pytest.raises(TrafficError) as told:
        sampler.end()
    words = "queues changed during a series of samples; end the series before set_lanes()"
    assert str(told.value).rstrip().splitlines()[-1] == f"fabric.errors.EmulationError: {words}"
