from __future__ import annotations

import asyncio
import math
import time

from traffic.storage.wire.permits import Permits

from .true_timers import run


async def hold(permits: Permits, order: list[str], name: str, until_s: float = math.inf) -> None:
    async with permits.held(until_s) as granted:
        order.append(name if granted else f"no {name}")
        await asyncio.sleep(0)


def test_permits_are_given_in_turn_and_all_come_back() -> None:
    async def scene() -> None:
        permits, order = Permits(2), list[str]()
        await asyncio.gather(*(hold(permits, order, name) for name in "abcde"))
        assert order == list("abcde")
        assert permits.free == 2

    run(scene())


def test_who_waits_too_long_gets_none_and_takes_none() -> None:
    async def scene() -> None:
        permits, order = Permits(1), list[str]()
        async with permits.held(math.inf) as granted:
            assert granted
            await hold(permits, order, "late", time.monotonic() + 0.02)
        assert order == ["no late"]
        await hold(permits, order, "next")
        assert (order[-1], permits.free) == ("next", 1)

    run(scene())


def test_one_that_is_cancelled_while_it_waits_or_is_given_a_permit_loses_none() -> None:
    async def scene() -> None:
        for moment in range(3):
            permits, order = Permits(1), list[str]()
            async with permits.held(math.inf):
                waiting = asyncio.ensure_future(hold(permits, order, "waiting"))
                await asyncio.sleep(0)
                if moment == 0:
                    waiting.cancel()
            if moment == 1:
                waiting.cancel()  # The permit is on its way.
            await asyncio.wait({waiting})
            assert permits.free == 1
            assert order == (["waiting"] if moment == 2 else [])

    run(scene())


def test_a_transfer_that_stands_still_gives_its_permit_back_once() -> None:
    async def scene() -> None:
        permits, order = Permits(1, stall_s=0.03), list[str]()
        moved = [0]

        def progress() -> int:
            return moved[0]

        async with permits.held(math.inf, progress):
            await hold(permits, order, "next", time.monotonic() + 5)
            assert order == ["next"]
        assert permits.free == 1
        async with permits.held(math.inf, progress):
            assert permits.free == 1, "it has not moved since, and counts no more"
        moved[0] = 1
        async with permits.held(math.inf, progress):
            assert permits.free == 0, "it has moved"
        assert permits.free == 1

    run(scene())


def test_a_transfer_that_moves_slowly_keeps_its_permit() -> None:
    async def scene() -> None:
        permits, order = Permits(1, stall_s=0.2), list[str]()
        moved = [0]

        async def move() -> None:
            while True:
                moved[0] += 1
                await asyncio.sleep(0.01)

        moving = asyncio.ensure_future(move())
        async with permits.held(math.inf, lambda: moved[0]):
            await hold(permits, order, "next", time.monotonic() + 0.7)
        assert order == ["no next"]
        moving.cancel()

    run(scene())
