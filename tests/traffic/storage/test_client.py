"""The gate of request-to-send, without sockets."""

from __future__ import annotations

import asyncio

from traffic.storage.client.library import SenderGate


def test_the_gate_lets_so_many_in_and_the_next_when_one_ends() -> None:
    async def scene() -> None:
        gate = SenderGate(2, asyncio.get_running_loop())
        reads = [("st000", number) for number in range(4)]
        for read in reads:
            gate.expect(read)
        asked = [gate.leave(read) for read in reads]
        assert [turn is None or turn.done() for turn in asked] == [True, True, False, False]
        gate.end(reads[1])
        assert [turn is None or turn.done() for turn in asked] == [True, True, True, False]
        assert gate.peak == 2
        for read in reads:
            gate.end(read)

    asyncio.run(scene())


def test_a_read_that_ended_while_waiting_takes_no_token() -> None:
    async def scene() -> None:
        gate = SenderGate(1, asyncio.get_running_loop())
        for number in (1, 2, 3):
            gate.expect(("st000", number))
        assert gate.leave(("st000", 1)) is None
        turn = gate.leave(("st000", 2))
        assert turn is not None and not turn.done()
        gate.end(("st000", 2))  # It timed out; its service sends without leave.
        assert turn.done()
        gate.end(("st000", 1))
        assert gate.leave(("st000", 3)) is None

    asyncio.run(scene())


def test_leave_for_a_read_nobody_waits_for_is_given_at_once_and_costs_nothing() -> None:
    async def scene() -> None:
        gate = SenderGate(1, asyncio.get_running_loop())
        assert gate.leave(("st000", 9)) is None
        assert gate.leave(("st000", 8)) is None
        assert gate.peak == 0

    asyncio.run(scene())


def test_an_open_gate_counts_but_does_not_hold() -> None:
    async def scene() -> None:
        gate = SenderGate(None, asyncio.get_running_loop())
        for number in range(9):
            gate.expect(("st000", number))
            assert gate.leave(("st000", number)) is None
        assert gate.peak == 9

    asyncio.run(scene())
