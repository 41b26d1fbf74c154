"""Checkpoints as a job of a run: storage, metadata servers, and nodes that write and restore.

Who coordinates the nodes is the run, over pipes, as ranks of a training do by what they add up together: once all have
written, the first one writes the index.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cluster.checkpoints.client import (
    CheckpointClientArguments,
    Commit,
    CopyPart,
    Did,
    RestorePart,
    WritePart,
    run_checkpoint_client,
)
from cluster.checkpoints.config import CheckpointsConfig
from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import Program
from traffic.job import Records, Stage
from traffic.storage.job import AddressOf
from traffic.storage.metadata.clients import FilesClientArguments, RunStep
from traffic.storage.metadata.job import Conducted, FilesJob

WRITE, RESTORE = "write", "restore"
FAILED = "_failed"
_STEP_TIMEOUT_S = 3600.0


class CheckpointsJob(FilesJob):
    """A :class:`traffic.job.FiniteJob` if it has a ``count``; else checkpoints follow each other until it is halted."""

    load_table = "checkpoints"

    def __init__(
        self,
        stage: Stage,
        config: CheckpointsConfig,
        clients: Sequence[NodeId],
        address_of: AddressOf | None = None,
        *,
        level: ServiceLevel,
        name: str,
    ) -> None:
        if faults := list(config.node_faults(len(clients))):
            raise ConfigError(name, faults)
        self.checkpoints = config
        self._halting = threading.Event()
        self._next_step = 1
        super().__init__(stage, config, clients, address_of, level=level, name=name)

    @property
    def client_program(self) -> Program:
        """What runs in a node."""
        return run_checkpoint_client

    def files_client(self, client: NodeId, number: int) -> FilesClientArguments:
        """Return what a node's program is told."""
        told = super().files_client(client, number)
        writers = self.checkpoints.writing(len(self.clients))
        return CheckpointClientArguments(
            told.host, told.number, told.clients, told.place, None, self.checkpoints, writers
        )

    @property
    def has_load(self) -> bool:
        """True: checkpoints."""
        return True

    def play(self, phase: str) -> None:
        """Begin."""
        self._halting.clear()
        super().play(phase)

    def finish(self) -> None:
        """Return once all is written and restored, if that has an end."""
        if self.checkpoints.count is not None:
            super().finish()

    def halt(self) -> Records:
        """Let the checkpoint under way become complete, begin no more, and return the rows."""
        self._halting.set()
        return super().halt()

    def conduct(self, conducted: Conducted) -> None:
        """Order checkpoints, then restores. Raises TrafficError if a program fails, or data is wrong."""
        config, number, complete = self.checkpoints, 0, None
        while not self._halting.is_set():
            began_s = time.monotonic()
            step, self._next_step = self._next_step, self._next_step + 1
            if self._write(conducted, step):
                complete = step
            number += 1
            if number == config.count:
                break
            self._halting.wait(max(0.0, began_s + config.every - time.monotonic()))
        for nodes in config.restored_by:
            if complete is not None and not self._halting.is_set():
                self._restore(conducted, complete, nodes)

    def _done_by(self, order: RunStep, nodes: Sequence[NodeId]) -> dict[NodeId, Did]:
        with self._clients.asking:
            self._clients.order(order, nodes)
            found: dict[NodeId, Any] = self._clients.collect(f"the end of {order.name}", _STEP_TIMEOUT_S, nodes)
        return found

    def _write(self, conducted: Conducted, step: int) -> bool:
        """Let nodes write a checkpoint; return whether it is complete."""
        writers = self.clients[: self.checkpoints.writing(len(self.clients))]
        did = self._done_by(CopyPart(f"the copy of {step}", step), writers)
        fault = next((one.fault for one in did.values() if one.fault), "")
        if not fault:
            written = self._done_by(WritePart(f"checkpoint {step}", step), writers)
            fault = next((one.fault for one in written.values() if one.fault), "")
            began_s = {node: one.started_s for node, one in did.items()}
            did = {node: replace(one, started_s=began_s[node]) for node, one in written.items()}
        if gone := len(writers) - len(did):
            fault = f"{gone} of {len(writers)} nodes are gone"
        ended_s = max((one.done_s for one in did.values()), default=0.0)
        if not fault:
            checksums = {chunk: sum_ for one in did.values() for chunk, sum_ in one.checksums.items()}
            (committed,) = self._done_by(Commit(f"the index of {step}", step, checksums), writers[:1]).values()
            fault, ended_s = committed.fault, committed.done_s
        self._note(conducted, WRITE + (FAILED if fault else ""), step, did, ended_s)
        return not fault

    def _restore(self, conducted: Conducted, step: int, nodes: int) -> None:
        did = self._done_by(RestorePart(f"the restore of {step} by {nodes}", step, nodes), self.clients[:nodes])
        failed = len(did) < nodes or any(one.fault for one in did.values())
        ended_s = max((one.done_s for one in did.values()), default=0.0)
        self._note(conducted, RESTORE + (FAILED if failed else ""), step, did, ended_s)

    def _note(self, conducted: Conducted, operation: str, step: int, did: Mapping[NodeId, Did], ended_s: float) -> None:
        conducted.rows += [
            {
                "phase": conducted.phase,
                "service_level": self.level.label,
                "host": node.name,
                "operation": operation,
                "step": step,
                "nodes": len(did),
                "size_bytes": one.size_bytes,
                "started_s": one.started_s,
                "ready_s": one.ready_s,
                "done_s": one.done_s,
                "ended_s": ended_s,
                "why": one.fault,
            }
            for node, one in did.items()
        ]
