"""The store of keys and values as a program with a NIC: it answers what :mod:`traffic.storage.kv.calls` carry."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready
from traffic.storage.kv.calls import (
    Ask,
    Outcome,
    fitting,
    pack_pairs,
    pack_version,
    parse_commit,
    parse_get,
    parse_range,
)
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit, Conflict, Pair, Range, Store, TooOld
from traffic.storage.orders import Orders
from traffic.storage.wire import event_loop
from traffic.storage.wire.calls import CallTimeout, Party, StorageConnection, Tasks, listen_in_zones
from traffic.storage.wire.messages import CallKind, Frame, ReplyStatus
from traffic.transport.connection import Endpoint, Transport

_MOST_TOLD = 10_000


@dataclass(frozen=True)
class KvArguments:
    """What the program is told when it is forked. ``first``: what is in the store before anybody calls."""

    node: NodeId
    addresses: Mapping[int, str]
    transport: Transport
    first: Commit | None = None


@dataclass(frozen=True)
class KvListening:
    """The program's word of where it listens, by zone."""

    addresses: Mapping[int, Endpoint]


@dataclass(frozen=True)
class TellRange:
    """The order to tell what is in a range now."""

    range: Range


@dataclass(frozen=True)
class RangeContents:
    """What is in it, and what the program has counted."""

    pairs: tuple[Pair, ...]
    counts: Mapping[str, int]


class KvService:
    """Answers calls for a store. ``counts``: how many of each kind came, and how many commits conflicted."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.counts: Counter[str] = Counter()

    async def handle(self, link: StorageConnection, frame: Frame) -> None:
        """Answer a call."""
        if frame.kind is not CallKind.KV or not frame.meta:
            link.answer(frame, ReplyStatus.WRONG_REQUEST)
            return
        try:
            answer = bytes([Outcome.DONE]) + await self._answer(link, frame)
        except Conflict as conflict:
            self.counts["conflicts"] += 1
            answer = bytes([Outcome.CONFLICT]) + str(conflict).encode()
        except TooOld as error:
            answer = bytes([Outcome.TOO_OLD]) + str(error).encode()
        except (ValueError, struct.error) as error:
            answer = bytes([Outcome.WRONG]) + str(error).encode()
        except CallTimeout:
            return  # Who committed does not hand its data over, and has given up.
        link.answer(frame, ReplyStatus.OK, answer)

    async def _answer(self, link: StorageConnection, frame: Frame) -> bytes:
        ask, data = Ask(frame.meta[0]), frame.meta[1:]
        self.counts[ask.name.lower()] += 1
        if ask is Ask.READ_VERSION:
            return pack_version(await self.store.read_version())
        if ask is Ask.GET:
            value = await self.store.get(*parse_get(data))
            return b"\0" if value is None else b"\1" + value
        if ask is Ask.RANGE:
            asked = parse_range(data)
            pairs = await self.store.range(asked.range, asked.version, asked.limit, asked.reverse)
            sent = fitting(pairs)
            return bytes([len(sent) < len(pairs)]) + pack_pairs(sent)
        if ask is Ask.PULLED_COMMIT:
            (size,) = struct.unpack("<I", data)
            data = bytes((await link.pull(frame, frame.deadline_s - time.monotonic(), size)).payload)
        return pack_version(await self.store.commit(parse_commit(data)))

    async def told(self, range_: Range) -> RangeContents:
        """Return what is in a range. Raises TrafficError if that is too much to tell."""
        pairs = await self.store.range(range_, await self.store.read_version(), _MOST_TOLD)
        if len(pairs) == _MOST_TOLD:
            raise TrafficError(f"the store has {_MOST_TOLD} pairs or more from {range_.begin!r} on; ask for fewer")
        return RangeContents(tuple(pairs), dict(self.counts))


def run_kv(agent: Agent, arguments: KvArguments) -> None:
    """Be the store until the run stops it."""
    event_loop.run(_run(agent, arguments))


async def _run(agent: Agent, arguments: KvArguments) -> None:
    tasks = Tasks()
    service = KvService(SqliteStore())
    if arguments.first is not None:
        await service.store.commit(arguments.first)
    party = Party(agent.host, service.handle, arguments.transport, tasks, counts=service.counts)
    orders = Orders(agent, tasks, lambda change: None)
    agent.report(KvListening(listen_in_zones(party, arguments.addresses)))
    await carry_out_orders(agent, orders, service)


async def carry_out_orders(agent: Agent, orders: Orders, service: KvService) -> None:
    """Carry out what the run orders of a store, forever. Raises TrafficError if that is nothing it knows."""
    while True:
        order = await orders.next()
        if isinstance(order, Play | Halt):
            agent.report(Ready())
        elif isinstance(order, TellRange):
            agent.report(await service.told(order.range))
        else:
            raise TrafficError(f"the store on {agent.host} knows no order {order!r}")
