"""The phases of wrong data: copies of one storage node that are wrong while all restore, and a checkpoint of which all
copies are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.checkpoints.client import CheckpointClient, CheckpointClientArguments, Did, RestorePart
from cluster.checkpoints.job import CheckpointsJob
from cluster.checkpoints.restoring import WrongChunkError, WrongDataError
from experiments.goodput_year.config import GoodputYearConfig
from experiments.goodput_year.storage_phases import most_Bps, only, operations_of
from experiments.goodput_year.storms import Storm, storms_of
from fabric.errors import TrafficError
from fabric.failures.config import failure_line, schedule_failures
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Agent, Program
from runs.jobs import started
from runs.session import Session
from traffic.storage.finite import FiniteStorageJob
from traffic.storage.metadata.clients import RunStep
from traffic.storage.metadata.job import Conducted
from traffic.storage.wire import event_loop

WRONG_COPIES, WRONG_CHECKPOINT = "wrong_copies", "wrong_checkpoint"
"""The phases."""
_STRAY = b"\xff" * 64


@dataclass(frozen=True)
class WrongCopies:
    """A restore by all nodes while one storage node's copies were wrong: how often one was read, and tried elsewhere;
    None for a storm of which a node did not get all."""

    storm: Storm | None
    wrong_copies: int


@dataclass(frozen=True)
class WrongCheckpoint:
    """A restore by all nodes of a checkpoint of which a chunk is wrong in all copies: from its begin until all knew
    that the data were wrong (``found_s``), and how long the restore of the one before took then (``again_s``)."""

    found_s: float
    again_s: float
    nodes: int

    @property
    def part(self) -> float:
        """The part of a restore's time after which it is known."""
        return min(1.0, self.found_s / self.again_s)


def play_wrong_copies(session: Session, config: GoodputYearConfig) -> WrongCopies | None:
    """Let all nodes restore while all chunks of one storage node have a wrong bit; None if it is not played."""
    if config.wrong is None:
        return None
    fabric = session.live.fabric
    victim = fabric.storages[0].name
    stage = replace(session.stage, rotten_hosts=frozenset({victim}))
    job = FiniteStorageJob(stage, only(config.storms.storage, "restore"), fabric.computes)
    line = failure_line({"disk": victim, "at": 0.0, "effect": "rot", "chunks": config.wrong.chunks})
    with started(session, [job]):
        title = f"{len(fabric.computes)} nodes restore, and the copies of {victim} are wrong"
        session.run_phase(WRONG_COPIES, title, [job], 0.0, schedule_failures([line], fabric, config.seed))
        counts = job.counts
    storms = storms_of(WRONG_COPIES, operations_of(session, WRONG_COPIES), most_Bps(fabric))
    return WrongCopies(next(iter(storms), None), counts.get("wrong_copies", 0))


# A wrong checkpoint --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteStray(RunStep):
    """The order to write into the first chunk of the checkpoint of step ``iteration``, as a program with a fault
    would: storage has what was written, and its own checksums of that."""


def run_stray_client(agent: Agent, arguments: CheckpointClientArguments) -> None:
    """Be a node's program until the run stops it."""
    event_loop.run(StrayClient(agent, arguments).run())


@dataclass(frozen=True)
class FoundWrong(Did):
    """A node's word that a chunk has not the bytes that were written."""


class StrayClient(CheckpointClient):
    """A node's program that can also write where it should not, and tells of wrong data where others end."""

    async def step(self, order: RunStep) -> None:
        """Do as ordered."""
        if isinstance(order, WriteStray):
            self.agent.report(await self._write_stray(order.iteration))
        elif isinstance(order, RestorePart):
            self.agent.report(await self._restore_or_tell(order))
        else:
            await super().step(order)

    async def _write_stray(self, step: int) -> Did:
        began_s, manager = time.monotonic(), self._manager
        index = await manager.index(step)
        first, offset = index.place_of(0)
        file = await manager.files.open(f"{manager.top}/{step}/{first}", writes=True)
        await manager.files.write(file, offset + index.chunk_sizes[0] // 2, _STRAY[: index.chunk_sizes[0] // 2])
        await manager.files.close(file)
        return Did(began_s, began_s, time.monotonic(), len(_STRAY))

    async def _restore_or_tell(self, order: RestorePart) -> Did:
        began_s = time.monotonic()
        try:
            return await self._restore(order)
        except WrongChunkError as error:
            return FoundWrong(began_s, began_s, time.monotonic(), fault=str(error))
        except WrongDataError as error:
            return Did(began_s, began_s, time.monotonic(), fault=str(error))


class WrongCheckpointJob(CheckpointsJob):
    """All nodes write checkpoints; the last one becomes wrong; all restore it, and the one before."""

    found: WrongCheckpoint | None = None

    @property
    def client_program(self) -> Program:
        """What runs in a node."""
        return run_stray_client

    def conduct(self, conducted: Conducted) -> None:
        """Order all of that. Raises TrafficError if a checkpoint is not complete, or if the wrong one passes."""
        count = self.checkpoints.count or 2
        for step in range(1, count + 1):
            if not self._write(conducted, step):
                raise TrafficError(f"{self.name}: checkpoint {step} is not complete; see the table checkpoints")
        (stray,) = self._done_by(WriteStray(f"a stray write into {count}", count), self.clients[:1]).values()
        if stray.fault:
            raise TrafficError(f"{self.name}: {stray.fault}")
        everyone = len(self.clients)
        wrong = self._restored(conducted, count)
        if not any(isinstance(one, FoundWrong) for one in wrong):
            raise TrafficError(f"{self.name}: checkpoint {count} is wrong, and all nodes restored it")
        right = self._restored(conducted, count - 1)
        if bad := [one.fault for one in right if one.fault]:
            raise TrafficError(f"{self.name}: checkpoint {count - 1} cannot be restored either: {bad[0]}")
        self.found = WrongCheckpoint(_took_s(wrong), _took_s(right), everyone)

    def _restored(self, conducted: Conducted, step: int) -> Sequence[Did]:
        """Let all nodes restore a checkpoint; all go on once the last one knows whether its part is right, as ranks
        that add up whether all have read it."""
        order = RestorePart(f"the restore of {step}", step, len(self.clients))
        did = self._done_by(order, self.clients)
        is_wrong = any(one.fault for one in did.values())
        ended_s = max(one.done_s for one in did.values())
        self._note(conducted, "restore_failed" if is_wrong else "restore", step, did, ended_s)
        return list(did.values())


def _took_s(did: Sequence[Did]) -> float:
    return max(one.done_s for one in did) - min(one.started_s for one in did)


def play_wrong_checkpoint(session: Session, config: GoodputYearConfig) -> WrongCheckpoint | None:
    """Play it; None if it is not played."""
    if config.wrong is None:
        return None
    computes = session.live.fabric.computes
    job = WrongCheckpointJob(
        session.stage, config.wrong.checkpoints, computes, level=ServiceLevel.STORAGE, name=WRONG_CHECKPOINT
    )
    with started(session, [job]):
        title = f"the last checkpoint is wrong, and {len(computes)} nodes restore the one before"
        session.run_phase(WRONG_CHECKPOINT, title, [job], 0.0)
    return job.found
