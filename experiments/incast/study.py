"""What does an incast of storage nodes on one client cost, and what does limiting its senders do about it?

One client reads from many storage nodes at once, with the service and client of :mod:`traffic.storage`, and one phase
for each number of servers, limit of its request-to-send, congestion control and queueing. Fire-Flyer 2 turned
congestion control off and limits how many servers send to a client at once, which keeps its throughput and lengthens
reads (arXiv 2408.14158v2, VI-B3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from experiments.incast.config import IncastConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel, plan_lanes
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from fabric.records.cells import Quantity, ratio
from fabric.records.figure_forms import Level, Lines, Looks, Number, least_known
from fabric.records.palette import GREY
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.stalls.intervals import BLOCKED_SHARE
from runs.case_tables import Column, case_table
from runs.cases import Case, axis, name_of
from runs.counted_operations import PERCENTILES, counted_s, read_metrics
from runs.session import Session
from runs.stall_metrics import stall_metrics, stalled_fractions
from runs.study import Found, Outcome, Played, Study, play_case
from traffic import congestion_control, metrics
from traffic.congestion_control import STEERED_BY_ECN
from traffic.storage.job import StorageJob

KEPT = 0.95
"""A limit keeps throughput with this part of the best that any limit or none has, or of what a NIC delivers if that is
less: bytes of a read are counted evenly over its time, which may be more in the counted time than there were."""


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
    limit: int | None = axis("request_to_send", words=name_of)

    @property
    def limit_words(self) -> str:
        """Its limit, in words."""
        return "no limit" if self.limit is None else f"{self.limit} send at once"

    def marking(self, config: IncastConfig, fabric: Fabric) -> Marking | None:
        """Return what switches mark by: for a control that is steered by marks that of the config's queues or, without
        one, that of ``dcqcn``."""
        if self.control not in STEERED_BY_ECN:
            return None
        return config.queues.marking or config.dcqcn.parameters(fabric).marking


def _play(session: Session, config: IncastConfig, case: Senders) -> dict[str, float]:
    """Play a case, and return how often DCQCN cut a rate."""
    fabric = session.live.fabric
    controls = dict.fromkeys(DATA_LEVELS, case.control)
    session.use_congestion_control(controls, config.dcqcn, case.marking(config, fabric))
    session.use_queueing(case.queueing)
    before = congestion_control.rate_cuts()
    storage = config.storage.model_copy(update={"request_to_send": case.limit})
    job = StorageJob(session.stage, storage, fabric.computes[:1], servers=fabric.storages[: case.servers])
    play_case(session, case, [job], config.phase_time)
    return {"cuts": congestion_control.rate_cuts() - before}


def _measure(played: Played[Senders, IncastConfig]) -> list[Metric]:
    fabric, case, phase, warm_up_s = played.fabric, played.case, played.phase, played.config.warm_up
    port = str(fabric.peer(fabric.nics_of[fabric.computes[0]][0].port))
    lane = plan_lanes(played.config.queues, case.queueing).lane_of(ServiceLevel.STORAGE).name
    network = {
        **queue_metrics(played.session.table("ports"), port, lane, phase, warm_up_s),
        **played.packets("drops_packets", "retransmissions", "timeouts"),
        **played.counted,
    }
    if case.queueing.is_lossless:
        stalls = played.session.table("stalls")
        network |= {**stall_metrics(stalls, played.outcome), "blocked_ports": blocked_ports(stalls, phase)}
    reads = read_metrics(played.session.table("operations"), phase, warm_up_s)
    return [
        *metrics_of(case.name, ServiceLevel.STORAGE.label, reads, is_named_by_job=False),
        *metrics_of(case.name, "", network),
    ]


MEASURES = (
    Measure("queue_mean_bytes", "bytes that wait at the leaf's port to the client, mean over samples", Better.LESS),
    Measure("queue_most_bytes", "most bytes that wait at the leaf's port to the client in a sample", Better.LESS),
    Measure("cuts", "times that DCQCN cut the rate of a sender"),
    Measure("blocked_ports", "ports with a lane that is blocked by its share of stalled time", Better.LESS),
)


def queue_metrics(ports: pd.DataFrame, port: str, lane: str, phase: Phase, warm_up_s: float) -> dict[str, float]:
    """Return how much waited at a port's lane, over the samples after the warm-up of a phase."""
    inside = ports["at_s"].between(*counted_s(phase, warm_up_s))
    waiting = ports[inside & (ports["port"] == port) & (ports["lane"] == lane)]["backlog_bytes"]
    if waiting.empty:
        return {}
    return {"queue_mean_bytes": float(waiting.mean()), "queue_most_bytes": float(waiting.max())}


def blocked_ports(stalls: pd.DataFrame, phase: Phase) -> int:
    """Return how many ports had a lane that stood still for more than the part of its time by which it is blocked."""
    fractions = stalled_fractions(stalls, phase)
    return int(fractions[fractions > BLOCKED_SHARE].index.get_level_values("port").nunique())


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

    def ratio(self, measure: str) -> float | None:
        """Return a measure with the limit over that without; None if one of the two is missing."""
        if self.limited is None or not self.unlimited.values.get(measure) or measure not in self.limited.values:
            return None
        return self.limited[measure] / self.unlimited[measure]

    def percentile_ratio(self, name: str, form: str = ".2f") -> Quantity:
        """Return the same of a percentile such as ``read.p99``, which may be a bound."""
        return ratio({} if self.limited is None else self.limited.values, self.unlimited.values, f"{name}_s", form)


RATE = "read.bandwidth_Bps"


def kept(found: Sequence[Outcome[Senders]], delivered_Bps: float) -> list[Kept]:  # noqa: N803 - bytes, not bits
    """Return for each setting that was played without a limit what the smallest limit does that keeps throughput.

    ``delivered_Bps``: what a NIC delivers, in bytes per second.
    """
    made = []
    for unlimited in (one for one in found if one.case.limit is None):
        others = sorted(
            (one for one in found if _differs_by_limit(one, unlimited)), key=lambda one: one.case.limit or 0
        )
        best = min(delivered_Bps, max(one[RATE] for one in (unlimited, *others)))
        enough = [one for one in others if one[RATE] >= KEPT * best]
        made.append(Kept(unlimited, enough[0] if enough else None))
    return made


def _differs_by_limit(one: Outcome[Senders], unlimited: Outcome[Senders]) -> bool:
    a, b = one.case, unlimited.case
    return a.limit is not None and (a.queueing, a.control, a.servers) == (b.queueing, b.control, b.servers)


def delivered_Bps(fabric: Fabric) -> float:  # noqa: N802 - bytes, not bits
    """Return what a NIC delivers of payload, in bytes per second."""
    return fabric.nic_rate_bps / 8 * metrics.payload_fraction(fabric.mtu_bytes)


def answer(found: Sequence[Outcome[Senders]], delivered_Bps: float) -> str:  # noqa: N803
    """Return the finding in words, for the most servers that were played."""
    most = max(one.case.servers for one in found)
    told = []
    for one in (one for one in kept(found, delivered_Bps) if one.case.servers == most):
        setting = one.case.format("{control} in {queueing}")
        if one.limited is None:
            told.append(f"{setting}: no limit keeps it")
            continue
        ratios = [(word, one.percentile_ratio(f"read.{name}")) for word, name in (("median", "p50"), ("p99", "p99"))]
        words = " and ".join(f"{value.words} times the {word}" for word, value in ratios if value.is_measured)
        rates = " for ".join(f"{seen[RATE] / 1e9:.1f}" for seen in (one.limited, one.unlimited))
        told.append(f"{setting}: {one.limited.case.limit}, {rates} GB/s" + (f" at {words}" if words else ""))
    if not told:
        return "No variant was played without a limit, so there is nothing to compare with; add off to request_to_send."
    return (
        f"With {most} servers, the fewest senders at once that keep {KEPT:.0%} of the best throughput, beside no "
        f"limit: {'; '.join(told)}."
    )


def limits_table(found: Sequence[Outcome[Senders]], delivered_Bps: float) -> SummaryTable:  # noqa: N803
    """Return what the smallest limit that keeps throughput does."""

    def times(name: str) -> Column:
        head = {"p50": "median", "p999": "p99.9"}.get(name, name)
        return Column(head, lambda one: one.percentile_ratio(f"read.{name}", ".2g x"))

    return case_table(
        "Does a limit on senders keep throughput?",
        kept(found, delivered_Bps),
        (
            Column("in", "queueing"),
            Column("control", "control"),
            Column("servers", "servers"),
            Column("fewest at once", lambda one: "none does" if one.limited is None else str(one.limited.case.limit)),
            *map(times, PERCENTILES),
            Column("queue", lambda one: one.ratio("queue_mean_bytes"), ".2g x"),
        ),
        f"fewest: the smallest limit with {KEPT:.0%} of the best bandwidth, with whichever limit; the others: over "
        "what they are without a limit",
    )


def _tables(found: Found[Senders, IncastConfig]) -> Iterator[SummaryTable]:
    nic_Bps = found.fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
    yield limits_table(found.outcomes, delivered_Bps(found.fabric))
    yield case_table(
        "Variants",
        found.outcomes,
        (
            Column("in", "queueing"),
            Column("control", "control"),
            Column("servers", "servers"),
            Column("at once", "limit"),
            Column("bandwidth", RATE, ".2f GB/s"),
            Column("of the NIC", lambda one: one[RATE] / nic_Bps, ".0%"),
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
        "queue: at the leaf's port to the client; timeouts: retransmission timeouts of TCP; pauses: how often a lane "
        f"found no room; blocked: stalled for more than {BLOCKED_SHARE:.0%} of the phase",
    )


STUDY = Study(
    title="Incast: storage nodes answer one client",
    cases=Senders.grid,
    play=_play,
    measure=_measure,
    measures=MEASURES,
    aside=lambda found, _: {"nic_Bps": found.fabric.nic_rate_bps / 8},
    answer=lambda found: answer(found.outcomes, delivered_Bps(found.fabric)),
    tables=_tables,
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
