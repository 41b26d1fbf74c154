"""How much of its bandwidth does a program keep as the traffic of others grows, and does its lane protect it?

HFReduce and storage readers play together in every phase, with flows of others at a growing load, from none to far more
than a NIC carries; then HFReduce with storage readers at a growing queue depth. All of it in each queueing, with the
same seeds. A lane promises a program its share of the bandwidth that the program has alone: shares are guaranteed at
every port, whatever the other lanes do (Fire-Flyer 2, arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.protection.config import LoadPoint, ProtectionConfig
from fabric.delivered import acknowledged_bytes
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel, plan_lanes
from fabric.records.figure_forms import Level, Lines, Looks, Number, Places
from fabric.records.palette import GREY
from fabric.results import Result
from fabric.units import exact
from runs.case_tables import CaseTable, Column, say
from runs.cases import Case, axis
from runs.counted_operations import NOTE
from runs.jobs import hfreduce_flows, hfreduce_ranks, started
from runs.session import Session
from runs.study import Found, Outcome, Played, Point, Study
from traffic.collectives.hfreduce import HFReduceJob
from traffic.flows.background import BackgroundJob
from traffic.job import Job
from traffic.measures import OPERATIONS
from traffic.storage.job import StorageJob


@dataclass(frozen=True)
class Program:
    """A program that the others play beside: its name in words, the head of its column, its bandwidth, its level."""

    words: str
    head: str
    number: str
    level: ServiceLevel

    @property
    def left(self) -> str:
        """The name of what part it has of its bandwidth alone."""
        return f"{self.number}_of_alone"

    def promised(self, config: ProtectionConfig) -> float:
        """Return what fraction of every link its lane has whatever the others do."""
        return plan_lanes(config.queues, Queueing.LANES).guaranteed_share(self.level)


HFREDUCE = Program("HFReduce", "HFReduce, algbw", "hfreduce.algbw_Bps", ServiceLevel.HFREDUCE)
READS = Program("storage reads", "storage reads", "read.bandwidth_Bps", ServiceLevel.STORAGE)
PROGRAMS = (HFREDUCE, READS)


@dataclass(frozen=True)
class Alone(Case, name="{program}_alone", title="{program} alone"):
    """A program alone, in the first queueing."""

    queueing: Queueing
    program: str = axis()


@dataclass(frozen=True)
class Beside(Case, title="{storage}, others at {other_load}, in {queueing}"):
    """What plays beside HFReduce, in which queueing."""

    queueing: Queueing = axis()
    other_load: float = axis(words=lambda load: f"{load:.0%}")
    storage_depth: int = axis()

    @property
    def name(self) -> str:
        """The name of its phase, in which a load has its dot, as in all results of this experiment."""
        return f"{self.queueing.value}_other_{exact(self.other_load)}_depth_{self.storage_depth}"

    @property
    def storage(self) -> str:
        """What storage does, in words."""
        return f"storage at depth {self.storage_depth}" if self.storage_depth else "no storage"

    @property
    def point(self) -> LoadPoint:
        """What plays."""
        return LoadPoint(self.other_load, self.storage_depth)


AnyFound = Found[Alone | Beside, ProtectionConfig]
AnyOutcome = Outcome[Alone | Beside]


def cases_of(config: ProtectionConfig) -> list[Alone | Beside]:
    """Return each program alone, then all loads in each queueing."""
    alone = [Alone(config.queueings[0], program.level.label) for program in PROGRAMS]
    return [*alone, *(Beside(queueing, *point) for queueing in config.queueings for point in config.points)]


def run_protection(session: Session, config: ProtectionConfig) -> dict[str, Any]:
    """Play all cases with the same programs, and return the summary. Others are halted first, or the last step of a
    starved HFReduce would take a minute."""
    ranks, depth = hfreduce_ranks(session, config.hfreduce, config.rank_order), config.storage.dataloader.depth
    hfreduce = HFReduceJob(session.stage, config.hfreduce, ranks)
    others = BackgroundJob(session.stage, config.background, session.live.fabric.computes)
    storage = _storage(session, config, depth)
    alone: dict[str, Job] = {HFREDUCE.level.label: hfreduce, READS.level.label: storage}
    cases = cases_of(config)
    with started(session, (hfreduce, storage, others)):
        for case in cases:
            session.use_queueing(case.queueing)
            playing, extra = [], []
            if isinstance(case, Alone):
                playing = [alone[case.program]]
            else:
                others.load = case.other_load or others.load
                extra = [_storage(session, config, case.storage_depth)] if case.storage_depth not in (0, depth) else []
                beside = [storage] if case.storage_depth == depth else []
                playing = [*([others] if case.other_load else []), hfreduce, *beside, *extra]
            with started(session, extra):
                session.run_phase(case.name, case.title, playing, config.phase_time)
    sent = {"hfreduce.sent_over_size": sum(share for _, _, share in hfreduce_flows(hfreduce))}
    return STUDY.summarize(session, config, cases, {case.name: sent for case in cases})


def _storage(session: Session, config: ProtectionConfig, depth: int) -> StorageJob:
    dataloader = config.storage.dataloader.model_copy(update={"depth": depth})
    storage = config.storage.model_copy(update={"dataloader": dataloader})
    return StorageJob(session.stage, storage, session.live.fabric.computes)


def _measure(played: Played[Alone | Beside, ProtectionConfig]) -> list[Metric]:
    """Return all numbers of a phase; what did not play has none. They are of the time after the warm-up, while all of
    the load plays. HFReduce's bandwidth is of bytes delivered, so that steps that did not end count as far as they got.
    """
    name, (from_s, until_s), flows = played.case.name, played.counted_s, played.rows("flows")
    trees = flows[flows["service_level"] == ServiceLevel.HFREDUCE.label]
    found = []
    if not trees.empty:
        delivered = acknowledged_bytes(trees, from_s, until_s) / played.counted["hfreduce.sent_over_size"]
        found += metrics_of(name, ServiceLevel.HFREDUCE.label, {"algbw_Bps": delivered / (until_s - from_s)})
    found += metrics_of(name, ServiceLevel.STORAGE.label, played.operations("read"), is_named_by_job=False)
    found += metrics_of(name, ServiceLevel.OTHER.label, played.operations("flow", ""))
    return found + metrics_of(name, "", played.packets("drops_packets", "sent_packets", "retransmissions"))


# What is said ---------------------------------------------------------------------------------------------------------


def _left(found: AnyFound, one: AnyOutcome) -> dict[str, float]:
    """Return what part of its bandwidth alone each program has."""
    alone = {each: found.of(Alone(found.config.queueings[0], each.level.label).name) for each in PROGRAMS}
    return {each.left: one[each.number] / (base[each.number] or math.nan) for each, base in alone.items()}


def _beside(found: AnyFound, points: Iterable[LoadPoint]) -> list[AnyOutcome]:
    """Return what came of loads, each in all queueings."""
    return [found.of(Beside(queueing, *point).name) for point in points for queueing in found.config.queueings]


def _answer(found: AnyFound) -> str:
    """Return what is left at the greatest load of others."""
    config = found.config
    told = []
    for program in PROGRAMS:
        greatest = _beside(found, config.beside_others[-1:])
        kept = ", ".join(say(one, f"{{{program.left}|.0%}} in {{queueing}}") for one in greatest)
        told.append(f"{program.words}: {kept} (promised in lanes: {program.promised(config):.0%})")
    offered = f"flows that offer {config.other_loads[-1]:.0%} of every NIC's rate"
    return f"Of their bandwidth alone, programs keep, next to {offered}: {'; '.join(told)}."


def _promises(found: AnyFound) -> str:
    promises = " and ".join(f"{one.promised(found.config):.0%} ({one.level.label})" for one in PROGRAMS)
    return f"lanes promise {promises} of a program's bandwidth alone, whatever the others do"


IN = Column("in", "queueing")
LEFT = (
    IN,
    Column(HFREDUCE.head, HFREDUCE.number),
    Column("of alone", HFREDUCE.left, ".0%"),
    Column(READS.head, READS.number),
    Column("of alone", READS.left, ".0%"),
    Column("flows of others, completed", "other.bandwidth_Bps"),
)
PLAYED = (
    Column("others", lambda one: one.case.other_load, ".0%"),
    Column("storage depth", lambda one: one.case.storage_depth),
    IN,
)
TABLES = (
    CaseTable(
        "Under growing load of others",
        (Column("others offer, of each NIC", lambda one: one.case.other_load, ".0%", is_once=True), *LEFT),
        _promises,
        rows=lambda found: _beside(found, found.config.beside_others),
    ),
    CaseTable(
        "With storage only, under growing queue depth",
        (Column("batches per client", lambda one: one.case.storage_depth, is_once=True), *LEFT),
        "a client has one connection per storage node, however much it asks for",
        rows=lambda found: _beside(found, found.config.beside_storage),
    ),
    CaseTable(
        "Completion of reads and flows",
        (
            *PLAYED,
            Column("p99 of reads", "read.p99_s"),
            Column("reads failed", "read.failed"),
            Column("p99 of flows", "other.p99_s"),
            Column("completed", "other.operations"),
            *(Column(what, f"other.{what}") for what in ("abandoned", "failed", "refused")),
        ),
        f"{NOTE}; refused: the flow arrived while max_flows of its host were running, and did not start",
        rows=lambda found: _beside(found, found.config.points),
    ),
    CaseTable(
        "Network",
        (
            *PLAYED,
            Column("packets sent", "sent_packets"),
            Column("dropped by queues", "drops_packets"),
            Column("retransmissions", "retransmissions"),
        ),
        rows=lambda found: _beside(found, found.config.points),
    ),
)


# In the figure --------------------------------------------------------------------------------------------------------

OFFERED = "load offered by flows of others, of each NIC's rate (%)"
REQUESTS = "number of batches in flight per storage client"


def _points(found: AnyFound, one: AnyOutcome) -> list[Point]:
    """Return in which panels a load is, each of a program beside what grows."""
    case, config = one.case, found.config
    if isinstance(case, Alone):
        return [Point()]
    panels = []
    if case.point in config.beside_others:
        panels += [
            (HFREDUCE, "HFReduce, algbw, with storage and others", OFFERED, 100 * case.other_load),
            (READS, "Storage reads with HFReduce and others", OFFERED, 100 * case.other_load),
        ]
    if case.point in config.beside_storage:
        panels.append((HFREDUCE, "HFReduce, algbw, with storage only", REQUESTS, case.storage_depth))
    return [
        Point(
            {"panel": panel, "axis": axis_words, "load": f"{load:g}"},
            {"left": one[program.left], "promised": program.promised(config)},
        )
        for program, panel, axis_words, load in panels
    ]


def earlier_cases(result: Result) -> Iterator[Point]:
    """Yield the cases of a result of before this was a study: curves by panel, bandwidth by load."""
    found: Mapping[str, Any] = result.summary.get("protection", {})
    for panel in found.get("panels", ()):
        factor, label = (100, OFFERED) if panel["is_fraction"] else (1, panel["axis"])
        for queueing, curve in panel["curves"].items():
            for load, left in zip(panel["loads"], curve, strict=True):
                if left is not None and panel["alone_Bps"]:
                    settings = {"panel": panel["title"], "axis": label, "load": f"{factor * load:g}"}
                    numbers = {"left": left / panel["alone_Bps"], "promised": panel["promised_share"]}
                    yield Point({**settings, "queueing": Queueing(queueing).words}, numbers)


STUDY = Study(
    title="Protection: what HFReduce and storage keep as the traffic of others grows",
    cases=cases_of,
    measure=_measure,
    measures=tuple(
        one._replace(name=one.name.removeprefix("<operation>."), meaning=f"of flows of others, {one.meaning}")
        for one in OPERATIONS
    ),
    aside=_left,
    points=_points,
    answer=_answer,
    tables=TABLES,
    figures=(
        Lines(
            "protection",
            "Bandwidth of a program, relative to that alone, as the load of others grows; one curve per queueing. "
            "Dashed: the share that its lane promises; above it: bandwidth that others leave idle.",
            "Bandwidth left as the traffic of others grows",
            numbers=(Number("left", "left"),),
            x="{load}",
            line="in {queueing}",
            rows="{panel}",
            dash="{queueing}",
            labels=("{axis}", "bandwidth kept, of that alone"),
            levels=(
                Level(Number("promised", "promised by its lane"), "--", words="its lane: {:.0%}"),
                Level(Number(lambda _: 1.0, "alone", colour=GREY), ":"),
            ),
            looks=Looks(12.9, 4.2, legend=6, percent_y=True, columns=3, places=Places(are_numbers=True)),
        ),
    ),
)
