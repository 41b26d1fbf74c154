"""etcd behind the store's interface: the same answers as SQLite's, but for the numbers of versions."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from fabric.model.lanes import ServiceLevel
from traffic.storage.kv import etcd_program
from traffic.storage.kv.etcd import EtcdStore
from traffic.storage.kv.etcd_program import CLIENT_PORT, answering, etcd_on, why_no_etcd
from traffic.storage.kv.lease import extend_lease
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit, Conflict, Pair, Range, Store, Unreachable, only, stamp
from traffic.storage.kv.transaction import Transaction, transact
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

ADDRESS = "127.0.77.1"
ALL = Range(b"", b"\xff")
needs_etcd = pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed (etcd-server)")


def caller(address: str = ADDRESS) -> EtcdStore:
    return EtcdStore(TcpTransport(SocketOptions(ServiceLevel.CONTROL)), (address, CLIENT_PORT), address, 5.0)


@pytest.fixture(scope="module")
def running() -> Iterator[None]:
    with etcd_on((ADDRESS,)):
        asyncio.run(answering(caller()))
        yield


async def outcome(store: Store, versions: dict[int, int], commit: Commit) -> object:
    try:
        return await store.commit(commit)
    except Conflict:
        return Conflict


@needs_etcd
def test_what_etcd_does_is_what_sqlite_does(running: None) -> None:
    """Versions differ; so each of one is kept beside that of the other."""

    async def scene() -> None:
        far, near, rng = caller(), SqliteStore(), random.Random(3)
        versions = [(await far.read_version(), await near.read_version())]
        conflicts = 0
        for turn in range(60):
            keys = [b"%d" % rng.randrange(8) for _ in range(5)]
            reads = (Range(*sorted(keys[:2])), only(keys[2]))
            clears = (Range(*sorted(keys[3:])),) if rng.random() < 0.4 else ()
            sets = (Pair(keys[0], b"%d" % turn), Pair(keys[1], b"")) if rng.random() < 0.8 else ()
            at = versions[-1 - rng.randrange(min(3, len(versions)))]
            try:
                made: int | None = await near.commit(Commit(at[1], reads, clears, sets))
            except Conflict:
                made = None
            if made is None:
                conflicts += 1
                with pytest.raises(Conflict, match="was changed by version"):
                    await far.commit(Commit(at[0], reads, clears, sets))
            elif (seen := await far.commit(Commit(at[0], reads, clears, sets))) > versions[-1][0]:
                versions.append((seen, made))
            then, limit, reverse = rng.choice(versions), rng.randrange(1, 5), rng.random() < 0.5
            assert await far.range(ALL, then[0], limit, reverse) == await near.range(ALL, then[1], limit, reverse)
            assert await far.get(keys[4], then[0]) == await near.get(keys[4], then[1])
        assert conflicts > 5

    asyncio.run(scene())


@needs_etcd
def test_transactions_stamps_and_the_lease_work_over_etcd(running: None) -> None:
    async def scene() -> None:
        store = caller()

        async def count(txn: Transaction) -> None:
            txn.set(b"count", b"%d" % (int(await txn.get(b"count") or b"0") + 1))
            txn.set_stamped(b"log/", b"x")

        await asyncio.gather(*(transact(store, count, tries=20, rng=random.Random(n)) for n in range(5)))
        version = await store.read_version()
        assert await store.get(b"count", version) == b"5"
        keys = [pair.key for pair in await store.range(Range(b"log/", b"log0"), version, 99)]
        assert len(keys) == 5
        assert keys[-1] == b"log/" + stamp(version)
        assert (await extend_lease(store, "m0", 10)).holder == "m0"
        assert (await extend_lease(store, "m1", 20)).holder == "m0"
        with pytest.raises(ValueError, match="future revision; ask for read_version"):
            await store.get(b"count", version + 1000)

    asyncio.run(scene())


class Overtaken(EtcdStore):
    """One that another caller is faster than, once, between its reads and its transaction."""

    async def _call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("txn") and not OVERTAKING:
            OVERTAKING.append(await caller().commit(Commit(await self.read_version(), sets=(Pair(b"o/2", b"new"),))))
        return await super()._call(path, body)


OVERTAKING: list[int] = []


@needs_etcd
@pytest.mark.parametrize("stamped", [False, True])
def test_what_another_one_writes_meanwhile_is_cleared_or_known(running: None, stamped: bool) -> None:
    async def scene() -> None:
        store = caller()
        OVERTAKING.clear()
        first = await store.commit(Commit(await store.read_version(), sets=(Pair(b"o/1", b"old"),)))
        options = TcpTransport(SocketOptions(ServiceLevel.CONTROL)), (ADDRESS, CLIENT_PORT), ADDRESS, 5.0
        commit = (
            Commit(first, stamped=(Pair(b"o/3/", b""),)) if stamped else Commit(first, clears=(Range(b"o/", b"o0"),))
        )
        made = await Overtaken(*options).commit(commit)
        assert made > OVERTAKING[0] > first
        there = [pair.key for pair in await store.range(Range(b"o/", b"o0"), made, 9)]
        assert there == ([b"o/1", b"o/2", b"o/3/" + stamp(made)] if stamped else [])

    asyncio.run(scene())


def test_an_etcd_that_is_not_there_is_unreachable_or_refused_by_name() -> None:
    with pytest.raises(Unreachable, match=r"etcd at 127\.0\.77\.9:2379 does not answer"):
        asyncio.run(caller("127.0.77.9").read_version())
    with mock.patch.object(shutil, "which", lambda name: None):
        assert "etcd is not installed; install it (Debian: apt-get install etcd-server)" in why_no_etcd()
    with mock.patch.object(etcd_program, "current_engine", lambda: mock.Mock(is_exact=True)):
        assert "etcd runs in real time only" in why_no_etcd()
