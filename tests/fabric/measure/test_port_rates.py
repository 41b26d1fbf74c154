"""Rates under load: full ports are found among samples, slow ones are named, and a healthy run passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from fabric.measure.port_rates import FullQueue, full_queues
from fabric.measure.sampling import MACHINE, STALLS, Series
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import LanePlan, QueueConfig, Queueing, plan_lanes
from fabric.model.network import FabricBuilder, Port, Tier
from fabric.queueing.counters import COUNTERS

Rows = npt.NDArray[np.float64]
RATE_BPS = 20_000_000
FRAME = 4214
PERIOD_S = 0.05
LEAF = NodeId.parse("z0l00")
SHARED = plan_lanes(QueueConfig(), Queueing.SHARED)
LANES = plan_lanes(QueueConfig(), Queueing.LANES)


def pair() -> FabricBuilder:
    builder = FabricBuilder("pair", 1, FRAME - 14, access_ports=2, switch_ports=2, reference_nic_rate_bps=10**7)
    builder.add_node(LEAF)
    for index in range(2):
        host = builder.add_node(NodeId(Role.COMPUTE, 0, index))
        builder.connect(host, LEAF, RATE_BPS, Tier.ACCESS, address=f"10.0.0.{index + 1}")
    return builder


FABRIC = pair().build()
PORT = FABRIC.ports_of[LEAF][0]


def link(
    load: Callable[[int, float], float],
    seconds: float,
    speed: float = 1.0,
    lanes: int = 1,
    weights: list[float] | None = None,
) -> tuple[Rows, Rows]:
    """Play a port: ``load(lane, at_s)`` is what arrives as a fraction of the link, ``speed`` what part of its rate the
    port really sends, shared by ``weights`` among the lanes that have something. Return what each lane has sent and
    what waits in it at every sample."""
    step_s = 0.0025
    weights = weights or [1.0] * lanes
    sent, waiting = np.zeros(lanes), np.zeros(lanes)
    rows = []
    for step in range(round(seconds / step_s) + 1):
        if step % round(PERIOD_S / step_s) == 0:
            rows.append((sent.copy(), waiting.copy()))
        for lane in range(lanes):
            arriving = load(lane, step * step_s) * RATE_BPS / 8 * step_s
            waiting[lane] = min(waiting[lane] + arriving, 256 * 1024)
        left = RATE_BPS / 8 * step_s * speed
        while left > 1e-6 and waiting.sum() > 1e-6:
            busy = [lane for lane in range(lanes) if waiting[lane] > 1e-9]
            total = sum(weights[lane] for lane in busy)
            given = [min(waiting[lane], left * weights[lane] / total) for lane in busy]
            for lane, amount in zip(busy, given, strict=True):
                waiting[lane] -= amount
                sent[lane] += amount
            left -= sum(given)
    return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def series(sent: Rows, waiting: Rows, plan: LanePlan, read_s: float = 0.0005) -> Series:
    """Return samples of the leaf's first port: reading takes ``read_s``."""
    samples = len(sent)
    counters = np.zeros((samples, sent.shape[1]), COUNTERS)
    counters["sent_bytes"], counters["backlog_bytes"] = sent, waiting
    at = 100 + np.arange(samples) * PERIOD_S
    read_at = np.stack([at, at + read_s], axis=1)
    keys = [(0, 1000, lane.number) for lane in plan.lanes[: sent.shape[1]]]
    return Series(keys, counters, np.zeros(samples, MACHINE), read_at=read_at)


def found(taken: Series, plan: LanePlan = SHARED, spared: frozenset[Port] = frozenset()) -> list[FullQueue]:
    return full_queues(taken, {(0, 1000): PORT}, plan, FABRIC, spared)


def overloaded(speed: float, load: float = 1.5) -> Series:
    return series(*link(lambda _, at_s: load, 5.0, speed), SHARED)


def test_a_full_port_that_sends_at_its_rate_is_in_order() -> None:
    (seen,) = found(overloaded(speed=1.0))
    assert (seen.port, seen.lane) == (str(PORT), "")
    assert seen.seconds > 4
    assert seen.error < 0.001


@pytest.mark.parametrize("speed", [0.95, 0.9, 0.5])
def test_a_full_port_that_is_slower_than_its_link_is_found(speed: float) -> None:
    (seen,) = found(overloaded(speed))
    assert seen.rate == pytest.approx(speed, abs=0.005)
    assert seen.error == pytest.approx(1 - speed, abs=0.005)


def test_a_slow_port_is_found_though_its_link_would_not_be_full() -> None:
    """Only what is sent and what waits counts, not what the rate ought to be."""
    (seen,) = found(overloaded(speed=0.6, load=0.9))
    assert seen.rate == pytest.approx(0.6, abs=0.005)


def test_a_port_that_is_far_too_slow_is_found_however_seldom_it_is_looked_at() -> None:
    """Four times a second a full lane holds less than half of what its link could send: only that it sent less than
    waited proves it full."""
    sent, waiting = link(lambda _, at_s: 1.5, 5.0, speed=0.3)
    taken = series(sent, waiting, SHARED)
    seldom = np.arange(0, len(sent), 5)
    (seen,) = found(replace(taken, counters=taken.counters[seldom], read_at=taken.read_at[seldom]))
    assert seen.rate == pytest.approx(0.3, abs=0.01)


def test_a_port_that_is_faster_than_its_link_is_found() -> None:
    (seen,) = found(overloaded(speed=1.1, load=2.5))
    assert seen.error == pytest.approx(0.1, abs=0.005)


def test_a_port_that_stands_still_for_a_moment_while_full_is_found() -> None:
    (seen,) = found(series(*pausing(*link(lambda _, at_s: 1.5, 5.0), periods=10), SHARED))
    assert seen.error == pytest.approx(10 * PERIOD_S / seen.seconds, abs=0.01)


def pausing(sent: Rows, waiting: Rows, periods: int) -> tuple[Rows, Rows]:
    """Let a port stand still for some periods from sample 60 on."""

    def held(rows: Rows) -> Rows:
        return np.concatenate([rows[:60], np.repeat(rows[60:61], periods, 0), rows[60:]])

    return held(sent), held(waiting)


@pytest.mark.parametrize("load", [0.3, 0.8, 0.99])
def test_a_port_that_was_empty_now_and_then_says_nothing(load: float) -> None:
    """Bursts leave something at the ends of many intervals, and the rate in between is below the link's, rightly."""
    bursty = link(lambda _, at_s: 2 * load if at_s % 0.02 < 0.01 else 0.0, 5.0)
    assert found(series(*bursty, SHARED)) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_port_that_random_bursts_fill_nearly_is_not_called_slow(seed: int) -> None:
    """Bursts of 10 to 40 frames come at random times from four links at once, 93 % of what the link could carry."""
    random = np.random.default_rng(seed)
    ends, until = 0.0, []
    while ends < 12:
        length = random.uniform(10, 40) * FRAME * 8 / RATE_BPS / 4
        ends += random.exponential(length * (4 / 0.93 - 1))
        until.append((ends, ends + length))
        ends += length
    starts, stops = map(np.array, zip(*until, strict=True))

    def load(_: int, at_s: float) -> float:
        place = int(np.searchsorted(starts, at_s, side="right")) - 1
        return 4.0 if place >= 0 and at_s < stops[place] else 0.0

    assert all(one.error < 0.02 for one in found(series(*link(load, 10.0), SHARED)))


def test_a_port_with_less_waiting_than_it_sends_in_a_period_is_judged_too() -> None:
    """As three windows of TCP leave it: 100 KB wait all the time, and 125 KB are sent from sample to sample."""
    for speed in (1.0, 0.9):
        periods = np.arange(100)[:, None]
        sent, waiting = periods * RATE_BPS / 8 * PERIOD_S * speed, np.full((100, 1), 1e5)
        (seen,) = found(series(sent, waiting, SHARED))
        assert seen.rate == pytest.approx(speed, abs=0.005)


def test_too_short_a_time_says_nothing() -> None:
    short = link(lambda _, at_s: 3.0 if at_s < 0.5 else 0.0, 5.0, speed=0.5)
    assert found(series(*short, SHARED)) == []


def test_samples_read_at_uncertain_times_say_nothing() -> None:
    sent, waiting = link(lambda _, at_s: 1.5, 5.0, speed=0.5)
    assert found(series(sent, waiting, SHARED, read_s=0.04)) == []


def test_late_samples_do_not_make_a_port_slow() -> None:
    """The time at which a sample was read counts, not the time at which it was due."""
    sent, waiting = link(lambda _, at_s: 1.5, 5.0)
    taken = series(sent, waiting, SHARED)
    every_other = np.arange(0, len(sent), 2)
    fewer = replace(taken, counters=taken.counters[every_other], read_at=taken.read_at[every_other])
    (seen,) = found(fewer)
    assert seen.error < 0.001


def test_ports_whose_links_failures_changed_are_spared() -> None:
    assert found(overloaded(speed=0.5), spared=frozenset([PORT])) == []


def test_interfaces_that_are_no_ports_are_left_out() -> None:
    assert full_queues(overloaded(0.5), {}, SHARED, FABRIC, frozenset()) == []


def lanes_served(weights: list[float]) -> list[FullQueue]:
    return found(series(*link(lambda _, at_s: 0.5, 7.0, 1.0, len(weights), weights), LANES), LANES)


def test_full_lanes_that_get_their_shares_are_in_order() -> None:
    seen = lanes_served([lane.share for lane in LANES.lanes])
    assert {one.lane for one in seen} >= {"", "hfreduce", "storage"}
    assert max(one.error for one in seen) < 0.002


def test_a_full_lane_that_gets_less_than_its_share_is_found_though_the_port_is_in_order() -> None:
    shares = [lane.share for lane in LANES.lanes]
    starved = [shares[0] / 4, *shares[1:]]
    seen = {one.lane: one for one in lanes_served(starved)}
    assert seen[""].error < 0.002
    assert seen[LANES.lanes[0].name].error == pytest.approx(shares[0] - starved[0] / sum(starved), abs=0.005), (
        "as a fraction of the link"
    )


def test_a_lane_that_borrows_is_in_order() -> None:
    seen = found(series(*link(lambda lane, at_s: 1.5 if lane == 1 else 0.0, 5.0, lanes=5), LANES), LANES)
    lane = next(one for one in seen if one.lane)
    assert lane.rate > 2
    assert lane.error == 0


def test_time_in_which_a_lossless_port_may_not_send_does_not_count() -> None:
    plan = plan_lanes(QueueConfig(), Queueing.LOSSLESS)
    sent, waiting = pausing(*link(lambda _, at_s: 1.5, 5.0), periods=20)
    management = np.zeros_like(sent)
    taken = series(np.append(sent, management, axis=1), np.append(waiting, management, axis=1), plan)
    stalls = np.zeros(taken.counters.shape, STALLS)
    stalls["stalled_ns"][61:81, 0] = np.arange(1, 21) * int(PERIOD_S * 1e9)
    stalls["stalled_ns"][81:, 0] = stalls["stalled_ns"][80, 0]
    lossless = Series(taken.keys, taken.counters, taken.machine, stalls, read_at=taken.read_at)
    (seen,) = found(lossless, plan)
    assert seen.error < 0.001
    without = Series(taken.keys, taken.counters, taken.machine, np.zeros_like(stalls), read_at=taken.read_at)
    assert found(without, plan)[0].error > 0.1
