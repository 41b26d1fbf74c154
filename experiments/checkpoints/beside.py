"""What do steps of training lose to checkpoints of the same nodes, if they go on beside them, and if they wait?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, median

from cluster.checkpoints.job import WRITE
from cluster.checkpoints.kinds import checkpoint_numbers
from cluster.checkpoints.losses import LOSSES, gaps, losses, spans
from experiments.checkpoints.alone import JOB
from experiments.checkpoints.config import CheckpointsRunConfig
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import Queueing
from fabric.units import format_share, format_time
from runs.case_tables import CaseTable, Column
from runs.cases import Case, axis
from runs.session import Session
from runs.study import Found, Outcome, Played, Question

TRAINING = "training"
STEP_S, LOST_S, LOST = (metric_path(TRAINING, name) for name in ("step_alone_s", "lost_s", "lost_fraction"))


@dataclass(frozen=True)
class Trained(Case, name="training_{queueing}", title="training alone, {queueing}"):
    """Training alone: what steps beside checkpoints are compared with."""

    queueing: Queueing = axis("queueings")


@dataclass(frozen=True)
class Beside(Case, name="beside_{queueing}", title="training and checkpoints, {queueing}"):
    """Steps that go on while checkpoints are written."""

    queueing: Queueing = axis("queueings")
    steps = "go on"


@dataclass(frozen=True)
class Waiting(Case, name="waiting", title="steps wait for checkpoints"):
    """Steps that wait for each checkpoint, in the first queueing."""

    queueing: Queueing = axis(lambda config: config.queueings[:1])
    steps = "wait for it"


Either = Beside | Waiting
AnyFound = Found[Either, CheckpointsRunConfig]


def _measure(played: Played[Either, CheckpointsRunConfig]) -> list[Metric]:
    case, table = played.case, played.rows("checkpoints")
    mine = table[table["operation"].astype(str) == WRITE]
    steps, written = spans(played.rows("work_steps")), spans(mine)
    if isinstance(case, Waiting):
        lost = {"lost_s": mean(gaps(steps, written) or [0.0])}
    else:
        lost = losses(_step_s(played.session, case.queueing), steps, written)
    return [*metrics_of(case.name, JOB, checkpoint_numbers(mine)), *metrics_of(case.name, TRAINING, lost)]


def _step_s(session: Session, queueing: Queueing) -> float:
    """Return the median step of training alone; NaN without any."""
    steps = session.table("work_steps")
    took_s = [end - start for start, end in spans(steps[steps["phase"] == Trained(queueing).name])]
    return median(took_s) if took_s else math.nan


def _aside(found: AnyFound, one: Outcome[Either]) -> dict[str, float]:
    """The share of time that checkpoints cost in production, with the step time that they are compared to."""
    lasts_s, period_s = found.config.lasts, found.config.period
    if isinstance(one.case, Beside):
        return {"production_fraction": one[LOST] * lasts_s / period_s}
    step_s = _step_s(found.session, one.case.queueing)
    return {STEP_S: step_s, LOST: 1.0, "production_fraction": lasts_s / (period_s + lasts_s)}


def _answer(found: AnyFound) -> str:
    going_on = [one for one in found.outcomes if isinstance(one.case, Beside)]
    lost = [f"{format_share(one[LOST], 1)} in {one.case.queueing.words}" for one in going_on]
    return (
        f"Steps that go on beside a checkpoint lose {' and '.join(lost)} of the time for which it is written; those "
        "that wait for it lose all of that."
    )


def _columns(found: AnyFound) -> list[Column | str]:
    return [
        Column("steps", "{steps}, in {queueing}"),
        "alone {training.step_alone_s}, that meet one {training.step_beside_s}, slowdown {training.slowdown|.2f x}",
        Column("lost per checkpoint", lambda one: max(one[LOST_S], 0.0), "time"),
        Column("of a step", lambda one: one[LOST_S] / one[STEP_S], ".0%"),
        "of its time {training.lost_fraction}, "
        f"of all, {format_time(found.config.lasts)} every {format_time(found.config.period)} "
        "{production_fraction|.3%}, GiB/s a node {checkpoints.checkpoint.node_Bps|.2f in GiB/s}, "
        "complete after {checkpoints.checkpoint.complete_s}",
    ]


BESIDE = Question[Either, CheckpointsRunConfig](
    kinds=(Beside, Waiting),
    measure=_measure,
    measures=LOSSES,
    aside=_aside,
    answer=_answer,
    tables=(
        CaseTable(
            "Training and checkpoints on the same nodes",
            _columns,
            "lost: what steps that meet a checkpoint take longer than alone, per checkpoint; of steps that wait, from "
            "the end of the last one before it to the start of the next. of its time: for which one is written, by "
            "which what longer ones cost is reckoned",
        ),
    ),
)
