"""Jobs that play graphs of work: programs of their own, on loopback instead of a fabric."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fabric.config import checked
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.fakes import AT_20_MBIT
from topologies.load import load_fabric
from traffic.job import Records, Stage
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.job import WorkConfig, WorkJob
from traffic.work.kinds import WORK_OPERATIONS, WORK_STEPS
from traffic.work.loading import lines_of
from traffic.work.operations import CollectiveCall, Compute, Operation, Receive, Send

FABRIC = load_fabric("fire_flyer_2_small", AT_20_MBIT)
PAIR = {"pair": (0, 2)}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    pool = AgentPool(preload=("traffic.work.player.rank",))
    yield Stage(FABRIC, pool, lambda _: None, seed=7)
    assert not pool.handles, "a test did not close its job"


@pytest.fixture
def in_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage whose ranks talk in the memory of one process."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "transport")
    return replace(stage, make_transport=importlib.import_module("memory_transport").MemoryTransport)


class OnLoopback(WorkJob):
    """All ranks have the machine's own address."""

    def _addresses_of(self, rank: int) -> tuple[str, ...]:
        return ("127.0.0.1",)


@contextmanager
def started(stage: Stage, folder: Path, graph: WorkGraph, **config: Any) -> Iterator[WorkJob]:
    path = folder / "graph.jsonl"
    path.write_text("\n".join(lines_of(graph)))
    own = checked(WorkConfig, {"graph": str(path), **config}, "test")
    nodes: Sequence[NodeId] = FABRIC.computes[: graph.ranks]
    job = OnLoopback(stage, own, nodes, level=ServiceLevel.NCCL, name="work")
    try:
        job.start()
        yield job
    finally:
        job.close()


def graph(*ranks: Sequence[Operation], **groups: tuple[int, ...]) -> WorkGraph:
    return WorkGraph("g", tuple(map(tuple, ranks)), groups)


def times(records: Records) -> Mapping[str, SimpleNamespace]:
    """Return ready, start and end of operations of a step by their names."""
    rows = records.rows("work_operations")
    return {row["name"]: SimpleNamespace(**{key[:-2]: row[key] for key in row if key.endswith("_s")}) for row in rows}


def sample(ranks: int) -> WorkGraph:
    """Return a graph with all kinds of operations, of sizes of all kinds."""
    works = [RankWork() for _ in range(ranks)]
    for rank, work in enumerate(works):
        first = work.add(Compute(duration_s=0.002, stream="compute", name="forward"))
        for tag, size_bytes in enumerate((0, 1, 70_001, 1_000_003)):
            work.add(Send(peer=(rank + 1) % ranks, size_bytes=size_bytes, tag=tag, stream="copies", after=(first,)))
            work.add(Receive(peer=(rank - 1) % ranks, size_bytes=size_bytes, tag=tag))
        for collective in ("allreduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
            for dtype, size_bytes in (("fp32", 400_004), ("bf16", 10_002)):
                call = CollectiveCall(collective=collective, size_bytes=size_bytes, group="all", dtype=dtype)
                work.add(replace(call, stream="comm", after=(first,), root=1))
        if rank in (0, 2):
            work.add(CollectiveCall(collective="allreduce", size_bytes=4, group="pair", algorithm="tree"))
            work.add(CollectiveCall(collective="allreduce", size_bytes=40_000, group="pair", algorithm="hfreduce"))
        if rank == 1:
            work.add(CollectiveCall(collective="allreduce", size_bytes=4, group="alone"))
        work.add(Send(peer=rank, size_bytes=5, tag=9))
        work.add(Receive(peer=rank, size_bytes=5, tag=9))
    return graph_of("sample", works, {"pair": (2, 0), "alone": (1,)})


@pytest.mark.parametrize("transport", ["tcp", "memory"])
def test_a_graph_plays_step_after_step_and_rows_fit_the_tables(
    stage: Stage, in_memory: Stage, tmp_path: Path, transport: str
) -> None:
    of_memory = {"ranks_per_process": 4} if transport == "memory" else {}
    where = in_memory if transport == "memory" else stage
    with started(where, tmp_path, sample(4), recorded_steps=1, recorded_ranks=[0, 3], **of_memory) as job:
        job.warm_up()
        records = job.run_steps(2, "quiet")
        again = job.run_steps(1, "again")
    steps = pd.DataFrame(records.rows("work_steps"))
    assert [*steps.columns] == [column for column in WORK_STEPS.columns if column != "job"]
    assert steps["step"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert (steps["ended_s"] - steps["started_s"] > 0.002).all()
    rows = pd.DataFrame(records.rows("work_operations"))
    assert [*rows.columns] == [column for column in WORK_OPERATIONS.columns if column != "job"]
    assert [*rows["rank"].unique()] == [0, 3]
    assert len(rows) == sum(len(job.graph.operations[rank]) for rank in (0, 3))
    assert (rows["ready_s"] <= rows["started_s"]).all()
    assert (rows["started_s"] <= rows["ended_s"]).all()
    assert {row["step"] for row in again.rows("work_operations")} == {3}
    on_stream = rows[(rows["stream"] == "comm") & (rows["rank"] == 0)].sort_values("started_s")
    assert (on_stream["ended_s"].to_numpy()[:-1] <= on_stream["started_s"].to_numpy()[1:]).all(), "serial"
