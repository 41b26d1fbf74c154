"""How much slack does communication of DeepSeek's step with expert parallelism have, and what takes it?

Ten phases a layer on two streams: what computes takes the time that was measured, what communicates moves its bytes in
packets. Each variant plays whole steps: on the idle fabric, beside reads, with a cut, by other routes, in one lane.
Beside them stands the schedule on paper with all times as measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from statistics import median

import pandas as pd

from experiments.expert_parallel.config import GPUS, ExpertParallelConfig, VariantConfig, servers_of
from fabric.failures.schedule import FailureSchedule
from fabric.measure.verdict import Check
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.records.cells import Quantity, quantity
from fabric.records.figure_forms import Bars, Looks, Number, Places
from fabric.results import Phase
from runs.case_tables import CaseTable, Column
from runs.cases import Case, axis
from runs.jobs import started
from runs.phase_rows import carried_out_checks
from runs.session import Session
from runs.study import Found, Outcome, Played, Study
from runs.true_scale import why_alone
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.stepped_job import FiniteSteps
from traffic.work.expert_measures import DTYPES, PHASES, SENT, SLACK, least_slack_s, sent_Bps, slack_name
from traffic.work.generators.expert_step import (
    FIRST_COMPUTE_S,
    HIDDEN,
    PUBLISHED_S,
    Extras,
    measured_step,
    step_with_bytes,
)
from traffic.work.generators.routing import Routed, RoutingRule, route, token_bytes
from traffic.work.graph import WorkGraph
from traffic.work.job import PlayConfig, WorkJob
from traffic.work.list_schedule import list_schedule
from traffic.work.metrics import step_times, timelines
from traffic.work.step_metrics import exposed_s

JOB = "step"
DEEPEP_V1_BPS = {
    16: {"dispatch": 43e9, "combine": 43e9},
    32: {"dispatch": 58e9, "combine": 57e9},
    64: {"dispatch": 51e9, "combine": 50e9},
}
"""DeepEP's published bandwidth by ranks, in bytes per second of all that a rank sends, its own node's part too
(deepseek-ai/DeepEP, docs/legacy.md)."""


@dataclass(frozen=True)
class Variant(Case, name="{variant}", title="{variant}: {company}, {policy} routes, {queueing}"):
    """A step beside something."""

    variant: VariantConfig = axis("variants", name=lambda one: one.name, words=lambda one: one.name)

    @property
    def queueing(self) -> Queueing:
        """Its queueing."""
        return self.variant.queueing

    @property
    def policy(self) -> str:
        """Its routing policy."""
        return self.variant.policy.name

    @property
    def company(self) -> str:
        """What plays and happens meanwhile, in words."""
        reads, failures = self.variant.reads, self.variant.failures
        return " and ".join([*["beside reads"] * reads, *["with failures"] * bool(failures)]) or "alone"


AnyFound = Found[Variant, ExpertParallelConfig]


# What is played -------------------------------------------------------------------------------------------------------


def routed_by(config: ExpertParallelConfig) -> Routed:
    """Return where tokens go."""
    rule, nodes = config.routed, config.nodes
    top_nodes = min(rule.top_nodes, nodes)
    chosen = RoutingRule(rule.experts, rule.top, nodes, top_nodes, seed=config.seed, skew=rule.skew)
    return _routed(chosen, nodes * GPUS, config.tokens)


@lru_cache(maxsize=1)
def _routed(rule: RoutingRule, ranks: int, tokens: int) -> Routed:
    return route(rule, ranks, GPUS, tokens)


def graph_of(config: ExpertParallelConfig, fabric: Fabric) -> WorkGraph:
    """Return the step on nodes with the NVLink of a fabric."""
    assert fabric.inside is not None and fabric.inside.nvlink is not None, "faults() has looked"
    extras = Extras(
        has_local=config.local == "as_measured",
        launch_s=FIRST_COMPUTE_S / config.shrink,
        nvlink_Bps=None if config.nvlink_in_packets else fabric.inside.nvlink.rate_bps / 8,
        kernels_shrink=config.shrink if config.kernels == "deepep" else None,
    )
    return step_with_bytes(config.phases(), routed_by(config), GPUS, extras)


def paper_s(config: ExpertParallelConfig) -> float:
    """Return how long the step takes with all times as measured, on paper, not shrunk."""
    whole = config.model_copy(update={"shrink": 1.0})
    return list_schedule(measured_step(whole.phases()), lambda operations, ranks: 0.0).end_s


def reads_of(fabric: Fabric, config: ExpertParallelConfig) -> list[FanIn]:
    """Return what each node reads by its first NIC: from all storage nodes in its plane, again and again."""
    nodes = fabric.computes[: config.nodes]
    return [FanIn("read", node, servers_of(fabric, node), config.read_size) for node in nodes]


def _play(session: Session, config: ExpertParallelConfig, case: Variant) -> None:
    variant, fabric = case.variant, session.live.fabric
    session.use_routing(config.routing_of(variant), case.policy)
    session.use_queueing(case.queueing)
    reads = [FanInJob(session.stage, reads_of(fabric, config), ServiceLevel.STORAGE)] if variant.reads else []
    play, nodes = PlayConfig(slice=config.slice, recorded_steps=config.steps), fabric.computes[: config.nodes]
    graph = graph_of(config, fabric)
    schedule = config.schedule_of(variant, fabric) if variant.failures else None
    step = WorkJob(session.stage, play, nodes, level=ServiceLevel.NCCL, name=JOB, graph=graph)
    with started(session, [*reads, step]):
        step.warm_up()
        steps = FiniteSteps(step, partial(step.run_steps, config.steps))
        outcome = session.run_phase(case.name, case.title, [steps, *reads], 0.0, schedule)
    session.checks += missed_checks(variant, schedule, session.table("failures"), outcome.phase)


def missed_checks(
    variant: VariantConfig, schedule: FailureSchedule | None, failures: pd.DataFrame, phase: Phase
) -> list[Check]:
    """Return the checks of failures of a variant that never happened, as those that are due after its last step."""
    from_s, end_s = phase.load_s
    rows = failures[failures["phase"] == phase.name]
    checks = carried_out_checks(schedule, rows, end_s - from_s, f"variants.{variant.name}.failures")
    return [check for check in checks if check.value]


# Numbers --------------------------------------------------------------------------------------------------------------


def _measure(played: Played[Variant, ExpertParallelConfig]) -> list[Metric]:
    """Return the numbers of a variant's steps at full size: played times, times ``shrink``; nothing if none ended."""
    config, graph = played.config, graph_of(played.config, played.fabric)
    operations = played.rows("work_operations", JOB)
    whole = timelines(graph, operations)
    step_s = float(step_times(played.rows("work_steps", JOB)).median())
    waited_s = [max(sum(exposed_s(one, rank).values()) for rank in range(graph.ranks)) for one in whole]
    times_s = {
        "step_s": step_s,
        "exposed_s": median(waited_s) if waited_s else math.nan,
        **{slack_name(phase): slack for phase, slack in least_slack_s(whole).items()},
    }
    numbers = {
        **{name: time_s * config.shrink for name, time_s in times_s.items()},
        "played_step_s": step_s,
        **{SENT.of(what): sent_Bps(operations, what, config.kernels == "deepep") for what in DTYPES},
    }
    return metrics_of(played.case.name, JOB, {name: one for name, one in numbers.items() if not math.isnan(one)})


def _paper(found: AnyFound) -> list[Metric]:
    numbers = {
        "step_s": paper_s(found.config),
        "published_step_s": PUBLISHED_S,
        "nodes_per_token_count": routed_by(found.config).nodes_per_token,
    }
    return metrics_of("paper", "", numbers)


# What the summary says ------------------------------------------------------------------------------------------------


def _slacks_s(one: Outcome[Variant]) -> dict[str, float]:
    """Return the slack of each phase that has one."""
    values = {phase: one[metric_path(JOB, slack_name(phase))] for phase in PHASES}
    return {phase: value for phase, value in values.items() if not math.isnan(value)}


STEP, EXPOSED = f"{JOB}.step_s", f"{JOB}.exposed_s"


def _change(found: AnyFound, one: Outcome[Variant]) -> Quantity:
    """Return how much longer a step is than that of the first variant; NaN if one of the two is not known."""
    return quantity(one[STEP] / found.outcomes[0][STEP] - 1, "+.1%")


def _answer(found: AnyFound) -> str:
    first, *others = found.outcomes
    told = f"{first.case.name}: no step ended, so its slack is not known"
    if slacks := _slacks_s(first):
        phase = min(slacks, key=lambda one: slacks[one])
        told = f"{first.case.name}: {phase} has the least slack, {slacks[phase] / first[STEP]:.2%} of the step"
    if not others:
        return f"{told}."
    changes = [(one.case.name, _change(found, one)) for one in others]
    words = ", ".join(f"{name} {one.words if one.is_measured else 'not known'}" for name, one in changes)
    return f"{told}; steps of the others, compared with {first.case.name}: {words}."


def _step_columns(found: AnyFound) -> list[Column]:
    with_slack = [phase for phase in PHASES if any(phase in _slacks_s(one) for one in found.outcomes)]
    return [
        Column("variant", "variant"),
        Column("step", STEP),
        Column(f"change from {found.outcomes[0].case.name}", lambda one: _change(found, one)),
        Column("computing waits", EXPOSED),
        *(Column(f"slack, {phase}", f"{JOB}.{slack_name(phase)}") for phase in with_slack),
    ]


def _speed_columns(found: AnyFound) -> list[Column]:
    """Return those of a row per variant and call that moves tokens."""
    config, is_alone = found.config, why_alone(found.fabric) is not None
    published: Mapping[str, float] = {} if is_alone else DEEPEP_V1_BPS.get(config.nodes * GPUS, {})
    sent_tokens = routed_by(config).nodes_per_token * config.tokens * config.shrink
    remote = (config.nodes - 1) / config.nodes
    return [
        Column("variant", lambda row: row[0]),
        Column("what", lambda row: row[1]),
        Column("a rank sends", lambda row: sent_tokens * token_bytes(HIDDEN, DTYPES[row[1]]), ".2f MB"),
        Column("bandwidth", lambda row: row[2], "bandwidth"),
        Column(f"DeepEP EP{config.nodes * GPUS}", lambda row: published.get(row[1]), ".0f GB/s"),
        Column("over its NIC", lambda row: row[2] * remote, "bandwidth"),
    ]


def _speed_note(found: AnyFound) -> str:
    config, reason = found.config, why_alone(found.fabric)
    counted = "a whole call" if config.kernels == "deepep" else "the time in which tokens go over the fabric"
    return (
        f"bandwidth counts a rank's own node, as DeepEP's does; {config.nodes - 1}/{config.nodes} of it cross the NIC; "
        f"it is that of {counted}" + (f"; {reason}" if reason else "")
    )


def _speeds(found: AnyFound) -> list[tuple[str, str, float]]:
    return [(one.case.name, what, one[metric_path(JOB, SENT.of(what))]) for one in found.outcomes for what in DTYPES]


def _published(found: AnyFound) -> list[tuple[str, float]]:
    paper = (f"schedule on paper, {found.config.layers} layers, all times as measured", paper_s(found.config))
    return [paper] if why_alone(found.fabric) else [paper, ("DeepSeek's run, 4 layers", PUBLISHED_S)]


STUDY = Study[Variant, ExpertParallelConfig](
    title="A step with expert parallelism",
    cases=Variant.grid,
    play=_play,
    measure=_measure,
    measures=(
        Measure("step_s", "time of a step at full size, median over steps", Better.LESS),
        Measure("played_step_s", "time of a step as it was played, at the size that was played", Better.LESS),
        Measure(
            "exposed_s", "time of a step in which the slowest rank's computing waits for communication", Better.LESS
        ),
        SENT,
        SLACK,
        Measure("published_step_s", "time of a step with all times as they were published"),
        Measure("nodes_per_token_count", "nodes that a token is sent to, mean"),
    ),
    over_cases=_paper,
    answer=_answer,
    tables=(
        CaseTable(
            "Steps",
            _step_columns,
            lambda found: (
                f"times of {found.config.layers} layers at full size: played ones x {found.config.shrink:g}; slack: "
                "the least over ranks and layers, until computing that waits for the tokens began"
            ),
        ),
        CaseTable("Tokens over the fabric", _speed_columns, _speed_note, rows=_speeds),
        CaseTable(
            "Beside the measured step",
            (Column("what", lambda row: row[0]), Column("step", lambda row: row[1], "time")),
            lambda found: why_alone(found.fabric),
            rows=_published,
        ),
    ),
    figures=(
        Bars(
            "expert_steps",
            "Time of a step by variant, and how much of it computing waits for tokens.",
            "Steps by variant",
            numbers=(
                Number(lambda of: of[STEP] - of[EXPOSED], "computing, or idle at an end", 1e3),
                Number(EXPOSED, "computing waits for tokens", 1e3),
            ),
            x="{variant}",
            labels=("time of a step (ms)", ""),
            stacked=True,
            looks=Looks(9.0, 1.2, horizontal=True, bar_words="{:.3g}", places=Places(0.36)),
        ),
        Bars(
            "slack",
            "How much longer each phase of communication could take without delaying the step: the least over ranks "
            "and layers.",
            "Slack by variant",
            numbers=tuple(Number(f"{JOB}.{slack_name(phase)}", phase, 1e3) for phase in PHASES),
            x="{variant}",
            labels=("least slack of a phase (ms)", ""),
            looks=Looks(9.0, 1.2, horizontal=True, bar_words="{:.3g}", places=Places(0.6)),
        ),
    ),
)
