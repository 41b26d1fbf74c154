"""Random runs of replicas under kills and cuts: what clients see is linearizable, and every write applied once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fabric.errors import TrafficError
from traffic.storage.chains import ChunkId
from traffic.storage.messages import REQUEST_BITS, Status
from traffic.storage.replica import Applied, Chunk, Replica, Stored

from .linearizability import violations
from .world import History, io_of, random_run, soon

_RUNS_FOR_A_BUG = 60


@pytest.mark.parametrize("writers", [1, 3])
def test_histories_are_linearizable_and_every_write_is_applied_once(writers: int) -> None:
    reads = retries = 0
    for seed in range(25):
        history = asyncio.run(random_run(seed, writers)).history
        assert violations(history.operations) == [], f"seed {seed}"
        assert history.applied_twice == [], f"seed {seed}"
        reads += history.reads
        retries += history.retries
    print(f"{writers} writers a chunk: {reads} reads, {retries} tries in vain")
    assert reads > 500
    assert retries > 20


class AnswersFirst(Replica):
    """Commits and answers before its successor has the version."""

    async def _complete(self, chunk: ChunkId, held: Chunk, until_s: float) -> Applied:
        if self.table.chains[held.chain].nodes[-1] == self.node:
            return await super()._complete(chunk, held, until_s)
        stored = held.pending
        assert stored is not None
        self._later = getattr(self, "_later", {})
        self._later[chunk] = asyncio.ensure_future(self._pass_on_after(self._later.get(chunk), chunk, held, stored))
        return self._commit(held, stored, stored.request >> REQUEST_BITS)

    async def _pass_on_after(
        self, before: asyncio.Future[None] | None, chunk: ChunkId, held: Chunk, stored: Stored
    ) -> None:
        if before is not None:
            await before
        io = io_of(stored.request, chunk, stored.version)
        status = Status.BUSY
        while status is not Status.OK and (successor := self._successor(held.chain)) is not None:
            versioned = replace(io, chain_version=self.table.chains[0].version)
            status = await self._forward(successor, versioned, stored, soon())
            await asyncio.sleep(0.0005)


class ReadsWhatIsPending(Replica):
    """Lets a chunk be read while a version is pending: the older one."""

    def read(self, chunk: ChunkId) -> Stored:
        held = self.held(chunk)
        return held.committed if held is not None and held.committed is not None else super().read(chunk)


class ForgetsClients(Replica):
    """Knows a chunk's last write only, whoever made it: a try that comes again after another's write is a new one."""

    def _commit(self, held: Chunk, stored: Stored, client: int) -> Applied:
        held.last.clear()
        return super()._commit(held, stored, client)


def _found(history: History) -> list[str]:
    return violations(history.operations) + [f"applied twice: {write}" for write in history.applied_twice]


@pytest.mark.parametrize("kind", [AnswersFirst, ReadsWhatIsPending, ForgetsClients])
def test_a_planted_bug_is_found(kind: type[Replica]) -> None:
    for seed in range(_RUNS_FOR_A_BUG):
        try:
            found = _found(asyncio.run(random_run(seed, 3, kind)).history)
        except (AssertionError, TrafficError) as error:  # The protocol's own checks may see it first.
            print(f"seed {seed}: {type(error).__name__}: {error}")
            continue
        if found:
            print(f"seed {seed}: {found[0]}")
            return
    pytest.fail(f"not found in {_RUNS_FOR_A_BUG} runs")
