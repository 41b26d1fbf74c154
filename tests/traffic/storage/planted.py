"""Replicas with a bug each, which histories must show; and the service with one, as a program."""

from __future__ import annotations

import asyncio
import time

from fabric.world.programs.agents import Agent
from traffic.storage.chains import ChunkId
from traffic.storage.orders import ServiceArguments
from traffic.storage.service import program as service
from traffic.storage.service.replica import Applied, Chunk, Replica, Stored
from traffic.storage.wire.messages import ReplyStatus


class AnswersFirst(Replica):
    """Commits and answers before its successor has the version."""

    async def _complete(self, chunk: ChunkId, held: Chunk, until_s: float) -> Applied:
        if self.table.chains[held.chain].nodes[-1] == self.node:
            return await super()._complete(chunk, held, until_s)
        stored = held.pending
        assert stored is not None
        self._later = getattr(self, "_later", {})
        self._later[chunk] = asyncio.ensure_future(self._pass_on_after(self._later.get(chunk), chunk, held, stored))
        return self._commit(held, stored)

    async def _pass_on_after(
        self, before: asyncio.Future[None] | None, chunk: ChunkId, held: Chunk, stored: Stored
    ) -> None:
        if before is not None:
            await before
        status = ReplyStatus.BUSY
        while status is not ReplyStatus.OK and (successor := self._successor(held.chain)) is not None:
            io = self._io_of(chunk, held.chain, stored)
            status, *_ = await self._forward(successor, io, stored, time.monotonic() + 0.1)
            await asyncio.sleep(self._retry_s)


class ReadsWhatIsPending(Replica):
    """Lets a chunk be read while a version is pending: the older one."""

    def read(self, chunk: ChunkId, is_relaxed: bool = False) -> Stored:
        held = self.held(chunk)
        return held.committed if held is not None and held.committed is not None else super().read(chunk)


class ForgetsClients(Replica):
    """Knows a chunk's last write only, whoever made it: a try that comes again after another's write is a new one."""

    def _commit(self, held: Chunk, stored: Stored) -> Applied:
        held.last.clear()
        return super()._commit(held, stored)


def run_service_that_answers_first(agent: Agent, arguments: ServiceArguments) -> None:
    """Be a storage service with a bug."""
    vars(service)["Replica"] = AnswersFirst
    service.run_service(agent, arguments)
