"""What does a full port do to a flow that does not use it? Head-of-line blocking, in its smallest example.

Three senders on two leaves fill the link of one host; a fourth, the victim, at the leaf of one of them, sends to that
host's idle neighbour. Where queues drop, it is not affected. In a lossless fabric, it is head-of-line blocked by
packets that wait for the full port, unless it has a lane of its own. Fire-Flyer 2 has lanes for this reason (arXiv
2408.14158v2, VI-A1).
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from experiments.head_of_line.config import HeadOfLineConfig
from fabric.measures import Better, Measure
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_rate
from runs.case_tables import CaseTable, Column, say, spread
from runs.cases import Case, axis
from runs.session import Session
from runs.stall_metrics import stall_metrics
from runs.study import Found, Played, Repeats, Study, over_repeats
from traffic.flows.streams import Stream, StreamsJob, goodput_bps
from traffic.metrics import payload_fraction


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


RATE = Measure("<flow>_bps", "goodput of a flow, by its name", Better.MORE)


@dataclass(frozen=True)
class Repeat(Case, name="{queueing}_{number}", title="in {queueing}, {number} of {repeats}"):
    """A queueing, and which of its repeats it is, with other starts of its streams."""

    queueing: Queueing = axis("queueings")
    number: int = axis("repeats")
    repeats: int = axis(lambda config: [config.repeats])


def run_head_of_line(session: Session, config: HeadOfLineConfig) -> dict[str, Any]:
    """Play every queueing as often as asked, and return the summary: the same streams play in all phases."""
    computes, timetable = session.live.fabric.computes, config.timetable
    streams = [Stream(computes[part.source], computes[part.sink], part.level) for part in PARTS]
    cases = Repeat.grid(config)
    with closing(StreamsJob(session.stage, streams, timetable)) as job:
        job.start()
        for case in cases:
            session.use_queueing(case.queueing)
            session.run_phase(case.name, case.title, [job], timetable.duration_s)
    return STUDY.summarize(session, config, cases)


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


def ideal_bps(fabric: Fabric, queueing: Queueing) -> dict[str, float]:
    """Return the goodput of each flow in theory, in bit/s."""
    fraction = payload_fraction(fabric.mtu_bytes)
    return {name: rate * fraction for name, rate in closed_form_bps(queueing, fabric.nic_rate_bps).items()}


def _measure(played: Played[Repeat, HeadOfLineConfig]) -> dict[str, float]:
    """Return all numbers of a phase; stalled fractions are of the time in which streams play."""
    played_s, stalls = played.config.timetable.duration_s, played.session.table("stalls")
    rows, hosts = played.rows("operations"), {part.name: played.fabric.computes[part.source] for part in PARTS}
    values = {RATE.of(name): goodput_bps(rows, host) for name, host in hosts.items()}
    values |= played.packets() | stall_metrics(stalls, played.outcome, played_s)
    port = str(played.fabric.nics_of[hosts[VICTIM]][0].port)
    if of_victim := stall_metrics(stalls[stalls["port"] == port], played.outcome, played_s):
        values["victim_stalled_fraction"] = of_victim["most_stalled_fraction"]
    return values


def _title(found: Found[Repeat, HeadOfLineConfig]) -> str:
    rate = format_rate(found.fabric.nic_rate_bps)
    return f"Head-of-line blocking: three senders fill a host's {rate}, a fourth sends to its neighbour"


def _medians(found: Found[Repeat, HeadOfLineConfig]) -> list[Repeats[Repeat]]:
    return over_repeats(found.outcomes, "{queueing}")


def _answer(found: Found[Repeat, HeadOfLineConfig]) -> str:
    told = [
        say(one, f"{{{RATE.of(VICTIM)}}} in {{queueing}} ")
        + f"(theory: {format_rate(ideal_bps(found.fabric, one.case.queueing)[VICTIM])})"
        for one in _medians(found)
    ]
    return f"Next to a full port that it does not use, the victim gets {', '.join(told)}."


def _flows(found: Found[Repeat, HeadOfLineConfig]) -> list[tuple[Repeats[Repeat], str, float]]:
    """Return each flow in each queueing, with what it gets in theory."""
    ideals = {queueing: ideal_bps(found.fabric, queueing) for queueing in found.config.queueings}
    return [(one, part.name, ideals[one.case.queueing][part.name]) for one in _medians(found) for part in PARTS]


def _side_by_side(found: Found[Repeat, HeadOfLineConfig]) -> dict[str, Any]:
    """Return what the figure of all queueings side by side shows, over what theory says of a flow with drops."""
    medians = _medians(found)
    ideals = [ideal_bps(found.fabric, one.case.queueing) for one in medians]
    panels = [
        {
            "title": part.name,
            "values": [one[RATE.of(part.name)] / 1e6 for one in medians],
            "theory": [ideal[part.name] / 1e6 for ideal in ideals],
        }
        for part in PARTS
    ]
    return {
        "side_by_side": {
            "unit": "goodput, Mbit/s",
            "queueings": [one.case.queueing.value for one in medians],
            "panels": panels,
            "drops_packets": [one["drops_packets"] for one in medians],
        }
    }


STUDY = Study[Repeat, HeadOfLineConfig](
    title=_title,
    cases=Repeat.grid,
    measure=_measure,
    measures=(
        RATE,
        Measure(
            "victim_stalled_fraction",
            "share of the time that the victim's NIC stood still for want of room",
            Better.LESS,
        ),
    ),
    answer=_answer,
    tables=(
        CaseTable(
            "Goodput of each flow",
            (
                Column("in", lambda flow: flow[0].case.queueing.words, is_once=True),
                Column("flow", lambda flow: flow[1]),
                Column("Mbit/s", lambda flow: spread(flow[0].each(RATE.of(flow[1])), ",.0f in Mbit/s")),
                Column("in theory", lambda flow: flow[2], ",.0f in Mbit/s"),
                Column("off", lambda flow: flow[0][RATE.of(flow[1])] / flow[2] - 1, "+.1%"),
            ),
            "median over repeats, and from the least to the most; in theory: every sender sends all that it may, and "
            "full buffers are served in turn; where queues drop, TCP shares the full port only roughly evenly",
            rows=_flows,
        ),
        CaseTable(
            lambda found: f"Network, medians of {found.config.repeats} repeats",
            (
                Column("in", "queueing"),
                Column("dropped by queues", "drops_packets", ".0f"),
                Column("retransmissions", "retransmissions", ".0f"),
                Column("stalls", "stalls"),
                Column("longest stalled lane", "most_stalled_fraction", ".0%"),
                Column("victim's NIC stalled", "victim_stalled_fraction", ".0%"),
                Column("fullest input buffer", lambda one: max(one.each("most_buffered_bytes")), ".1f KiB"),
            ),
            "stalled: the link was free, a frame waited, and there was no room at the other end",
            rows=_medians,
        ),
    ),
    more=_side_by_side,
)
