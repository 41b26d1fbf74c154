"""Numbers of a step with expert parallelism: how fast tokens went, and how much later they could have come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
import pandas as pd

from fabric.measures import Better, Measure
from traffic.work.generators.expert_step import deepseek_phases
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline
from traffic.work.metrics import step_times, timelines
from traffic.work.operation_names import is_over_rail, moved, phase_in
from traffic.work.step_metrics import exposed_s, slack_s

DTYPES = {"dispatch": "fp8", "combine": "bf16"}
"""What moves tokens, and in which type."""
SENT = Measure(
    "<phase>_Bps", "bytes that a rank sends per second of this phase, median over ranks and phases", Better.MORE
)
SLACK = Measure(
    "slack.<phase>_s", "time that this phase can take longer without delaying the step, the least", Better.MORE
)
SLACKS = {
    phase: SLACK.of(phase.replace("(", "_").replace(")", "").lower())
    for phase in sorted({one.name for one in deepseek_phases() if one.sends})
}
"""Names of the slack of each phase of a layer that communicates: ``slack.combine_f_s`` of ``combine(F)``."""
STEPS = (
    Measure("step_s", "time of a step at full size, median over steps", Better.LESS, is_of_many=True),
    Measure("played_step_s", "time of a step as it was played, at the size that was played", Better.LESS),
    Measure("exposed_s", "time of a step in which the slowest rank's computing waits for communication", Better.LESS),
    SLACK,
)


def expert_step_numbers(
    graph: WorkGraph, operations: pd.DataFrame, steps: pd.DataFrame, shrink: float
) -> dict[str, float]:
    """Return the numbers of steps by their rows, at full size: played times, times ``shrink``; none if none ended."""
    whole = timelines(graph, operations)
    waited_s = [max(sum(exposed_s(one, rank).values()) for rank in range(graph.ranks)) for one in whole]
    step_s = float(step_times(steps).median())
    times_s = {"step_s": step_s, "exposed_s": median(waited_s) if waited_s else math.nan}
    times_s |= {SLACKS[phase]: slack for phase, slack in least_slack_s(whole).items()}
    numbers = {name: time_s * shrink for name, time_s in times_s.items()} | {"played_step_s": step_s}
    return {name: one for name, one in numbers.items() if not math.isnan(one)}


def least_slack_s(played: Sequence[Timeline]) -> dict[str, float]:
    """Return the least slack of each communicating phase that computing waits for, over ranks, layers and steps."""
    found: dict[str, float] = {}
    for one in played:
        awaited = _awaited_phases(one.graph)
        for rank in range(one.graph.ranks):
            for name, slack in slack_s(one, rank).items():
                phase = phase_in(name)
                if phase is not None and name in awaited:
                    found[phase] = min(found.get(phase, slack), slack)
    return found


def _awaited_phases(graph: WorkGraph) -> set[str]:
    """Return the names of the operations that computing waits for, on any rank."""
    return {
        operations[before].name
        for operations in graph.operations
        for one in operations
        if one.stream == "compute"
        for before in one.after
    }


def sent_Bps(operations: pd.DataFrame, what: str, is_whole: bool) -> float:  # noqa: N802 - bytes, not bits
    """Return what a rank sent per second, its own node's part too: DeepEP's way of counting; the median over ranks and
    phases. Time counts while tokens go over the fabric, or all of a call, from its notify kernel on."""
    parts = [moved(str(name)) for name in operations["name"]]
    is_wanted = np.array([one is not None and one.what == what for one in parts], dtype=bool)
    rows = operations.assign(call=list(map(str, parts)))[is_wanted]
    rails = rows["partner"].astype(str).map(is_over_rail).astype(bool)
    rows = rows.assign(sent=rows["size_bytes"].where(rails, 0))
    calls = (rows if is_whole else rows[rails]).groupby(["step", "rank", "call"])
    taken_s = calls["ended_s"].max() - calls["started_s"].min()
    return float((calls["sent"].sum() / taken_s).median())
