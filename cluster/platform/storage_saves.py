"""Checkpoints of a training in a file system of its run, each rank writing a part: for :mod:`.training_steps`.

What all ranks must know of each other, such as checksums of chunks, they add up as they do gradients.

A checkpoint has the state, which all ranks hold, and that of a model if a size is told: tensors that are sharded over
the ranks, whose bytes :mod:`cluster.checkpoints.contents` makes of the run's seed and the step, so that whoever
restores a shard knows each byte of it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any

from cluster.checkpoints.contents import made, made_all
from cluster.checkpoints.contents import tensors_of as model_tensors
from cluster.checkpoints.generations import Keeping
from cluster.checkpoints.manager import DEVICE_TO_HOST_BPS, CheckpointManager, Copied, Part
from cluster.checkpoints.restoring import WrongDataError
from cluster.checkpoints.tensors import Range, Tensor, replicated, sharded
from cluster.checkpoints.writing import WritePlan, plan_write
from cluster.platform.gang import Gang
from cluster.platform.training_saves import ModelSize, NoSavesError, SavesLostError, State, say
from fabric.errors import ConfigError, FabricError, UsageError
from traffic.storage.metadata.mounting import MountPoint, find_mount_point
from traffic.storage.metadata.usrbio import FileSystem

MOST_LAYERS = 8
_STORAGE_TIMEOUT_S = 300.0


def saves_in(job: str, path: str, keep: int, model: ModelSize | None = None) -> StorageSaves:
    """Return the saves of a program that a run has started, in the file system of a job of it."""
    return StorageSaves(partial(find_mount_point, job, None), path, keep, model)


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


@dataclass
class _UnderWay:
    """A checkpoint that is being written: this rank's part of it."""

    plan: WritePlan
    hashes: dict[str, str]
    writing: Future[dict[int, int]]
    copied: Copied = field(default_factory=lambda: Copied({}))
    copy_s: float = 0.0
    write_s: float = 0.0

    async def write(self, manager: CheckpointManager, rank: int) -> dict[int, int]:
        """Write it; return the checksums."""
        began_s = time.monotonic()
        found = await manager.write(self.plan, rank, self.copied)
        self.write_s = time.monotonic() - began_s
        return found

    def __str__(self) -> str:
        return (
            f"wrote {self.copied.size_bytes} B of step {self.plan.index.step}: {self.copy_s:.6f} s from the GPUs, "
            f"{self.write_s:.6f} s to storage"
        )


class StorageSaves:
    """:class:`cluster.platform.training_saves.Saves` in a file system. ``find`` says how to come to it, from which
    host; ``model``: what a checkpoint has beside the vector."""

    def __init__(
        self, find: Callable[[], tuple[MountPoint, str]], path: str, keep: int, model: ModelSize | None = None
    ) -> None:
        self._find, self._path, self._keeping = find, path, Keeping(last=keep)
        self._model = () if model is None else model_tensors(model.size_bytes, model.tensors)
        self._copy_Bps = DEVICE_TO_HOST_BPS if model is None else model.copy_Bps
        self._seed = 0
        self._mount: FileSystem | None = None
        self._manager: CheckpointManager
        self._chunk_bytes = 1
        self._under_way: _UnderWay | None = None

    def __enter__(self) -> StorageSaves:
        try:
            place, host = self._find()
            self._mount = FileSystem(place, host)
        except UsageError as error:
            raise NoSavesError(str(error)) from None
        except FabricError as error:
            raise SavesLostError(str(error)) from None
        self._manager = CheckpointManager(
            self._mount.files, self._path, self._keeping, place.writes_at_once, self._copy_Bps
        )
        self._chunk_bytes, self._seed = place.storage.chunk_size, place.seed
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
            fault, is_wrong = self._read(step, state, gang)
            read, wrong = gang.sums([not fault, is_wrong], _STORAGE_TIMEOUT_S)
            if read == gang.world:
                return
            last = f"checkpoint of step {step}: {fault or 'not on all ranks'}"
            say(last)
            if wrong and gang.rank == 0:  # So that this step can be saved once more.
                self._run(self._manager.remove(step))
        if last:
            raise SavesLostError(f"no checkpoint can be read; {last}")

    def _read(self, step: int, state: State, gang: Gang) -> tuple[str, bool]:
        """Read a checkpoint's vector into the state, and this rank's shards; return what went wrong, or nothing, and
        whether the data are wrong."""
        vector = layers(state.values)
        tensors, began_s = vector + self._model, time.monotonic()
        try:
            index = self._run(self._manager.index(step))
            if index.tensors != tensors:
                own = sum(one.size_bytes for one in tensors)
                return (
                    f"it has {index.size_bytes} bytes in {len(index.tensors)} tensors; this training has {own} in "
                    f"{len(tensors)}",
                    False,
                )
            shards = sharded(self._model, gang.world)[gang.rank]
            wanted = [*(Range(one.name, 0, one.size_bytes) for one in vector), *shards]
            parts = self._run(self._manager.restore(index, wanted))
            took_s = time.monotonic() - began_s
            self._verify(step, shards, parts)
        except FabricError as error:
            return str(error), isinstance(error, WrongDataError | ConfigError)
        state.take(step, b"".join(parts[one.name].data for one in vector))
        if shards:
            say(f"read {sum(one.size_bytes for one in wanted)} B of step {step}: {took_s:.6f} s")
        return "", False

    def _verify(self, step: int, shards: Sequence[Range], parts: Mapping[str, Part]) -> None:
        """Raise WrongDataError unless each byte of the shards is that of the step."""
        for one in shards:
            if parts[one.tensor].data != made(self._seed, step, one):
                raise WrongDataError(
                    f"checkpoint of step {step}: bytes {one.begin} to {one.end} of {one.tensor} are not the step's"
                )

    def begin(self, gang: Gang, state: State) -> None:
        """Copy the state, and begin to write this rank's part of it, once rank 0 has made the directory."""
        assert self._mount is not None, "it is open"
        vector, shards = layers(state.values), sharded(self._model, gang.world)
        held = {rank: [*ranges, *shards[rank]] for rank, ranges in replicated(vector, gang.world).items()}
        plan = plan_write(state.step, vector + self._model, held, self._chunk_bytes)
        data = tensors_of(state)
        hashes = {name: hashlib.sha256(one).hexdigest() for name, one in data.items()} if gang.rank == 0 else {}
        data |= made_all(self._seed, state.step, shards[gang.rank])
        base = {one.tensor: one.begin for one in shards[gang.rank]}
        mine = self._under_way = _UnderWay(plan, hashes, Future())
        try:
            if gang.rank == 0:
                self._run(self._manager.prepare(state.step))
            began_s = time.monotonic()
            mine.copied = self._run(self._manager.copy(plan, gang.rank, data, base))
            mine.copy_s = time.monotonic() - began_s
        except FabricError as error:
            mine.writing.set_exception(error)
        del data
        gang.sums([1], _STORAGE_TIMEOUT_S)
        if not mine.writing.done():
            mine.writing = self._mount.begin(mine.write(self._manager, gang.rank))

    @property
    def is_written(self) -> bool:
        """Whether this rank's part is written, or has failed."""
        return self._under_way is not None and self._under_way.writing.done()

    def wait(self) -> None:
        """Return once it is."""
        if self._under_way is not None:
            self._under_way.writing.exception()

    def complete(self, gang: Gang, silent_s: float) -> str:
        """Let rank 0 write the index, with the checksums of all."""
        assert self._under_way is not None, "a checkpoint was begun"
        own, self._under_way = self._under_way, None
        plan, error = own.plan, own.writing.exception()
        mine = {} if error is not None else own.writing.result()
        if self._model and error is None:
            say(str(own))
        count = len(plan.index.chunk_sizes)
        written, *sums = gang.sums([error is None, *(mine.get(chunk, 0) for chunk in range(count))], silent_s)
        if written != gang.world:
            return f"{gang.world - written} ranks have not written their part" + (f": {error}" if error else "")
        fault = ""
        if gang.rank == 0:
            try:
                self._run(self._manager.commit(plan, dict(enumerate(sums)), own.hashes))
                self._run(self._manager.tidy())
            except FabricError as found:
                fault = str(found)
        (failed,) = gang.sums([bool(fault)], silent_s)
        return (fault or "rank 0 has not written the index") if failed else ""
