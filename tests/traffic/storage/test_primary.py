"""Several cluster managers with one store: pauses, clocks that differ, and one table of chains."""

from __future__ import annotations

import asyncio
import random

import pytest

from fabric.errors import TrafficError
from fabric.model.identity import NodeId, Role
from traffic.storage.chain_states import LocalState, PublicState
from traffic.storage.chains import place_chains
from traffic.storage.control import Nodes
from traffic.storage.history import chain_faults
from traffic.storage.kv.lease import NotPrimary, extend_lease
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit, Pair
from traffic.storage.managers.chain_store import ChainStore, StaleManager, StoredChains
from traffic.storage.managers.manager import ClusterManager, TargetReport
from traffic.storage.managers.primary import Primary

NODES = Nodes(tuple(NodeId(Role.STORAGE, None, index) for index in range(4)))
TABLE = place_chains(NODES.nodes, 1, 3, 3)


def manager(now_s: float = 0) -> ClusterManager:
    return ClusterManager(TABLE, failed_after_s=60, checked_every_s=10, now_s=now_s)


def primary(name: str, store: SqliteStore, bootstrap_s: float = 70) -> Primary:
    return Primary(name, manager(), store, ChainStore(store, NODES), bootstrap_s)


def test_chains_are_stored_whole() -> None:
    async def scene() -> None:
        store = SqliteStore()
        chains = ChainStore(store, NODES)
        assert await chains.read() is None
        await extend_lease(store, "m0", 0)
        first = manager()
        await chains.write("m0", 1, 1, first.chains)
        assert await chains.read() == StoredChains(1, tuple(first.chains))
        changed = [chain.updated({}) for chain in first.chains[:1]]
        await chains.write("m0", 2, 2, changed)
        assert await chains.read() == StoredChains(2, (*changed, *first.chains[1:]))

    asyncio.run(scene())


def test_who_has_no_lease_or_old_chains_writes_nothing() -> None:
    async def scene() -> None:
        store = SqliteStore()
        chains, first = ChainStore(store, NODES), manager()
        with pytest.raises(NotPrimary, match="held by nobody"):
            await chains.write("m0", 0, 1, first.chains)
        await extend_lease(store, "m0", 0)
        with pytest.raises(NotPrimary, match="held by m0"):
            await chains.write("m1", 0, 1, first.chains)
        await chains.write("m0", 1, 1, first.chains)
        with pytest.raises(StaleManager, match="version 1 of the routing after 1; read it"):
            await chains.write("m0", 1, 1, first.chains)
        with pytest.raises(NotPrimary):
            await chains.write("m0", 41, 2, first.chains)

    asyncio.run(scene())


def test_what_is_no_chain_is_named() -> None:
    async def scene() -> None:
        store = SqliteStore()
        pairs = (Pair(b"SING/routing", bytes(8)), Pair(b"CHIF/\0\0\0\1", b"123"))
        await store.commit(Commit(0, sets=pairs))
        await ChainStore(store, NODES).read()

    with pytest.raises(TrafficError, match="has no chain"):
        asyncio.run(scene())


def beat(one: Primary, node: NodeId, number: int, now_s: float, local: LocalState = LocalState.UPTODATE) -> None:
    table = one.manager.table
    chains = [chain for chain in table.chains if node in {target.node for target in TABLE.chains[chain.number].targets}]
    one.manager.heartbeat(node, number, [TargetReport(c.number, local, c.version) for c in chains], now_s)


async def two_managers(paused_from_s: int) -> tuple[Primary, Primary]:
    """The first manager is paused at a time; a service is silent from 30 s on."""
    store = SqliteStore()
    first, second = primary("m0", store), primary("m1", store)
    await first.extend(0)
    await first.store_first(0)
    for second_s in range(1, 400):
        for one in (first, second):
            if one is first and paused_from_s <= second_s < paused_from_s + 150:
                continue
            if second_s % 10 == 0:
                await one.extend(second_s)
            for place, node in enumerate(NODES.nodes):
                if second_s % 10 == place and (place != 3 or second_s < 30):
                    beat(one, node, second_s, second_s)
            await one.look(second_s)
        assert not (first.is_primary(second_s) and second.is_primary(second_s))
    return first, second


def test_the_second_manager_goes_on_from_the_chains_of_the_first() -> None:
    first, second = asyncio.run(two_managers(paused_from_s=120))
    assert (first.holder, second.holder) == ("m1", "m1")
    assert second.is_primary(399)
    assert second.manager.version == 2, "it found the change of the first, and made none"
    assert all(NODES.nodes[3] not in chain.nodes for chain in second.manager.table.chains)


def test_a_new_primary_takes_nobody_for_dead_whom_it_had_no_time_to_hear() -> None:
    _, second = asyncio.run(two_managers(paused_from_s=40))
    changes = [one for one in second.manager.history if one.chain.version > 1]
    # The lease is free 60 s after 30 s; it begins at 100 s, waits 70 s, and the silent one has failed by then.
    assert 170 <= changes[0].at_s <= 181
    assert {target.node for one in changes for target, state in one.chain.targets if state is PublicState.OFFLINE} == {
        NODES.nodes[3]
    }


async def managers_at_random(seed: int) -> None:
    rng, store = random.Random(seed), SqliteStore()
    all_ = [primary(f"m{index}", store, bootstrap_s=20) for index in range(3)]
    skews = [rng.uniform(0, 15) for _ in all_]
    await all_[0].extend(skews[0])
    await all_[0].store_first(skews[0])
    told: dict[int, object] = {}
    paused_until, silent_until = [0.0] * 3, [0.0] * 4
    for second in range(1, 1500):
        if rng.random() < 0.01:
            paused_until[rng.randrange(3)] = second + rng.choice([15, 100, 200])
        if rng.random() < 0.005:
            silent_until[rng.randrange(4)] = second + rng.choice([30, 100])
        for one, skew, until in zip(all_, skews, paused_until, strict=True):
            now_s = second + skew
            if second < until:
                continue
            if second % 10 == 0:
                await one.extend(now_s)
            for place, node in enumerate(NODES.nodes):
                if second % 10 == place and second >= silent_until[place]:
                    beat(one, node, second, now_s, rng.choice([LocalState.UPTODATE, LocalState.ONLINE]))
            if (change := await one.look(now_s)) is not None:
                assert change.version not in told, (seed, "two managers made the same version")
                told[change.version] = change
        assert sum(one.is_primary(second + skew) for one, skew in zip(all_, skews, strict=True)) <= 1
    stored = await ChainStore(store, NODES).read()
    assert stored is not None
    assert sorted(told) == list(range(2, stored.version + 1))
    assert [fault for chain in stored.chains for fault in chain.faults] == []
    assert chain_faults([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_managers_that_pause_and_whose_clocks_differ_make_one_table(seed: int) -> None:
    asyncio.run(managers_at_random(seed))
