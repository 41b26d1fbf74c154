"""Checkpoints of a training in a file system of its run, each rank writing a part: for :mod:`.training_steps`.

What all ranks must know of each other, such as checksums of chunks, they add up as they do gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any

from cluster.checkpoints.generations import Keeping
from cluster.checkpoints.manager import CheckpointManager
from cluster.checkpoints.restoring import WrongDataError
from cluster.checkpoints.tensors import Range, Tensor, replicated
from cluster.checkpoints.writing import WritePlan, plan_write
from cluster.platform.gang import LANE_BYTES, Gang
from cluster.platform.training_saves import NoSavesError, SavesLostError, State
from fabric.errors import ConfigError, FabricError, UsageError
from traffic.storage.metadata.mounting import MountPoint, find_mount_point
from traffic.storage.metadata.usrbio import FileSystem

MOST_LAYERS = 8
_STORAGE_TIMEOUT_S = 300.0


def saves_in(job: str, path: str, keep: int) -> StorageSaves:
    """Return the saves of a program that a run has started, in the file system of a job of it."""
    return StorageSaves(partial(find_mount_point, job, None), path, keep)


def layers(values: int) -> tuple[Tensor, ...]:
    """Return the tensors of a vector: parts of it that follow each other."""
    count = min(MOST_LAYERS, values)
    bounds = [values * number // count for number in range(count + 1)]
    sizes = [end - begin for begin, end in pairwise(bounds)]
    return tuple(Tensor(f"layer{number}", "int64", (size,)) for number, size in enumerate(sizes))


def tensors_of(state: State) -> dict[str, bytes]:
    """Return the bytes of a state's tensors."""
    data, found, at = state.to_bytes(), {}, 0
    for one in layers(state.values):
        found[one.name] = data[at : at + one.size_bytes]
        at += one.size_bytes
    return found


class StorageSaves:
    """:class:`cluster.platform.training_saves.Saves` in a file system. ``find`` says how to come to it, from which
    host."""

    def __init__(self, find: Callable[[], tuple[MountPoint, str]], path: str, keep: int) -> None:
        self._find, self._path, self._keeping = find, path, Keeping(last=keep)
        self._mount: FileSystem | None = None
        self._manager: CheckpointManager
        self._chunk_bytes = 1
        self._under_way: tuple[WritePlan, Future[dict[int, int]], dict[str, str]] | None = None

    def __enter__(self) -> StorageSaves:
        try:
            place, host = self._find()
            self._mount = FileSystem(place, host)
        except UsageError as error:
            raise NoSavesError(str(error)) from None
        except FabricError as error:
            raise SavesLostError(str(error)) from None
        self._manager = CheckpointManager(self._mount.files, self._path, self._keeping, place.writes_at_once)
        self._chunk_bytes = place.storage.chunk_size
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._mount is not None:
            self._mount.unmount()

    def _run(self, work: Any) -> Any:
        assert self._mount is not None, "it is open"
        return self._mount.run(work)

    def restore(self, gang: Gang, state: State) -> None:
        """Remove what was interrupted, then let all ranks read the newest checkpoint that all of them can read."""
        fault = ""
        steps: list[int] = []
        if gang.rank == 0:
            try:
                self._run(self._manager.tidy())
                steps = sorted(self._run(self._manager.generations()).complete, reverse=True)
            except FabricError as error:
                fault = str(error)
        failed, count = gang.sums([bool(fault), len(steps)], _STORAGE_TIMEOUT_S)
        if failed:
            raise SavesLostError(f"checkpoints cannot be listed: {fault or 'by rank 0'}")
        last = ""
        for step in gang.sums(steps or [0] * count, _STORAGE_TIMEOUT_S) if count else []:
            fault, is_wrong = self._read(step, state)
            read, wrong = gang.sums([not fault, is_wrong], _STORAGE_TIMEOUT_S)
            if read == gang.world:
                return
            last = f"checkpoint of step {step}: {fault or 'not on all ranks'}"
            print(last, flush=True)
            if wrong and gang.rank == 0:  # So that this step can be saved once more.
                self._run(self._manager.remove(step))
        if last:
            raise SavesLostError(f"no checkpoint can be read; {last}")

    def _read(self, step: int, state: State) -> tuple[str, bool]:
        """Read a checkpoint into the state; return what went wrong, or nothing, and whether the data are wrong."""
        try:
            index = self._run(self._manager.index(step))
            if index.tensors != layers(state.values):
                return f"it has {index.size_bytes} bytes; this training has {state.values * LANE_BYTES}", False
            wanted = [Range(one.name, 0, one.size_bytes) for one in index.tensors]
            parts = self._run(self._manager.restore(index, wanted))
        except FabricError as error:
            return str(error), isinstance(error, WrongDataError | ConfigError)
        state.take(step, b"".join(parts[one.name].data for one in index.tensors))
        return "", False

    def begin(self, gang: Gang, state: State) -> None:
        """Copy the state, and begin to write this rank's part of it, once rank 0 has made the directory."""
        assert self._mount is not None, "it is open"
        tensors = layers(state.values)
        plan = plan_write(state.step, tensors, replicated(tensors, gang.world), self._chunk_bytes)
        data = tensors_of(state)
        hashes = {name: hashlib.sha256(one).hexdigest() for name, one in data.items()} if gang.rank == 0 else {}
        writing = Future[dict[int, int]]()
        try:
            if gang.rank == 0:
                self._run(self._manager.prepare(state.step))
            copied = self._run(self._manager.copy(plan, gang.rank, data))
        except FabricError as error:
            writing.set_exception(error)
        gang.sums([1], _STORAGE_TIMEOUT_S)
        if not writing.done():
            writing = self._mount.begin(self._manager.write(plan, gang.rank, copied))
        self._under_way = (plan, writing, hashes)

    @property
    def is_written(self) -> bool:
        """Whether this rank's part is written, or has failed."""
        return self._under_way is not None and self._under_way[1].done()

    def wait(self) -> None:
        """Return once it is."""
        if self._under_way is not None:
            self._under_way[1].exception()

    def complete(self, gang: Gang, silent_s: float) -> str:
        """Let rank 0 write the index, with the checksums of all."""
        assert self._under_way is not None, "a checkpoint was begun"
        plan, writing, hashes = self._under_way
        self._under_way = None
        error = writing.exception()
        mine = {} if error is not None else writing.result()
        count = len(plan.index.chunk_sizes)
        written, *sums = gang.sums([error is None, *(mine.get(chunk, 0) for chunk in range(count))], silent_s)
        if written != gang.world:
            return f"{gang.world - written} ranks have not written their part" + (f": {error}" if error else "")
        fault = ""
        if gang.rank == 0:
            try:
                self._run(self._manager.commit(plan, dict(enumerate(sums)), hashes))
                self._run(self._manager.tidy())
            except FabricError as found:
                fault = str(found)
        (failed,) = gang.sums([bool(fault)], silent_s)
        return (fault or "rank 0 has not written the index") if failed else ""
