"""How often storage's programs ask for events, and that none waits for long while tasks are ready."""

from __future__ import annotations

import asyncio
import ctypes
import select
import selectors
import socket
import threading

import pytest

from tests.waiting import until
from traffic.storage.wire import event_loop
from traffic.storage.wire.event_loop import MOST_ROUNDS


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The patience of each look at events, in order."""
    made: list[float | None] = []
    look = selectors.DefaultSelector.select

    def looked(self: selectors.DefaultSelector, timeout: float | None = None) -> object:
        made.append(timeout)
        return look(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", looked)
    return made


def test_a_message_takes_one_look_at_events(looks: list[float | None]) -> None:
    async def exchange() -> None:
        here, there = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=here)
        answering, answer = await asyncio.open_connection(sock=there)
        looks.clear()
        for _ in range(50):
            writer.write(b"a")
            await answering.readexactly(1)
            answer.write(b"b")
            await reader.readexactly(1)
        assert 100 <= len(looks) <= 110
        for end in (writer, answer):
            end.close()

    event_loop.run(exchange())


def test_tasks_that_never_wait_keep_events_waiting_for_some_rounds_only(looks: list[float | None]) -> None:
    async def spin() -> None:
        here, there = socket.socketpair()
        reader, _ = await asyncio.open_connection(sock=here)
        arrived = asyncio.ensure_future(reader.readexactly(1))
        await asyncio.sleep(0)
        there.send(b"a")
        rounds = 0
        while not arrived.done():
            await asyncio.sleep(0)
            rounds += 1
        assert rounds <= MOST_ROUNDS + 5
        there.close()

    event_loop.run(spin())
    assert 0 in looks


def test_near_timers_are_waited_for_in_microseconds_and_far_ones_in_milliseconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """epoll counts milliseconds, and would make one of each pause that is shorter."""
    exact: list[float] = []
    waited = select.select

    def noted(reads: list[int], writes: list[int], others: list[int], timeout: float) -> object:
        exact.append(timeout)
        return waited(reads, writes, others, timeout)

    monkeypatch.setattr(select, "select", noted)

    def is_waited_for() -> bool:
        event_loop.run(asyncio.sleep(0.0003))
        return bool(exact)

    until(is_waited_for, "a timer that is still to come when it is looked at")
    assert all(0 < one <= 0.0003 for one in exact)
    exact.clear()
    event_loop.run(asyncio.sleep(1.5 * event_loop.NEAR_S))
    assert all(0 < one < event_loop.NEAR_S for one in exact), "only what is left once it is near"


def test_an_event_ends_the_wait_for_a_near_timer() -> None:
    woken: list[bool] = []

    async def scene() -> None:
        rung: list[None] = []
        here, there = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=here)
        asyncio.get_running_loop().call_later(0.09, rung.append, None)
        there.send(b"a")
        assert await reader.readexactly(1) == b"a"
        writer.close()
        there.close()
        woken.append(not rung)

    def is_woken() -> bool:
        event_loop.run(scene())
        return woken[-1]

    until(is_woken, "an event before a timer of 90 ms; a busy machine may hold some up")


def test_timers_of_a_program_s_thread_are_exact() -> None:
    """The kernel's default is 50 us, in a thread of its own since the test's keeps its own."""
    slacks: list[int] = []

    async def ask() -> None:
        slacks.append(ctypes.CDLL(None).prctl(30))  # PR_GET_TIMERSLACK

    thread = threading.Thread(target=lambda: event_loop.run(ask()))
    thread.start()
    thread.join(10)
    assert slacks == [1]
