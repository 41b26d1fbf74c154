"""The store as a program: the same as one that is in the caller's own process, but for what a network does."""

from __future__ import annotations

import asyncio
import random

import pytest

from fabric.model.identity import NodeId, Role
from fabric.model.lanes import ServiceLevel
from traffic.storage.kv.program import KvService
from traffic.storage.kv.remote import RemoteStore
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit, Conflict, Pair, Range, TooOld, Unreachable, only, prefixed, stamp
from traffic.storage.kv.transaction import Transaction, transact
from traffic.storage.wire.calls import LinkListener, Party, Tasks
from traffic.storage.wire.links import Links
from traffic.transport.connection import SocketOptions

from ..true_timers import HostTransport, Network, run

KV = NodeId(Role.COMPUTE, 0, 98)
ALL = Range(b"", b"\xff")


class World:
    """A store on a host, and those who call it from other hosts."""

    def __init__(self, kept_versions: int = 10_000) -> None:
        self.network, self.tasks = Network(), Tasks()
        self.here = SqliteStore(kept_versions=kept_versions)
        self.service = KvService(self.here)
        transport = self._transport("kv")
        listener = transport.listen("kv")
        LinkListener(Party("kv", self.service.handle, transport, self.tasks), listener, lambda link: None)
        self._endpoint = listener.endpoint

    def _transport(self, host: str) -> HostTransport:
        return HostTransport(self.network, host, SocketOptions(ServiceLevel.CONTROL, user_timeout_s=10))

    def caller(self, host: str = "a") -> RemoteStore:
        links = Links(Party(host, lambda link, frame: None, self._transport(host), self.tasks), host)
        links.expect(KV, self._endpoint)
        return RemoteStore(links, KV, 5.0)


def random_commit(rng: random.Random, version: int) -> Commit:
    keys = [b"%d" % rng.randrange(8) for _ in range(4)]
    clears = (Range(*sorted(keys[:2])),) if rng.random() < 0.3 else ()
    sets = (Pair(keys[2], b"%d" % rng.randrange(100)),)
    stamped = (Pair(b"s", keys[3]),) if rng.random() < 0.3 else ()
    return Commit(max(0, version - rng.randrange(4)), (only(keys[3]),), clears, sets, stamped)


def test_what_is_far_is_as_what_is_near() -> None:
    async def scene() -> None:
        world, rng, near = World(), random.Random(1), SqliteStore()
        far = world.caller()
        conflicts = 0
        for _ in range(300):
            version = await far.read_version()
            assert version == await near.read_version()
            commit = random_commit(rng, version)
            found: list[object] = []
            for store in (far, near):
                try:
                    found.append(await store.commit(commit))
                except (Conflict, ValueError) as error:
                    found.append((type(error), str(error)))
                    conflicts += isinstance(error, Conflict)
            assert found[0] == found[1]
            at, reverse = rng.randint(0, await near.read_version()), rng.random() < 0.5
            assert await far.range(ALL, at, 5, reverse) == await near.range(ALL, at, 5, reverse)
            assert await far.get(b"3", at) == await near.get(b"3", at)
        assert conflicts > 20
        assert world.service.counts["conflicts"] == conflicts / 2

    run(scene())


def test_what_does_not_fit_a_message_is_divided_or_pulled() -> None:
    async def scene() -> None:
        world = World()
        store = world.caller()
        sets = tuple(Pair(b"k%03d" % number, bytes(90_000)) for number in range(40))
        assert await store.commit(Commit(0, sets=sets)) == 1
        assert world.service.counts["pulled_commit"] == 1
        assert await store.range(ALL, 1, 100) == list(sets)
        assert await store.range(ALL, 1, 30, reverse=True) == list(sets[:9:-1])
        assert world.service.counts["range"] > 8

    run(scene())


def test_stamped_keys_are_in_the_order_of_their_commits() -> None:
    async def scene() -> None:
        store = World().caller()
        for word in (b"one", b"two"):
            txn = Transaction(store)
            txn.set_stamped(b"log/", word)
            await txn.commit()
        assert await store.range(prefixed(b"log/"), 2, 9) == [
            (b"log/" + stamp(n), w) for n, w in ((1, b"one"), (2, b"two"))
        ]

    run(scene())


def test_what_the_store_refuses_is_what_the_caller_is_told() -> None:
    async def scene() -> None:
        world = World(kept_versions=1)
        store = world.caller()
        with pytest.raises(ValueError, match="version 7 is not there yet, the latest is 0; ask for read_version"):
            await store.get(b"a", 7)
        for _ in range(1000):
            await world.here.commit(Commit(await world.here.read_version(), sets=(Pair(b"a", b""),)))
        with pytest.raises(TooOld, match="version 5 is no longer kept"):
            await store.get(b"a", 5)

    run(scene())


def test_transactions_of_two_callers_conflict_and_are_tried_again() -> None:
    async def scene() -> int:
        world = World()

        async def count(txn: Transaction) -> None:
            value = int(await txn.get(b"count") or b"0") + 1
            txn.set(b"count", b"%d" % value)

        async def ten(host: str, rng: random.Random) -> None:
            store = world.caller(host)
            for _ in range(10):
                await transact(store, count, rng=rng)

        await asyncio.gather(*(ten(f"c{number}", random.Random(number)) for number in range(3)))
        assert await world.here.get(b"count", await world.here.read_version()) == b"30"
        return world.service.counts["conflicts"]

    assert run(scene()) > 0


def test_a_store_that_does_not_answer_is_told_so_and_a_late_commit_is_not_made() -> None:
    async def scene() -> None:
        world = World()
        store = world.caller()
        await store.commit(Commit(0, sets=(Pair(b"a", b"1"),)))
        world.network.cut("kv", ["a"])
        with pytest.raises(Unreachable, match=r"the store on .* does not answer"):
            await store.commit(Commit(1, sets=(Pair(b"a", b"2"),)))
        world.network.mend()
        await asyncio.sleep(20)
        assert await store.read_version() == 1, "whoever sent it has given it up"
        world.network.silent.add(("kv", "a"))
        with pytest.raises(Unreachable):
            await store.commit(Commit(1, sets=(Pair(b"a", b"3"),)))
        world.network.mend()
        assert await store.read_version() == 2, "here only the answer was lost"

    run(scene())
