"""What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?

One client reads from many storage nodes at once, with the service and client of :mod:`traffic.storage`, and one phase
for each number of servers, limit of its request-to-send, congestion control and queueing. Fire-Flyer 2 turned
congestion control off and limits how many servers send to a client at once, which keeps its throughput and lengthens
reads (arXiv 2408.14158v2, VI-B3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.incast.config import IncastConfig
from fabric.measures import Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.records.figure_forms import Level, Lines, Looks, Number, least_known
from fabric.records.palette import GREY
from fabric.stalls.intervals import BLOCKED_SHARE
from runs.case_tables import Answer, CaseTable, Column, say
from runs.cases import Case, axis, name_of
from runs.job_metrics import QUEUES, queue_numbers
from runs.session import Session
from runs.stall_metrics import blocked_ports
from runs.study import Compared, Found, Jobs, Outcome, Played, Study, over_repeats
from traffic import congestion_control
from traffic.storage.closed_forms import payload_Bps
from traffic.storage.config import limit_words
from traffic.storage.job import StorageJob

KEPT = 0.95
"""A limit keeps throughput with this part of the best that any limit or none has, or of what a NIC delivers if that is
less: bytes of a read are counted evenly over its time, which may be more in the counted time than there were."""
RATE = "read.bandwidth_Bps"
KEEPS = (
    "{control} in {queueing}: {limit}, {read.bandwidth_Bps|.1f in GB/s} for {alone.read.bandwidth_Bps|.1f in GB/s} GB/s"
)
TIMES = {"median": "read.p50_s", "p99": "read.p99_s"}


@dataclass(frozen=True)
class Senders(
    Case,
    name="{queueing}_{control}_n{servers}_rts_{limit}",
    title="{servers} servers, {limit_words}, {control}, {queueing}",
):
    """How many servers answer with which limit (None: none), steered by what, in which queues."""

    queueing: Queueing = axis("queueings")
    control: str = axis("controls")
    servers: int = axis("servers")
    limit: int | None = axis("request_to_send", sets="storage.request_to_send", words=name_of)

    @property
    def limit_words(self) -> str:
        """Its limit, in words."""
        return limit_words(self.limit)


def _control(session: Session, own: IncastConfig, case: Senders) -> None:
    marking = own.marking_for(case.control, session.live.fabric)
    session.use_congestion_control(dict.fromkeys(DATA_LEVELS, case.control), own.dcqcn, marking)


def _jobs(session: Session, own: IncastConfig, case: Senders) -> list[StorageJob]:
    fabric = session.live.fabric
    return [StorageJob(session.stage, own.storage, fabric.computes[:1], servers=fabric.storages[: case.servers])]


def _measure(played: Played[Senders, IncastConfig]) -> list[Metric]:
    fabric, case = played.fabric, played.case
    port = str(fabric.peer(fabric.nics_of[fabric.computes[0]][0].port))
    lane = plan_lanes(played.config.queues, case.queueing).lane_of(ServiceLevel.STORAGE).name
    network = {
        **queue_numbers(played.session.table("ports"), port, lane, played.counted_s),
        **played.packets("drops_packets", "retransmissions", "timeouts"),
        **played.counted,
    }
    if case.queueing.is_lossless:
        blocked = blocked_ports(played.session.table("stalls"), played.phase)
        network |= {**played.stalls(), "blocked_ports": blocked}
    reads = metrics_of(case.name, ServiceLevel.STORAGE.label, played.reads(), is_named_by_job=False)
    return [*reads, *metrics_of(case.name, "", network)]


def kept(found: Sequence[Outcome[Senders]], delivered_Bps: float) -> Iterator[Compared[Senders]]:  # noqa: N803 - bytes
    """Yield for each setting that was played without a limit the smallest limit that keeps throughput, if one does,
    beside no limit. ``delivered_Bps``: what a NIC delivers, in bytes per second."""
    for setting in over_repeats(found, "{queueing} {control} {servers}"):
        by_limit = {one.case.limit: one for one in setting.outcomes}
        best = min(delivered_Bps, max(one[RATE] for one in setting.outcomes))
        if (unlimited := by_limit.pop(None, None)) is not None:
            enough = [limit for limit, one in by_limit.items() if limit is not None and one[RATE] >= KEPT * best]
            yield Compared("", by_limit[min(enough)] if enough else Outcome(unlimited.case, ()), unlimited)


def _kept(found: Found[Senders, IncastConfig]) -> list[Compared[Senders]]:
    return list(kept(found.outcomes, payload_Bps(found.fabric)))


def _said(one: Compared[Senders]) -> str:
    if not one.is_measured:
        return say(one, "{control} in {queueing}: no limit keeps it")
    known = [word for word, name in TIMES.items() if one.times(name).is_measured]
    times = " and ".join(f"{{{TIMES[word]} / alone|.2f}} times the {word}" for word in known)
    return say(one, KEEPS + (f" at {times}" if times else ""))


def _of_most(found: Found[Senders, IncastConfig]) -> list[Compared[Senders]]:
    most = max(one.case.servers for one in found.outcomes)
    return [one for one in _kept(found) if one.case.servers == most]


STUDY = Study[Senders, IncastConfig](
    title="Incast: storage nodes answer one client",
    cases=(Senders,),
    play=Jobs(_jobs, "phase_time", _control, {"cuts": congestion_control.rate_cuts}),
    measure=_measure,
    measures=(*QUEUES, Measure("cuts", "times that DCQCN cut the rate of a sender")),
    aside=lambda found, _: {"nic_Bps": found.fabric.nic_rate_bps / 8},
    answer=Answer(
        "{}.",
        by=f"With {{servers}} servers, the fewest senders at once that keep {KEPT:.0%} of the best throughput, "
        "beside no limit",
        each=_said,
        between="; ",
        rows=_of_most,
        otherwise="No variant was played without a limit, so there is nothing to compare; add off to request_to_send.",
    ),
    tables=(
        CaseTable(
            "Does a limit on senders keep throughput?",
            (
                "in {queueing}, control {control}, servers {servers}",
                Column("fewest at once", lambda one: str(one.case.limit) if one.is_measured else "none does"),
                "median {read.p50_s / alone|.2g x}, p99 {read.p99_s / alone|.2g x}, p99.9 {read.p999_s / alone|.2g x}, "
                "queue {queue_mean_bytes / alone|.2g x}",
            ),
            f"fewest: the smallest limit with {KEPT:.0%} of the best bandwidth, with whichever limit; the others: over "
            "what they are without a limit",
            rows=_kept,
        ),
        CaseTable(
            "Variants",
            "in {queueing}, control {control}, servers {servers}, at once {limit}, "
            "bandwidth {read.bandwidth_Bps|.2f GB/s}, of the NIC {read.bandwidth_Bps / nic_Bps|.0%}, "
            "median {read.p50_s}, p99 {read.p99_s}, p99.9 {read.p999_s}, failed {read.failed|or 0}, "
            "queue, mean {queue_mean_bytes}, queue, most {queue_most_bytes}, drops {drops_packets}, "
            "timeouts {timeouts}, pauses {stalls}, blocked ports {blocked_ports}",
            "queue: at the leaf's port to the client; timeouts: retransmission timeouts of TCP; pauses: how often a "
            f"lane found no room; blocked: stalled for more than {BLOCKED_SHARE:.0%} of the phase",
        ),
    ),
    figures=(
        Lines(
            "senders",
            "One client reads from storage nodes: bandwidth, latency and the queue at the leaf's port to it, by how "
            "many reads may send to it at once (request-to-send; off: all). Dotted: the client's NIC.",
            "An incast, by how many may send at once",
            numbers=(
                Number(RATE, "reads (GB/s)", 1e-9),
                Number(least_known("read.p50"), "median read (us)", 1e6),
                Number(least_known("read.p99"), "p99 of reads", is_time=True),
                Number("queue_mean_bytes", "queue, mean (KiB)", 1 / 1024),
            ),
            x="{limit}",
            line="{control}, {queueing}",
            rows="{servers} servers",
            colour="{control}",
            dash="{queueing}",
            labels=("number of reads sent at once", ""),
            levels=(Level(Number("nic_Bps", "the client's NIC", 1e-9, colour=GREY), of="reads (GB/s)"),),
            looks=Looks(9.0, 2.3, columns=2),
        ),
    ),
)
