"""How much slack does communication of DeepSeek's step with expert parallelism have, and what takes it?

Ten phases a layer on two streams: what computes takes the time that was measured, what communicates moves its bytes in
packets. Each variant plays whole steps: on the idle fabric, beside reads, with a cut, by other routes, in one lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter

from experiments.expert_parallel.config import ExpertParallelConfig, VariantConfig, servers_of
from experiments.expert_parallel.published import JOB, PUBLISHED
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import ServiceLevel
from fabric.records.figure_forms import Bars, Looks, Number, Places
from runs.case_tables import CaseTable, Column, say
from runs.cases import Case, axis
from runs.session import Session
from runs.study import Found, Jobs, Played, Study
from traffic.flows.fan_in import FanIn, FanInJob
from traffic.job import Job
from traffic.stepped_job import FiniteSteps
from traffic.work.expert_measures import SLACKS, STEPS, expert_step_numbers
from traffic.work.job import PlayConfig, WorkJob

STEP, EXPOSED = metric_path(JOB, "step_s"), metric_path(JOB, "exposed_s")
SLACK = {phase: metric_path(JOB, name) for phase, name in SLACKS.items()}


@dataclass(frozen=True)
class Variant(Case, name="{variant}", title="{variant}: {conditions}"):
    """A step beside something."""

    variant: VariantConfig = axis("variants", attrgetter("name"), attrgetter("name"))
    conditions = property(attrgetter("variant.conditions"))
    queueing = property(attrgetter("variant.queueing"))
    policy = property(attrgetter("variant.policy"))
    failures = property(attrgetter("variant.failures"))


def _jobs(session: Session, config: ExpertParallelConfig, case: Variant) -> Sequence[Job]:
    fabric, stage = session.live.fabric, session.stage
    play, nodes = PlayConfig(slice=config.slice, recorded_steps=config.steps), fabric.computes[: config.nodes]
    step = WorkJob(stage, play, nodes, level=ServiceLevel.NCCL, name=JOB, graph=config.graph(fabric))
    reads = [FanIn("read", node, servers_of(fabric, node), config.read_size) for node in nodes]
    beside = [FanInJob(stage, reads, ServiceLevel.STORAGE)] if case.variant.reads else []
    return [*beside, FiniteSteps(step, partial(step.run_steps, config.steps))]


def _measure(played: Played[Variant, ExpertParallelConfig]) -> list[Metric]:
    operations, steps = (played.rows(table, JOB) for table in ("work_operations", "work_steps"))
    graph, shrink = played.config.graph(played.fabric), played.config.shrink
    return metrics_of(played.case.name, JOB, expert_step_numbers(graph, operations, steps, shrink))


def _answer(found: Found[Variant, ExpertParallelConfig]) -> str:
    first, *others = found.outcomes
    slacks_s = {first[name]: phase for phase, name in SLACK.items() if name in first.values}
    told = "no step ended, so its slack is not known"
    if slacks_s:
        told = f"{slacks_s[min(slacks_s)]} has the least slack, {min(slacks_s) / first[STEP]:.2%} of the step"
    changes = ", ".join(say(one, "{variant} {change|+.1%}") for one in others)
    beside = f"; steps of the others, compared with {first.case.name}: {changes}" if others else ""
    return f"{first.case.name}: {told}{beside}."


def _columns(found: Found[Variant, ExpertParallelConfig]) -> list[Column | str]:
    known = {phase: name for phase, name in SLACK.items() if any(name in one.values for one in found.outcomes)}
    first = f"variant {{variant}}, step {{{STEP}}}, change from {found.outcomes[0].case.name} {{change|+.1%}}"
    return [first, Column("computing waits", EXPOSED), *(Column(f"slack, {one}", known[one]) for one in known)]


STUDY = Study[Variant, ExpertParallelConfig](
    title="A step with expert parallelism",
    cases=Variant.grid,
    play=Jobs(_jobs, fails="variants.{variant}.failures"),
    measure=_measure,
    measures=STEPS,
    aside=lambda found, one: {"change": one[STEP] / found.outcomes[0][STEP] - 1} if STEP in one.values else {},
    answer=_answer,
    tables=(
        CaseTable(
            "Steps",
            _columns,
            lambda found: (
                f"times of {found.config.layers} layers at full size: played ones x {found.config.shrink:g}; slack: "
                "the least over ranks and layers, until computing that waits for the tokens began"
            ),
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
            numbers=tuple(Number(name, phase, 1e3) for phase, name in SLACK.items()),
            x="{variant}",
            labels=("least slack of a phase (ms)", ""),
            looks=Looks(9.0, 1.2, horizontal=True, bar_words="{:.3g}", places=Places(0.6)),
        ),
    ),
    further=(PUBLISHED,),
)
