"""Random updates of parts of chunks, on replicas of one chain in one process, as a history."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

from traffic.storage.chains import ChunkId
from traffic.storage.content_history import content_faults
from traffic.storage.history import INITIAL, MAYBE, Event, Kind, Seen, violations
from traffic.storage.payload import Raw, Recipe, Removed, checksum_of
from traffic.storage.service.replica import Applied, NotThere, Refused, Replica
from traffic.storage.updates import Action, Change
from traffic.storage.wire.calls import ConnectionLost
from traffic.storage.wire.messages import REQUEST_BITS, Io, ReplyStatus

from .world import PATIENCE_S, World, trouble

CHUNKS = (ChunkId(0, 0), ChunkId(0, 1))
_ACTIONS = [Action.WRITE] * 7 + [Action.TRUNCATE, Action.EXTEND, Action.REMOVE]


def io_of_change(change: Change, request: int, chunk: ChunkId = CHUNKS[0], version: int = 0, of: int = 1) -> Io:
    """The call that asks for an update."""
    what = change.offset, change.length, change.checksum
    return Io(0, chunk, *what, request, version, of, change.action)


def part(chunk: ChunkId, request: int, offset: int, length: int) -> Change:
    """A write of what a write makes, from a place on."""
    recipe = Recipe(chunk, request, length, offset)
    return Change(Action.WRITE, offset, length, checksum_of(recipe.pieces(0, length)), recipe)


def random_change(rng: random.Random, chunk: ChunkId, request: int) -> Change:
    action = rng.choice(_ACTIONS)
    if action is Action.WRITE:
        return part(chunk, request, rng.choice((0, 0, 40, 100, 200, 300)), rng.randrange(40, 200))
    return Change(action, 0, 0 if action is Action.REMOVE else rng.randrange(300))


def seen_of(replica: Replica, chunk: ChunkId, is_relaxed: bool = False) -> tuple[int, int, Seen]:
    """The version that a replica lets be read, its write, and its bytes. Raises Refused."""
    try:
        stored = replica.read(chunk, is_relaxed)
    except NotThere as absent:
        return absent.version, absent.request, Seen(0, 0, 0, 0)
    size = stored.content.size_bytes
    checksum = checksum_of(stored.content.pieces(0, size))
    assert stored.checksum == checksum, "the checksum is of the whole chunk"
    return stored.version, stored.request, Seen(0, size, checksum, size)


async def _update_on(world: World, events: list[Event], chunk: ChunkId, client: int, tries: int) -> None:
    for sequence in range(1, 13):
        request = (client << REQUEST_BITS) + sequence
        change = random_change(world.rng, chunk, request)
        io, started = io_of_change(change, request, chunk), time.monotonic()
        answer: Applied | None = None
        for _ in range(tries):
            await world.delay()
            try:
                answer = await world.write(io, world.table, PATIENCE_S)
                break
            except (ConnectionLost, Refused):
                world.history.retries += 1
                await asyncio.sleep(0.0005)
        now = time.monotonic()
        if answer is not None and answer.request != request:  # A removal of what was not there is a read of that.
            seen = Seen(0, 0, 0, 0)
            events.append(Event(Kind.READ, chunk, answer.request, answer.version, started, now, seen=seen))
            continue
        version, ended = (answer.version, now) if answer else (None, MAYBE)
        events.append(Event(Kind.WRITE, chunk, request, version, started, ended, change=change))


async def _read_on(world: World, events: list[Event], chunk: ChunkId, stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        await asyncio.sleep(0)
        is_relaxed = world.rng.random() < 0.3
        node, started = world.rng.choice(world.living()), time.monotonic()
        if world.are_apart(node, None):
            continue
        try:
            version, request, seen = seen_of(world.replicas[node], chunk, is_relaxed)
        except Refused:
            continue
        kind = Kind.RELAXED_READ if is_relaxed else Kind.READ
        events.append(Event(kind, chunk, request or INITIAL, version, started, time.monotonic(), seen=seen))


async def random_parts(seed: int, kind: type[Replica] = Replica) -> tuple[World, list[Event]]:
    """Let clients update parts of two chunks under random kills and cuts; end with a read of every replica."""
    world, events = World(seed, kind=kind), list[Event]()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    readers = [loop.create_task(_read_on(world, events, chunk, stopping)) for chunk in CHUNKS]
    numbers = itertools.count(1)
    tries = world.rng.choice((3, 1000))
    load = [_update_on(world, events, chunk, next(numbers), tries) for chunk in CHUNKS for _ in range(2)]
    work = asyncio.gather(trouble(world, world.rng.choice((0, 1, 1, 2)), world.rng.choice((0, 1, 2))), *load)
    await asyncio.wait_for(work, 20)
    stopping.set()
    await asyncio.gather(*readers)
    await world.rest()
    for chunk in CHUNKS:
        for node in world.living():
            started = time.monotonic()
            version, request, seen = seen_of(world.replicas[node], chunk)
            events.append(Event(Kind.READ, chunk, request, version, started, time.monotonic(), seen=seen))
    return world, events


def faults_of(world: World, events: list[Event]) -> list[str]:
    """What is wrong with a run: its history, the bytes of versions, replicas that differ, versions of chunks."""
    found = violations(events) + content_faults(events)
    found += [f"applied twice: {write}" for write in world.history.applied_twice]
    for chunk in CHUNKS:
        kinds = {seen_of(world.replicas[node], chunk) for node in world.living()}
        found += [f"{chunk}: replicas have {kinds}"] if len(kinds) > 1 else []
    return found + [fault for node in world.living() for fault in world.replicas[node].faults()]


def absent(content: object) -> bool:
    """Whether a content is that of a chunk that is not there."""
    return isinstance(content, Removed) or content == Raw(b"")


__all__ = ["CHUNKS", "ReplyStatus", "absent", "faults_of", "io_of_change", "part", "random_parts", "seen_of"]
