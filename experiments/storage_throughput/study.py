"""How much of its storage nodes' NICs does a fabric deliver when all compute nodes read, and what limits it?

Every compute node reads random samples from all storage nodes of its zone's network, with the service and client of
:mod:`traffic.storage`; one phase for each limit of request-to-send and each queueing. Fire-Flyer 2's 180 storage nodes
with two NICs each have 9 TB/s, of which reads reached 8 (arXiv 2408.14158v2, VI-B). 3FS's own measurement reached 6.6
TiB/s with training on the same fabric (3FS's README): other jobs may play beside the reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from experiments.storage_throughput.config import READS, StorageThroughputConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.records.cells import Quantity, quantity
from fabric.records.figure_forms import Bars, Level, Looks, Number
from fabric.records.palette import GREY
from runs.allocation import Allocation
from runs.case_tables import Answer, CaseTable, Column, say
from runs.cases import Case, axis
from runs.counted_operations import begun_in
from runs.job_config import place_jobs
from runs.link_use import ON_THE_WAY, USE_MEAN, USE_MOST, KindUse, label_of, link_uses
from runs.session import Session
from runs.study import Compared, Found, Jobs, Outcome, Part, Played, Study
from runs.timeline import JobWindow
from traffic.job import Job
from traffic.measures import speed_cell
from traffic.storage.closed_forms import storage_nics_Bps
from traffic.storage.config import limit_words
from traffic.storage.job import StorageJob

PAPER_SHARE, BESIDE_SHARE = 8 / 9, 6.6 * 2**40 / 9e12
"""Of 9 TB/s reads reached 8 (arXiv 2408.14158v2, VI-B); 3FS's own measurement, with training behind it, reached so many
TiB/s of as many NICs (3FS's README)."""
KEPT = Measure("kept_fraction", "speed of another job beside reads, over its speed without them", Better.MORE)
AnyFound = Found["Reads", StorageThroughputConfig]
AnyPlayed = Played["Reads", StorageThroughputConfig]


@dataclass(frozen=True)
class Reads(Case, name="{queueing}_rts_{limit}{is_beside}", title="{limit}, {queueing}{is_beside}"):
    """Which limit reads have (None: none), in which queues; ``is_beside``: whether other jobs play, too."""

    queueing: Queueing = axis()
    limit: int | None = axis(words=limit_words, sets="storage.request_to_send")
    is_beside: bool = axis(name="_beside".__mul__, words=", beside others".__mul__)

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


def _jobs(session: Session, own: StorageThroughputConfig, case: Reads) -> list[Job | JobWindow]:
    """Return the reads, unless others are alone, and the others."""
    others, levels = own.beside if case.is_beside else [], own.queues.data_levels
    placed = place_jobs(others, session.stage, session.live.plan, Allocation.PACKED, levels)
    reads = [StorageJob(session.stage, own.storage, session.live.fabric.computes)]
    return [*([] if isinstance(case, OthersAlone) else reads), *(window for one in placed for window in one.windows())]


def _uses(played: AnyPlayed) -> list[KindUse]:
    return link_uses(played.fabric, played.session.table("ports"), played.counted_s)


def _measure(played: AnyPlayed) -> list[Metric]:
    others = list(_others(played))
    if isinstance(played.case, OthersAlone):
        return others
    rows = played.rows("operations", READS)
    begun = begun_in(rows[rows["operation"].isin(["read", "read_failed"])], played.counted_s)
    reads = played.reads(READS)
    reads["read.share_of_nics"] = reads["read.bandwidth_Bps"] / storage_nics_Bps(played.fabric)
    reads["read.readers"] = float(begun["host"].nunique())
    network = {**played.packets(), **{name: share for use in _uses(played) for name, share in use.named.items()}}
    of_reads = metrics_of(played.case.name, ServiceLevel.STORAGE.label, reads, is_named_by_job=False)
    return [*of_reads, *metrics_of(played.case.name, "", network), *others]


def _others(played: AnyPlayed) -> Iterator[Metric]:
    """Yield by what other jobs were measured, as without reads, and beside them what they kept of that."""
    case = played.case
    for job in played.config.beside if case.is_beside else ():
        alone, mine = (played.numbers_of(job, phase) for phase in (case.alone, case.name))
        speeds = job.of_kind.measures.speeds
        name = next((one for one in speeds if one in alone), speeds[0])
        if name in mine:
            yield Metric(case.name, job.name, name, mine[name])
            if alone.get(name) and not isinstance(case, OthersAlone):
                yield Metric(case.name, job.name, KEPT.name, mine[name] / alone[name])


def _reads(found: AnyFound) -> list[Outcome[Reads]]:
    return [one for one in found.outcomes if not isinstance(one.case, OthersAlone)]


def _compared(found: AnyFound) -> list[Compared[Reads]]:
    beside = [one for one in _reads(found) if one.case.is_beside]
    return [Compared(job.name, one, found.of(one.case.alone)) for one in beside for job in found.config.beside]


def _speed(part: str, one: Outcome[Reads]) -> Quantity:
    speeds = [item for item in Part(part, one).values.items() if item[0] != KEPT.name]
    return speed_cell(*speeds[0]) if speeds else quantity(None)


def _said(one: Outcome[Reads]) -> str:
    """A case's read rate in words, and the kind of link that is busiest on average."""
    means = [name for name in one.values if USE_MEAN.includes(name)]
    told = say(one, "{title}: {read.bandwidth_Bps|.3g in TB/s} TB/s, {read.share_of_nics|.0%}")
    if not means:
        return told
    _, kind, _ = max(means, key=one.values.__getitem__).split(".")
    busy = f"{{{USE_MEAN.of(kind)}|.0%}} busy on average, the busiest {{{USE_MOST.of(kind)}|.0%}}"
    return told + say(one, f" ({kind.replace('_', ' ')}: {busy})")


STUDY = Study[Reads, StorageThroughputConfig](
    title="Reads of all compute nodes from all storage nodes",
    cases=lambda config: tuple(cases(config)),
    play=Jobs(_jobs, lasts="phase_time"),
    measure=_measure,
    measures=(
        Measure("read.share_of_nics", "bytes of reads per second over what the storage nodes' NICs carry", Better.MORE),
        Measure("read.readers", "compute nodes that read"),
        USE_MEAN,
        USE_MOST,
        KEPT,
    ),
    aside=lambda _, one: {"beside_share": BESIDE_SHARE}
    if one.case.is_beside and one.case.name != one.case.alone
    else {},
    answer=Answer(
        lambda found: (
            f"Of the {storage_nics_Bps(found.fabric) / 1e12:.3g} TB/s that the NICs of {len(found.fabric.storages)} "
            f"storage nodes have, {len(found.fabric.computes)} compute nodes read: {{}}. The paper's reads reached 8 "
            f"TB/s of 9, {PAPER_SHARE:.0%}; 3FS's own measurement, with training behind it, {BESIDE_SHARE:.0%}."
        ),
        each=_said,
        between="; ",
        rows=_reads,
    ),
    tables=(
        CaseTable(
            "Reads of all compute nodes",
            (
                "in {queueing}, request-to-send {limit}",
                Column("beside", lambda one: "others" if one.case.is_beside else None),
                "TB/s {read.bandwidth_Bps|.3g in TB/s}, of the NICs {read.share_of_nics|.1%}, median {read.p50_s}, "
                "p99 {read.p99_s}, reads {read.operations}, failed {read.failed|or 0}, by {read.readers}, "
                "dropped {drops_packets}, sent again {retransmissions}",
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
                "variant {title}",
                Column("job", lambda row: row.part),
                Column("without reads", lambda row: _speed(row.part, row.alone)),
                Column("beside them", lambda row: _speed(row.part, row.outcome)),
                "kept {kept_fraction|.0%}",
            ),
            "algbw (median step) of collectives; of graphs what all ranks send in a step over its time",
            rows=_compared,
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
            rows=lambda found: [(one, use) for one in _reads(found) for use in _uses(found.played(one))],
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
