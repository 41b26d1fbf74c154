"""What does each kind of failure cost a training job, and what do a year's failures cost whole machines?

Events are played with packets, one after another: failures at random moments between checkpoints, suspensions, leaf
switches with several nodes of a job, a spine switch, restores and checkpoints of all nodes at once, restores beside a
resync, a storage node that is lost under a training that reads, wrong data, an allreduce with a slow NIC, a validation
of all nodes. Timers are the true ones. Then years of whole machines are composed of what these cost.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import pandas as pd

from cluster.simulation.measured import MeasuredCosts
from experiments.goodput_year.config import GoodputYearConfig, Kind
from experiments.goodput_year.costs_by_steps import FailureCost, SuspensionCost
from experiments.goodput_year.others import Others
from experiments.goodput_year.platform_phases import (
    FAILURES,
    LEAVES,
    SUSPENSIONS,
    Failures,
    play_failures,
    play_leaves,
    play_suspensions,
    play_validation,
)
from experiments.goodput_year.shared_phases import play_spine, play_storage_loss
from experiments.goodput_year.storage_phases import RESTORE, WRITE, play_storms
from experiments.goodput_year.storms import Storm
from experiments.goodput_year.summary import Seen, summarize
from experiments.goodput_year.tables import TABLES
from experiments.goodput_year.wrong_data import play_wrong_checkpoint, play_wrong_copies
from experiments.goodput_year.year import Composed, compose, shares
from fabric.errors import TrafficError
from fabric.failures.config import failure_line, schedule_failures
from runs.jobs import started
from runs.session import Session
from traffic.collectives.hfreduce import HFReduceJob

WHOLE_NIC, SLOW_NIC = "whole_nic", "slow_nic"
"""The phases of the allreduce."""


def run_goodput_year(session: Session, config: GoodputYearConfig) -> dict[str, Any]:
    """Play all events, compose the years, and return the summary."""
    session.use_queueing(config.queueing)
    storms = play_storms(session, config.storms)
    wrong_copies = play_wrong_copies(session, config)
    wrong_checkpoint = play_wrong_checkpoint(session, config)
    storage_loss = play_storage_loss(session, config)
    slowed = _slowed(session, config)
    spine = play_spine(session, config)
    others = Others(play_leaves(session, config), spine, storage_loss, wrong_copies, wrong_checkpoint,
                    play_validation(session, config))  # fmt: skip
    failures = play_failures(session, config)
    suspensions = play_suspensions(session, config)
    _keep_events(session, failures, suspensions, storms)
    _keep_others(session, others)
    measured = measured_costs(config, failures, suspensions, storms, slowed).model_copy(update=costs_of_others(others))
    composed = compose(config.year, measured, config.seed, session.tell)
    _keep_years(session, composed)
    return summarize(config, Seen(failures, suspensions, storms, slowed, measured, others), composed)


def costs_of_others(others: Others) -> dict[str, Any]:
    """Return what of :class:`MeasuredCosts` was measured beside failures of nodes: what was not played costs
    nothing."""
    found: dict[str, Any] = {"spine": others.spine, "validation": others.validation_s}
    if others.storage_loss is not None:
        found |= {"storage_lost": others.storage_loss.lost_s, "resync": others.storage_loss.resync_s}
    if others.wrong_checkpoint is not None:
        found["wrong_part"] = others.wrong_checkpoint.part
    return found


def _slowed(session: Session, config: GoodputYearConfig) -> float:
    """Return how many times as long an allreduce takes with a slow NIC."""
    fabric, slow = session.live.fabric, config.slow
    ranks = [fabric.host_named(name) for name in config.events.nodes[1:]]
    line = failure_line({"nic": f"{ranks[0].name}:0", "at": 0.0, "rate": slow.rate})
    times = {}
    job = HFReduceJob(session.stage, slow.hfreduce, ranks)
    with started(session, [job]):
        session.warm_up(job)
        for phase, title, lines in (
            (WHOLE_NIC, "an allreduce", []),
            (SLOW_NIC, f"an allreduce with a NIC at {slow.rate:.0%} of its rate", [line]),
        ):
            schedule = schedule_failures(lines, fabric, config.seed) if lines else None
            session.run_phase(phase, title, [job], slow.time, schedule)
            steps = session.table("steps")
            own = steps[(steps["phase"] == phase) & (steps["job"] == job.name)]
            if own.empty:
                raise TrafficError(f"{phase}: no step of the allreduce in {slow.time:g} s; raise slow.time")
            times[phase] = float((own["ended_s"] - own["started_s"]).median())
    return max(1.0, times[SLOW_NIC] / times[WHOLE_NIC])


def measured_costs(
    config: GoodputYearConfig,
    failures: Failures,
    suspensions: Sequence[SuspensionCost],
    storms: Sequence[Storm],
    slowed: float,
) -> MeasuredCosts:
    """Return the means of what was measured. Of what no event was drawn, the timers and the program say it.

    Detection of a killed program is that of a GPU's error; that of a silent host and of one behind a dead leaf count
    together, since nobody hears either.
    """
    timers, program = config.events.timers, config.events.program
    killed = [one.parts.detection_s for one in failures.costs if one.kind == Kind.KILLED.value]
    unheard = [one.parts.detection_s for one in failures.costs if one.kind != Kind.KILLED.value]
    parts = {phase: [one.part for one in storms if one.phase == phase] for phase in (RESTORE, WRITE)}
    return MeasuredCosts(
        detect_error=_mean(killed, config.events.again),
        detect_silent=_mean(unheard, timers.failed_after),
        stop=_mean([one.parts.stop_s for one in failures.costs], 0.0),
        start=_mean([one.parts.start_s for one in failures.costs], 0.0),
        answer=_mean([one.answer_s for one in suspensions], program.step / 2),
        suspend_save=_mean([one.save_s for one in suspensions], program.save),
        cut=_mean([one.stalled_s for one in failures.cuts], config.events.cut),
        slow_communication=slowed,
        restore_part=min(1.0, _mean(parts[RESTORE], 1.0)),
        write_part=min(1.0, _mean(parts[WRITE], 1.0)),
        replicas=config.storms.storage.replicas,
    )


def _mean(values: Sequence[float], otherwise: float) -> float:
    return statistics.fmean(values) if values else otherwise


def _keep_events(
    session: Session, failures: Failures, suspensions: Sequence[SuspensionCost], storms: Sequence[Storm]
) -> None:
    """Keep a row of each event."""
    _keep(session, "failure_costs", [_failure_row(FAILURES, one) for one in failures.costs])
    _keep(session, "cut_costs", [(FAILURES, one.node, one.at_s, one.stalled_s) for one in failures.cuts])
    _keep(
        session,
        "suspension_costs",
        [
            (SUSPENSIONS, one.at_s, one.tick_s, one.answer_s, one.save_s, one.start_s, one.resume_s, one.lost)
            for one in suspensions
        ],
    )
    _keep(
        session,
        "storms",
        [(one.phase, one.began_s, one.ended_s, one.nodes, one.size_bytes, one.part, one.resync) for one in storms],
    )


def _failure_row(phase: str, one: FailureCost) -> tuple[Any, ...]:
    resumed = -1 if one.resumed is None else one.resumed
    return (phase, one.kind, one.node, one.at_s, one.life, resumed, *astuple(one.parts), one.parts.total_s)


def _keep_others(session: Session, others: Others) -> None:
    """Keep a row of each number of what else was played."""
    rows = [_failure_row(f"{LEAVES}_{number}", one) for number, one in enumerate(others.leaves, start=1)]
    _keep(session, "leaf_costs", rows)
    _keep(session, "shared_costs", list(others.rows()))


def _keep_years(session: Session, composed: Composed) -> None:
    """Keep the rows of what was composed."""
    rows = [
        (one.machine.name, seed, cause.value, share) for one in composed.played for seed, cause, share in shares(one)
    ]
    _keep(session, "year_shares", rows)
    nan = float("nan")
    points = [
        (
            one.machine,
            one.sweep,
            one.way,
            one.value,
            one.goodput.median,
            *tuple(nan if end is None else end for end in (one.goodput.low, one.goodput.high)),
            one.theory,
        )
        for one in composed.points
    ]
    _keep(session, "year_sweeps", points)


def _keep(session: Session, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        session.keep_frame(table, pd.DataFrame(rows, columns=list(TABLES[table].columns)))
