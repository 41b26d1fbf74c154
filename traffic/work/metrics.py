"""What training is measured by, from rows of ``work_steps`` and ``work_operations`` (pure).

Rows of operations are those of one step, or of several, of one job and phase; times are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline
from traffic.work.mailbox import Mailbox, send_numbers
from traffic.work.operations import COMMUNICATION, Receive, Send
from traffic.work.progress import RankOrder

COMPUTE = "compute"
_MESSAGES = ("send", "receive")
Spans = npt.NDArray[np.float64]
"""From when to when, shape (n, 2)."""


def step_times(steps: pd.DataFrame) -> pd.Series[float]:
    """Return how long each step took, by its number: from when its first rank began until its last one ended."""
    by_step = steps.groupby("step").agg({"started_s": "min", "ended_s": "max"})
    return (by_step["ended_s"] - by_step["started_s"]).rename("step_s")


# Time that communication costs ---------------------------------------------------------------------------------------


def exposed(operations: pd.DataFrame) -> pd.DataFrame:
    """Return how long communication of each kind ran on a rank while nothing computed there: columns ``step``,
    ``rank``, ``kind``, ``busy_s`` (how long it ran) and ``exposed_s``; of all kinds together, each moment once,
    ``all``."""
    rows = []
    for (step, rank), found in operations.groupby(["step", "rank"], observed=True):
        computing = _joined(_spans(found[_computes(found)]))
        others = found[found["kind"] != COMPUTE]
        kinds = [(str(kind), one) for kind, one in others.groupby("kind", observed=True)]
        for kind, one in [*kinds, ("all", others)]:
            busy = _joined(_spans(one))
            busy_s = _length(busy)
            rows.append((step, rank, kind, busy_s, busy_s - _common_s(busy, computing)))
    return pd.DataFrame(rows, columns=["step", "rank", "kind", "busy_s", "exposed_s"])


def bubbles(operations: pd.DataFrame) -> pd.DataFrame:
    """Return how long each rank computed in each step, and how long it did not while the step lasted, from the first
    start on any rank to the last end: columns ``step``, ``rank``, ``computed_s``, ``bubble_s``, ``bubble_fraction``
    (of the time computed, as the closed forms of pipelines have it; NaN without any)."""
    rows = []
    for step, found in operations.groupby("step"):
        lasted_s = float(found["ended_s"].max() - found["started_s"].min())
        for rank, one in found.groupby("rank"):
            computed_s = _length(_joined(_spans(one[_computes(one)])))
            idle_s = lasted_s - computed_s
            rows.append((step, rank, computed_s, idle_s, idle_s / computed_s if computed_s else float("nan")))
    return pd.DataFrame(rows, columns=["step", "rank", "computed_s", "bubble_s", "bubble_fraction"])


def _computes(rows: pd.DataFrame) -> pd.Series[bool]:
    """Return which rows are computing, and not what only stands for a communication."""
    return (rows["kind"] == COMPUTE) & ~rows["stream"].astype(str).str.startswith(COMMUNICATION)


def _spans(rows: pd.DataFrame) -> Spans:
    return rows[["started_s", "ended_s"]].to_numpy(np.float64)


def _joined(spans: Spans) -> Spans:
    """Return spans in order, those that overlap or touch as one."""
    if not len(spans):
        return spans.reshape(0, 2)
    ordered = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    begins = np.concatenate([[True], ordered[1:, 0] > reached[:-1]])
    firsts = np.flatnonzero(begins)
    lasts = np.concatenate([firsts[1:] - 1, [len(ordered) - 1]])
    return np.column_stack([ordered[firsts, 0], reached[lasts]])


def _length(joined: Spans) -> float:
    return float((joined[:, 1] - joined[:, 0]).sum())


def _common_s(one: Spans, other: Spans) -> float:
    """Return how much of the time two sets of joined spans have in common."""
    if not len(one) or not len(other):
        return 0.0
    return _length(one) + _length(other) - _length(_joined(np.concatenate([one, other])))


# A step as a timeline ------------------------------------------------------------------------------------------------


def timelines(graph: WorkGraph, operations: pd.DataFrame) -> list[Timeline]:
    """Return the steps that were played, so that numbers of a schedule on paper (:mod:`traffic.work.step_metrics`) are
    theirs, too. Rows of all ranks of the graph are needed."""
    found = []
    for _, rows in operations.sort_values(["rank", "operation"], kind="stable").groupby("step"):
        began_s = rows["started_s"].min()
        ranks = [rank[["started_s", "ended_s"]].to_numpy() - began_s for _, rank in rows.groupby("rank")]
        starts, ends = (tuple(tuple(times[:, column].tolist()) for times in ranks) for column in (0, 1))
        found.append(Timeline(graph, starts, ends))
    return found


# Slack and waiting ---------------------------------------------------------------------------------------------------


def slack(graph: WorkGraph, operations: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with ``slack_s``: how much later each operation could have ended without delaying another.

    What follows it are the operations that wait for its end, the next one on its stream, the receive of a message, and
    the end of the step. Rows of all ranks of the graph are needed.
    """
    rows = operations.sort_values(["step", "rank", "operation"], kind="stable")
    orders = [RankOrder.of(one) for one in graph.operations]
    receivers = _receivers(graph)
    found = []
    for _, of_step in rows.groupby("step", sort=False):
        by_rank = {int(one["rank"].iloc[0]): one for _, one in of_step.groupby("rank")}
        started = {rank: one["started_s"].to_numpy() for rank, one in by_rank.items()}
        last_s = float(of_step["ended_s"].max())
        for rank, one in by_rank.items():
            follows = _first_that_follows(orders[rank], started[rank], one["ended_s"].to_numpy(), last_s)
            for place, (peer, receive) in receivers.get(rank, {}).items():
                begun = float(started[peer][receive]) if peer in started else last_s
                follows[place] = min(follows[place], max(begun, float(one["ended_s"].iloc[place])))
            found.append(pd.Series(follows - one["ended_s"].to_numpy(), index=one.index))
    return operations.assign(slack_s=pd.concat(found).clip(lower=0.0) if found else [])


def _first_that_follows(order: RankOrder, started: Spans, ended: Spans, last_s: float) -> Spans:
    """Return, for each operation of a rank, when the first starts that waits for its end, or for its stream."""
    follows = np.full(len(order.waits), last_s)
    for place, followers in enumerate(order.after_end):
        if followers:
            follows[place] = min(last_s, min(float(started[follower]) for follower in followers))
    streams: dict[int, list[int]] = {}
    for place, stream in enumerate(order.stream):
        if stream >= 0:
            streams.setdefault(stream, []).append(place)
    for places in streams.values():
        played = sorted(places, key=lambda place: (started[place], ended[place]))
        for place, following in pairwise(played):
            follows[place] = min(follows[place], float(started[following]))
    return follows


def _receivers(graph: WorkGraph) -> dict[int, dict[int, tuple[int, int]]]:
    """Return, by rank and place of a send, the rank and place of the receive that takes it, where that is decided."""
    receives: dict[tuple[int, int, int, int], int] = {}
    for rank, operations in enumerate(graph.operations):
        mailbox = Mailbox(operations)
        for place, one in enumerate(operations):
            if isinstance(one, Receive) and (wanted := mailbox.matches(place)) is not None:
                receives[(rank, *wanted)] = place
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for rank, operations in enumerate(graph.operations):
        for place, number in send_numbers(operations).items():
            send = operations[place]
            assert isinstance(send, Send)
            if (receive := receives.get((send.peer, rank, send.tag, number))) is not None:
                found.setdefault(rank, {})[place] = (send.peer, receive)
    return found


def stragglers(operations: pd.DataFrame) -> pd.DataFrame:
    """Return who waited for whom in each collective: columns ``step``, ``group``, ``call`` (its number in the group),
    ``kind``, ``last_rank`` (that came last) and ``waited_s`` (how long the others waited for it, together)."""
    calls = operations[~operations["kind"].isin([COMPUTE, *_MESSAGES, "read", "write"])].copy()
    calls = calls.sort_values(["step", "rank", "operation"], kind="stable")
    calls["call"] = calls.groupby(["step", "rank", "partner"], observed=True).cumcount()
    rows = []
    for (step, group, call), met in calls.groupby(["step", "partner", "call"], observed=True, sort=True):
        started = met["started_s"].to_numpy()
        last = int(started.argmax())
        waited_s = float((started[last] - started).sum())
        rows.append((step, str(group), call, str(met["kind"].iloc[0]), int(met["rank"].iloc[last]), waited_s))
    return pd.DataFrame(rows, columns=["step", "group", "call", "kind", "last_rank", "waited_s"])


def waited_for(operations: pd.DataFrame) -> pd.DataFrame:
    """Return how long ranks waited for each other's messages, from the start of a receive to its end: columns ``step``,
    ``rank``, ``for_rank`` and ``waited_s``, of pairs that exchange any."""
    receives = operations[(operations["kind"] == "receive") & (operations["partner"] != "any")]
    for_rank = receives["partner"].astype(str).str.removeprefix("rank ").astype("int64")
    waited = receives.assign(for_rank=for_rank, waited_s=receives["ended_s"] - receives["started_s"])
    return waited.groupby(["step", "rank", "for_rank"], as_index=False).agg({"waited_s": "sum"})


# Training as a whole -------------------------------------------------------------------------------------------------


def scale_factor(ranks: int, per_s: float, alone_per_s: float) -> float:
    """Return the throughput of so many ranks over that of as many single ones; 1 is linear. Raises ValueError."""
    if ranks < 1 or alone_per_s <= 0:
        raise ValueError(f"{ranks} ranks, {alone_per_s} per second alone: a scale factor needs one of each or more")
    return per_s / (ranks * alone_per_s)


def tokens_per_s(tokens_per_step: float, step_s: float) -> float:
    """Return how many tokens a job trains on per second. Raises ValueError if a step takes no time."""
    if step_s <= 0:
        raise ValueError(f"a step of {step_s} s has no throughput; measure one that takes time")
    return tokens_per_step / step_s


def model_flops_utilisation(flops_per_step: float, step_s: float, ranks: int, peak_flops: float) -> float:
    """Return MFU: what a step computes by the model over what ranks could compute in its time. ``peak_flops``: of a
    rank, per second. Raises ValueError as :func:`tokens_per_s`, and without ranks or a peak."""
    if ranks < 1 or peak_flops <= 0:
        raise ValueError(f"{ranks} ranks of {peak_flops:g} FLOP/s compute nothing; give at least one, and its peak")
    return tokens_per_s(flops_per_step, step_s) / (ranks * peak_flops)


def time_to_accuracy_s(steps: Callable[[Mapping[str, Any]], float], setting: Mapping[str, Any], step_s: float) -> float:
    """Return how long training takes: the steps that it needs in a setting (batch size, staleness, ...), which the user
    knows, times the time of a step."""
    return steps(setting) * step_s


def summary(steps: pd.DataFrame, operations: pd.DataFrame) -> dict[str, float]:
    """Return the medians over steps, of the mean over ranks where ranks differ: ``step_s``, ``bubble_s``, and
    ``exposed.KIND_s`` of each kind and of all; those of operations only if some were recorded."""
    found = {"step_s": float(step_times(steps).median())} if len(steps) else {}
    return found | dict(_of_operations(operations)) if len(operations) else found


def _of_operations(operations: pd.DataFrame) -> Iterator[tuple[str, float]]:
    yield "bubble_s", float(bubbles(operations).groupby("step")["bubble_s"].mean().median())
    for kind, rows in exposed(operations).groupby("kind"):
        yield f"exposed.{kind}_s", float(rows.groupby("step")["exposed_s"].mean().median())
