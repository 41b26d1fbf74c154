"""How long do the steps of recorded or generated jobs take on this fabric?

Each trace is a job: its ranks are programs on hosts of their own, which compute, send and call collectives as the trace
has it. All traces play together, each as often as asked. What took a time where it was captured is set beside ours.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.trace_replay.config import TraceReplayConfig
from experiments.trace_replay.layers import TIMES, largest_kinds
from experiments.trace_replay.measures import MEDIAN
from experiments.trace_replay.steps import PlayedSteps
from experiments.trace_replay.tables import LAYERS, TABLES
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import ServiceLevel
from fabric.records.cells import Row, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from runs.jobs import started
from runs.session import PhaseOutcome, Session
from traffic.work.formats.counts import kind_of, ranks_counted
from traffic.work.formats.trace import Trace
from traffic.work.graph import WorkGraph
from traffic.work.graph_lines import lines_of
from traffic.work.job import WorkConfig, WorkJob
from traffic.work.layers import layer_times
from traffic.work.metrics import timelines
from traffic.work.placement import Placement
from traffic.work.step_metrics import compute_s
from traffic.work.volumes import busiest_s

PHASE = "replay"
_MOST_LAYERS = 12
_MOST_RECORDED = 200_000
"""Up to so many operations, each is a row of the first step."""


@dataclass(frozen=True)
class _Played:
    """A trace as it plays: its job, and its graph with durations."""

    trace: Trace
    graph: WorkGraph
    job: WorkJob


def run_trace_replay(session: Session, config: TraceReplayConfig) -> dict[str, Any]:
    """Play the traces and return the summary."""
    session.use_queueing(config.queueing)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traces-")))
        played = _jobs(session, config, folder)
        stack.enter_context(started(session, [one.job for one in played]))
        for one in played:
            session.tell(f"warming up {one.job.name}")
            session.warm_up(one.job)
        steps = [
            PlayedSteps(one.job, config.steps, of_trace.start)
            for one, of_trace in zip(played, config.traces, strict=True)
        ]
        outcome = session.run_phase(PHASE, ", ".join(one.job.name for one in played), steps, 0.0)
    return summarize(session, config, played, outcome)


def _jobs(session: Session, config: TraceReplayConfig, folder: Path) -> list[_Played]:
    fabric = session.live.fabric
    work = config.work(fabric)
    places = config.places(fabric, [trace.ranks for _, trace, _ in work])
    found = []
    for (one, trace, graph), (nodes, named) in zip(work, places, strict=True):
        path = folder / f"{one.name}.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines_of(graph)))
        count = sum(map(len, graph.operations))
        own = WorkConfig(
            graph=str(path),
            ranks_per_node=config.ranks_per_node if named is None else _most_on_a_node(named, config.ranks_per_node),
            placement=Placement.PACKED if named is None else named,
            reads=config.reads,
            recorded_steps=1 if count <= _MOST_RECORDED else 0,
            step_timeout=config.step_timeout,
        )
        job = WorkJob(session.stage, own, nodes, level=ServiceLevel.NCCL, name=one.name)
        found.append(_Played(trace, graph, job))
    return found


def _most_on_a_node(named: Sequence[str], asked: int | None) -> int | None:
    """Return how many ranks a node has at most, where they are on hosts by name; None if that is not for us to say."""
    return asked if asked is not None else max(Counter(named).values(), default=1)


def summarize(
    session: Session, config: TraceReplayConfig, played: Sequence[_Played], outcome: PhaseOutcome
) -> dict[str, Any]:
    """Return the tables and metrics of a replay."""
    steps = session.table("work_steps")
    steps = steps[steps["phase"] == PHASE]
    rows = session.table("work_operations")
    rows = rows[rows["phase"] == PHASE]
    numbers = {
        one.job.name: _numbers(one, steps[steps["job"] == one.job.name], rows[rows["job"] == one.job.name])
        for one in played
    }
    layers = _layers(played, rows)
    session.keep_frame(LAYERS, layers)
    compared = _compared(session, played, config.scale_on(session.live.fabric))
    metrics = [metric for job, of_job in numbers.items() for metric in metrics_of(PHASE, job, of_job)]
    metrics += [
        Metric(PHASE, row["job"], MEDIAN.of(row["kind"]), row["took_s"])
        for row in compared
        if row["took_s"] is not None
    ]
    metrics += metrics_of(
        PHASE,
        "",
        {
            "drops_packets": outcome.conservation.dropped_by_queues,
            "retransmissions": outcome.conservation.retransmissions,
        },
    )
    times = ", ".join(f"{job} {format_time(of_job['step_s'])}" for job, of_job in numbers.items())
    return {
        "title": f"Replay of {', '.join(numbers)} on {session.live.fabric.name}",
        "answer": f"A step takes: {times}.",
        "metrics": metrics,
        "tables": [
            _traces_table(played, numbers),
            *_layers_table(layers),
            *_compared_table(compared),
            *_left_out_table(played),
        ],
    }


def _numbers(one: _Played, steps: pd.DataFrame, operations: pd.DataFrame) -> dict[str, float]:
    times = steps.groupby("step").agg({"started_s": "min", "ended_s": "max", "sent_bytes": "sum"})
    took = times["ended_s"] - times["started_s"]
    return {
        "step_s": float(took.median()),
        "longest_step_s": float(took.max()),
        "computed_s": max(_computed_s(one.graph, operations), default=0.0),
        "sent_bytes": float(times["sent_bytes"].iloc[0]) if len(times) else math.nan,
        "ranks": float(one.graph.ranks),
        "operations": float(sum(map(len, one.graph.operations))),
        "left_out": float(sum(one.trace.left_out.values())),
    }


def _computed_s(graph: WorkGraph, operations: pd.DataFrame) -> list[float]:
    """Return how long each rank computes on at least one stream in the first step that was played; where its operations
    were too many for rows, on its busiest stream."""
    if operations.empty:
        return busiest_s(graph)
    first = timelines(graph, operations)[0]
    return [compute_s(first, rank) for rank in range(graph.ranks)]


def _layers(played: Sequence[_Played], operations: pd.DataFrame) -> pd.DataFrame:
    """Return what the first step of each trace goes to, of traces with rows of operations."""
    found = []
    for one in played:
        rows = operations[operations["job"] == one.job.name]
        if rows.empty:
            continue
        first = timelines(one.graph, rows)[0]
        times = [asdict(time) for rank in range(one.graph.ranks) for time in layer_times(first, rank)]
        found += [{"phase": PHASE, "job": one.job.name, **time} for time in times]
    return pd.DataFrame(found, columns=list(TABLES[LAYERS].columns))


def _layers_table(layers: pd.DataFrame) -> list[SummaryTable]:
    """Return the table of the layers that take longest, means over ranks."""
    rows: list[Row] = []
    for job, of_job in layers.groupby("job", observed=True, sort=False):
        shown = largest_kinds(of_job, _MOST_LAYERS)
        rows += [
            [
                str(job),
                *names,
                quantity(one["operations"], ",.0f"),
                *(quantity(one[time], "time") for time in TIMES),
            ]
            for names, one in zip(shown.index, shown.to_dict("records"), strict=True)
        ]
    if not rows:
        return []
    return [
        SummaryTable(
            title="Layers of a step",
            columns=["trace", "layer", "kind", "operations", "computing", "exposed", "hidden"],
            rows=rows,
            note=f"means over ranks, of the {_MOST_LAYERS} that take longest; all are in {LAYERS}. Exposed: computing "
            "waits for it; hidden: other communication",
        )
    ]


def _compared(session: Session, played: Sequence[_Played], scale: float) -> list[dict[str, Any]]:
    """Return how long communication of each kind took here and where it was captured, medians; None: not known."""
    table = session.table("work_operations")
    found = []
    for one in played:
        rows = table[(table["job"] == one.job.name) & (table["phase"] == PHASE)]
        by_kind = {
            str(kind): (of_kind["ended_s"] - of_kind["started_s"]).median()
            for kind, of_kind in rows.groupby("kind", observed=True)
        }
        captured: dict[str, list[float]] = {}
        for operation in one.graph.operations[0]:
            if operation.measured_s is not None:
                captured.setdefault(kind_of(operation), []).append(operation.measured_s * scale)
        for kind, counted in ranks_counted(one.trace)[0].items():
            if kind in ("compute", "wait", "read", "write"):
                continue
            there = captured.get(kind)
            found.append(
                {
                    "job": one.job.name,
                    "kind": kind,
                    "calls": counted.operations,
                    "size_bytes": counted.size_bytes,
                    "took_s": float(by_kind[kind]) if kind in by_kind else None,
                    "captured_s": float(pd.Series(there).median()) if there else None,
                }
            )
    return found


def _traces_table(played: Sequence[_Played], numbers: Mapping[str, Mapping[str, float]]) -> SummaryTable:
    rows: list[Row] = []
    for one in played:
        of_job = numbers[one.job.name]
        rows.append(
            [
                one.job.name,
                one.trace.format,
                quantity(one.graph.ranks, ",.0f"),
                measured(of_job, "operations"),
                measured(of_job, "sent_bytes"),
                measured(of_job, "computed_s"),
                measured(of_job, "step_s"),
            ]
        )
    return SummaryTable(
        title="Traces",
        columns=["trace", "format", "ranks", "operations", "sent", "longest computing", "step"],
        rows=rows,
        note=[note for one in played for note in one.trace.notes],
    )


def _compared_table(compared: Sequence[Mapping[str, Any]]) -> list[SummaryTable]:
    rows: list[Row] = [
        [
            one["job"],
            one["kind"],
            quantity(one["calls"], ",.0f"),
            quantity(one["size_bytes"], "size"),
            quantity(one["took_s"], "time"),
            quantity(one["captured_s"], "time"),
        ]
        for one in compared
    ]
    if not rows:
        return []
    return [
        SummaryTable(
            title="Communication of rank 0",
            columns=["trace", "kind", "calls", "bytes", "median here, all ranks", "median where captured"],
            rows=rows,
            note="from its start to its end; what was captured is compared, and not played",
        )
    ]


def _left_out_table(played: Sequence[_Played]) -> list[SummaryTable]:
    rows: list[Row] = [
        [one.job.name, what, quantity(count, ",.0f")] for one in played for what, count in one.trace.left_out.items()
    ]
    return [SummaryTable(title="Not played", columns=["trace", "what", "how many"], rows=rows)] if rows else []
