"""Do lanes keep training, storage and other traffic out of each other's way?

Cases on one fabric: HFReduce, NCCL, storage and other traffic each alone, in the first queueing of ``queueings``; then
all at once in each of them: one shared queue per port, lanes, and the same two without loss; each with other traffic at
a moderate load and, with ``heavy_load``, at a heavy one. The same jobs and seeds play in all cases, so cases differ
only in the other traffic and in the queues. Fire-Flyer 2 maps each kind to a Virtual Lane with a share (arXiv
2408.14158v2, VI-A1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from experiments.isolation.config import IsolationConfig, Load
from fabric.measure.level_counter import LevelCounter
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Port
from fabric.records.cells import Bound, Quantity
from fabric.records.figure_forms import Bars, Looks, Number, Places
from fabric.records.summary_table import SummaryTable
from fabric.units import format_rate
from runs.case_tables import CaseTable, Column, case_table
from runs.cases import Case, axis
from runs.counted_operations import NOTE
from runs.jobs import hfreduce_ranks, ordered_ranks, started
from runs.port_shares import WatchedJob, busiest_switch_port
from runs.session import Session
from runs.side_by_side import SideBySide
from runs.stall_metrics import STALLS
from runs.study import Compared, Found, Outcome, Played, Point, Study
from traffic import metrics
from traffic.collectives.hfreduce import HFReduceJob
from traffic.collectives.nccl import NcclJob, sent_fraction
from traffic.collectives.step_numbers import collective_medians
from traffic.flows.background import BackgroundJob
from traffic.job import Job
from traffic.storage.client.verification import Verification
from traffic.storage.job import StorageJob

COLLECTIVES = (ServiceLevel.HFREDUCE, ServiceLevel.NCCL)
OPERATIONS = {"read": ServiceLevel.STORAGE, "write": ServiceLevel.STORAGE, "flow": ServiceLevel.OTHER}
LEVEL_OF = {**{level.label: level for level in COLLECTIVES}, **OPERATIONS}
"""The service level of everything that is measured."""


def _label(level: ServiceLevel) -> str:
    return level.label


@dataclass(frozen=True)
class Alone(Case, name="{level}_alone", title="{level} alone"):
    """A program plays alone."""

    level: ServiceLevel = axis(lambda _: DATA_LEVELS, name=_label, words=_label)


@dataclass(frozen=True)
class Mix(Case, name="{queueing}{load}", title="all in {words}"):
    """All play at once: how ports queue, and what other traffic offers."""

    queueing: Queueing = axis("queueings")
    load: Load = axis("loads", name=lambda load: "_heavy" if load.is_heavy else "")

    @property
    def words(self) -> str:
        """Its queueing in words, and a load that is not the moderate one."""
        return self.format("{queueing}, others at {load}" if self.load.is_heavy else "{queueing}")


AnyFound = Found[Any, IsolationConfig]
Shares = Mapping[str, Mapping[str, float]]
"""The share of a port's link that each service level gets, by case."""


COMPARED = {
    "HFReduce, algbw": "hfreduce.algbw_Bps",
    "NCCL, algbw": "nccl.algbw_Bps",
    "storage reads, bandwidth": "read.bandwidth_Bps",
    "storage reads, p99 of latency": "read.p99_s",
    "other flows, p99 of completion": "flow.p99_s",
}
"""What figures compare with the same alone: part and number."""


def run_isolation(session: Session, config: IsolationConfig) -> dict[str, Any]:
    """Play all cases with the same jobs and return the summary."""
    shares: dict[str, dict[str, float]] = {}
    with all_jobs(session, config) as jobs:
        session.use_queueing(config.queueings[0])
        for alone in Alone.grid(config):
            session.run_phase(alone.name, alone.title, [jobs[alone.level]], config.alone_time)
        port = busiest_switch_port(session.table("ports"), session.live.fabric)
        emulation, link_Bps = session.live.emulation, session.live.fabric.link_at[port].rate_bps / 8  # noqa: N806
        counter = LevelCounter(session.pool, {port: emulation.namespace_of_port(port)}, emulation.lane_plan.levels)
        for mix in Mix.grid(config):
            session.use_queueing(mix.queueing)
            jobs[ServiceLevel.OTHER].load = mix.load.fraction
            first, *others = jobs.values()
            watched = WatchedJob(first, lambda: counter.read()[port])
            session.run_phase(mix.name, mix.title, [watched, *others], config.together_time)
            shares[mix.name] = {level.label: each / link_Bps for level, each in watched.levels_Bps.items()}
        session.tell("reading back, over the fabric, all that storage has acknowledged")
        verification = jobs[ServiceLevel.STORAGE].verify_acknowledged()
    return summarize(session, config, port, shares, verification)


@contextmanager
def all_jobs(session: Session, config: IsolationConfig) -> Iterator[dict[ServiceLevel, Any]]:
    """Start the four kinds of traffic for the time of a block; collectives first, so that they are halted first."""
    stage, computes = session.stage, session.live.fabric.computes
    nccl = computes[: config.nccl_nodes]  # The first ones: of one zone as far as it goes.
    made: tuple[Job, ...] = (
        HFReduceJob(stage, config.hfreduce, hfreduce_ranks(session, config.hfreduce, config.rank_order)),
        NcclJob(stage, config.nccl, ordered_ranks(session, config.rank_order, nccl, config.nccl.flows(nccl))),
        StorageJob(stage, config.storage, computes),
        BackgroundJob(stage, config.background, computes),
    )
    with started(session, made):
        yield {job.level: job for job in made}


def summarize(
    session: Session, config: IsolationConfig, port: Port, shares: Shares, verification: Verification
) -> dict[str, Any]:
    """Return the summary of all cases, with a port's shares."""
    counted = {case: {_got(level): share for level, share in parts.items()} for case, parts in shares.items()}
    found = STUDY.summarize(session, config, STUDY.cases_of(config), counted)
    table = _shares_table(config, port, session.live.fabric.link_at[port].rate_bps, shares)
    more = {"busiest_port": str(port), "acknowledged_writes": verification.counts}
    return {**found, "tables": [*found["tables"], table], **more}


def _got(level: str) -> str:
    return f"port.{level}"


# Numbers --------------------------------------------------------------------------------------------------------------


def _measure(played: Played[Any, IsolationConfig]) -> list[Metric]:
    """Return all numbers of a case; what did not play has none."""
    name, phase, steps = played.case.name, played.phase, played.rows("steps")
    found = []
    for level in COLLECTIVES:
        mine = steps[steps["service_level"] == level.label]
        if not mine.empty:
            slowest_s = float((mine["ended_s"] - mine["started_s"]).max())
            numbers = {**collective_medians(mine), "slowest_step_s": slowest_s, "steps": len(mine)}
            found += metrics_of(name, level.label, numbers)
    for operation, level in OPERATIONS.items():
        found += metrics_of(name, level.label, played.operations(operation), is_named_by_job=False)
    ports = played.session.table("ports")
    backlogs = ports["backlog_bytes"][ports["at_s"].between(phase.started_s, phase.ended_s)]
    network = {
        **played.packets("drops_packets", "sent_packets", "retransmissions"),
        "deepest_queue_bytes": 0 if backlogs.empty else int(backlogs.max()),
        **played.stalls(),
    }
    return [*found, *metrics_of(name, "", network)]


def beside(found: AnyFound, part: str, one: Outcome[Any]) -> Compared[Any]:
    """Return a part of a case, beside it alone."""
    return Compared(part, one, found.of(Alone(LEVEL_OF[part]).name))


def _parts(found: AnyFound, *parts: str) -> list[Compared[Any]]:
    """Return parts of all cases in which they play, beside them alone."""
    every = (beside(found, part, one) for part in parts for one in found.outcomes)
    return [one for one in every if one.is_measured]


def _mixes(found: AnyFound, is_heavy: bool = False) -> list[Outcome[Any]]:
    """Return the cases in which all play, at the moderate load of others or at the heavy one."""
    return [one for one in found.outcomes if isinstance(one.case, Mix) and one.case.load.is_heavy is is_heavy]


def _promised(config: IsolationConfig) -> dict[str, float]:
    """Return the share of each link that the lane of each service level has, whatever the others do."""
    lanes = plan_lanes(config.queues, Queueing.LANES)
    return {level.label: lanes.guaranteed_share(level) for level in (*DATA_LEVELS, ServiceLevel.CONTROL)}


def _ideal_Bps(found: AnyFound) -> dict[str, float]:  # noqa: N802 - bytes, not bits
    """Return the algbw of each collective with a full NIC at the busiest rank."""
    nccl, rate_bps = found.config.nccl, found.fabric.nic_rate_bps
    fraction = sent_fraction(nccl.algorithm, found.config.nccl_nodes, nccl.collective)
    return {
        ServiceLevel.HFREDUCE.label: metrics.ideal_hfreduce_algbw(rate_bps),
        ServiceLevel.NCCL.label: metrics.ideal_algbw(rate_bps, fraction),
    }


def _theory(found: AnyFound, one: Outcome[Any]) -> dict[str, float]:
    ideal = {metric_path(part, "algbw_Bps"): value for part, value in _ideal_Bps(found).items()}
    return {name: value for name, value in ideal.items() if name in one.values}


def _points(found: AnyFound, one: Outcome[Any]) -> list[Point]:
    """Return a point for each program of a mix, and for each service level at the busiest port."""
    if not isinstance(one.case, Mix):
        return []
    promised = _promised(found.config)
    rates = [(words, *name.split(".")) for words, name in COMPARED.items() if name.endswith("_Bps")]
    programs = [
        Point(
            {"program": words},
            {"kept": _times(found, one, f"{part}.{name}").value, "promised": promised[LEVEL_OF[part].label]},
        )
        for words, part, name in rates
    ]
    levels = [Point({"level": level}, {"got": one[_got(level)], "promised": promised[level]}) for level in promised]
    return [*programs, *levels]


# What the summary says ------------------------------------------------------------------------------------------------


def _answer(found: AnyFound) -> str:
    """Return the finding in a sentence or two."""
    moderate, heavy = _mixes(found), _mixes(found, is_heavy=True)
    hfreduce, reads = COMPARED["HFReduce, algbw"], COMPARED["storage reads, bandwidth"]
    if not heavy:
        steps, latencies = (_told(found, moderate, name, ".1f", "an unknown number of") for name in _TIMES)
        as_long = ["times as long as alone", *["times"] * len(moderate)]
        told = zip(steps, as_long, moderate, strict=False)
        took = _listed([f"{step} {words} in {one.case.queueing.words}" for step, words, one in told])
        return (
            f"With all other traffic an HFReduce step takes {took}; the 99th percentile of storage reads is "
            f"{_listed(latencies)} times that alone."
        )
    of = ((heavy, hfreduce), (heavy, reads), (moderate, hfreduce))
    kept = [_listed(_told(found, mixes, name, ".0%", "an unknown part", " in {queueing}")) for mixes, name in of]
    if Queueing.LANES in found.config.queueings:
        kept[0] += f" (promised in lanes: {_promised(found.config)['hfreduce']:.0%})"
    return (
        f"While other traffic offers {heavy[0].case.load.words} of every NIC's rate, HFReduce keeps {kept[0]} of its "
        f"bandwidth alone, storage reads {kept[1]}. While it offers {moderate[0].case.load.words}, HFReduce keeps "
        f"{kept[2]}."
    )


_TIMES = ("hfreduce.step_s", "read.p99_s")
_BOUNDS = {Bound.NONE: "", Bound.AT_LEAST: "more than ", Bound.AT_MOST: "less than "}


def _times(found: AnyFound, one: Outcome[Any], name: str, form: str = ".2f x") -> Quantity:
    part, _, number = name.partition(".")
    return beside(found, part, one).times(number, form)


def _told(
    found: AnyFound, mixes: Sequence[Outcome[Any]], name: str, form: str, unknown: str, behind: str = ""
) -> list[str]:
    """Return how many times that alone a number is in each mix, in words."""
    every = [(_times(found, one, name, form), one.case.format(behind)) for one in mixes]
    return [
        (_BOUNDS[one.bound] + replace(one, bound=Bound.NONE).words if one.is_measured else unknown) + where
        for one, where in every
    ]


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(parts[:-1]), parts[-1]) if part)


COMPLETED = "p50 {p50_s}, p99 {p99_s}, p99.9 {p999_s}, completed {operations|.0f or 0}"


def _is_heavy(one: Compared[Any]) -> bool:
    return isinstance(one.case, Mix) and one.case.load.is_heavy


def _shares_table(config: IsolationConfig, port: Port, rate_bps: float, shares: Shares) -> SummaryTable:
    lanes = plan_lanes(config.queues, Queueing.LANES)
    levels = (*config.queues.data_levels, ServiceLevel.CONTROL)
    rows = [
        (level.label, lanes.lane_of(level).share, [each[level.label] for each in shares.values()]) for level in levels
    ]
    mixes = (Column(mix.words, lambda row, at=at: row[2][at], ".1%") for at, mix in enumerate(Mix.grid(config)))
    return case_table(
        "Shares of the busiest port",
        [*rows, ("all", 1.0, [sum(each.values()) for each in shares.values()])],
        (Column("service level", lambda row: row[0]), Column("configured share", lambda row: row[1], ".0%"), *mixes),
        "by DSCP, so acknowledgements count with their kind; other lanes may borrow what a lane does not use; "
        f"port {port} of {format_rate(rate_bps)}",
    )


TABLES = (
    CaseTable(
        "Allreduce",
        (
            "phase {title}",
            Column("collective", lambda one: one.part),
            "algbw {algbw_Bps}, busbw {busbw_Bps}, of ideal {algbw_Bps / algbw_in_theory_Bps|.0%}, median step "
            "{step_s}, slowest {slowest_step_s}, steps {steps|.0f}, time / alone {step_s / alone}",
        ),
        "algbw and busbw as nccl-tests define them, median over steps; ideal: a full NIC at the busiest rank",
        rows=lambda found: _parts(found, "hfreduce", "nccl"),
    ),
    CaseTable(
        "Storage",
        (
            "phase {title}",
            Column("operation", lambda one: one.part),
            f"bandwidth {{bandwidth_Bps}}, {COMPLETED}, failed {{failed|.0f or 0}}, "
            "bandwidth / alone {bandwidth_Bps / alone}",
        ),
        f"percentiles of completion latency, as fio's, of operations that began while all of the load played; {NOTE}",
        rows=lambda found: _parts(found, "read", "write"),
    ),
    CaseTable(
        "Other traffic: completion time of flows",
        (
            f"phase {{title}}, {COMPLETED}, abandoned {{abandoned|.0f or 0}}, failed {{failed|.0f or 0}}, "
            "refused {refused|.0f or 0}",
            # Alone, others offer the moderate load: what they take at a heavy one has nothing to be compared with.
            Column("p99 / alone", lambda one: None if _is_heavy(one) else one.times("p99_s")),
        ),
        f"of flows that began while all of the load played; {NOTE}; refused: as max_flows of its host ran",
        rows=lambda found: _parts(found, "flow"),
    ),
    CaseTable(
        "Network",
        (
            "phase {title}, packets sent {sent_packets|.0f}, dropped by queues {drops_packets|.0f}",
            Column("of packets", lambda one: one["drops_packets"] / max(1, one["sent_packets"]), ".2%"),
            "retransmissions {retransmissions|.0f}, deepest queue {deepest_queue_bytes|.0f KiB}",
        ),
    ),
    STALLS,
)


def _more(found: AnyFound) -> dict[str, Any]:
    lanes = plan_lanes(found.config.queues, Queueing.LANES)
    return {
        "lane_shares": {lane.name: lane.share for lane in lanes.lanes},
        "ideal_algbw_Bps": _ideal_Bps(found),
    }


PROMISED = Number("promised", "promised by its lane", size=14.0)
LOOKS = Looks(11.0, 1.2, legend=5, horizontal=True, percent_y=True, bar_words="{:.0%}", places=Places(0.6))

STUDY = Study[Any, IsolationConfig](
    title="Isolation: training, storage and other traffic on one fabric",
    cases=(Alone, Mix),
    measure=_measure,
    measures=(
        Measure("deepest_queue_bytes", "most bytes that a port of a switch had queued in a sample", Better.LESS),
        Measure("slowest_step_s", "time of the slowest step", Better.LESS),
    ),
    theory=_theory,
    points=_points,
    answer=_answer,
    tables=TABLES,
    more=_more,
    figures=(
        Bars(
            "isolation",
            "The bandwidth of each program with all others, over that alone; black: what its lane promises.",
            "What one shared queue costs, and what lanes keep",
            numbers=(Number("kept", ""),),
            x="{program}",
            colour="{queueing}",
            panels="others offer {load} of each NIC",
            labels=("bandwidth kept, of that alone", ""),
            marks=(PROMISED,),
            looks=LOOKS,
        ),
        Bars(
            "port_shares",
            "What each Service Level got of the link of the busiest port, by DSCP, while all of the load played; "
            "black: what its lane promises.",
            "Who gets the link of the busiest port",
            numbers=(Number("got", ""),),
            x="{level}",
            colour="{queueing}",
            panels="others offer {load} of each NIC",
            labels=("share of the link", ""),
            marks=(PROMISED,),
            looks=LOOKS,
        ),
    ),
    side_by_side=SideBySide(_mixes, COMPARED, beside=beside, without_end=("flow.failed", "flow.refused")),
)
