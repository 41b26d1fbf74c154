"""What does a full port do to a flow that does not use it? Head-of-line blocking, in its smallest example.

Three senders on two leaves fill the link of one host; a fourth, the victim, at the leaf of one of them, sends to that
host's idle neighbour. Where queues drop, it is not affected. In a lossless fabric, it is head-of-line blocked by
packets that wait for the full port, unless it has a lane of its own. Fire-Flyer 2 has lanes for this reason (arXiv
2408.14158v2, VI-A1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from fabric.config import TimeS
from fabric.measures import Better, Measure
from fabric.metrics import metrics_of
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.records.summary_table import SummaryTable
from fabric.units import format_change, format_rate
from runs.config import Choices, QueueingsConfig, short_faults
from runs.phase_lengths import PhaseLengths
from runs.session import PhaseOutcome, Session
from runs.stall_metrics import stall_metrics
from traffic.flows.streams import OPERATION, Stream, StreamsJob, Timetable

_IP_TCP_HEADERS_BYTES = 20 + 20 + 12
"""With TCP's timestamps."""
_HOSTS = 6
Duration = Annotated[TimeS, Field(gt=0)]


@dataclass(frozen=True)
class Part:
    """A flow of the experiment: its hosts by their places among the computes, and its level."""

    name: str
    source: int
    sink: int
    level: ServiceLevel


PARTS = (
    Part("victim", 3, 5, ServiceLevel.HFREDUCE),
    Part("sender beside the victim", 0, 2, ServiceLevel.STORAGE),
    Part("second sender", 1, 2, ServiceLevel.STORAGE),
    Part("third sender", 4, 2, ServiceLevel.STORAGE),
)
"""Computes 0 and 3 are at the first leaf, 1 and 4 at the second, 2 and 5 at the third."""
VICTIM = PARTS[0].name


class HeadOfLineConfig(QueueingsConfig):
    """The queueings, how often each is played, and how long."""

    queueings: Choices[Queueing] = Field(
        default_factory=lambda: list(Queueing),
        description="The queueings to play, in this order: the same load in each.",
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=3, description="How often each queueing is played, with other starts of its streams."
    )
    warm_up: Duration = Field(
        default=0.5, description="Begin of each phase that is not measured, while windows open and buffers fill."
    )
    measured: Duration = Field(default=0.5, description="Time that is measured after the warm-up.")
    start_spread: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.005, description="Streams begin at random times within this, different in each repeat."
    )
    time_scale: Annotated[float, Field(gt=0, le=1000, strict=False)] = Field(
        default=1.0,
        description="Multiplies the times of a phase and `sample_period`: 0.005 where links are 200 times as fast.",
    )

    @property
    def sampled_every_s(self) -> float:
        """The sample period, scaled."""
        return self.sample_period * min(1.0, self.time_scale)

    @property
    def timetable(self) -> Timetable:
        """The times of a phase, scaled."""
        scale = self.time_scale
        return Timetable(self.warm_up * scale, self.measured * scale, self.start_spread * scale)

    @property
    def phase_lengths(self) -> PhaseLengths:
        """A phase has all three."""
        key = "warm_up, measured and start_spread, x time_scale"
        return PhaseLengths({key: (self.warm_up + self.measured + self.start_spread) * self.time_scale})

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        if len(fabric.computes) != _HOSTS or len(fabric.switches) != 4:
            have = f"{len(fabric.computes)} compute nodes and {len(fabric.switches)} switches"
            yield f"topology: has {have}; this needs {_HOSTS} at 3 leaves with 1 spine, as head_of_line has"
        yield from (f"measured: {fault}" for fault in short_faults(fabric, self.measured))


def run_head_of_line(session: Session, config: HeadOfLineConfig) -> dict[str, Any]:
    """Play every queueing as often as asked, and return the summary."""
    computes, timetable = session.live.fabric.computes, config.timetable
    streams = [Stream(computes[part.source], computes[part.sink], part.level) for part in PARTS]
    with closing(StreamsJob(session.stage, streams, timetable)) as job:
        job.start()
        for queueing in config.queueings:
            session.use_queueing(queueing)
            for number in range(1, config.repeats + 1):
                title = f"in {queueing.words}, {number} of {config.repeats}"
                session.run_phase(phase_name(queueing, number), title, [job], timetable.duration_s)
    return summarize(session, config)


def phase_name(queueing: Queueing, number: int) -> str:
    """Return the name of a repeat's phase."""
    return f"{queueing.value}_{number}"


def closed_form_bps(queueing: Queueing, nic_rate_bps: float) -> dict[str, float]:
    """Return what each flow has on the wire, in bit/s, if it sends all that it may; C is a NIC's rate.

    With drops, only the full port counts: C / 3 for each of its three flows, and the victim has its own link to itself.

    Without, every buffer before the full port is full, and a port takes from full buffers in turn, so both uplinks
    carry the same. In one lane, the victim and the sender beside it share theirs as equals, and so do the other two:
    four equal flows, three of which make up C. Apart, the victim has C, and its lane takes nothing from the other; the
    sender beside it has all of what their uplink carries to the full port, C / 2, and the other two half of that each.
    """
    first, second, third = (part.name for part in PARTS[1:])
    if queueing is Queueing.LOSSLESS:
        return dict.fromkeys((part.name for part in PARTS), nic_rate_bps / 3)
    if queueing is Queueing.LOSSLESS_LANES:
        halves = {first: nic_rate_bps / 2, second: nic_rate_bps / 4, third: nic_rate_bps / 4}
        return {VICTIM: nic_rate_bps, **halves}
    return {VICTIM: nic_rate_bps, **dict.fromkeys((first, second, third), nic_rate_bps / 3)}


def goodput_fraction(fabric: Fabric) -> float:
    """Return what part of a full frame TCP delivers."""
    return (fabric.mtu_bytes - _IP_TCP_HEADERS_BYTES) / fabric.frame_bytes


def summarize(session: Session, config: HeadOfLineConfig) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric, operations = session.live.fabric, session.table("operations")
    played_s = config.timetable.duration_s
    found = {one.phase.name: _phase_metrics(session, operations, one, played_s) for one in session.phases}
    figures = {queueing: _over_repeats(config, found, queueing) for queueing in config.queueings}
    ideals = {queueing: _ideal(fabric, queueing) for queueing in config.queueings}
    return {
        "title": f"Head-of-line blocking: three senders fill a host's {format_rate(fabric.nic_rate_bps)}, a fourth "
        "sends to its neighbour",
        "answer": _answer(figures, ideals),
        "metrics": [metric for phase, values in found.items() for metric in metrics_of(phase, "", values)],
        "tables": [_throughput_table(figures, ideals), _network_table(config, figures)],
        "side_by_side": _side_by_side(config, figures, ideals),
    }


RATE = Measure("<flow>_bps", "goodput of a flow, by its name", Better.MORE)
MEASURES = (
    RATE,
    Measure(
        "victim_stalled_fraction", "share of the time that the victim's NIC stood still for want of room", Better.LESS
    ),
)


def _ideal(fabric: Fabric, queueing: Queueing) -> dict[str, float]:
    fraction = goodput_fraction(fabric)
    return {name: rate * fraction for name, rate in closed_form_bps(queueing, fabric.nic_rate_bps).items()}


def _phase_metrics(
    session: Session, operations: pd.DataFrame, outcome: PhaseOutcome, played_s: float
) -> dict[str, float]:
    """Return all numbers of a phase by name; stalled fractions are of the time in which streams play."""
    computes = session.live.fabric.computes
    rows = operations[(operations["phase"] == outcome.phase.name) & (operations["operation"] == OPERATION)]
    by_host = {str(row["host"]): row for _, row in rows.iterrows()}
    found: dict[str, float] = {}
    for part in PARTS:
        row = by_host.get(computes[part.source].name)
        found[RATE.of(part.name)] = math.nan if row is None else _rate_bps(row)
    counted = outcome.conservation
    found["drops_packets"] = counted.dropped_by_queues
    found["retransmissions"] = counted.retransmissions
    stalls = stall_metrics(session.table("stalls"), outcome, played_s)
    return found | stalls | _stall_of_victim(session, outcome, played_s)


def _rate_bps(row: pd.Series) -> float:
    return float(row["size_bytes"]) * 8 / float(row["ended_s"] - row["started_s"])


def _stall_of_victim(session: Session, outcome: PhaseOutcome, played_s: float) -> dict[str, float]:
    """Return what fraction of the time the victim's own NIC stood still for lack of room."""
    port = str(session.live.fabric.nics_of[session.live.fabric.computes[PARTS[0].source]][0].port)
    stalls = session.table("stalls")
    found = stall_metrics(stalls[stalls["port"] == port], outcome, played_s)
    return {"victim_stalled_fraction": found["most_stalled_fraction"]} if found else {}


Repeats = Mapping[str, Sequence[float]]
"""Each number of a queueing's phases, repeat by repeat."""
Figures = Mapping[Queueing, Repeats]
Ideals = Mapping[Queueing, Mapping[str, float]]


def _over_repeats(config: HeadOfLineConfig, found: Mapping[str, Mapping[str, float]], queueing: Queueing) -> Repeats:
    phases = [found[phase_name(queueing, number)] for number in range(1, config.repeats + 1)]
    return {name: [phase[name] for phase in phases] for name in phases[0]}


def _median(values: Sequence[float]) -> float:
    return float(pd.Series(values).median())


def _answer(figures: Figures, ideals: Ideals) -> str:
    """Return the finding in a sentence."""
    told = [
        f"{format_rate(_median(found[RATE.of(VICTIM)]))} in {queueing.words} "
        f"(theory: {format_rate(ideals[queueing][VICTIM])})"
        for queueing, found in figures.items()
    ]
    return f"Next to a full port that it does not use, the victim gets {', '.join(told)}."


def _span(values: Sequence[float]) -> str:
    """Return a median in Mbit/s, with the least and the most if they differ."""
    if all(map(math.isnan, values)):
        return "-"
    low, middle, high = (f"{value / 1e6:,.0f}" for value in (min(values), _median(values), max(values)))
    return middle if low == high else f"{middle} ({low}-{high})"


def _throughput_table(figures: Figures, ideals: Ideals) -> SummaryTable:
    rows = []
    for queueing, found in figures.items():
        for part in PARTS:
            got, ideal = found[RATE.of(part.name)], ideals[queueing][part.name]
            off = format_change(_median(got) / ideal - 1)
            rows.append([queueing.words if part is PARTS[0] else "", part.name, _span(got), f"{ideal / 1e6:,.0f}", off])
    return SummaryTable(
        title="Goodput of each flow",
        columns=["in", "flow", "Mbit/s", "in theory", "off"],
        rows=rows,
        note="median over repeats, and from the least to the most; in theory: every sender sends all that it may, "
        "and full buffers are served in turn; where queues drop, TCP shares the full port only roughly evenly",
    )


def _network_table(config: HeadOfLineConfig, figures: Figures) -> SummaryTable:
    rows = []
    for queueing, found in figures.items():
        drops, again = (f"{_median(found[name]):.0f}" for name in ("drops_packets", "retransmissions"))
        row = [queueing.words, drops, again]
        if queueing.is_lossless:
            row += [f"{_median(found['stalls']):,.0f}", f"{_median(found['most_stalled_fraction']):.0%}"]
            row += [f"{_median(found['victim_stalled_fraction']):.0%}"]
            row += [f"{max(found['most_buffered_bytes']) / 1024:.1f} KiB"]
        rows.append(row + [""] * (7 - len(row)))
    columns = ["in", "dropped by queues", "retransmissions", "stalls", "longest stalled lane", "victim's NIC stalled"]
    return SummaryTable(
        title=f"Network, medians of {config.repeats} repeats",
        columns=[*columns, "fullest input buffer"],
        rows=rows,
        note="stalled: the link was free, a frame waited, and there was no room at the other end",
    )


def _side_by_side(config: HeadOfLineConfig, figures: Figures, ideals: Ideals) -> dict[str, Any]:
    """Return what the figure of all queueings side by side shows, over what theory says of a flow with drops."""
    queueings = config.queueings
    panels = []
    for part in PARTS:
        values = [_median(figures[queueing][RATE.of(part.name)]) / 1e6 for queueing in queueings]
        theory = [ideals[queueing][part.name] / 1e6 for queueing in queueings]
        panels.append({"title": part.name, "values": values, "theory": theory})
    drops = [_median(figures[queueing]["drops_packets"]) for queueing in queueings]
    return {
        "unit": "goodput, Mbit/s",
        "queueings": [queueing.value for queueing in queueings],
        "panels": panels,
        "drops_packets": drops,
    }
