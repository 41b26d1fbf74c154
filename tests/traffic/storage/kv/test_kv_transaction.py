from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from fabric.errors import TrafficError
from traffic.storage.kv.lease import (
    LENGTH_S,
    NOT_TRUSTED_BELOW_S,
    Lease,
    NotPrimary,
    extend_lease,
    read_lease,
    require_lease,
)
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Conflict, Range, only
from traffic.storage.kv.transaction import Transaction, transact

T = TypeVar("T")
ALL = Range(b"", b"\xff")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_a_transaction_sees_what_it_has_written_itself_and_nobody_else_does() -> None:
    async def scene() -> None:
        store = SqliteStore()
        txn = Transaction(store)
        txn.set(b"a", b"0")
        txn.set(b"b", b"1")
        txn.clear(only(b"a"))
        assert [await txn.get(key) for key in (b"a", b"b")] == [None, b"1"]
        assert await txn.range(ALL) == [(b"b", b"1")]
        assert await Transaction(store).get(b"b") is None
        await txn.commit()
        assert await Transaction(store).get(b"b") == b"1"
        with pytest.raises(ValueError, match="committed once"):
            await txn.commit()

    run(scene())


def test_ranges_go_on_behind_what_was_cleared() -> None:
    async def scene() -> None:
        store = SqliteStore()
        first = Transaction(store)
        for number in range(10):
            first.set(b"%d" % number, b"old")
        await first.commit()
        txn = Transaction(store)
        txn.clear(Range(b"1", b"7"))
        txn.set(b"3", b"new")
        assert [key for key, _ in await txn.range(ALL, limit=3)] == [b"0", b"3", b"7"]
        assert [key for key, _ in await txn.range(ALL, limit=5, reverse=True)] == [b"9", b"8", b"7", b"3", b"0"]
        assert len(await txn.range(ALL)) == 5

    run(scene())


@pytest.mark.parametrize(
    ("limit", "reverse", "changed", "is_conflict"),
    [
        (2, False, b"b", True),
        (2, False, b"c", False),
        (2, True, b"c", True),
        (2, True, b"b", False),
        (9, False, b"zz", True),
        (9, False, b"ab", True),
    ],
)
def test_a_range_must_not_change_as_far_as_it_was_read(
    limit: int, reverse: bool, changed: bytes, is_conflict: bool
) -> None:
    async def scene() -> None:
        store = SqliteStore()
        first = Transaction(store)
        for key in (b"a", b"b", b"c", b"d"):
            first.set(key, b"")
        await first.commit()
        txn, other = Transaction(store), Transaction(store)
        await txn.range(ALL, limit, reverse)
        other.set(changed, b"1")
        await other.commit()
        txn.set(b"result", b"")
        if is_conflict:
            with pytest.raises(Conflict):
                await txn.commit()
        else:
            await txn.commit()

    run(scene())


def test_snapshot_reads_may_change_unless_they_are_added() -> None:
    async def scene(is_added: bool) -> None:
        store = SqliteStore()
        txn, other = Transaction(store), Transaction(store)
        assert await txn.get(b"a", snapshot=True) is None
        await txn.range(ALL, snapshot=True)
        if is_added:
            txn.add_read(only(b"a"))
        other.set(b"a", b"1")
        await other.commit()
        assert await txn.get(b"a", snapshot=True) is None, "all reads are of one version"
        txn.set(b"b", b"1")
        await txn.commit()

    run(scene(is_added=False))
    with pytest.raises(Conflict):
        run(scene(is_added=True))


async def count(txn: Transaction) -> int:
    value = int(await txn.get(b"count") or b"0") + 1
    await asyncio.sleep(0)
    txn.set(b"count", b"%d" % value)
    return value


def test_counting_at_once_loses_none() -> None:
    async def scene() -> list[int]:
        store, rng = SqliteStore(), random.Random(1)
        return await asyncio.gather(*(transact(store, count, tries=50, rng=rng) for _ in range(12)))

    assert sorted(run(scene())) == list(range(1, 13))


def test_after_its_tries_a_conflict_is_raised_and_no_tries_are_named() -> None:
    async def disturbed(txn: Transaction) -> None:
        await txn.get(b"a")
        await transact(txn._store, count)
        txn.add_read(only(b"count"))
        txn.set(b"b", b"")

    with pytest.raises(Conflict, match="b'count' was changed"):
        run(transact(SqliteStore(), disturbed, tries=3))
    with pytest.raises(ValueError, match="0 tries"):
        run(transact(SqliteStore(), count, tries=0))


async def random_body(store: SqliteStore, plan: list[tuple[str, bytes, bytes]], done: list[Any]) -> None:
    """Carry out a plan in one transaction that waits between its steps; note it if it is committed."""
    txn, seen = Transaction(store), list[Any]()
    for kind, key, value in plan:
        await asyncio.sleep(0)
        if kind == "get":
            seen.append(await txn.get(key))
        elif kind == "range":
            seen.append(await txn.range(Range(*sorted((key, value))), limit=2))
        elif kind == "set":
            txn.set(key, value + b"".join(str(one).encode() for one in seen)[-30:])
        else:
            txn.clear(Range(*sorted((key, value))))
    try:
        version = await txn.commit()
    except Conflict:
        return
    done.append((version, len(done), plan, seen))


def random_plan(rng: random.Random) -> list[tuple[str, bytes, bytes]]:
    keys = [b"a", b"b", b"c", b"d"]
    return [(rng.choice(["get", "range", "set", "set", "clear"]), rng.choice(keys), rng.choice(keys)) for _ in range(5)]


async def at_once_and_one_by_one(seed: int) -> int:
    """Return how many of six transactions conflicted."""
    rng, store, done = random.Random(seed), SqliteStore(), list[Any]()
    plans = [random_plan(rng) for _ in range(6)]
    await asyncio.gather(*(random_body(store, plan, done) for plan in plans))
    # One that only read has the version that it read at, and comes after the one that wrote it.
    order = sorted(done, key=lambda one: (one[0], not any(kind in ("set", "clear") for kind, _, _ in one[2])))
    alone, again = SqliteStore(), list[Any]()
    for _, _, plan, _ in order:
        await random_body(alone, plan, again)
    assert [one[3] for one in again] == [one[3] for one in order], seed
    left = [await Transaction(one).range(ALL) for one in (store, alone)]
    assert left[0] == left[1], seed
    return len(plans) - len(done)


def test_what_transactions_saw_is_as_if_they_had_come_one_after_the_other() -> None:
    """Whatever commits is carried out again, alone and in the order of the versions, and sees and leaves the same."""
    conflicts = sum(run(at_once_and_one_by_one(seed)) for seed in range(60))
    assert 60 < conflicts < 300


def test_one_manager_at_a_time_has_the_lease() -> None:
    async def scene() -> None:
        store = SqliteStore()
        first = await extend_lease(store, "m1", 100)
        assert first == Lease("m1", 100, 100 + LENGTH_S)
        assert await extend_lease(store, "m2", 110) == first
        extended = await extend_lease(store, "m1", 130)
        assert (extended.since_s, extended.until_s) == (100, 190)
        assert await extend_lease(store, "m2", 190) == extended
        assert await extend_lease(store, "m2", 190.001) == Lease("m2", 190.001, 190.001 + LENGTH_S)
        assert (await extend_lease(store, "m1", 191)).holder == "m2"

    run(scene())


def test_a_lease_is_not_trusted_when_little_of_it_is_left() -> None:
    lease = Lease("m1", 0, 60)
    assert lease.is_trusted("m1", 60 - NOT_TRUSTED_BELOW_S)
    assert not lease.is_trusted("m1", 60.001 - NOT_TRUSTED_BELOW_S)
    assert not lease.is_trusted("m2", 0)


def test_a_primary_that_has_lost_its_lease_writes_nothing() -> None:
    async def scene() -> None:
        store = SqliteStore()
        await extend_lease(store, "m1", 0)
        txn = Transaction(store)
        await require_lease(txn, "m1", 10)
        await extend_lease(store, "m2", 61)  # By a clock that is far ahead.
        txn.set(b"chain", b"new")
        with pytest.raises(Conflict):
            await txn.commit()
        with pytest.raises(NotPrimary, match=r"m1 at 62.000 s: the lease is held by m2 until 121.000 s"):
            await require_lease(Transaction(store), "m1", 62)
        with pytest.raises(NotPrimary, match="held by nobody"):
            await require_lease(Transaction(SqliteStore()), "m1", 62)

    run(scene())


def test_with_clocks_that_differ_by_less_than_the_margin_no_two_trust_their_leases_at_once() -> None:
    async def scene(seed: int) -> None:
        rng, store = random.Random(seed), SqliteStore()
        skews = {f"m{index}": rng.uniform(0, NOT_TRUSTED_BELOW_S - 0.1) for index in range(3)}
        held: dict[str, Lease] = {}
        for step in range(300):
            now_s = float(step)
            for holder, skew in skews.items():
                if rng.random() < 0.1:  # Else it is paused, or cut off.
                    held[holder] = await extend_lease(store, holder, now_s + skew)
            trusting = [one for one, lease in held.items() if lease.is_trusted(one, now_s + skews[one])]
            assert len(trusting) <= 1, (seed, step)

    for seed in range(20):
        run(scene(seed))


def test_what_is_no_lease_is_named() -> None:
    async def scene() -> None:
        store = SqliteStore()
        txn = Transaction(store)
        txn.set(b"SING/lease", b"x")
        await txn.commit()
        await read_lease(Transaction(store))

    with pytest.raises(TrafficError, match="which is not a lease"):
        run(scene())
