"""What a step in packets came to: its time, how fast tokens moved, what computing waited for, and the slack left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

from experiments.expert_parallel.config import GPUS, ExpertParallelConfig, VariantConfig
from experiments.expert_parallel.measures import SENT, SLACK
from fabric.metrics import Metric
from fabric.model.network import Fabric
from fabric.records.cells import Cell, Row, quantity
from fabric.records.summary_table import SummaryTable, cell_words
from runs.session import Session
from runs.true_scale import why_alone
from traffic.work.generators.expert_step import HIDDEN, PUBLISHED_S
from traffic.work.generators.routing import Routed, token_bytes
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline
from traffic.work.metrics import step_times, timelines
from traffic.work.operation_names import moved, phase_in
from traffic.work.step_metrics import exposed_s, slack_s

_PARTS = {"dispatch": "fp8", "combine": "bf16"}
"""What moves tokens, and in which type."""
DEEPEP_V1_BPS = {
    16: {"dispatch": 43e9, "combine": 43e9},
    32: {"dispatch": 58e9, "combine": 57e9},
    64: {"dispatch": 51e9, "combine": 50e9},
}
"""DeepEP's published bandwidth by ranks, in bytes per second of all that a rank sends, its own node's part too
(deepseek-ai/DeepEP, docs/legacy.md)."""


@dataclass(frozen=True)
class Paper:
    """The step with all times as measured, by a schedule on paper."""

    step_s: float


@dataclass(frozen=True)
class Step:
    """What a variant came to, at full size: times are those played times ``shrink``. ``played_s``: the step as it was
    played; ``slack_s``: the least of each phase that communicates, by its name; ``exposed_s``: what the slowest rank's
    computing waited for communication; ``sent_Bps``: median over ranks and phases. Of a variant of which no step ended
    nothing is known: NaN, and no slack."""

    variant: VariantConfig
    step_s: float
    played_s: float
    exposed_s: float
    slack_s: Mapping[str, float]
    sent_Bps: Mapping[str, float]  # noqa: N815 - bytes, not bits

    @classmethod
    def of(cls, session: Session, config: ExpertParallelConfig, variant: VariantConfig, graph: WorkGraph) -> Step:
        """Return it from the rows of a variant's phase."""
        steps, operations = (_of_phase(session.table(name), variant.name) for name in ("work_steps", "work_operations"))
        played = timelines(graph, operations)
        step_s = float(step_times(steps).median())
        waited = [max(sum(exposed_s(one, rank).values()) for rank in range(graph.ranks)) for one in played]
        return cls(
            variant,
            step_s * config.shrink,
            step_s,
            median(waited) * config.shrink if waited else math.nan,
            {phase: slack * config.shrink for phase, slack in _slack_s(played).items()},
            {what: _sent_Bps(operations, what, config.kernels == "deepep") for what in _PARTS},
        )

    @property
    def has_ended(self) -> bool:
        """Whether a step ended, of which the rest is."""
        return not math.isnan(self.step_s)


def _of_phase(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[(table["phase"] == phase) & (table["job"] == "step")]


def _slack_s(played: Sequence[Timeline]) -> dict[str, float]:
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


def _sent_Bps(operations: pd.DataFrame, what: str, is_whole: bool) -> float:  # noqa: N802 - bytes, not bits
    """Return what a rank sent per second, its own node's part too: DeepEP's way of counting; the median over ranks and
    phases. Time counts while tokens go over the fabric, or all of a call, from its notify kernel on."""
    parts = [moved(str(name)) for name in operations["name"]]
    is_wanted = np.array([one is not None and one.what == what for one in parts], dtype=bool)
    rows = operations.assign(call=list(map(str, parts)))[is_wanted]
    rails = rows["partner"].astype(str).str.contains("rail")
    rows = rows.assign(sent=rows["size_bytes"].where(rails, 0))
    calls = (rows if is_whole else rows[rails]).groupby(["step", "rank", "call"])
    taken_s = calls["ended_s"].max() - calls["started_s"].min()
    return float((calls["sent"].sum() / taken_s).median())


def summarize(
    session: Session, config: ExpertParallelConfig, routed: Routed, paper: Paper, steps: Sequence[Step]
) -> dict[str, Any]:
    """Return the summary: times are at full size wherever they stand."""
    fabric = session.live.fabric
    return {
        "title": "A step with expert parallelism",
        "answer": _answer(steps),
        "metrics": [metric for one in steps for metric in _metrics(one)]
        + [
            Metric("paper", "", "step_s", paper.step_s),
            Metric("paper", "", "published_step_s", PUBLISHED_S),
            Metric("paper", "", "nodes_per_token_count", routed.nodes_per_token),
        ],
        "tables": [
            _steps_table(config, steps),
            _speeds_table(fabric, config, routed, steps),
            _paper_table(fabric, config, paper),
        ],
        "timeline": [],
        "steps": [
            {
                "variant": one.variant.name,
                "step_s": one.step_s,
                "exposed_s": one.exposed_s,
                "slack_s": dict(one.slack_s),
            }
            for one in steps
            if one.has_ended
        ],
    }


def _answer(steps: Sequence[Step]) -> str:
    first, *others = steps
    parts = []
    if first.slack_s:
        phase, least = min(first.slack_s.items(), key=lambda item: item[1])
        parts.append(f"{first.variant.name}: {phase} has the least slack, {least / first.step_s:.2%} of the step")
    else:
        parts.append(f"{first.variant.name}: no step ended, so its slack is not known")
    if others:
        told = ", ".join(f"{one.variant.name} {cell_words(_change(one, first))}" for one in others)
        parts.append(f"steps of the others, beside {first.variant.name}: {told}")
    return f"{'; '.join(parts)}."


def _change(one: Step, first: Step) -> Cell:
    if not (one.has_ended and first.has_ended):
        return "not known"
    return quantity(one.step_s / first.step_s - 1, "+.1%")


def _metrics(one: Step) -> list[Metric]:
    numbers = {
        "step_s": one.step_s,
        "played_step_s": one.played_s,
        "exposed_s": one.exposed_s,
        **{SENT.of(what): value for what, value in one.sent_Bps.items()},
    }
    slacks = {SLACK.of(_key(name)): value for name, value in one.slack_s.items()}
    known = {name: value for name, value in {**numbers, **slacks}.items() if not math.isnan(value)}
    return [Metric(one.variant.name, "step", name, value) for name, value in known.items()]


def _key(phase: str) -> str:
    """Return a phase's name as metrics have it: ``combine_f`` of ``combine(F)``."""
    return phase.replace("(", "_").replace(")", "").lower()


def _steps_table(config: ExpertParallelConfig, steps: Sequence[Step]) -> SummaryTable:
    names = sorted({name for one in steps for name in one.slack_s})
    titles = [f"slack, {name}" for name in names]
    rows: list[Row] = [
        [
            one.variant.name,
            quantity(one.step_s, "time"),
            _change(one, steps[0]),
            quantity(one.exposed_s, "time"),
            *(quantity(one.slack_s.get(name), "time") for name in names),
        ]
        for one in steps
    ]
    return SummaryTable(
        title="Steps",
        columns=["variant", "step", f"beside {steps[0].variant.name}", "computing waits", *titles],
        rows=rows,
        note=(
            f"times of {config.layers} layers at full size: played ones x {config.shrink:g}; slack: the least over "
            "ranks and layers, until computing that waits for the tokens began"
        ),
    )


def _speeds_table(fabric: Fabric, config: ExpertParallelConfig, routed: Routed, steps: Sequence[Step]) -> SummaryTable:
    rows: list[Row] = []
    remote_part = f"{config.nodes - 1}/{config.nodes}"
    reason = why_alone(fabric)
    known = DEEPEP_V1_BPS.get(config.nodes * GPUS) if reason is None else None
    for one in steps:
        for what, dtype in _PARTS.items():
            remote = one.sent_Bps[what] * (config.nodes - 1) / config.nodes
            size = routed.nodes_per_token * config.tokens * config.shrink * token_bytes(HIDDEN, dtype)
            rows.append(
                [
                    one.variant.name,
                    what,
                    quantity(size, ".2f MB"),
                    quantity(one.sent_Bps[what], "bandwidth"),
                    "-" if known is None else quantity(known[what], ".0f GB/s"),
                    quantity(remote, "bandwidth"),
                ]
            )
    return SummaryTable(
        title="Tokens over the fabric",
        columns=["variant", "what", "a rank sends", "bandwidth", f"DeepEP EP{config.nodes * GPUS}", "over its NIC"],
        rows=rows,
        note=(
            f"bandwidth counts a rank's own node, as DeepEP's does; {remote_part} of it cross the NIC; it is that of "
            + ("a whole call" if config.kernels == "deepep" else "the time in which tokens go over the fabric")
            + ("" if reason is None else f"; {reason}")
        ),
    )


def _paper_table(fabric: Fabric, config: ExpertParallelConfig, paper: Paper) -> SummaryTable:
    rows: list[Row] = [
        [f"schedule on paper, {config.layers} layers, all times as measured", quantity(paper.step_s, "time")]
    ]
    reason = why_alone(fabric)
    if reason is None:
        rows.append(["DeepSeek's run, 4 layers", quantity(PUBLISHED_S, "time")])
    return SummaryTable(title="Beside the measured step", columns=["what", "step"], rows=rows, note=reason)
