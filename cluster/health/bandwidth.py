"""The test of a pair: a node sends to another one from one of its NICs, and that one says how fast it came.

The receiver counts from the first quarter on, when TCP's window has grown, to the last byte, and answers with the time
between them: so neither connecting nor the sender's buffers count.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from fabric.errors import TrafficError
from traffic.storage.wire.event_loop import dialled, until, unwatch, watch
from traffic.transport.connection import Connection, ConnectionEndedError, Listener, Transport, UnreachableError, after

PORT = 2221
"""Where each NIC of a node is listened on: beside the ranks' own ports (2222 and up)."""
_HEAD, _TAIL = struct.Struct("!Q"), struct.Struct("!Qd")
_PIECE_BYTES = 1 << 16
_COUNTS_FROM = 4
"""The first quarter does not count."""


class MeterError(TrafficError):
    """A test that came to nothing, and why."""


class BandwidthMeter:
    """Sends to other nodes, and receives what they send. ``addresses``: this node's, by the number of the NIC."""

    def __init__(self, transport: Transport, addresses: tuple[str, ...]) -> None:
        self._transport, self._addresses = transport, addresses
        self._listeners: list[Listener] = []
        self._receiving: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        """Take tests of others from now on. Raises TrafficError if an address is taken."""
        loop = asyncio.get_running_loop()
        for address in self._addresses:
            listener = self._transport.listen(address, PORT)
            self._listeners.append(listener)
            watch(loop, listener.poll_for_callers, self._accepting(listener))

    def _accepting(self, listener: Listener) -> Callable[[], None]:
        def come() -> None:
            while (connection := listener.accept_at_once()) is not None:
                task = asyncio.get_running_loop().create_task(self._receive(connection))
                self._receiving.add(task)
                task.add_done_callback(self._receiving.discard)

        return come

    def close(self) -> None:
        """Take no more, and end what goes on."""
        for listener in self._listeners:
            unwatch(asyncio.get_running_loop(), listener.poll_for_callers)
            listener.close()
        for task in self._receiving:
            task.cancel()
        self._listeners.clear()

    async def _receive(self, connection: Connection) -> None:
        # Whoever sends has its own time limit; one that is cut off ends by the transport's.
        try:
            with suppress(ConnectionEndedError):
                (size,) = _HEAD.unpack(await _receive_exactly(connection, _HEAD.size))
                counted, seconds = await _receive_timed(connection, size)
                await _send_all(connection, _TAIL.pack(counted, seconds))
                await _until_ended(connection)
        finally:
            connection.close()

    async def measure(self, nic: int, peer: str, size_bytes: int, timeout_s: float) -> float:
        """Send ``size_bytes`` by a NIC to a peer's address; return the payload in bit/s at which it came there. Raises
        MeterError, with the reason, if it came to nothing within ``timeout_s``."""
        late = MeterError(f"{size_bytes} B were not through within {timeout_s:g} s")
        began_s = time.monotonic()
        try:
            return await asyncio.wait_for(self._send(nic, peer, size_bytes, timeout_s), timeout_s)
        except asyncio.TimeoutError:
            raise late from None
        except UnreachableError as error:
            raise MeterError(str(error)) from error
        except ConnectionEndedError as error:
            # The kernel gives a peer up that takes nothing for as long, and may do so first.
            raise late if time.monotonic() - began_s >= timeout_s else MeterError(str(error)) from error

    async def _send(self, nic: int, peer: str, size_bytes: int, timeout_s: float) -> float:
        connection = await dialled(self._transport, (peer, PORT), self._addresses[nic], timeout_s)
        try:
            await _send_all(connection, _HEAD.pack(size_bytes))
            piece = bytes(_PIECE_BYTES)
            for begin in range(0, size_bytes, _PIECE_BYTES):
                await _send_all(connection, piece[: min(_PIECE_BYTES, size_bytes - begin)])
            counted, seconds = _TAIL.unpack(await _receive_exactly(connection, _TAIL.size))
        finally:
            connection.close()
        if seconds <= 0:
            raise MeterError(f"{counted} B came in no time; a test must last longer, raise its size")
        return 8 * float(counted) / float(seconds)


async def _send_all(connection: Connection, data: bytes) -> None:
    left = [memoryview(data)]
    while left:
        left = after(left, connection.send_at_once(left))
        if left:
            await until(connection.poll_for_room, _LONG_S)


async def _receive_exactly(connection: Connection, size_bytes: int) -> bytes:
    found, buffer = bytearray(), bytearray(size_bytes)
    while len(found) < size_bytes:
        await until(connection.poll_for_arrivals, _LONG_S)
        count = connection.receive_at_once(memoryview(buffer)[: size_bytes - len(found)])
        found += buffer[:count]
    return bytes(found)


async def _receive_timed(connection: Connection, size_bytes: int) -> tuple[int, float]:
    """Return how many bytes were counted, and in what time they came."""
    buffer, come, counted_from, began_s = bytearray(_PIECE_BYTES), 0, 0, 0.0
    while come < size_bytes:
        await until(connection.poll_for_arrivals, _LONG_S)
        come += connection.receive_at_once(memoryview(buffer)[: min(_PIECE_BYTES, size_bytes - come)])
        if not counted_from and come * _COUNTS_FROM >= size_bytes:
            counted_from, began_s = come, time.monotonic()
    return come - counted_from, time.monotonic() - began_s


async def _until_ended(connection: Connection) -> None:
    with suppress(asyncio.TimeoutError):
        await until(connection.poll_for_arrivals, _LINGER_S)


_LONG_S = 600.0
"""Longer than any test may take: the test's own limit ends it."""
_LINGER_S = 10.0
