"""Clients of services in processes of their own, under random kills, cuts (of one, or between two, also one-way) and
stops: what they see is linearizable, and no acknowledged write is lost.

A few runs belong to the tests; ``pytest -m soak -s tests/traffic/storage`` makes 200.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from fabric.errors import TrafficError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import AgentPool
from traffic.job import Stage
from traffic.storage import job as job_module
from traffic.storage.chains import Extent
from traffic.storage.client.library import GaveUp, StorageClient
from traffic.storage.client.verification import Verification
from traffic.storage.job import StorageJob

from .conftest import FABRIC, client_of, config_of, loopback, run
from .cuts import Network
from .linearizability import MAYBE, Operation, violations

BATCHES, RUNS_OF_A_BATCH = 8, 25
CLIENTS = 6
LOAD_S = 1.2
SETTINGS = {
    "replicas": 3,
    "chunk_size": "16 KiB",
    "dataloader": {"files": 1, "file_size": "1 MiB", "sample_max": "64 KiB"},
    "service": {"transfer_stall": 0.1, "max_concurrent_pulls": 2, "apply_timeout": 0.2},
    "client": {"call_timeout": 0.3, "operation_timeout": 0.6},
}


@dataclass
class Run:
    """What happened in a run."""

    operations: list[Operation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    verified: Verification = field(default_factory=Verification)


@dataclass
class _World:
    job: StorageJob
    network: Network
    rng: random.Random
    extents: list[Extent]
    most_kills: int
    clients: list[StorageClient] = field(default_factory=list)
    stopped: set[NodeId] = field(default_factory=set)
    found: Run = field(default_factory=Run)

    def pid(self, node: NodeId) -> int:
        return int(self.job._services.handles[node].process.pid)

    def living(self) -> list[NodeId]:
        return list(self.job._services.living)

    def parties(self) -> list[str]:
        """Return the names of all that have a part in the traffic."""
        return [*(node.name for node in self.living()), *(client.name for client in self.clients)]

    def end_trouble(self) -> None:
        self.network.heal()
        for node in self.stopped:
            self.send(node, signal.SIGCONT)
        self.stopped.clear()

    def send(self, node: NodeId, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # One that its own checks ended; job.halt() raises for it.
            os.kill(self.pid(node), number)


async def _load(world: _World, client: StorageClient, until_s: float) -> None:
    while time.monotonic() < until_s:
        extent = world.rng.choice(world.extents)
        await (_write if world.rng.random() < 0.4 else _read)(world.found, client, extent)
        await asyncio.sleep(world.rng.random() * 0.01)


async def _write(found: Run, client: StorageClient, extent: Extent) -> None:
    started, ended = time.monotonic(), MAYBE
    try:
        request = (await client.write_chunk(extent)).request
        ended = time.monotonic()
        found.counts["writes"] += 1
    except GaveUp as error:
        request = error.request
        found.counts["writes given up"] += 1
    found.operations.append(Operation(extent.chunk, True, request, started, ended))


async def _read(found: Run, client: StorageClient, extent: Extent, node: NodeId | None = None) -> bool:
    started = time.monotonic()
    try:
        (seen,) = await client.read_chunks([extent], node)
    except GaveUp:
        found.counts["reads given up"] += 1
        return False
    found.operations.append(Operation(extent.chunk, False, seen.request, started, time.monotonic()))
    found.counts["reads"] += 1
    return True


async def _trouble(world: _World, until_s: float) -> None:
    """Kill some of a chain's three (up to two), stop services, cut services and clients off or from one another, for a
    while each."""
    rng, kills = world.rng, world.rng.choice(range(world.most_kills + 1))
    while time.monotonic() < until_s:
        await asyncio.sleep(rng.random() * 0.25)
        node = rng.choice(world.living())
        event = rng.choice(("kill", "cut", "part", "part one way", "stop", "stop", "heal"))
        if event == "kill" and kills:
            kills -= 1
            world.job.kill_service(node)
            world.network.remove(node.name)
            world.stopped.discard(node)
        elif event == "cut":
            world.network.cut(rng.choice([node.name, node.name, *(client.name for client in world.clients)]))
        elif event.startswith("part"):
            hearer, speaker = rng.sample(world.parties(), 2)
            world.network.part(hearer, speaker, both_ways=event == "part")
        elif event == "stop":
            world.send(node, signal.SIGSTOP)
            world.stopped.add(node)
        elif event == "heal":
            world.end_trouble()
        else:
            continue
        world.found.counts[event] += 1
    world.end_trouble()


async def _until_all_is_well(world: _World) -> None:
    """Return once every living replica of each chunk has been read, which ends up in the history."""
    deadline = time.monotonic() + 20
    for extent in world.extents:
        for node in world.job.table.chains[extent.chain].nodes:
            while not await _read(world.found, world.clients[0], extent, node):
                assert time.monotonic() < deadline, f"{extent.chunk} on {node} is not readable 20 s after all trouble"


async def _read_back(client: StorageClient) -> Verification:
    """Return what is read back, again for 20 s at most while some is out of reach: a client that still dials may need
    longer than an operation may take."""
    deadline = time.monotonic() + 20
    while (found := await client.read_back()).out_of_reach and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    return found


async def _play(world: _World) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(1, CLIENTS + 1):
            source = f"127.0.9.{number}"
            client = await stack.enter_async_context(client_of(world.job, number, source=source))
            world.network.add(client.name, os.getpid(), [source])
            world.clients.append(client)
        until_s = time.monotonic() + LOAD_S
        await asyncio.gather(_trouble(world, until_s), *(_load(world, client, until_s) for client in world.clients))
        await asyncio.sleep(world.job.config.failure_detection + 0.05)
        await _until_all_is_well(world)
        for client in world.clients:
            world.found.verified += await _read_back(client)
            world.found.counts.update({"tries in vain": client.retries})
            world.found.counts.update(client.party.counts)


def random_run(pool: AgentPool, seed: int, most_kills: int = 2) -> Run:
    stage = Stage(FABRIC, pool, lambda _: None, seed=seed)
    job = StorageJob(stage, config_of(SETTINGS), FABRIC.computes[:1], loopback)
    try:
        job.start()
        network = Network()
        for node, handle in job._services.handles.items():
            network.add(node.name, handle.process.pid, {ip for (_, of), (ip, _) in job.addresses.items() if of == node})
        rng = random.Random(seed)
        world = _World(job, network, rng, rng.sample(list(job.dataset[0].extents()), 3), most_kills)
        try:
            run(_play(world))
        finally:
            world.end_trouble()
            job.halt()  # Raises if a service failed; what clients saw of it explains less.
        world.found.counts.update({name: job.counts.get(name, 0) for name in ("unsettled", "expired_calls")})
        return world.found
    finally:
        job.close()


def _soak(pool: AgentPool, seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        found = random_run(pool, seed)
        assert violations(found.operations) == [], f"seed {seed}"
        assert found.verified.lost == (), f"seed {seed}"
        assert found.verified.out_of_reach == (), f"seed {seed}"
        counts += found.counts
        counts["runs"] += 1
        counts["copies read back"] += found.verified.checked
        if seed % 10 == 9:
            print(dict(counts), flush=True)
    return counts


@pytest.fixture
def with_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # The program's process imports it, too.
    planted = importlib.import_module("planted")
    monkeypatch.setattr(job_module, "run_service", planted.run_service_that_answers_first)


def _find(pool: AgentPool, runs: int) -> int:
    """Return in which run the planted bug was found."""
    for seed in range(runs):
        try:
            found = random_run(pool, seed)
        except TrafficError as error:  # The services' own checks may see it first.
            print(f"seed {seed}: {error}")
            continue
        if lines := violations(found.operations):
            print(f"seed {seed}: {lines[0]}")
            return seed
    raise AssertionError(f"the planted bug was not found in {runs} runs")


def test_histories_over_sockets_are_linearizable(pool: AgentPool) -> None:
    counts = _soak(pool, range(2))
    print(dict(counts))
    assert counts["writes"] > 20
    assert counts["reads"] > 40


def test_a_process_that_has_ended_can_be_cut_off() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait(timeout=60)
    network = Network()
    network.add("ended", ended.pid, ["127.0.9.1"])
    network.cut("ended")
    network.heal()


def test_a_service_that_ended_by_itself_is_what_a_run_reports(pool: AgentPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_World, "living", _die_once(_World.living))
    with pytest.raises(TrafficError, match="ended with"):
        random_run(pool, 0, most_kills=0)


def test_clients_that_were_cut_off_to_the_last_are_waited_for(pool: AgentPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are still dialling when all is well again, which can take longer than an operation may."""

    async def trouble(world: _World, until_s: float) -> None:
        await asyncio.sleep(until_s - time.monotonic() - 0.9)
        for client in world.clients[1:]:
            world.network.cut(client.name)
        await asyncio.sleep(until_s - time.monotonic())
        world.end_trouble()

    monkeypatch.setitem(globals(), "_trouble", trouble)
    monkeypatch.setitem(cast(dict[str, float], SETTINGS["client"]), "operation_timeout", 0.05)
    assert random_run(pool, 0).verified.out_of_reach == ()


def _die_once(living: Callable[[_World], list[NodeId]]) -> Callable[[_World], list[NodeId]]:
    """End one service behind the job's back, as a failed check of its own would."""
    dead: list[NodeId] = []

    def chosen(world: _World) -> list[NodeId]:
        if not dead:
            dead.append(living(world)[0])
            os.kill(world.pid(dead[0]), signal.SIGKILL)
            world.job._services.handles[dead[0]].process.join(60)
        return dead

    return chosen


def test_a_bug_planted_in_the_services_is_found(pool: AgentPool, with_a_bug: None) -> None:
    _find(pool, 10)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_soak(pool: AgentPool, batch: int) -> None:
    first = 1000 + batch * RUNS_OF_A_BATCH
    counts = _soak(pool, range(first, first + RUNS_OF_A_BATCH))
    print(dict(counts))
    assert min(counts[event] for event in ("kill", "cut", "part", "part one way", "stop")) > RUNS_OF_A_BATCH / 4
