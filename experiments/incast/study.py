"""What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?

One client reads from many storage nodes at once, with the service and client of :mod:`traffic.storage`, and one phase
for each number of servers, limit of its request-to-send, congestion control and queueing. Fire-Flyer 2 turned
congestion control off and limits how many servers send to a client at once, which keeps its throughput and lengthens
reads (arXiv 2408.14158v2, VI-B3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.incast.config import IncastConfig
from fabric.measures import Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.records.cells import Quantity, ratio
from fabric.records.figure_forms import Level, Lines, Looks, Number, least_known
from fabric.records.palette import GREY
from fabric.stalls.intervals import BLOCKED_SHARE
from runs.case_tables import CaseTable, Column, say
from runs.cases import Case, axis, name_of
from runs.job_metrics import QUEUES, queue_numbers
from runs.session import Session
from runs.stall_metrics import blocked_ports
from runs.study import Found, Outcome, Played, Study, play_case
from traffic import congestion_control
from traffic.storage.closed_forms import payload_Bps
from traffic.storage.job import StorageJob

KEPT = 0.95
"""A limit keeps throughput with this part of the best that any limit or none has, or of what a NIC delivers if that is
less: bytes of a read are counted evenly over its time, which may be more in the counted time than there were."""


RATE = "read.bandwidth_Bps"


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
    limit: int | None = axis("request_to_send", words=name_of, sets="storage.request_to_send")

    @property
    def limit_words(self) -> str:
        """Its limit, in words."""
        return "no limit" if self.limit is None else f"{self.limit} send at once"


def _play(session: Session, config: IncastConfig, case: Senders) -> dict[str, float]:
    """Play a case, and return how often DCQCN cut a rate."""
    fabric, before = session.live.fabric, congestion_control.rate_cuts()
    marking = config.marking_for(case.control, fabric)
    session.use_congestion_control(dict.fromkeys(DATA_LEVELS, case.control), config.dcqcn, marking)
    session.use_queueing(case.queueing)
    storage, servers = case.in_config(config).storage, fabric.storages[: case.servers]
    job = StorageJob(session.stage, storage, fabric.computes[:1], servers=servers)
    play_case(session, case, [job], config.phase_time)
    return {"cuts": congestion_control.rate_cuts() - before}


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


@dataclass(frozen=True)
class Kept:
    """Of one number of servers, control and queueing: without a limit, and with the smallest that keeps throughput;
    None: no limit does."""

    unlimited: Outcome[Senders]
    limited: Outcome[Senders] | None

    @property
    def case(self) -> Senders:
        """The one without a limit."""
        return self.unlimited.case

    def times(self, name: str, form: str = ".2g x") -> Quantity:
        """Return a number with the limit over that without, which may be a bound."""
        return ratio({} if self.limited is None else self.limited.values, self.unlimited.values, name, form)


def kept(found: Sequence[Outcome[Senders]], delivered_Bps: float) -> list[Kept]:  # noqa: N803 - bytes, not bits
    """Return for each setting that was played without a limit what the smallest limit does that keeps throughput.
    ``delivered_Bps``: what a NIC delivers, in bytes per second."""
    made = []
    for unlimited in (one for one in found if one.case.limit is None):
        setting = unlimited.case.format("{queueing} {control} {servers}")
        mine = [one for one in found if one.case.format("{queueing} {control} {servers}") == setting]
        best = min(delivered_Bps, max(one[RATE] for one in mine))
        enough = {one.case.limit: one for one in mine if one.case.limit is not None and one[RATE] >= KEPT * best}
        made.append(Kept(unlimited, enough[min(enough)] if enough else None))
    return made


def _kept(found: Found[Senders, IncastConfig]) -> list[Kept]:
    return kept(found.outcomes, payload_Bps(found.fabric))


def _answer(found: Found[Senders, IncastConfig]) -> str:
    """Return the finding in words, for the most servers that were played."""
    most, told = max(one.case.servers for one in found.outcomes), []
    for one in (one for one in _kept(found) if one.case.servers == most):
        setting = one.case.format("{control} in {queueing}")
        if one.limited is None:
            told.append(f"{setting}: no limit keeps it")
            continue
        ratios = [(word, one.times(f"read.{name}_s", ".2f")) for word, name in (("median", "p50"), ("p99", "p99"))]
        words = " and ".join(f"{value.words} times the {word}" for word, value in ratios if value.is_measured)
        rates = " for ".join(say(seen, f"{{{RATE}|.1f in GB/s}}") for seen in (one.limited, one.unlimited))
        told.append(f"{setting}: {one.limited.case.limit}, {rates} GB/s" + (f" at {words}" if words else ""))
    if not told:
        return "No variant was played without a limit, so there is nothing to compare with; add off to request_to_send."
    return (
        f"With {most} servers, the fewest senders at once that keep {KEPT:.0%} of the best throughput, beside no "
        f"limit: {'; '.join(told)}."
    )


def _times(head: str, name: str) -> Column:
    return Column(head, lambda one: one.times(name))


_OF_CASE = (Column("in", "queueing"), Column("control", "control"), Column("servers", "servers"))

STUDY = Study[Senders, IncastConfig](
    title="Incast: storage nodes answer one client",
    cases=Senders.grid,
    play=_play,
    measure=_measure,
    measures=(*QUEUES, Measure("cuts", "times that DCQCN cut the rate of a sender")),
    aside=lambda found, _: {"nic_Bps": found.fabric.nic_rate_bps / 8},
    answer=_answer,
    tables=(
        CaseTable(
            "Does a limit on senders keep throughput?",
            (
                *_OF_CASE,
                Column(
                    "fewest at once", lambda one: "none does" if one.limited is None else str(one.limited.case.limit)
                ),
                _times("median", "read.p50_s"),
                _times("p99", "read.p99_s"),
                _times("p99.9", "read.p999_s"),
                _times("queue", "queue_mean_bytes"),
            ),
            f"fewest: the smallest limit with {KEPT:.0%} of the best bandwidth, with whichever limit; the others: over "
            "what they are without a limit",
            rows=_kept,
        ),
        CaseTable(
            "Variants",
            (
                *_OF_CASE,
                Column("at once", "limit"),
                Column("bandwidth", RATE, ".2f GB/s"),
                Column("of the NIC", lambda one: one[RATE] / one["nic_Bps"], ".0%"),
                Column("median", "read.p50_s"),
                Column("p99", "read.p99_s"),
                Column("p99.9", "read.p999_s"),
                Column("failed", "read.failed", otherwise=0),
                Column("queue, mean", "queue_mean_bytes"),
                Column("queue, most", "queue_most_bytes"),
                Column("drops", "drops_packets"),
                Column("timeouts", "timeouts"),
                Column("pauses", lambda one: one.values.get("stalls", 0) if one.case.queueing.is_lossless else None),
                Column("blocked ports", "blocked_ports"),
            ),
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
            labels=("number of servers that may send at once", ""),
            levels=(Level(Number("nic_Bps", "the client's NIC", 1e-9, colour=GREY), of="reads (GB/s)"),),
            looks=Looks(12.0, 2.75),
        ),
    ),
)
