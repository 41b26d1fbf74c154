"""How long flows of given sizes may take: each from its own start on, whenever that is."""

from __future__ import annotations

import threading
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import AgentHandle
from traffic.flows.sized_flows import FlowArrived, FlowSent, SizedFlow, _Play

FLOWS = tuple(SizedFlow(NodeId.parse("z0h000"), NodeId.parse(f"z0h00{host}"), 20_000, None) for host in (1, 2))
PATIENCE_S = 0.5


def program(host: str) -> tuple[AgentHandle, Connection]:
    """A program as the run has it, and its own end of the pipe."""
    ours, its = Pipe()
    return AgentHandle("sink of flows", host, SimpleNamespace(exitcode=None), ours), its


def after(delay_s: float, pipe: Connection, number: int) -> None:
    def report() -> None:
        time.sleep(delay_s)
        pipe.send(FlowArrived(number, time.monotonic()))

    threading.Thread(target=report, daemon=True).start()


def test_a_flow_that_starts_late_has_as_long_as_one_that_starts_at_once() -> None:
    now = time.monotonic()
    play = _Play("p", PATIENCE_S, FLOWS, {0: now, 1: now + 4 * PATIENCE_S})
    handle, pipe = program("z0h001")
    pipe.send(FlowArrived(0, now))
    after(2 * PATIENCE_S, pipe, 1)  # Later than the first one may, and long before the second may not.
    play.watch(handle, [0, 1], play.keep)
    play.wait()
    assert sorted(play.arrived) == [0, 1]
    assert time.monotonic() - now >= 2 * PATIENCE_S


@pytest.mark.timeout(20)
def test_a_flow_that_does_not_end_is_named_though_others_wait_for_its_end() -> None:
    now = time.monotonic()
    play = _Play("p", PATIENCE_S, FLOWS, {0: now})
    (first, _first), (second, _second) = program("z0h001"), program("z0h002")
    play.watch(second, [1], play.keep)
    play.watch(first, [0], play.keep)
    words = r"sink of flows on z0h001: no end of flow 0 \(z0h000 to z0h001, 20000 bytes\) within 0.5 s of its start"
    for _ in range(2):  # Whoever asks again is told again.
        with pytest.raises(TrafficError, match=words):
            play.wait()
    assert now + PATIENCE_S <= time.monotonic()


def test_a_flow_that_another_starts_has_its_time_from_then_on() -> None:
    now = time.monotonic()
    play = _Play("p", PATIENCE_S, FLOWS, {0: now + 4 * PATIENCE_S})
    (first, its_first), (second, its_second) = program("z0h001"), program("z0h002")

    def told(report: FlowSent | FlowArrived) -> None:
        play.keep(report)
        if report.number == 0:
            play.starts[1] = time.monotonic()
            its_second.send(FlowArrived(1, play.starts[1]))

    play.watch(first, [0], told)
    play.watch(second, [1], told)
    after(2 * PATIENCE_S, its_first, 0)
    play.wait()
    assert sorted(play.arrived) == [0, 1]


@pytest.mark.timeout(20)
def test_a_triggered_flow_that_does_not_end_is_named() -> None:
    play = _Play("p", PATIENCE_S, FLOWS, {0: time.monotonic()})
    (first, its_first), (second, _second) = program("z0h001"), program("z0h002")

    def told(report: FlowSent | FlowArrived) -> None:
        play.keep(report)
        play.starts[1] = time.monotonic()

    play.watch(first, [0], told)
    play.watch(second, [1], told)
    its_first.send(FlowArrived(0, time.monotonic()))
    with pytest.raises(TrafficError, match="no end of flow 1 "):
        play.wait()


def test_a_start_that_is_years_away_is_waited_for() -> None:
    polled: list[float] = []
    play = _Play("p", PATIENCE_S, FLOWS, {0: time.monotonic() + 1e12})

    def poll(timeout_s: float) -> bool:
        polled.append(timeout_s)
        return len(polled) > 1

    handle = SimpleNamespace(pipe=SimpleNamespace(poll=poll), receive=lambda *_: FlowArrived(0, 1.0))
    play.watch(handle, [0], play.keep)  # type: ignore[arg-type]
    play.wait()
    assert max(polled) < 2**31 / 1000
