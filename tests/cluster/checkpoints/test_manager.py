"""Checkpoints in memory: what is written by some nodes is read by others, byte by byte."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.checkpoints.generations import Keeping, generations
from cluster.checkpoints.index import Index
from cluster.checkpoints.restoring import WrongDataError, placed, plan_restore, verify_chunk
from cluster.checkpoints.tensors import Held, Range, Tensor, replicated, sharded
from cluster.checkpoints.writing import WritePlan, plan_write
from fabric.errors import ConfigError

TENSORS = (
    Tensor("embed", "bfloat16", (64, 33)),
    Tensor("norm", "float32", (7,)),
    Tensor("scale", "float64", ()),
    Tensor("head", "float8_e4m3fn", (101, 5)),
)


def contents(tensors: Sequence[Tensor], seed: int = 1) -> dict[str, bytes]:
    rng = np.random.default_rng(seed)
    return {one.name: rng.bytes(one.size_bytes) for one in tensors}


def written(plan: WritePlan, data: Mapping[str, bytes]) -> dict[int, bytes]:
    """Return the chunks as their writers make them."""
    chunks = {}
    for mine in plan.chunks_of.values():
        for chunk in mine:
            pieces = plan.pieces_of(chunk)
            chunks[chunk] = b"".join(data[one.what.tensor][one.what.begin : one.what.end] for one in pieces)
            assert len(chunks[chunk]) == plan.index.chunk_sizes[chunk]
    return chunks


def check_restored(index: Index, chunks: Mapping[int, bytes], wanted: Held, data: Mapping[str, bytes]) -> int:
    """Check what each node gets; return how many bytes were read."""
    total = 0
    for node, reads in plan_restore(index, wanted).items():
        into = {one.name: bytearray(one.size_bytes) for one in index.tensors}
        for read in reads:
            total += read.size_bytes
            placed(read, chunks[read.chunk][read.offset : read.offset + read.size_bytes], into)
        for one in wanted[node]:
            assert into[one.tensor][one.begin : one.end] == data[one.tensor][one.begin : one.end]
    return total


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_some_nodes_wrote_any_other_number_of_nodes_reads(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(st.lists(st.integers(1, 9), max_size=3), min_size=1, max_size=5))
    kinds = st.sampled_from(("bfloat16", "float32", "float64", "uint8"))
    tensors = [Tensor(f"t{number}", data.draw(kinds), tuple(shape)) for number, shape in enumerate(shapes)]
    writers, readers = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    layouts = st.sampled_from((replicated, sharded))
    plan = plan_write(3, tensors, data.draw(layouts)(tensors, writers), data.draw(st.integers(1, 200)))
    index = Index.from_json(plan.index.to_json(), "index")
    assert index == plan.index
    bytes_of = contents(tensors)
    chunks = written(plan, bytes_of)
    assert sum(map(len, chunks.values())) == index.size_bytes, "every byte once"
    wanted = data.draw(layouts)(tensors, readers)
    read = check_restored(index, chunks, wanted, bytes_of)
    assert read == sum(one.size_bytes for mine in wanted.values() for one in mine), "and no byte more than is wanted"


def test_bytes_that_all_have_are_written_by_all_evenly() -> None:
    plan = plan_write(1, TENSORS, replicated(TENSORS, 5), chunk_bytes=64)
    loads = [plan.bytes_of(node) for node in range(5)]
    assert sum(loads) == sum(one.size_bytes for one in TENSORS)
    assert max(loads) - min(loads) <= 64
    assert all(size <= 64 for size in plan.index.chunk_sizes)


def test_a_part_is_restored_alone() -> None:
    """Rows 10 to 19 of one tensor: one node reads as many bytes, and no others."""
    plan = plan_write(1, TENSORS, sharded(TENSORS, 4), chunk_bytes=256)
    data = contents(TENSORS)
    row = 33 * 2
    wanted = {0: [Range("embed", 10 * row, 20 * row)]}
    assert check_restored(plan.index, written(plan, data), wanted, data) == 10 * row
    reads = plan_restore(plan.index, wanted)[0]
    assert len(reads) == 5, "a read per chunk of two writers"


def test_what_no_node_holds_or_no_tensor_has_is_named() -> None:
    held = {0: [Range("norm", 0, 28), Range("embed", 0, 100), Range("scale", 0, 8), Range("head", 0, 505)]}
    with pytest.raises(ConfigError, match="embed: no node holds bytes 100 to 4224"):
        plan_write(1, TENSORS, held, 64)
    with pytest.raises(ConfigError) as caught:
        plan_write(1, TENSORS, {0: [Range("norm", 0, 29), Range("nrm", 0, 1)]}, 64)
    assert caught.value.faults == ("node 0: norm has bytes 0 to 28, not 0 to 29", "node 0: unknown tensor 'nrm'")
    index = plan_write(1, TENSORS, replicated(TENSORS, 1), 64).index
    with pytest.raises(ConfigError, match="it has no tensor 'nrm'"):
        plan_restore(index, {0: [Range("nrm", 0, 1)]})
    with pytest.raises(ConfigError, match="'int4' is not one of float64"):
        Tensor("t", "int4", (2,))


def test_wrong_bytes_and_wrong_indexes_are_noticed() -> None:
    plan = plan_write(1, TENSORS, replicated(TENSORS, 2), 512)
    chunks = written(plan, contents(TENSORS))
    index = replace(plan.index, checksums=tuple(zlib.crc32(chunks[one]) for one in range(len(chunks))))
    verify_chunk(index, 0, chunks[0])
    with pytest.raises(WrongDataError, match="step 1, chunk 0: its bytes are not those that were written"):
        verify_chunk(index, 0, bytes([chunks[0][0] ^ 1]) + chunks[0][1:])
    holes = replace(index, pieces=index.pieces[:1] + index.pieces[2:])
    with pytest.raises(ConfigError, match="are in no piece"):
        Index.from_json(holes.to_json(), "index")
    with pytest.raises(ConfigError, match="a piece ends behind"):
        Index.from_json(replace(index, chunk_sizes=(1,) * len(chunks)).to_json(), "index")
    with pytest.raises(ConfigError, match="is not an index of a checkpoint"):
        Index.from_json("[]", "index")


def test_the_last_and_every_nth_generation_are_kept_and_interrupted_ones_removed() -> None:
    names = [f"{step}/{rest}" for step in (100, 200, 300, 400) for rest in ("0", "1", "index.json")]
    found = generations([*names, "500/0", "600/0"])
    assert found.latest == 400
    assert found.removable(Keeping(last=2), writing=[600]) == (100, 200, 500)
    assert found.removable(Keeping(last=1, every=200), writing=[500, 600]) == (100, 300)
    assert generations(["7/0"]).latest is None
    with pytest.raises(ConfigError, match="'x/1' is not a file of a checkpoint"):
        generations(["x/1"])
    with pytest.raises(ConfigError, match="keep at least the last 1"):
        Keeping(last=0)
