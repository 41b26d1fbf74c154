"""How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?

Every compute node reads random samples from all storage nodes of its zone's network, with the service and client of
:mod:`traffic.storage`; one phase for each limit of request-to-send and each queueing. Fire-Flyer 2's 180 storage nodes
with two NICs each have 9 TB/s, of which reads reached 8 (arXiv 2408.14158v2, VI-B). 3FS's own measurement reached 6.6
TiB/s with training on the same fabric (3FS's README): other jobs may play beside the reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from experiments.storage_throughput.config import READS, StorageThroughputConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metric_path, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.records.cells import Quantity, quantity
from fabric.records.figure_forms import Bars, Level, Looks, Number
from fabric.records.palette import GREY
from runs.allocation import Allocation
from runs.case_tables import CaseTable, Column
from runs.cases import Case, axis
from runs.counted_operations import begun_in, counted_s
from runs.job_config import AnyJobConfig, place_jobs
from runs.link_use import ON_THE_WAY, USE_MEAN, USE_MOST, KindUse, label_of, link_uses
from runs.session import Session
from runs.study import Found, Jobs, Outcome, Played, Study
from runs.timeline import JobWindow
from traffic.job import Job
from traffic.measures import JobRows, speed_cell, windows_of
from traffic.storage.closed_forms import storage_nics_Bps
from traffic.storage.job import StorageJob

PAPER_SHARE = 8 / 9
"""Of 9 TB/s reads reached 8 (arXiv 2408.14158v2, VI-B)."""
BESIDE_SHARE = 6.6 * 2**40 / 9e12
"""So many TiB/s 3FS's own measurement reached, with training behind it, of as many NICs (3FS's README)."""
KEPT = Measure("kept_fraction", "speed of another job beside reads, over its speed without them", Better.MORE)


@dataclass(frozen=True)
class Reads(Case, name="{queueing}_rts_{limit}{beside}", title="{limit_words}, {queueing}{beside_words}"):
    """Which limit reads have (None: none), in which queues; ``is_beside``: whether other jobs play, too."""

    queueing: Queueing = axis()
    limit: int | None = axis(sets="storage.request_to_send")
    is_beside: bool = axis()

    @property
    def beside(self) -> str:
        """What says in its name that other jobs play."""
        return "_beside" if self.is_beside else ""

    @property
    def beside_words(self) -> str:
        """The same in its title."""
        return ", beside others" if self.is_beside else ""

    @property
    def limit_words(self) -> str:
        """Its limit, in words."""
        return "no limit" if self.limit is None else f"{self.limit} send at once"

    @property
    def alone(self) -> str:
        """The phase in which other jobs play without reads."""
        return OthersAlone(self.queueing, None, True).name


class OthersAlone(Reads, name="{queueing}_others_alone", title="others alone, {queueing}"):
    """Other jobs without reads."""


def cases(config: StorageThroughputConfig) -> Iterator[Reads]:
    """Yield all cases, a queueing after the other: if there are other jobs these alone, then each limit without them
    and with them."""
    for queueing in config.queueings:
        if config.beside:
            yield OthersAlone(queueing, None, True)
        for limit, is_beside in product(config.request_to_send, (False, True) if config.beside else (False,)):
            yield Reads(queueing, limit, is_beside)


AnyFound = Found[Reads, StorageThroughputConfig]
AnyPlayed = Played[Reads, StorageThroughputConfig]


def _jobs(session: Session, own: StorageThroughputConfig, case: Reads) -> list[Job | JobWindow]:
    """Return the reads, unless others are alone, and the others."""
    others, levels = own.beside if case.is_beside else [], own.queues.data_levels
    placed = place_jobs(others, session.stage, session.live.plan, Allocation.PACKED, levels)
    windows: list[Job | JobWindow] = [window for one in placed for window in one.windows()]
    if isinstance(case, OthersAlone):
        return windows
    return [StorageJob(session.stage, own.storage, session.live.fabric.computes), *windows]


def _measure(played: AnyPlayed) -> list[Metric]:
    others = [one for job in played.config.beside if played.case.is_beside for one in _speeds(played, job)]
    if isinstance(played.case, OthersAlone):
        return others
    rows = played.rows("operations", READS)
    begun = begun_in(rows[rows["operation"].isin(["read", "read_failed"])], played.counted_s)
    reads = played.reads(READS)
    reads["read.share_of_nics"] = reads["read.bandwidth_Bps"] / storage_nics_Bps(played.fabric)
    reads["read.readers"] = float(begun["host"].nunique())
    uses = link_uses(played.fabric, played.session.table("ports"), played.counted_s)
    network = {**played.packets(), **{name: share for use in uses for name, share in use.named.items()}}
    return [
        *metrics_of(played.case.name, ServiceLevel.STORAGE.label, reads, is_named_by_job=False),
        *metrics_of(played.case.name, "", network),
        *others,
    ]


def _numbers(played: AnyPlayed, job: AnyJobConfig, phase: str) -> Mapping[str, float]:
    """Return what the kind of another job reports of it in a phase."""

    def mine(name: str) -> Any:
        table = played.session.table(name)
        return table[(table["phase"] == phase) & (table["job"] == job.name)]

    return job.of_kind.measures.of(JobRows(mine, windows_of(mine("jobs"))))


def _speeds(played: AnyPlayed, job: AnyJobConfig) -> Iterator[Metric]:
    """Yield by what another job was measured in a phase, as without reads, and beside them what it kept of that."""
    alone, case = _numbers(played, job, played.case.alone), played.case
    name = next((one for one in job.of_kind.measures.speeds if one in alone), job.of_kind.measures.speeds[0])
    speed = _numbers(played, job, case.name).get(name)
    if speed is not None:
        yield Metric(case.name, job.name, name, speed)
        if alone.get(name) and not isinstance(case, OthersAlone):
            yield Metric(case.name, job.name, KEPT.name, speed / alone[name])


def _aside(_: object, one: Outcome[Reads]) -> dict[str, float]:
    is_beside = one.case.is_beside and not isinstance(one.case, OthersAlone)
    return {"beside_share": BESIDE_SHARE} if is_beside else {}


def _reads(found: AnyFound) -> list[Outcome[Reads]]:
    return [one for one in found.outcomes if not isinstance(one.case, OthersAlone)]


def _links(found: AnyFound) -> list[tuple[Outcome[Reads], KindUse]]:
    """Return how busy each kind of link was in each case."""
    phases = {one.phase.name: one.phase for one in found.session.phases}
    ports = found.session.table("ports")
    return [
        (one, use)
        for one in _reads(found)
        for use in link_uses(found.fabric, ports, counted_s(phases[one.case.name], found.config.warm_up))
    ]


def _others(found: AnyFound) -> list[tuple[Outcome[Reads], AnyJobConfig, Outcome[Reads]]]:
    """Return the other jobs of each case that they play beside, with the case in which they play alone."""
    beside = [one for one in _reads(found) if one.case.is_beside]
    return [(one, job, found.of(one.case.alone)) for one in beside for job in found.config.beside]


def _speed(outcome: Outcome[Reads], job: AnyJobConfig) -> Quantity:
    mine = [one for one in outcome.metrics if one.job == job.name and one.name in job.of_kind.measures.speeds]
    return speed_cell(mine[0].name, mine[0].value) if mine else quantity(None)


def _answer(found: AnyFound) -> str:
    """Return the finding in words. What is left of the kind of link that is busiest on average is left to all."""
    fabric, most = found.fabric, storage_nics_Bps(found.fabric)
    links = _links(found)
    told = []
    for one in _reads(found):
        rate = one["read.bandwidth_Bps"]
        told.append(f"{one.case.title}: {rate / 1e12:.3g} TB/s, {rate / most:.0%}")
        if uses := [use for outcome, use in links if outcome is one]:
            use = max(uses, key=lambda use: use.mean)
            told[-1] += f" ({use.kind}: {use.mean:.0%} busy on average, the busiest {use.most:.0%})"
    return (
        f"Of the {most / 1e12:.3g} TB/s that the NICs of {len(fabric.storages)} storage nodes have, "
        f"{len(fabric.computes)} compute nodes read: {'; '.join(told)}. The paper's reads reached 8 TB/s of 9, "
        f"{PAPER_SHARE:.0%}; 3FS's own measurement, with training behind it, {BESIDE_SHARE:.0%}."
    )


STUDY = Study[Reads, StorageThroughputConfig](
    title="Reads of all compute nodes from all storage nodes",
    cases=lambda config: tuple(cases(config)),
    play=Jobs(_jobs, lasts="phase_time"),
    measure=_measure,
    measures=(
        Measure(
            "read.share_of_nics", "bytes of reads per second over what the NICs of the storage nodes carry", Better.MORE
        ),
        Measure("read.readers", "compute nodes that read"),
        USE_MEAN,
        USE_MOST,
        KEPT,
    ),
    aside=_aside,
    answer=_answer,
    tables=(
        CaseTable(
            "Reads of all compute nodes",
            (
                Column("in", "queueing"),
                Column("request-to-send", "limit_words"),
                Column("beside", lambda one: "others" if one.case.is_beside else None),
                Column("TB/s", "read.bandwidth_Bps", ".3g in TB/s"),
                Column("of the NICs", "read.share_of_nics", ".1%"),
                Column("median", "read.p50_s"),
                Column("p99", "read.p99_s"),
                Column("reads", "read.operations"),
                Column("failed", "read.failed", otherwise=0),
                Column("by", "read.readers"),
                Column("dropped", "drops_packets"),
                Column("sent again", "retransmissions"),
            ),
            lambda found: (
                f"of the NICs: of the {storage_nics_Bps(found.fabric) / 1e12:.3g} TB/s that the storage nodes' NICs "
                f"have, headers included; the paper's 8 of 9 TB/s are {PAPER_SHARE:.1%}. A read's bytes count evenly "
                "over its time. by: how many compute nodes began one in the counted time"
            ),
            rows=_reads,
        ),
        CaseTable(
            "Other jobs beside the reads",
            (
                Column("variant", lambda row: row[0].case.title),
                Column("job", lambda row: row[1].name),
                Column("without reads", lambda row: _speed(row[2], row[1])),
                Column("beside them", lambda row: _speed(row[0], row[1])),
                Column("kept", lambda row: row[0][metric_path(row[1].name, KEPT.name)], ".0%"),
            ),
            "algbw (median step) of collectives; of graphs what all ranks send in a step over its time",
            rows=_others,
        ),
        CaseTable(
            "How busy links were, of their rate",
            (
                Column("variant", lambda row: row[0].case.title),
                Column("links", lambda row: row[1].kind),
                Column("number", lambda row: row[1].links),
                Column("mean", lambda row: row[1].mean, ".1%"),
                Column("p99 of links", lambda row: row[1].p99, ".1%"),
                Column("busiest", lambda row: row[1].most, ".1%"),
            ),
            "each direction of a link by itself, over the counted time, in the order in which a read's data passes",
            rows=_links,
        ),
    ),
    figures=(
        Bars(
            "links",
            "What all compute nodes read, as a share of what the storage nodes' NICs have, and how busy each kind of "
            "link was: the mean link (bar) and the busiest (line), in the order in which a read's data passes them.",
            "Reads of all compute nodes: how busy links are",
            numbers=(
                Number("read.share_of_nics", "reads of the\nstorage NICs"),
                *(
                    Number(USE_MEAN.of(label_of(one)), one.replace(" to ", "\nto "), upto=USE_MOST.of(label_of(one)))
                    for one in ON_THE_WAY
                ),
            ),
            colour="{title}",
            labels=("", "share of the rate (fraction)"),
            levels=(
                Level(Number(lambda _: PAPER_SHARE, "the paper's reads: 8 of 9 TB/s"), at=0),
                Level(Number("beside_share", "3FS's, beside training: 81 %", colour=GREY), "--", at=0),
            ),
            looks=Looks(legend=3, most_y=1.05),
        ),
    ),
)
