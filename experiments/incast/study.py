"""What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?

One client reads from many storage nodes at once, with the service and client of :mod:`traffic.storage`, and one phase
for each number of servers, limit of its request-to-send, congestion control and queueing. Fire-Flyer 2 turned
congestion control off and limits how many servers send to a client at once, which keeps its throughput and lengthens
reads (arXiv 2408.14158v2, VI-B3).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.incast.config import IncastConfig
from experiments.incast.limits import LIMITS, RATE
from fabric.measures import Measure
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.records.figure_forms import Level, Lines, Looks, Number, least_known
from fabric.records.palette import GREY
from fabric.stalls.intervals import BLOCKED_SHARE
from runs.case_tables import CaseTable
from runs.cases import Case, axis, name_of
from runs.job_metrics import QUEUES, queue_numbers
from runs.session import Session
from runs.stall_metrics import blocked_ports
from runs.study import Jobs, Played, Question, Study, of_job
from traffic import congestion_control
from traffic.storage.config import limit_words
from traffic.storage.job import StorageJob


@dataclass(frozen=True)
class Senders(
    Case,
    name="{queueing}_{control}_n{servers}_rts_{limit}",
    alone="{queueing}_{control}_n{servers}_rts_off",
    title="{servers} servers, {limit_words}, {control}, {queueing}",
):
    """How many servers answer with which limit (None: none), steered by what, in which queues; beside no limit."""

    queueing: Queueing = axis("queueings")
    control: str = axis("controls")
    servers: int = axis("servers")
    limit: int | None = axis("request_to_send", sets="storage.request_to_send", words=name_of)
    limit_words = property(lambda self: limit_words(self.limit))


def _control(session: Session, own: IncastConfig, case: Senders) -> None:
    marking = own.marking_for(case.control, session.live.fabric)
    session.use_congestion_control(dict.fromkeys(DATA_LEVELS, case.control), own.dcqcn, marking)


def _jobs(session: Session, own: IncastConfig, case: Senders) -> list[StorageJob]:
    fabric = session.live.fabric
    return [StorageJob(session.stage, own.storage, fabric.computes[:1], servers=fabric.storages[: case.servers])]


def _network(played: Played[Senders, IncastConfig]) -> dict[str, float]:
    fabric, case = played.fabric, played.case
    port = str(fabric.peer(fabric.nics_of[fabric.computes[0]][0].port))
    lane = plan_lanes(played.config.queues, case.queueing).lane_of(ServiceLevel.STORAGE).name
    numbers = {
        **queue_numbers(played.session.table("ports"), port, lane, played.counted_s),
        **played.packets("drops_packets", "retransmissions", "timeouts"),
        **played.counted,
    }
    if case.queueing.is_lossless:
        blocked = blocked_ports(played.session.table("stalls"), played.phase)
        numbers |= {**played.stalls(), "blocked_ports": blocked}
    return numbers


VARIANTS = Question[Senders, IncastConfig](
    tables=(
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
                Number(least_known("read.p50_s"), "median read (us)", 1e6),
                Number(least_known("read.p99_s"), "p99 of reads", is_time=True),
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

STUDY = Study[Senders, IncastConfig](
    title="Incast: storage nodes answer one client",
    cases=(Senders,),
    play=Jobs(_jobs, "phase_time", _control, {"cuts": congestion_control.rate_cuts}),
    measure=(of_job(ServiceLevel.STORAGE.label, Played.reads), _network),
    measures=(*QUEUES, Measure("cuts", "times that DCQCN cut the rate of a sender")),
    aside=lambda found, _: {"nic_Bps": found.fabric.nic_rate_bps / 8},
    further=(LIMITS, VARIANTS),
)
