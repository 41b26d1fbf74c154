"""How much of its bandwidth does a program keep as the traffic of others grows, and does its lane protect it?

HFReduce and storage readers play together in every phase, with flows of others at a growing load, from none to far more
than a NIC carries; then HFReduce with storage readers at a growing queue depth. All of it in each queueing, with the
same seeds. A lane promises a program its share of the bandwidth that the program has alone: shares are guaranteed at
every port, whatever the other lanes do (Fire-Flyer 2, arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.protection.config import LoadPoint, ProtectionConfig
from fabric.config import changed
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
from runs.study import Found, Outcome, Played, Point, SameJobs, Study
from traffic.collectives.hfreduce import HFReduceJob
from traffic.flows.background import BackgroundJob
from traffic.job import Job
from traffic.measures import OPERATIONS
from traffic.storage.job import StorageJob

PROGRAMS = {"hfreduce": "HFReduce", "storage": "storage reads"}
"""The programs that the others play beside, by their levels: in words."""
RATES = {"hfreduce": "hfreduce.algbw_Bps", "storage": "read.bandwidth_Bps"}
LEFT_OF = {"hfreduce": "hfreduce.algbw_Bps_of_alone", "storage": "read.bandwidth_Bps_of_alone"}
"""Their bandwidth, and what part of that alone they have."""


def promised(config: ProtectionConfig, program: str) -> float:
    """The fraction of every link that a program's lane keeps under any load of others."""
    lanes = plan_lanes(config.queues, Queueing.LANES)
    return next(lanes.guaranteed_share(level) for level in lanes.levels if level.label == program)


@dataclass(frozen=True)
class Alone(Case, name="{program}_alone", title="{program} alone"):
    """A program alone, in the first queueing."""

    queueing: Queueing
    program: str = axis()


@dataclass(frozen=True)
class Beside(Case, title="{storage}, others at {other_load}, in {queueing}"):
    """What plays beside HFReduce, in which queueing."""

    queueing: Queueing = axis()
    other_load: float = axis(words="{:.0%}".format)
    storage_depth: int = axis()

    @property
    def name(self) -> str:
        """The name of its phase, in which a load has its dot, as in all results of this experiment."""
        return f"{self.queueing.value}_other_{exact(self.other_load)}_depth_{self.storage_depth}"

    @property
    def storage(self) -> str:
        """What storage does, in words."""
        return f"storage at depth {self.storage_depth}" if self.storage_depth else "no storage"


AnyFound = Found[Alone | Beside, ProtectionConfig]
AnyOutcome = Outcome[Alone | Beside]


def cases_of(config: ProtectionConfig) -> list[Alone | Beside]:
    """Return each program alone, then all loads in each queueing."""
    alone = [Alone(config.queueings[0], program) for program in PROGRAMS]
    return [*alone, *(Beside(queueing, *point) for queueing in config.queueings for point in config.points)]


def _storage(session: Session, config: ProtectionConfig, depth: int) -> StorageJob:
    own = changed(config, {"storage.dataloader.depth": depth})
    return StorageJob(session.stage, own.storage, session.live.fabric.computes)


def _jobs(session: Session, config: ProtectionConfig) -> list[Job]:
    ranks = hfreduce_ranks(session, config.hfreduce, config.rank_order)
    hfreduce = HFReduceJob(session.stage, config.hfreduce, ranks)
    storage = _storage(session, config, config.storage.dataloader.depth)
    return [hfreduce, storage, BackgroundJob(session.stage, config.background, session.live.fabric.computes)]


def _play(session: Session, config: ProtectionConfig, case: Alone | Beside, jobs: Sequence[Any]) -> dict[str, float]:
    """Play a case, and return what HFReduce sends over its size. Others are halted first, or the last step of a starved
    HFReduce would take a minute."""
    hfreduce, storage, others = jobs
    session.use_queueing(case.queueing)
    extra: list[Job] = []
    if isinstance(case, Alone):
        playing = [dict(zip(PROGRAMS, jobs, strict=False))[case.program]]
    else:
        others.load = case.other_load or others.load
        is_usual = case.storage_depth == config.storage.dataloader.depth
        extra = [_storage(session, config, case.storage_depth)] if case.storage_depth and not is_usual else []
        playing = [*([others] if case.other_load else []), hfreduce, *([storage] if is_usual else extra)]
    with started(session, extra):
        session.run_phase(case.name, case.title, playing, config.phase_time)
    return {"hfreduce.sent_over_size": sum(share for _, _, share in hfreduce_flows(hfreduce))}


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


def _left(found: AnyFound, one: AnyOutcome) -> dict[str, float]:
    """Return what part of its bandwidth alone each program has."""
    alone = {program: found.of(f"{program}_alone")[rate] for program, rate in RATES.items()}
    return {LEFT_OF[program]: one[RATES[program]] / (base or math.nan) for program, base in alone.items()}


def _beside(points: str) -> Callable[[AnyFound], list[AnyOutcome]]:
    """A function that returns the rows of the loads at a key of the config, each in all queueings."""
    return lambda found: [
        found.of(Beside(queueing, *point).name)
        for point in getattr(found.config, points)
        for queueing in found.config.queueings
    ]


def _answer(found: AnyFound) -> str:
    """Return what is left at the greatest load of others."""
    greatest, told = _beside("beside_others")(found)[-len(found.config.queueings) :], []
    for program, words in PROGRAMS.items():
        kept = ", ".join(say(one, f"{{{LEFT_OF[program]}|.0%}} in {{queueing}}") for one in greatest)
        told.append(f"{words}: {kept} (promised in lanes: {promised(found.config, program):.0%})")
    offered = f"flows that offer {found.config.other_loads[-1]:.0%} of every NIC's rate"
    return f"Of their bandwidth alone, programs keep, next to {offered}: {'; '.join(told)}."


LEFT = (
    "in {queueing}, HFReduce, algbw {hfreduce.algbw_Bps}, of alone {hfreduce.algbw_Bps_of_alone|.0%}, "
    "storage reads {read.bandwidth_Bps}, of alone {read.bandwidth_Bps_of_alone|.0%}, "
    "flows of others, completed {other.bandwidth_Bps}"
)
PLAYED = (
    Column("others", lambda one: one.case.other_load, ".0%"),
    Column("storage depth", lambda one: one.case.storage_depth),
)
OFFERED = "load offered by flows of others, of each NIC's rate (%)"
REQUESTS = "number of batches in flight per storage client"


def _points(found: AnyFound, one: AnyOutcome) -> list[Point]:
    """Return in which panels a load is, each of a program beside what grows."""
    case, config = one.case, found.config
    if isinstance(case, Alone):
        return [Point()]
    point, panels = LoadPoint(case.other_load, case.storage_depth), []
    if point in config.beside_others:
        panels += [
            ("hfreduce", "HFReduce, algbw, with storage and others", OFFERED, 100 * case.other_load),
            ("storage", "Storage reads with HFReduce and others", OFFERED, 100 * case.other_load),
        ]
    if point in config.beside_storage:
        panels.append(("hfreduce", "HFReduce, algbw, with storage only", REQUESTS, case.storage_depth))
    return [
        Point(
            {"panel": panel, "axis": words, "load": f"{load:g}"},
            {"left": one[LEFT_OF[program]], "promised": promised(config, program)},
        )
        for program, panel, words, load in panels
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
    play=SameJobs(_jobs, _play),
    measure=_measure,
    measures=tuple(
        one._replace(name=one.name.removeprefix("<operation>."), meaning=f"of flows of others, {one.meaning}")
        for one in OPERATIONS
    ),
    aside=_left,
    points=_points,
    answer=_answer,
    tables=(
        CaseTable(
            "Under growing load of others",
            (Column("others offer, of each NIC", lambda one: one.case.other_load, ".0%", is_once=True), LEFT),
            lambda found: (
                f"lanes promise {promised(found.config, 'hfreduce'):.0%} (hfreduce) and "
                f"{promised(found.config, 'storage'):.0%} (storage) of a program's bandwidth alone, whatever the "
                "others do"
            ),
            rows=_beside("beside_others"),
        ),
        CaseTable(
            "With storage only, under growing queue depth",
            (Column("batches per client", lambda one: one.case.storage_depth, is_once=True), LEFT),
            "a client has one connection per storage node, however much it asks for",
            rows=_beside("beside_storage"),
        ),
        CaseTable(
            "Completion of reads and flows",
            (
                *PLAYED,
                "in {queueing}, p99 of reads {read.p99_s}, reads failed {read.failed}, p99 of flows {other.p99_s}, "
                "completed {other.operations}, abandoned {other.abandoned}, failed {other.failed}, "
                "refused {other.refused}",
            ),
            f"{NOTE}; refused: the flow arrived while max_flows of its host were running, and did not start",
            rows=_beside("points"),
        ),
        CaseTable(
            "Network",
            (
                *PLAYED,
                "in {queueing}, packets sent {sent_packets}, dropped by queues {drops_packets}, "
                "retransmissions {retransmissions}",
            ),
            rows=_beside("points"),
        ),
    ),
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
