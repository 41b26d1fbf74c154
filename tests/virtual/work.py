"""Graphs of work in a guest, at 200 Gbit/s: what their steps and operations take: ``work.py REPORT``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fabric.model.lanes import QueueConfig, Queueing, ServiceLevel
from runs.session import RunSettings, Session
from tests.live_sessions import plain_lanes, session_live
from topologies.load import load_fabric
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.job import PlayConfig, WorkJob
from traffic.work.operations import CollectiveCall, Compute, FileRead, Receive, Send

RATES = ("nic_rate=200 Gbit/s", "uplink_rate=200 Gbit/s", "inter_zone.rate=200 Gbit/s")
SMALL = ("compute=4", "storage=1", "leaves_per_zone=1", "spines_per_zone=1", *RATES)
SETTINGS = RunSettings(QueueConfig(), seed=1, sample_period_s=0.005, receive_window_bytes=4 << 20)
MESSAGE_BYTES = 16 * 2**20
BUCKET_BYTES = 8 * 2**20
FILE_BYTES = 8 * 2**20
STAGES, MICRO_BATCHES = 4, 8
FORWARD_S, BACKWARD_S = 0.001, 0.002
HALF_S = 0.002


def message() -> WorkGraph:
    """Return one message from a rank to the next."""
    first, second = RankWork(), RankWork()
    first.add(Send(peer=1, size_bytes=MESSAGE_BYTES, name="send"))
    second.add(Receive(peer=0, size_bytes=MESSAGE_BYTES, name="receive"))
    return graph_of("message", [first, second])


def buckets(overlaps: bool) -> WorkGraph:
    """Return two halves of a backward pass, each with an allreduce after it, beside computing or not."""
    works = [RankWork() for _ in range(4)]
    call = CollectiveCall(collective="allreduce", size_bytes=BUCKET_BYTES, group="all", stream="comm")
    for work in works:
        first = work.add(Compute(duration_s=HALF_S, stream="compute", name="first half"))
        early = work.add(replace(call, after=(first,), name="early"))
        after = (first,) if overlaps else (early,)
        second = work.add(Compute(duration_s=HALF_S, stream="compute", after=after, name="second half"))
        work.add(replace(call, after=(second,), name="late"))
    return graph_of("buckets", works)


def pipeline() -> WorkGraph:
    """Return a step of 1F1B over messages of no size."""
    works = [RankWork() for _ in range(STAGES)]
    for stage, work in enumerate(works):
        warm_up = min(MICRO_BATCHES, STAGES - stage - 1)
        forwards = [("F", number) for number in range(MICRO_BATCHES)]
        backwards = [("B", number) for number in range(MICRO_BATCHES)]
        order = forwards[:warm_up]
        for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
            order += [forward, backward]
        order += backwards[MICRO_BATCHES - warm_up :]
        last: tuple[int, ...] = ()
        for what, number in order:
            source, target = (stage - 1, stage + 1) if what == "F" else (stage + 1, stage - 1)
            tag = number if what == "F" else MICRO_BATCHES + number
            if 0 <= source < STAGES:
                last = (*last, work.add(Receive(peer=source, size_bytes=0, tag=tag)))
            computes = Compute(duration_s=FORWARD_S if what == "F" else BACKWARD_S, stream="compute", after=last)
            last = (work.add(replace(computes, name=f"{what}{number}")),)
            if 0 <= target < STAGES:
                work.add(Send(peer=target, size_bytes=0, tag=tag, after=last))
    return graph_of("1F1B", works)


def files() -> WorkGraph:
    """Return one read of a file, in chunks from one storage node."""
    work = RankWork()
    work.add(FileRead(path="/dataset", offset_bytes=0, size_bytes=FILE_BYTES, name="read"))
    return graph_of("files", [work])


def seen() -> dict[str, Any]:
    """Return, of each graph, the time of its steps and the rows of the operations of one."""
    fabric = load_fabric("fire_flyer_2_tiny", SMALL)
    graphs = {
        "message": message(),
        "overlapped": buckets(overlaps=True),
        "serial": buckets(overlaps=False),
        "pipeline": pipeline(),
        "files": files(),
    }
    with session_live(fabric, plain_lanes(Queueing.LANES), SETTINGS) as session:
        return {name: _played(session, graph) for name, graph in graphs.items()}


def _played(session: Session, graph: WorkGraph) -> dict[str, Any]:
    nodes = session.live.fabric.computes[: graph.ranks]
    config = PlayConfig(recorded_steps=1)
    job = WorkJob(session.stage, config, nodes, level=ServiceLevel.NCCL, name="work", graph=graph)
    job.start()
    try:
        job.warm_up()
        records = job.run_steps(3)
    finally:
        job.close()
    return {"steps": _step_times(records.rows("work_steps")), "operations": records.rows("work_operations")}


def _step_times(rows: Sequence[dict[str, Any]]) -> list[float]:
    steps = sorted({row["step"] for row in rows})
    of_step = [[row for row in rows if row["step"] == step] for step in steps]
    return [max(row["ended_s"] for row in one) - min(row["started_s"] for row in one) for one in of_step]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(seen()))
