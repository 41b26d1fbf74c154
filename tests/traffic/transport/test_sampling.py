"""Series of what connections say of themselves."""

from __future__ import annotations

import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest

from tests.traffic.transport.test_tcp import connection, send
from tests.waiting import until
from traffic.transport.sampling import FlowSampler
from traffic.transport.tcp import TcpConnection


def test_a_series_has_a_sample_of_each_connection_at_its_start_and_end() -> None:
    sampler = FlowSampler(period_s=60)
    with connection() as (near, far), connection() as (other, _):
        sampler.track(TcpConnection(near), "z0h001")
        sampler.track(TcpConnection(other), "z0h002")
        sampler.start()
        send(near, far, 10_000)
        samples = sampler.stop()
    assert [sample.peer for sample in samples] == ["z0h001", "z0h002"] * 2
    first, last = (sample for sample in samples if sample.peer == "z0h001")
    assert last.said.delivered_bytes - first.said.delivered_bytes == 10_000
    assert last.at > first.at


def test_the_first_sample_is_there_before_anything_can_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the sampler's thread waits for its turn."""
    monkeypatch.setattr(threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None, join=lambda _: None))
    sampler = FlowSampler(period_s=60)
    with connection() as (near, _):
        sampler.track(TcpConnection(near), "peer")
        sampler.start()
        assert len(sampler._samples) == 1
        assert len(sampler.stop()) == 2


def test_samples_come_a_period_apart() -> None:
    sampler = FlowSampler(period_s=0.05)
    with connection() as (near, _):
        sampler.track(TcpConnection(near), "peer")
        sampler.start()
        until(lambda: len(sampler._samples) > 5, "six samples")
        samples = sampler.stop()
    gaps = [later.at - earlier.at for earlier, later in pairwise(samples[:-1])]
    assert all(gap >= 0.045 for gap in gaps)


def test_a_series_begins_afresh() -> None:
    sampler = FlowSampler(period_s=60)
    with connection() as (near, _):
        sampler.track(TcpConnection(near), "peer")
        for _ in range(2):
            sampler.start()
            samples = sampler.stop()
    assert len(samples) == 2


def test_a_connection_that_is_closed_is_sampled_no_more() -> None:
    sampler = FlowSampler(period_s=60)
    with connection() as (near, _), connection() as (other, _):
        sampler.track(TcpConnection(near), "closed")
        sampler.track(TcpConnection(other), "open")
        near.close()
        sampler.start()
        samples = sampler.stop()
    assert {sample.peer for sample in samples} == {"open"}


def test_a_series_that_never_began_has_a_last_sample_only() -> None:
    sampler = FlowSampler()
    with connection() as (near, _):
        sampler.track(TcpConnection(near), "peer")
        assert [sample.peer for sample in sampler.stop()] == ["peer"]


def test_who_is_released_has_a_last_sample_and_no_more() -> None:
    sampler = FlowSampler(period_s=60)
    with connection() as (near, far), connection() as (other, _):
        short, long = TcpConnection(near), TcpConnection(other)
        sampler.track(short, "short")
        sampler.track(long, "long")
        sampler.start()
        send(near, far, 10_000)
        sampler.release(short, "short")
        samples = sampler.stop()
    assert [sample.peer for sample in samples] == ["short", "long", "short", "long"]
    assert samples[2].said.delivered_bytes >= 10_000
