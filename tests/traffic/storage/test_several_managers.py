"""Several managers with a store, with 3FS's timers, in time that jumps: who is the primary, and what that costs."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any
from unittest import mock

import pytest
from pydantic import ValidationError

from fabric.model.identity import NodeId
from traffic.storage.chain_states import ChainState
from traffic.storage.config import StorageConfig
from traffic.storage.history import violations
from traffic.storage.kv.lease import Lease
from traffic.storage.kv.store import Commit
from traffic.storage.kv.transaction import Transaction
from traffic.storage.managers import chain_store
from traffic.storage.managers.chain_store import Logged
from traffic.storage.managers.one_writer import Trusted, shared, writer_faults

from .several_managers import KV, MANAGERS, ManagedByMany
from .test_true_timers import check_history, config_of
from .true_timers import NODES, Cluster, no_listeners_left, run

FIRST, SECOND, THIRD = (node.name for node in MANAGERS[:3])


def several(count: int = 2, fence: str = "off", clocks: dict[str, float] | None = None, **lease: Any) -> StorageConfig:
    managers = {"count": count, "lease": lease} if lease else {"count": count}
    return config_of(manager={"managers": managers, "fence": fence, "clocks": clocks or {}})


async def begun(config: StorageConfig, clients: int = 1) -> ManagedByMany:
    """Return a cluster that has been up for a while, with a chunk in each chain."""
    cluster = ManagedByMany(config)
    await cluster.start(clients)
    for index in range(3):
        assert (await cluster.write(index)).version == 1
    await asyncio.sleep(33.3)
    assert cluster.primaries() == [FIRST]
    return cluster


def left_out(cluster: ManagedByMany, node: NodeId) -> bool:
    return all(node not in chain.nodes for chain in cluster.routing.chains)


async def until_left_out(cluster: ManagedByMany, node: NodeId, patience_s: float) -> float:
    """Return how long it takes until no chain has a node."""
    began_s = time.monotonic()
    while not left_out(cluster, node):
        assert time.monotonic() < began_s + patience_s, f"{node} is still there after {patience_s} s"
        await asyncio.sleep(0.5)
    return time.monotonic() - began_s


async def fail_over(event: str) -> dict[str, float]:
    """Let something happen to the primary, and a service fall silent once another one is; return the times."""
    cluster = await begun(several())
    others = [name for name in cluster.everybody() if name != FIRST]
    began_s = time.monotonic()
    if event == "kill":
        cluster.kill(FIRST)
    elif event == "pause":
        cluster.pause(FIRST)
    elif event == "cut":
        cluster.network.cut(FIRST, others)
    elif event == "hears nobody":
        cluster.network.silent |= {(other, FIRST) for other in others}
    else:
        assert event == "is heard by nobody"
        cluster.network.silent |= {(FIRST, other) for other in others}
    await cluster.until_primary(SECOND)
    taken_s = time.monotonic() - began_s
    services = [cluster.services[node].returning.membership for node in NODES]
    heard = cluster.managers[SECOND].service.counts
    while heard["heartbeats"] < len(services):
        await asyncio.sleep(0.5)
    heard_s = time.monotonic() - began_s
    cluster.silence(NODES[2])
    silent_s = await until_left_out(cluster, NODES[2], 300)
    assert cluster.routing.version > 1
    cluster.network.thaw(FIRST)
    cluster.network.mend()
    await cluster.until_whole()
    await asyncio.sleep(30)
    assert cluster.primaries() == [SECOND], "the first one does not take it back"
    check_history(cluster)
    assert cluster.faults_of_managers() == []
    assert {line.holder for line in cluster.log[1:]} == {SECOND}
    return {"taken": taken_s, "heard": heard_s, "silent": silent_s}


@pytest.mark.parametrize("event", ["kill", "pause", "cut", "hears nobody", "is heard by nobody"])
def test_another_manager_takes_over_whatever_happens_to_the_primary(event: str) -> None:
    """Its lease runs out 50 to 60 s after it was extended last, and the other one looks every 10 s. The new one changes
    nothing for two minutes, so a service that falls silent then is left out at the end of these."""
    found = run(fail_over(event))
    print(event, {name: round(value, 1) for name, value in found.items()})
    assert 50 <= found["taken"] <= 71
    assert found["heard"] <= found["taken"] + 31
    assert found["silent"] >= 60
    assert 120 <= found["heard"] + found["silent"] - found["taken"] <= 132


async def cut_from_services() -> ManagedByMany:
    cluster = await begun(several(fence="half"))
    cluster.network.cut(FIRST, [*(node.name for node in NODES), *cluster.clients])
    await asyncio.sleep(300)
    return cluster


def test_a_primary_that_only_the_store_reaches_keeps_its_lease_and_fails_everybody() -> None:
    """As released: whether services reach it is not asked for. So it is the primary, and no chain serves."""

    async def scene() -> None:
        cluster = await cut_from_services()
        assert cluster.primaries() == [FIRST]
        assert all(not chain.nodes for chain in cluster.routing.chains)
        assert await cluster.read(0) is None
        cluster.network.mend()
        await cluster.until_whole()
        check_history(cluster)
        assert cluster.faults_of_managers() == []

    run(scene())


@pytest.mark.parametrize("fence", ["off", "half"])
def test_without_the_store_there_is_no_primary_and_chains_stay(fence: str) -> None:
    async def scene() -> tuple[bool, int]:
        cluster = await begun(several(fence=fence))
        cluster.network.cut(KV.name, [name for name in cluster.everybody() if name != KV.name])
        await asyncio.sleep(100)
        assert cluster.primaries() == []
        read = await cluster.read(0)
        version = cluster.routing.version
        cluster.network.mend()
        await cluster.until_whole()
        await asyncio.sleep(60)
        assert len(cluster.primaries()) == 1
        check_history(cluster)
        assert cluster.faults_of_managers() == []
        return read is not None, version

    assert run(scene()) == (fence == "off", 1), "who fences itself hears no primary, and stops"


def test_a_commit_that_is_not_answered_is_read_and_not_made_twice() -> None:
    """The store hears the primary, which does not hear it: a change is stored, and the primary does not know."""

    async def scene() -> None:
        cluster = await begun(several())
        commit, primary = cluster.kv.store.commit, cluster.managers[FIRST].service.manager

        async def and_fall_silent(one: Commit) -> int:
            version = await commit(one)
            if one.stamped:
                cluster.network.silent.add((KV.name, FIRST))
            return version

        cluster.silence(NODES[2])
        with mock.patch.object(cluster.kv.store, "commit", and_fall_silent):
            while cluster.routing.version == 1:
                await asyncio.sleep(0.2)
        await asyncio.sleep(7)
        assert (cluster.routing.version, primary.version) == (2, 1), "it is stored, and the primary was not told"
        cluster.network.mend()
        await cluster.until_whole()
        assert primary.version == cluster.routing.version
        assert cluster.primaries() == [FIRST]
        check_history(cluster)
        assert cluster.faults_of_managers() == []

    run(scene())


# Clocks.


@pytest.mark.parametrize(("skew_s", "is_heard"), [(29.0, True), (-29.0, True), (31.0, False), (-31.0, False)])
@pytest.mark.parametrize("managers", [1, 2])
def test_a_service_whose_clock_is_off_by_more_than_half_a_minute_is_not_heard(
    skew_s: float, is_heard: bool, managers: int
) -> None:
    async def scene() -> bool:
        clocks = {NODES[1].name: skew_s}
        one = config_of(manager={"clocks": clocks})
        cluster = Cluster(one) if managers == 1 else ManagedByMany(several(clocks=clocks))
        await cluster.start()
        await asyncio.sleep(100)
        manager = cluster.managers[FIRST].service if isinstance(cluster, ManagedByMany) else cluster.manager
        assert (manager.counts["skewed_heartbeats"] > 0) is not is_heard
        return all(NODES[1] in chain.nodes for chain in cluster.routing.chains)

    assert run(scene()) is is_heard


async def skewed_managers(skew_s: float, cut: bool) -> ManagedByMany:
    """Let the second manager's clock be ahead, and the first one be cut off from the store for a while, or not."""
    cluster = ManagedByMany(several(clocks={SECOND: skew_s}))
    await cluster.start()
    await asyncio.sleep(33.3)
    if cut:
        cluster.network.cut(FIRST, [KV.name])
    await asyncio.sleep(120)
    cluster.network.mend()
    await asyncio.sleep(400)
    return cluster


def test_clocks_that_differ_by_more_than_the_margin_make_two_primaries_and_the_table_still_has_one_writer() -> None:
    """A lease is 60 s, extended every 10 s, and not trusted below 20 s. Of a primary that is cut off from the store, a
    clock that is ahead by more than 20 s takes the lease too early; of one that is not, one by more than 50 s does. And
    a manager whose clock is off by more than 30 s hears no service: as the primary it fails all of them."""
    for skew_s, cut, is_shared, serves in [
        (19.0, True, False, True),
        (29.0, True, True, True),
        (35.0, True, True, False),
        (45.0, False, False, True),
        (75.0, False, True, False),
    ]:
        with no_listeners_left():
            cluster = run(skewed_managers(skew_s, cut))
        found = shared(cluster.trusted)
        holders = [line.holder for line in cluster.log]
        print(f"{skew_s:g} s, cut {cut}: {len(found)} times; {found[:1]}; written by {holders}")
        assert bool(found) is is_shared, (skew_s, cut)
        assert all(bool(chain.nodes) is serves for chain in cluster.routing.chains), (skew_s, cut)
        assert writer_faults(cluster.log) == [], "whoever writes holds the lease at that moment"


# The checks themselves.


CHAIN = ChainState.first(0, [])


def line(version: int, holder: str, since_s: float) -> Logged:
    return Logged(version, float(version), holder, since_s, (CHAIN,) if version else ())


def test_a_write_by_a_lease_that_is_over_is_found() -> None:
    right = [line(1, "a", 0), line(2, "a", 0), line(0, "b", 70), line(3, "b", 70), line(4, "a", 150)]
    assert writer_faults(right) == []
    for late in (line(5, "a", 0), line(5, "b", 70)):
        assert f"by {late.holder}, whose lease from" in writer_faults([*right, late])[0]
    assert "version 3 of the routing was written by a" in writer_faults([*right[:3], line(3, "a", 0)])[0]
    assert "version 6 of the routing, by a, after version 4" in writer_faults([*right, line(6, "a", 150)])[0]


def test_times_that_two_trusted_are_found() -> None:
    apart = {"a": [Trusted(0, 10), Trusted(20, 30)], "b": [Trusted(10, 20), Trusted(30, 40)]}
    assert shared(apart) == []
    assert shared({**apart, "c": [Trusted(39, 50)]}) == ["b and c both trusted a lease from 39.000 to 40.000 s"]
    assert len(shared({"a": [Trusted(0, 100)], "b": [Trusted(1, 2), Trusted(3, 4)]})) == 2


async def no_lease(transaction: Transaction, holder: str, now_s: float, margin_s: float = 0.0) -> Lease:
    return Lease(holder, 0.0, now_s)


async def old_primary_writes_on(looks: bool) -> list[str]:
    """Pause the primary until another manager is one; as planted, it does not look at its lease again."""
    cluster = await begun(several())
    cluster.silence(NODES[2])
    cluster.pause(FIRST)
    await cluster.until_primary(SECOND)
    first = cluster.managers[FIRST].service.primary
    if not looks:
        vars(first)["may_answer"] = lambda now_s: True
    cluster.network.thaw(FIRST)
    await asyncio.sleep(15)
    cluster.network.mend()
    await asyncio.sleep(300)
    return cluster.faults_of_managers()


def test_a_manager_that_does_not_look_at_its_lease_writes_nothing_unless_its_transaction_does_not_either() -> None:
    """Two fences: what a manager knows of its lease, and what each transaction reads."""
    assert run(old_primary_writes_on(looks=True)) == []
    with no_listeners_left():
        assert run(old_primary_writes_on(looks=False)) == []
    with no_listeners_left(), mock.patch.object(chain_store, "require_lease", no_lease):
        found = run(old_primary_writes_on(looks=False))
    print(found)
    assert f"was written by {FIRST}, whose lease from 0.000 s on another one's had followed" in found[0]


# At random.


MOST_SKEW_S = 9.9


def skewed_clocks(seed: int) -> dict[str, float]:
    """Return clocks of services and managers of which no two differ by more than leases and heartbeats allow."""
    rng = random.Random(f"{seed}/clocks")
    hosts = [node.name for node in (*NODES, *MANAGERS[:3])]
    return {host: rng.uniform(-MOST_SKEW_S, MOST_SKEW_S) for host in hosts}


async def random_trouble(seed: int, fence: str = "half", clocks: dict[str, float] | None = None) -> ManagedByMany:
    """Cut hosts off, pause and kill managers, one after the other, while clients read and write."""
    rng = random.Random(seed)
    cluster = ManagedByMany(several(3, fence, clocks))
    await cluster.start(clients=3)
    for index in range(4):
        await cluster.write(index)
    over = asyncio.Event()

    def isolate() -> None:
        """Leave a service with one client, which no manager tells of newer chains."""
        node, client = rng.choice(NODES), rng.choice(list(cluster.clients))
        cluster.silence(node, but=(client,))
        cluster.network.cut(client, [*cluster.managers, KV.name])

    async def disturb() -> None:
        for _ in range(4):
            await asyncio.sleep(rng.uniform(5, 60))
            manager = rng.choice(cluster.living())
            event = rng.choice(["nothing", "cut", "pause", "pause", "kill"])
            if event == "kill" and len(cluster.living()) > 1:
                cluster.kill(manager)
            elif event == "pause":
                cluster.pause(manager)
            elif event == "cut":
                cluster.cut_somebody(rng, manager)
            if rng.random() < 0.4:
                isolate()
            elif event == "nothing" or rng.random() < 0.6:
                cluster.cut_somebody(rng, rng.choice([*(node.name for node in NODES), *cluster.clients, KV.name]))
            await asyncio.sleep(rng.choice([5, 40, 90, 150, 300]))
            cluster.network.thaw(manager)
            cluster.network.mend()
        over.set()

    clients = [cluster.play_at_random(rng, name, over) for name in cluster.clients]
    await asyncio.gather(*clients, disturb())
    await cluster.until_whole(2000)
    await asyncio.sleep(100)
    return cluster


@pytest.mark.parametrize("seed", [1, 7, 9, 74])
def test_random_trouble_with_managers_loses_nothing_and_one_at_a_time_writes(seed: int) -> None:
    cluster = run(random_trouble(seed, clocks=skewed_clocks(seed) if seed % 2 else None))
    print(
        f"{len(cluster.events)} operations, routing {cluster.routing.version}, {len(leases(cluster))} leases were taken"
    )
    check_history(cluster)
    assert cluster.faults_of_managers() == []


def test_without_a_fence_the_same_trouble_has_stale_reads() -> None:
    assert "stale, after write" in violations(run(random_trouble(7, "off")).events)[0]


def leases(cluster: ManagedByMany) -> set[tuple[str, float]]:
    """Return the leases that were taken, and that with which it began."""
    return {(one.holder, one.since_s) for one in cluster.log}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_five_hundred_runs_in_which_managers_fail_have_no_stale_read_with_a_fence() -> None:
    operations = versions = writers = stale = 0
    for seed in range(500):
        with no_listeners_left():
            cluster = run(random_trouble(seed, clocks=skewed_clocks(seed) if seed % 2 else None))
            check_history(cluster)
            assert cluster.faults_of_managers() == [], seed
        operations, versions = operations + len(cluster.events), versions + cluster.routing.version
        writers += len(leases(cluster))
        with no_listeners_left():
            stale += bool(violations(run(random_trouble(seed, "off")).events))
    print(
        f"{operations} operations, {versions} versions of the routing, {writers} leases; without a fence {stale} stale"
    )


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"host": "st001", "managers": {}}, "host st001 is of one manager"),
        ({"managers": {"count": 2, "hosts": ["st001"]}}, "hosts names 1 for a count of 2; name as many"),
        ({"managers": {"count": 2, "hosts": ["st001", "st001"]}}, "one is named twice"),
        ({"managers": {"lease": {"not_trusted_below": 45}}}, "is trusted for 15 s, no more than two turns"),
        ({"clocks": {"st001": "2 d"}}, "clocks.st001"),
    ],
)
def test_faults_of_the_config_are_named(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        StorageConfig.model_validate({"cluster_manager": keys})
