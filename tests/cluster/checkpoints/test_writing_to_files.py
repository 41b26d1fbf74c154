"""Checkpoints in a file system whose servers and storage are in memory, in time that jumps: restored bytes are equal,
whoever reads them, and whoever dies meanwhile leaves a whole checkpoint or none."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.checkpoints.contents import made, made_all, tensors_of
from cluster.checkpoints.generations import Generations, Keeping
from cluster.checkpoints.index import Index
from cluster.checkpoints.manager import DEVICE_TO_HOST_BPS, CheckpointManager
from cluster.checkpoints.restoring import WrongDataError
from cluster.checkpoints.tensors import Held, Range, Tensor, replicated, sharded
from cluster.checkpoints.writing import WritePlan, plan_write
from fabric.errors import ConfigError
from tests.traffic.storage.metadata.memory import CHUNK_BYTES, FileSystem
from tests.traffic.storage.true_timers import run
from traffic.storage.metadata.config import MetadataConfig, RemovalConfig, SessionsConfig
from traffic.storage.metadata.errors import FileError

QUIET = MetadataConfig(removal=RemovalConfig(every=20.0), sessions=SessionsConfig(heard_every=60.0), alive_every=10.0)
TENSORS = (Tensor("embed", "bfloat16", (64, 33)), Tensor("norm", "float32", (7,)), Tensor("scale", "float64", ()))


def contents(tensors: Sequence[Tensor], step: int) -> dict[str, bytes]:
    return {one.name: random.Random(f"{one.name}/{step}").randbytes(one.size_bytes) for one in tensors}


async def saved(managers: Sequence[Any], plan: WritePlan, data: Mapping[str, bytes]) -> Index:
    """Let all nodes write side by side, and the first one commit."""

    async def one(node: int) -> dict[int, int]:
        copied = await managers[node].copy(plan, node, data)
        found: dict[int, int] = await managers[node].write(plan, node, copied)
        return found

    await managers[0].prepare(plan.index.step)
    checksums: dict[int, int] = {}
    for part in await asyncio.gather(*(one(node) for node in plan.chunks_of)):
        checksums |= part
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    found: Index = await managers[0].commit(plan, checksums, hashes)
    return found


async def check(manager: CheckpointManager, index: Index, wanted: Held, data: Mapping[str, bytes]) -> None:
    for ranges in wanted.values():
        parts = await manager.restore(index, ranges)
        for one in ranges:
            part = parts[one.tensor]
            assert part.data[one.begin - part.begin : one.end - part.begin] == data[one.tensor][one.begin : one.end]


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_nodes_restore_what_any_nodes_wrote(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=4))
    kinds = st.sampled_from(("bfloat16", "float32", "uint8"))
    tensors = [Tensor(f"t{number}", data.draw(kinds), tuple(shape)) for number, shape in enumerate(shapes)]
    writers, readers = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 7))
    layouts = st.sampled_from((replicated, sharded))
    plan = plan_write(3, tensors, data.draw(layouts)(tensors, writers), data.draw(st.integers(20, 200)))
    wanted, in_flight = data.draw(layouts)(tensors, readers), data.draw(st.integers(1, 4))

    async def scene() -> None:
        system = FileSystem(2, data.draw(st.integers(0, 9)), QUIET)
        await system.start()
        managers = [
            CheckpointManager(await system.client(one + 1), "/run/job", None, in_flight) for one in range(writers)
        ]
        index = await saved(managers, plan, contents(tensors, 3))
        reader = CheckpointManager(await system.client(100), "/run/job")
        assert await reader.generations() == Generations((3,), tuple([3] if plan.index.files else []))
        assert await reader.index(3) == index
        await check(reader, index, wanted, contents(tensors, 3))

    run(scene())


class Dies(BaseException):
    """A program is killed."""


class Mortal:
    """Files of a program that is killed at one of its calls: before it, or when it is carried out and not answered."""

    def __init__(self, files: Any, dies_at: int, answered: bool) -> None:
        self.files, self.left, self.answered = files, dies_at, answered

    def __getattr__(self, name: str) -> Any:
        async def call(*words: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.answered):
                raise Dies
            found = await getattr(self.files, name)(*words, **named)
            if self.left == 0:
                raise Dies
            return found

        return call


def test_a_checkpoint_is_whole_or_not_there_wherever_its_writer_dies() -> None:
    """One of two nodes, which also commits and removes the old one, is killed at each of its calls in turn."""
    seen: set[tuple[int | None, ...]] = set()

    async def scene(dies_at: int, answered: bool) -> bool:
        system = FileSystem(1, dies_at, QUIET)
        await system.start()
        files = [await system.client(one + 1) for one in range(2)]
        keeping = Keeping(last=1)
        plans = [plan_write(step, TENSORS, replicated(TENSORS, 2), CHUNK_BYTES * 4) for step in (1, 2)]
        await saved([CheckpointManager(one, "/job") for one in files], plans[0], contents(TENSORS, 1))
        mortal = CheckpointManager(Mortal(files[0], dies_at, answered), "/job", keeping)  # type: ignore[arg-type]
        died = False
        try:
            await saved([mortal, CheckpointManager(files[1], "/job")], plans[1], contents(TENSORS, 2))
            await mortal.tidy()
        except Dies:
            died = True
        after = CheckpointManager(await system.client(9), "/job", keeping)
        there = await after.generations()
        seen.add(there.complete)
        assert there.latest is not None
        await check(after, await after.index(there.latest), replicated(TENSORS, 1), contents(TENSORS, there.latest))
        await after.tidy()
        left = await after.generations()
        assert left.complete == left.begun == (there.latest,), "nothing is left of what was interrupted"
        again = plan_write(3, TENSORS, sharded(TENSORS, 3), CHUNK_BYTES * 4)
        index = await saved([after] * 3, again, contents(TENSORS, 3))
        await check(after, index, sharded(TENSORS, 2), contents(TENSORS, 3))
        return died

    for answered, every in ((False, 1), (True, 3)):
        dies_at = 0
        while run(scene(dies_at := dies_at + every, answered)):
            assert dies_at < 200
    assert seen == {(1,), (1, 2), (2,)}


def test_wrong_bytes_and_missing_parts_are_named() -> None:
    async def scene() -> None:
        system = FileSystem(1, 0, QUIET)
        await system.start()
        manager = CheckpointManager(await system.client(1), "/job", Keeping(last=1))
        assert await manager.generations() == Generations(), "there is no directory yet"
        plan = plan_write(1, TENSORS, replicated(TENSORS, 1), CHUNK_BYTES)
        with pytest.raises(ConfigError, match="67 of 67 chunks are not written: 0, 1, 2, 3, 4"):
            await manager.commit(plan, {})
        index = await saved([manager], plan, contents(TENSORS, 1))
        with pytest.raises(FileError, match="EEXIST"):
            await saved([manager], plan, contents(TENSORS, 1))
        chunk = next(one for one, data in system.chunks.held.items() if len(data) == CHUNK_BYTES)
        system.chunks.held[chunk][5] ^= 1
        with pytest.raises(WrongDataError, match="its bytes are not those that were written; take an older"):
            await manager.restore(index, [Range("embed", 0, 64 * 66)])
        with pytest.raises(ConfigError, match="it has no tensor 'nrm'"):
            await manager.restore(index, [Range("nrm", 0, 1)])
        file = await manager.files.open("/job/1/index.json", writes=True)
        await manager.files.write(file, 0, b"\xff\xfe")
        await manager.files.close(file)
        with pytest.raises(ConfigError, match=r"/job/1/index.json: is not an index of a checkpoint"):
            await manager.index(1)

    run(scene())


def test_the_copy_from_gpus_takes_its_time_and_later_changes_do_not_count() -> None:
    async def scene() -> None:
        system = FileSystem(1, 0, QUIET)
        await system.start()
        manager = CheckpointManager(await system.client(1), "/job", copy_Bps=4224.0 + 36)
        plan = plan_write(1, TENSORS, replicated(TENSORS, 1), 1 << 12)
        data = {name: bytearray(one) for name, one in contents(TENSORS, 1).items()}
        began_s = asyncio.get_running_loop().time()
        copied = await manager.copy(plan, 0, data)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(1.0)
        for one in data.values():
            one[:] = bytes(len(one))
        with pytest.raises(FileError, match="ENOENT"):
            await manager.write(plan, 0, copied)
        await manager.prepare(1)
        index = await manager.commit(plan, await manager.write(plan, 0, copied))
        await check(manager, index, replicated(TENSORS, 1), contents(TENSORS, 1))

    run(scene())
    assert DEVICE_TO_HOST_BPS == 27e9


def test_contents_are_the_same_wherever_they_are_made() -> None:
    tensors = tensors_of(1 << 20, 3)
    assert sum(one.size_bytes for one in tensors) == 1 << 20
    (whole,) = made_all(1, 5, [Range("layer0000", 0, tensors[0].size_bytes)]).values()
    assert whole[100_000:200_001] == made(1, 5, Range("layer0000", 100_000, 200_001))
    assert whole[:100] != made(1, 6, Range("layer0000", 0, 100)) != made(2, 6, Range("layer0000", 0, 100))
