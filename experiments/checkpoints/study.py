"""How fast do nodes write checkpoints, what binds, and what do steps of training lose beside them?

Fire-Flyer 2's checkpoint manager writes every five minutes, more than 10 GiB/s a node, beside training (arXiv
2408.14158, VII-A). Here nodes write real bytes to a file system on the storage nodes: alone, by numbers of writers and
replicas; beside a data-parallel training on the same nodes, in lanes and in one queue. Then the same, half and twice as
many nodes restore them, and compare every byte.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from cluster.checkpoints.config import CheckpointsConfig
from cluster.checkpoints.job import RESTORE, WRITE, CheckpointsJob
from cluster.checkpoints.kinds import RESTORED, RESTORED_ALL, RESTORED_SLOWEST, checkpoint_numbers
from cluster.checkpoints.losses import LOSSES, gaps, losses, spans
from cluster.checkpoints.rates import GIB, Bound, storage_nics_for, write_bound, writers_for
from experiments.checkpoints.config import WANTED_BPS, CheckpointsRunConfig, WriteSetup, setup_on
from experiments.checkpoints.waiting import StepsWait
from fabric.measures import Measure
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.records.figure_forms import Bars, Level, Number
from fabric.records.palette import GREY, INK
from fabric.units import format_share, format_time
from runs.case_tables import CaseTable, Column
from runs.cases import Case, axis
from runs.jobs import started
from runs.session import Session
from runs.study import Found, Outcome, Played, Study, play_case
from runs.true_scale import scale_words, true_rate
from traffic.metrics import payload_fraction
from traffic.work.job import WorkJob

JOB, TRAINING = "checkpoints", "training"
RATE, SLOWEST, COMPLETE_S = (f"{JOB}.checkpoint.{name}" for name in ("node_Bps", "slowest_Bps", "complete_s"))
STEP_S, LOST_S, LOST = (f"{TRAINING}.{name}" for name in ("step_alone_s", "lost_s", "lost_fraction"))
PAPER_STORAGE_NICS, PAPER_NODES = 360, 1250
"""Of Fire-Flyer 2: 180 storage nodes with a NIC in each zone, and its GPU nodes."""
_GIBPS = ".2f in GiB/s"


@dataclass(frozen=True)
class Alone(Case, name="{setup}", title="{setup}"):
    """Checkpoints alone."""

    setup: WriteSetup = axis("all_setups", name=lambda setup: setup.name)


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


AnyFound = Found[Any, CheckpointsRunConfig]
AnyOutcome = Outcome[Any]


# What is played -------------------------------------------------------------------------------------------------------


def cases_of(config: CheckpointsRunConfig) -> tuple[Case, ...]:
    """Return the cases that are measured, checkpoints alone by writers and replicas."""
    alone = sorted(Alone.grid(config), key=lambda case: (case.setup.writers, case.setup.replicas))
    return (*alone, *Beside.grid(config), *Waiting.grid(config))


def run_checkpoints(session: Session, config: CheckpointsRunConfig) -> dict[str, Any]:
    """Play all cases and return the summary."""
    session.use_queueing(config.queueings[0])
    for case in Alone.grid(config):
        play_case(session, case, [_written(session, config.alone(case.setup), config.nodes_of(case.setup))])
    for queueing in config.queueings:
        _play_training(session, config, queueing)
    return STUDY.summarize(session, config, cases_of(config))


def _written(session: Session, config: CheckpointsConfig, nodes: int) -> CheckpointsJob:
    hosts = session.live.fabric.computes[:nodes]
    return CheckpointsJob(session.stage, config, hosts, level=ServiceLevel.STORAGE, name=JOB)


def _play_training(session: Session, config: CheckpointsRunConfig, queueing: Queueing) -> None:
    """Play training alone, beside checkpoints and, in the first queueing, with steps that wait for them."""
    session.use_queueing(queueing)
    ranks, beside_s = config.training.ranks, config.beside_time
    hosts = session.live.fabric.computes[:ranks]
    training = WorkJob(session.stage, config.training, hosts, level=ServiceLevel.NCCL, name=TRAINING)
    with started(session, [training]):
        session.warm_up(training)
        trained, beside = Trained(queueing), Beside(queueing)
        session.run_phase(trained.name, trained.title, [training], config.training_time)
        written = _written(session, config.beside(), ranks)
        with started(session, [written]):
            session.run_phase(beside.name, beside.title, [training, written], beside_s)
        for waiting in Waiting.grid(config) if queueing is config.queueings[0] else ():
            written, count = _written(session, config.one(), ranks), config.checkpoints.count or 1
            with started(session, [written]):
                decider = StepsWait(training, written, count, beside_s / (2 * count))
                session.run_phase(waiting.name, waiting.title, [decider], beside_s)


# Numbers --------------------------------------------------------------------------------------------------------------


def _measure(played: Played[Any, CheckpointsRunConfig]) -> list[Metric]:
    case, table = played.case, played.rows("checkpoints")
    if isinstance(case, Alone):
        return metrics_of(case.name, JOB, checkpoint_numbers(table))
    mine = table[table["operation"].astype(str) == WRITE]
    steps, written = spans(played.rows("work_steps")), spans(mine)
    if isinstance(case, Waiting):
        stops_s = gaps(steps, written)
        lost = {"lost_s": mean(stops_s) if stops_s else 0.0}
    else:
        lost = losses(_step_s(played.session, case.queueing), steps, written)
    return [*metrics_of(case.name, JOB, checkpoint_numbers(mine)), *metrics_of(case.name, TRAINING, lost)]


def _step_s(session: Session, queueing: Queueing) -> float:
    """Return the median step of training alone; NaN without any."""
    steps = session.table("work_steps")
    took_s = [end - start for start, end in spans(steps[steps["phase"] == Trained(queueing).name])]
    return median(took_s) if took_s else math.nan


def _bound(found: AnyFound, setup: WriteSetup) -> Bound:
    """Return the bound on a setup's bandwidth, from its closed form."""
    nodes, copy_bps = found.fabric.computes[: setup.writers], found.config.checkpoints.device_to_host
    return write_bound(setup_on(found.fabric, nodes, setup.replicas, copy_bps))


def _aside(found: AnyFound, one: AnyOutcome) -> dict[str, float]:
    """Return closed forms beside checkpoints alone; beside steps, what checkpoints of production cost of the time."""
    config, case = found.config, one.case
    if isinstance(case, Alone):
        return {"bound_Bps": _bound(found, case.setup).node_Bps, "wanted_Bps": WANTED_BPS / found.fabric.scale}
    if isinstance(case, Beside):
        return {"production_fraction": one[LOST] * config.lasts / config.period}
    of_time = config.lasts / (config.period + config.lasts)
    return {STEP_S: _step_s(found.session, case.queueing), LOST: 1.0, "production_fraction": of_time}


# What the summary says ------------------------------------------------------------------------------------------------


def _of_kind(found: AnyFound, *kinds: type[Case]) -> list[AnyOutcome]:
    return [one for one in found.outcomes if isinstance(one.case, kinds)]


def _main(found: AnyFound) -> AnyOutcome:
    """Return the setup whose checkpoints are restored."""
    return found.of(Alone(found.config.main).name)


def _restored(found: AnyFound) -> dict[int, int]:
    """Return how many bytes were restored, by how many nodes did."""
    table = found.session.table("checkpoints")
    mine = table[(table["phase"] == found.config.main.name) & (table["operation"].astype(str) == RESTORE)]
    return {int(str(nodes)): int(part["size_bytes"].sum()) for nodes, part in mine.groupby("nodes")}


def _answer(found: AnyFound) -> str:
    main, bound = _main(found), _bound(found, found.config.main)
    rate_Bps, setup = main.values.get(RATE, 0.0), main.case.setup  # noqa: N806 - bytes, not bits
    parts = [
        f"{setup.writers} nodes write {rate_Bps / GIB:.2f} GiB/s each to {setup.replicas} replicas; {bound.by} would "
        f"let them write {bound.node_Bps / GIB:.2f}."
    ]
    if restored := _restored(found):
        parts.append(f"Restored by {', '.join(map(str, sorted(restored)))} nodes, every byte is equal.")
    lost = [f"{format_share(one[LOST], 1)} in {one.case.queueing.words}" for one in _of_kind(found, Beside)]
    parts.append(
        f"Steps that go on beside a checkpoint lose {' and '.join(lost)} of the time for which it is written; those "
        "that wait for it lose all of that."
    )
    return " ".join(parts)


def _training_columns(found: AnyFound) -> list[Column]:
    lasts, period = format_time(found.config.lasts), format_time(found.config.period)
    return [
        Column("steps", lambda one: f"{one.case.steps}, in {one.case.queueing.words}"),
        Column("alone", STEP_S),
        Column("that meet one", f"{TRAINING}.step_beside_s"),
        Column("slowdown", f"{TRAINING}.slowdown", ".2f x"),
        Column("lost per checkpoint", lambda one: max(one[LOST_S], 0.0), "time"),
        Column("of a step", lambda one: one[LOST_S] / one[STEP_S], ".0%"),
        Column("of its time", LOST),
        Column(f"of all, {lasts} every {period}", "production_fraction", ".3%"),
        Column("GiB/s a node", RATE, _GIBPS),
        Column("complete after", COMPLETE_S, otherwise=0.0),
    ]


def _alone_columns(found: AnyFound) -> list[Column]:
    fabric = found.fabric
    return [
        Column("nodes", lambda one: one.case.setup.writers),
        Column("replicas", lambda one: one.case.setup.replicas),
        Column("GiB/s a node", RATE, _GIBPS, otherwise=0.0),
        Column("slowest", SLOWEST, _GIBPS),
        Column("by closed form", "bound_Bps", _GIBPS),
        Column("of that", lambda one: one.values.get(RATE, 0.0) / one["bound_Bps"], ".0%"),
        Column("what binds", lambda one: _bound(found, one.case.setup).by),
        Column("above 10 GiB/s", lambda one: "yes" if true_rate(fabric, one[RATE]) > WANTED_BPS else "no"),
        Column("copied from GPUs", f"{JOB}.checkpoint.copy_s", otherwise=0.0),
        Column("complete after", COMPLETE_S, otherwise=0.0),
        Column("GiB/s with all", f"{JOB}.checkpoint.whole_Bps", _GIBPS),
    ]


def _alone_note(found: AnyFound) -> str:
    fabric = found.fabric
    return (
        "GiB/s a node: of what it has in its memory, until all replicas have it, the median node. complete: from the "
        "start of the copy until the index is there, for which steps wait that do not go on beside it"
        + ("" if fabric.scale == 1 else f"; above 10 GiB/s: the rate of a node{scale_words(fabric)}")
    )


def _restore_columns(found: AnyFound) -> list[Column]:
    main, writers = _main(found), found.config.main.writers

    def of(head: str, measure: Measure, form: str) -> Column:
        return Column(head, lambda row: main[metric_path(JOB, measure.of(row[0]))], form)

    return [
        Column("written by", lambda _: writers),
        Column("restored by", lambda row: row[0]),
        Column("bytes", lambda row: row[1], "size"),
        of("all have it after", RESTORED_ALL, "time"),
        of("GiB/s a node", RESTORED, _GIBPS),
        of("slowest", RESTORED_SLOWEST, _GIBPS),
        Column("equal", lambda _: "yes"),
    ]


def needed(fabric: Fabric) -> list[tuple[int, int | None, int]]:
    """Return the cost of more than 10 GiB/s per node by closed form, per number of replicas: the storage NICs that 100
    writers need, and the nodes of Fire-Flyer 2 that can write at once."""
    nic_Bps = true_rate(fabric, fabric.nic_rate_bps / 8) * payload_fraction(fabric.mtu_bytes)  # noqa: N806 - bytes, not bits
    return [
        (
            replicas,
            storage_nics_for(100, replicas, nic_Bps, WANTED_BPS),
            writers_for(PAPER_STORAGE_NICS, replicas, nic_Bps, WANTED_BPS),
        )
        for replicas in (1, 2, 3)
    ]


STUDY = Study[Any, CheckpointsRunConfig](
    title="Checkpoints",
    cases=cases_of,
    measure=_measure,
    measures=LOSSES,
    aside=_aside,
    answer=_answer,
    tables=(
        CaseTable("Checkpoints alone", _alone_columns, _alone_note, rows=lambda found: _of_kind(found, Alone)),
        CaseTable(
            "Restores",
            _restore_columns,
            "each node restores its even part of every tensor, and compares it by SHA-256 with what was written; a run "
            "in which one differs fails",
            rows=lambda found: sorted(_restored(found).items()),
        ),
        CaseTable(
            "Training and checkpoints on the same nodes",
            _training_columns,
            "lost: what steps that meet a checkpoint take longer than alone, per checkpoint; of steps that wait, from "
            "the end of the last one before it to the start of the next. of its time: for which one is written, by "
            "which what longer ones cost is reckoned",
            rows=lambda found: _of_kind(found, Beside, Waiting),
        ),
        CaseTable(
            "What 10 GiB/s a node takes, by closed form",
            (
                Column("replicas", lambda row: row[0]),
                Column("NICs of storage for 100 writers", lambda row: row[1]),
                Column("nodes of Fire-Flyer 2 at once", lambda row: row[2]),
                Column("of all", lambda row: row[2] / PAPER_NODES, ".0%"),
            ),
            f"Fire-Flyer 2 has {PAPER_STORAGE_NICS} NICs of storage and about {PAPER_NODES:,} nodes; NICs of this "
            "fabric's true rate. Disks are left out",
            rows=lambda found: needed(found.fabric),
        ),
    ),
    figures=(
        Bars(
            "checkpoint_rates",
            "What a node writes per second while all do, until all replicas have it: the median node and the slowest, "
            "by how many nodes write and to how many replicas; diamonds: what NICs allow by closed form.",
            "Checkpoints alone: what a node writes",
            numbers=(Number(RATE, "the median node", 1 / GIB),),
            x="{setup}",
            labels=("", "written per node (GiB/s)"),
            marks=(
                Number(SLOWEST, "the slowest", 1 / GIB, size=22),
                Number("bound_Bps", "by closed form", 1 / GIB, marker="D", colour=INK, size=6),
            ),
            levels=(
                Level(
                    Number("wanted_Bps", "the paper's least: 10 GiB/s at the true rate", 1 / GIB, colour=GREY),
                    "--",
                ),
            ),
        ),
    ),
)
