"""The program in each node of a job of checkpoints: it writes its part, commits if it is told to, and restores."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from cluster.checkpoints.config import CheckpointsConfig
from cluster.checkpoints.contents import made_all, tensors_of
from cluster.checkpoints.manager import CheckpointManager, Copied
from cluster.checkpoints.tensors import sharded
from cluster.checkpoints.writing import WritePlan, plan_write
from fabric.errors import TrafficError
from fabric.world.programs.agents import Agent
from traffic.job import Records
from traffic.storage.client.library import StorageClient
from traffic.storage.client.workloads import operation_row
from traffic.storage.metadata.clients import FilesClient, FilesClientArguments, RunStep
from traffic.storage.metadata.files import Files
from traffic.storage.orders import Report
from traffic.storage.wire import event_loop


@dataclass(frozen=True)
class CheckpointClientArguments(FilesClientArguments):
    """What a node is told: the job's keys, and how many nodes write."""

    config: CheckpointsConfig
    writers: int

    @property
    def processes(self) -> int:
        """One client of the metadata servers."""
        return 1


@dataclass(frozen=True)
class CopyPart(RunStep):
    """The order to copy this node's part of the checkpoint of step ``iteration`` from its GPUs; the first node makes
    its directory meanwhile."""


@dataclass(frozen=True)
class WritePart(RunStep):
    """The order to write what was copied."""


@dataclass(frozen=True)
class Commit(RunStep):
    """The order to make it complete: ``checksums`` of all chunks; then what is not kept is removed."""

    checksums: Mapping[int, int]


@dataclass(frozen=True)
class RestorePart(RunStep):
    """The order to restore one's part, of so many nodes, of the checkpoint of step ``iteration``."""

    nodes: int


@dataclass(frozen=True)
class Did:
    """A node's word of what it did: when (``time.monotonic()``), of how many bytes, checksums of what it wrote, and why
    it could not. ``ready_s``: when its part was copied from its GPUs, or the index read."""

    started_s: float
    ready_s: float
    done_s: float
    size_bytes: int = 0
    checksums: Mapping[int, int] = field(default_factory=dict)
    fault: str = ""


def run_checkpoint_client(agent: Agent, arguments: CheckpointClientArguments) -> None:
    """Be a node's program until the run stops it."""
    event_loop.run(CheckpointClient(agent, arguments).run())


class CheckpointClient(FilesClient):
    """A node's program."""

    def __init__(self, agent: Agent, arguments: CheckpointClientArguments) -> None:
        super().__init__(agent, arguments)
        self._told = arguments
        self._manager: CheckpointManager
        self._copied = Copied({})

    def make_process(self, files: Files, rank: int, ranks: int) -> None:
        """Make the manager."""
        config = self._told.config
        copy_Bps = None if config.device_to_host is None else config.device_to_host / 8  # noqa: N806
        self._manager = CheckpointManager(files, f"/{self._told.place.job}", config.keeping, config.in_flight, copy_Bps)

    def plan(self, step: int) -> WritePlan:
        """Return who writes what of a checkpoint."""
        config, writers = self._told.config, self._told.writers
        tensors = tensors_of(config.size * writers, config.tensors)
        return plan_write(step, tensors, sharded(tensors, writers), config.chunk_size)

    async def step(self, order: RunStep) -> None:
        """Do as ordered, and say what came of it. What storage does not do in time is told; wrong data is raised."""
        if isinstance(order, CopyPart):
            did = await self._copy(order.iteration)
        elif isinstance(order, WritePart):
            did = await self._write(order.iteration)
        elif isinstance(order, Commit):
            did = await self._commit(order)
        else:
            assert isinstance(order, RestorePart), order
            did = await self._restore(order)
        self.agent.report(did)

    async def _copy(self, step: int) -> Did:
        plan, node = self.plan(step), self._told.number
        mine = sharded(plan.index.tensors, self._told.writers)[node]
        data = made_all(self._told.place.seed, step, mine)
        base = {one.tensor: one.begin for one in mine}
        started_s, fault = time.monotonic(), ""
        preparing = asyncio.ensure_future(self._manager.prepare(step)) if node == 0 else None
        self._copied = await self._manager.copy(plan, node, data, base)
        ready_s = time.monotonic()
        if preparing is not None:
            try:
                await preparing
            except TrafficError as error:
                fault = str(error)
        return Did(started_s, ready_s, ready_s, self._copied.size_bytes, fault=fault)

    async def _write(self, step: int) -> Did:
        started_s, fault, checksums = time.monotonic(), "", dict[int, int]()
        try:
            checksums = await self._manager.write(self.plan(step), self._told.number, self._copied)
        except TrafficError as error:
            fault = str(error)
        return Did(started_s, started_s, time.monotonic(), self._copied.size_bytes, checksums, fault)

    async def _commit(self, order: Commit) -> Did:
        started_s = done_s = time.monotonic()
        fault = ""
        try:
            await self._manager.commit(self.plan(order.iteration), order.checksums)
            done_s = time.monotonic()
            await self._manager.tidy()
        except TrafficError as error:
            fault = str(error)
        return Did(started_s, started_s, done_s, fault=fault)

    async def _restore(self, order: RestorePart) -> Did:
        step = order.iteration
        started_s = ready_s = time.monotonic()
        try:
            index = await self._manager.index(step)
            ready_s = time.monotonic()
            mine = sharded(index.tensors, order.nodes)[self._told.number]
            parts = await self._manager.restore(index, mine)
        except TrafficError as error:
            return Did(started_s, ready_s, time.monotonic(), fault=str(error))
        done_s = time.monotonic()
        for name, right in made_all(self._told.place.seed, step, mine).items():
            if hashlib.sha256(parts[name].data).digest() != hashlib.sha256(right).digest():
                raise TrafficError(
                    f"{self._told.host}: {name} of step {step} was restored, and is not what was written"
                )
        return Did(started_s, ready_s, done_s, sum(one.size_bytes for one in mine))

    def end(self, client: StorageClient) -> Report:
        """Return what it did, each request of storage included."""
        report = super().end(client)
        level, host = self._told.place.data.options.level, self._told.host
        records = Records(report.records)
        records.add("operations", [operation_row(one, self.phase, level, host) for one in client.operations])
        return Report(records, report.counts, report.resyncs)
