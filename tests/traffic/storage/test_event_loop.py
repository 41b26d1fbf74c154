"""How often storage's programs ask for events, and that none waits for long while tasks are ready."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time

import pytest

from traffic.storage import event_loop
from traffic.storage.event_loop import MOST_ROUNDS


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


def test_a_short_wait_is_not_rounded_up_to_a_millisecond() -> None:
    """It takes what it is to, and what the machine adds; 200 of them would take 200 ms if each were rounded up."""

    async def wait() -> float:
        began = time.monotonic()
        for _ in range(200):
            await asyncio.sleep(0.0001)
        return time.monotonic() - began

    took: list[float] = []

    async def measured() -> None:
        took.append(min([await wait() for _ in range(3)]))

    event_loop.run(measured())
    print(f"200 waits of 100 us took {took[0]:.3f} s")
    assert 0.02 <= took[0] < 0.15


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
