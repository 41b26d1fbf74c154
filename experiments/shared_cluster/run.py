"""What do jobs that share a fabric cost each other?

Each job plays alone first, unless the config says otherwise, then all play on one timeline: jobs start and end at their
own times, on compute nodes of their own, and share links, lanes and storage nodes. The same jobs, seeds and routes play
in all phases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from controllers.planning.paths import path_load
from experiments.shared_cluster.proof_table import proof_tables
from fabric.delivered import Flow, delivered
from fabric.metrics import Metric, is_fraction, metrics_of, unit_of, without_unit
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric, Port
from fabric.records.cells import Cell, Row, count_of, joined, measured, quantity
from fabric.records.summary_table import SummaryTable
from runs.allocation import Allocation, allocate, crossing_zones
from runs.config import Duration, QueueingConfig
from runs.job_config import AnyJobConfig, PlacedJob, asked_nodes, job_faults, place_jobs
from runs.job_metrics import sent_by_port
from runs.jobs import started
from runs.phase_lengths import PhaseLengths
from runs.session import PhaseOutcome, Session
from runs.ways import nics_of_flow
from traffic.job_kind import Measures
from traffic.measures import JobRows, speed_cell, windows_of

TOGETHER = "together"
NOT_COMPARED = "did nothing in one of the phases that it did in the other"


class SharedClusterConfig(QueueingConfig):
    """The jobs, their queueing, and how long they play."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LANES, description="Queueing in which all phases play."
    )
    alone_time: Duration | None = Field(
        default=8.0,
        description="Length of the phase in which each job plays alone; `null`: none does, and slowdowns are unknown.",
    )
    together_time: Duration = Field(
        default=40.0, description="Length of the phase in which all jobs play, each at its own times."
    )
    allocation: Annotated[Allocation, Field(strict=False)] = Field(
        default=Allocation.PACKED,
        description=(
            "How jobs that ask for a number of nodes get them: `packed` each the next ones, `spread` dealt one at a "
            "time, so that jobs share leaves, `random` by the seed, `zones` within a zone, and one job across at most."
        ),
    )
    jobs: Annotated[list[AnyJobConfig], Field(min_length=1)] = Field(
        description="The jobs: what plays on which nodes, in which lane, and when."
    )

    @property
    def commands(self) -> tuple[str, ...]:
        """Those of its jobs."""
        return tuple(command for job in self.jobs for command in job.of_kind.commands(job.own()))

    @property
    def phase_lengths(self) -> PhaseLengths:
        """Both, unless jobs have an end: a phase lasts until that, too."""
        ending = ", ".join(job.name for job in self.jobs if getattr(job, "has_end", False))
        return PhaseLengths.of(self, "alone_time", "together_time", until=ending and f"{ending} has done all")

    def programs_of(self, fabric: Fabric) -> Mapping[str, Collection[str]] | None:
        """Return those of its jobs, on their nodes and on the hosts that serve them."""
        if list(job_faults(self.jobs, fabric, self.together_time)):
            return None
        nodes = allocate(asked_nodes(self.jobs), fabric, self.allocation, self.seed)
        hosts = {job.name: (*nodes[job.name], *job.of_kind.data.serving(fabric)) for job in self.jobs}
        return {name: [node.name for node in found] for name, found in hosts.items()}

    def restarted_programs(self, fabric: Fabric) -> Mapping[str, Collection[str]] | None:
        """Those of its jobs whose config says so."""
        back = {job.name for job in self.jobs if getattr(job.of_kind.config, "comes_back", False)}
        programs = self.programs_of(fabric)
        return None if programs is None else {name: hosts for name, hosts in programs.items() if name in back}

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        found = list(job_faults(self.jobs, fabric, self.together_time, self.queues.data_levels))
        yield from found
        if self.allocation is Allocation.ZONES and not found:
            crossing = ", ".join(crossing_zones(asked_nodes(self.jobs), fabric))
            if crossing:
                yield f"allocation: zones: {crossing} would cross zones, and one job may; ask for fewer nodes"


def run_shared_cluster(session: Session, config: SharedClusterConfig) -> dict[str, Any]:
    """Play each job alone, then all on their timeline; return the summary."""
    placed = place_jobs(config.jobs, session.stage, session.live.plan, config.allocation, config.queues.data_levels)
    session.use_queueing(config.queueing)
    with started(session, [one.job for one in placed]):
        if config.alone_time is not None:
            for one in placed:
                session.run_phase(alone(one.name), f"{one.name} alone", [one.job], config.alone_time)
        windows = [window for one in placed for window in one.windows()]
        together = session.run_phase(TOGETHER, "all jobs, each at its times", windows, config.together_time)
    return summarize(session, placed, together, config.alone_time is not None)


def alone(job: str) -> str:
    """Return the name of the phase in which a job plays alone."""
    return f"{job}_alone"


def summarize(
    session: Session, placed: list[PlacedJob], together: PhaseOutcome, were_alone: bool = True
) -> dict[str, Any]:
    """Return the tables and metrics of a run. ``were_alone``: whether each job has played alone, too."""
    phases = (*(alone(one.name) for one in placed if were_alone), TOGETHER)
    found = {
        phase: {one.name: job_metrics(session, one, phase) for one in placed if phase in (TOGETHER, alone(one.name))}
        for phase in phases
    }
    measured = [
        metric
        for phase, by_job in found.items()
        for job, numbers in by_job.items()
        for metric in metrics_of(phase, job, numbers)
    ]
    slowdowns = {
        one.name: slowdown(found[alone(one.name)][one.name], found[TOGETHER][one.name], one.measures)
        for one in placed
        if were_alone and one.measures.speeds
    }
    sharing = [sharing_table(session, placed, together)] if len(placed) > 1 else []
    proven = proof_tables(placed, lambda one: _rows_of(session, one, TOGETHER))
    measured += [Metric(TOGETHER, job, "slowdown", value) for job, value in slowdowns.items() if value is not None]
    return {
        "title": "Jobs that share a fabric",
        "answer": " ".join([*_answer(slowdowns), *accounts(session, placed)]) or "No job played alone.",
        "jobs": [one.name for one in placed],
        "metrics": measured,
        "tables": [_jobs_table(session, placed, found, slowdowns), *kind_tables(placed, found), *proven, *sharing],
        "timeline": [TOGETHER],
        "slowdowns": _described_slowdowns(placed, found, slowdowns),
        "port_shares": port_shares(session, placed, together),
    }


def _described_slowdowns(
    placed: list[PlacedJob], found: dict[str, dict[str, dict[str, float]]], slowdowns: dict[str, float | None]
) -> list[dict[str, Any]]:
    """Return what the figure of slowdowns shows of each job."""
    described = []
    for one in placed:
        if one.name in slowdowns:
            apart, together = found[alone(one.name)][one.name], found[TOGETHER][one.name]
            name = compared_by(apart, together, one.measures) or ""
            words = without_unit(name).replace(".", " ") or "nothing"
            speeds = {
                when: speed_cell(name, values[name]).words if name in values else ""
                for when, values in (("alone", apart), ("together", together))
            }
            described.append({"job": one.name, "slowdown": slowdowns[one.name], **speeds, "measure": words})
    return described


def job_metrics(session: Session, one: PlacedJob, phase: str) -> dict[str, float]:
    """Return the numbers that a job's kind reports of it in a phase, over all windows in which it played, and
    ``played_s``. Each window counts until the job is told to halt; ``played_s`` is until it had ended."""
    jobs = _of(session.table("jobs"), phase, one.name)
    return {
        "played_s": float((jobs["ended_s"] - jobs["started_s"]).sum()),
        **one.measures.of(_rows_of(session, one, phase)),
    }


def _rows_of(session: Session, one: PlacedJob, phase: str) -> JobRows:
    windows = windows_of(_of(session.table("jobs"), phase, one.name))
    return JobRows(lambda table: _of(session.table(table), phase, one.name), windows, one.config.own())


def accounts(session: Session, placed: list[PlacedJob]) -> list[str]:
    """Return what came to pass while all jobs played, in words, of each job of which its kind says it."""
    words = [(one.name, one.measures.account(_rows_of(session, one, TOGETHER))) for one in placed]
    return [f"{name}: {text}" for name, text in words if text]


def _of(table: pd.DataFrame, phase: str, job: str) -> pd.DataFrame:
    return table[(table["phase"] == phase) & (table["job"] == job)]


def speed_of(found: Mapping[str, float], measures: Measures) -> tuple[str, float] | None:
    """Return the name and value of what a job is measured by; None if it got nothing done."""
    return next(((name, found[name]) for name in measures.speeds if name in found), None)


def compared_by(apart: Mapping[str, float], together: Mapping[str, float], measures: Measures) -> str | None:
    """Return the name of what a job is measured by alone and in company; None if nothing is known of both."""
    return next((name for name in measures.speeds if name in apart and name in together), None)


def slowdown(apart: Mapping[str, float], together: Mapping[str, float], measures: Measures) -> float | None:
    """Return how many times as fast a job was alone as in company; None if it did nothing in one of them that it did in
    the other."""
    name = compared_by(apart, together, measures)
    return None if name is None or not together[name] else apart[name] / together[name]


def _answer(slowdowns: dict[str, float | None]) -> list[str]:
    parts = [f"{job} {NOT_COMPARED if value is None else f'{value:.2f}'}" for job, value in slowdowns.items()]
    return [f"Speed alone over speed with the other jobs: {', '.join(parts)}."] if parts else []


def _jobs_table(
    session: Session,
    placed: list[PlacedJob],
    found: dict[str, dict[str, dict[str, float]]],
    slowdowns: dict[str, float | None],
) -> SummaryTable:
    rows: list[Row] = []
    jobs = session.table("jobs")
    began_s = session.phases[-1].phase.started_s
    for one in placed:
        times = _of(jobs, TOGETHER, one.name)
        spans = [
            (quantity(began - began_s, "time"), " - ", quantity(ended - began_s, "time"))
            for began, ended in _spans(times)
        ]
        value = slowdowns.get(one.name)
        rows.append(
            [
                one.name,
                one.config.of_kind.name,
                count_of(len(one.nodes)),
                session.live.emulation.lane_plan.lane_of(one.job.level).name,
                joined(spans) or "never",
                *(
                    _speed_cell(found[phase][one.name], one.measures) if phase in found else "-"
                    for phase in (alone(one.name), TOGETHER)
                ),
                quantity(value, ".2f x"),
            ]
        )
    return SummaryTable(
        title="Jobs",
        columns=["job", "kind", "nodes", "lane", "played", "alone", "together", "slowdown"],
        rows=rows,
        note="algbw (median step) of collectives, bandwidth of reads or flows, what hosts of programs sent; of "
        "graphs the median step, and what all ranks send in one over its time; of files that move no bytes, how many "
        "were made per second",
    )


def kind_tables(placed: list[PlacedJob], found: dict[str, dict[str, dict[str, float]]]) -> list[SummaryTable]:
    """Return a table for each kind of job that tells more numbers than a speed: of each of its jobs, alone and with the
    others."""
    tables = []
    for kind in {one.config.of_kind.name: one.config.of_kind for one in placed if one.measures.told}.values():
        jobs = [one for one in placed if one.config.of_kind is kind]
        rows = {
            (one.name, words): found[phase][one.name]
            for one in jobs
            for phase, words in ((alone(one.name), "alone"), (TOGETHER, "together"))
            if phase in found
        }
        told = {name: title for name, title in kind.measures.told.items() if any(name in row for row in rows.values())}
        if told:
            cells: list[Row] = [
                [job, when, *(measured(row, name, _form_of(name)) for name in told)]
                for (job, when), row in rows.items()
            ]
            tables.append(SummaryTable(f"Jobs of kind {kind.name}", ["job", "played", *told.values()], cells))
    return tables


def _form_of(name: str) -> str | None:
    return None if unit_of(name) == "s" or is_fraction(name) else ",.6g"


def _speed_cell(found: Mapping[str, float], measures: Measures) -> Cell:
    speed = speed_of(found, measures)
    if speed is None:
        return "nothing done" if measures.speeds else "-"
    parts: list[Cell] = [speed_cell(*speed)]
    if (p99 := measured(found, "read.p99_s")).is_measured:
        parts.append(("p99 ", p99))
    if "step_s" in found:
        parts.append((measured(found, "step_s"), " a step"))
    return joined(parts)


def sharing_table(session: Session, placed: list[PlacedJob], together: PhaseOutcome) -> SummaryTable:
    """Return who shares which ports with whom by the routes: of each two jobs, how many ports of switches, and the one
    of them that was used most."""
    used = port_use(session, together)
    rows: list[Row] = []
    for a, b in combinations(placed, 2):
        shared = [port for port in a.loads if port in b.loads and port.node.is_switch]
        busiest = max(shared, key=lambda port: used.get(str(port), 0.0), default=None)
        same_lane = a.job.level == b.job.level
        rows.append(
            [
                f"{a.name}, {b.name}",
                quantity(overlap_s(session, a.name, b.name), "time"),
                "the same" if same_lane else "two",
                count_of(len(shared)),
                "-" if busiest is None else (f"{busiest} (", quantity(used.get(str(busiest), 0.0), ".0%"), ")"),
            ]
        )
    return SummaryTable(
        title="Who shares ports with whom",
        columns=["jobs", "both played", "lanes", "ports of switches on paths of both", "busiest of them"],
        rows=rows,
        note="by the routes in use; in brackets: how much of its rate the port sent, until jobs were halted",
    )


def overlap_s(session: Session, a: str, b: str) -> float:
    """Return for how long two jobs played at once."""
    jobs = session.table("jobs")
    first, second = (_spans(_of(jobs, TOGETHER, name)) for name in (a, b))
    return sum(max(0.0, min(x[1], y[1]) - max(x[0], y[0])) for x in first for y in second)


def port_shares(session: Session, placed: list[PlacedJob], together: PhaseOutcome) -> list[dict[str, Any]]:
    """Return what part of its rate each job took at ports of switches that several used, until jobs were halted:
    what each of its flows delivered, by the routes in use. ``sent`` is all that the port sent, headers and
    acknowledgements too."""
    phase = together.phase
    seconds = phase.load_s[1] - phase.load_s[0]
    flows, operations = session.table("flows"), session.table("operations")
    taken: dict[Port, dict[str, float]] = {}
    for one in placed:
        own = [table[table["job"] == one.name] for table in (flows, operations)]
        for flow, growth in delivered(own[0], own[1], phase):
            grown = np.diff(growth.by(np.array(phase.load_s)))
            rate_bps = 8 * float(grown[0]) / seconds
            for port, part in _way_shares(session, flow).items():
                shares = taken.setdefault(port, {})
                share = part * rate_bps / session.live.fabric.link_at[port].rate_bps
                shares[one.name] = shares.get(one.name, 0.0) + share
    used = port_use(session, together)
    found = [
        {"port": str(port), "sent": used.get(str(port), 0.0), "jobs": shares}
        for port, shares in taken.items()
        if port.node.is_switch and len(shares) > 1
    ]
    return sorted(found, key=lambda one: (-float(one["sent"]), str(one["port"])))


def _way_shares(session: Session, flow: Flow) -> dict[Port, float]:
    """Return what part of a flow each port sends, by the routes in use; alike over all NICs that it may use."""
    live = session.live
    nics = nics_of_flow(live.fabric, flow)
    found: dict[Port, float] = {}
    for pair in nics:
        for port, part in path_load(live.plan, live.fabric, *pair).items():
            found[port] = found.get(port, 0.0) + part / len(nics)
    return found


def _spans(rows: pd.DataFrame) -> list[tuple[float, float]]:
    return list(zip(rows["started_s"].astype(float), rows["ended_s"].astype(float), strict=True))


def port_use(session: Session, outcome: PhaseOutcome) -> dict[str, float]:
    """Return what fraction of its rate each port of the network sent while the load of a phase played, from the first
    sample of that time to the last; nothing without two. Ports inside nodes have no one rate."""
    ports = session.table("ports")
    inside = ports[ports["at_s"].between(*outcome.phase.load_s)]
    rates: dict[str, int] = {str(port): link.rate_bps for port, link in session.live.fabric.every_directed_port()}
    seconds = float(inside["at_s"].max() - inside["at_s"].min())
    if not seconds > 0:
        return {}
    sent = sent_by_port(inside)
    return {name: total * 8 / rates[name] / seconds for name, total in sent.items() if name in rates}
