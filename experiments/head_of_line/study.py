"""What does a full port do to a flow that does not use it? Head-of-line blocking, in its smallest example.

Three senders on two leaves fill the link of one host; a fourth, the victim, at the leaf of one of them, sends to that
host's idle neighbour. Unlike where queues drop, in a lossless fabric it is blocked by packets that wait for the full
port, unless it has a lane of its own: Fire-Flyer 2's reason for lanes (arXiv 2408.14158v2, VI-A1).
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.head_of_line.config import HeadOfLineConfig
from fabric.measures import Better, Measure
from fabric.metrics import theory_name
from fabric.model.lanes import Queueing, ServiceLevel
from fabric.model.network import Fabric
from fabric.units import format_rate
from runs.case_tables import Answer, CaseTable, Column, over_theory, spread
from runs.cases import Case, axis
from runs.session import Session
from runs.side_by_side import SideBySide
from runs.stall_metrics import STALLS
from runs.study import Played, SameJobs, Study, medians
from traffic.flows.streams import Stream, StreamsJob, goodput_bps
from traffic.metrics import payload_fraction

FLOWS = {
    "victim": (3, 5, ServiceLevel.HFREDUCE, (1, 3, 1)),
    "sender beside the victim": (0, 2, ServiceLevel.STORAGE, (3, 3, 2)),
    "second sender": (1, 2, ServiceLevel.STORAGE, (3, 3, 4)),
    "third sender": (4, 2, ServiceLevel.STORAGE, (3, 3, 4)),
}
"""From where to where among the computes (0 and 3 at the first leaf, 1 and 4 at the second, 2 and 5 at the third), the
level, and a NIC's rate over what a flow has in theory. With drops, three share the full port; without, ports take from
full buffers in turn: in one lane of four equal flows, three to that port; in lanes half of one, quarters of two."""
KINDS = {Queueing.LOSSLESS: 1, Queueing.LOSSLESS_LANES: 2}
RATE = Measure("<flow>_bps", "goodput of a flow, by its name", Better.MORE)
RATES = {name: RATE.of(name) for name in FLOWS}
STALLED = Measure("victim_stalled_fraction", "share of streams' time that the victim's NIC stood still", Better.LESS)
MEDIANS = medians("{queueing}")
TITLE = "Head-of-line blocking: three senders fill a host's {}, a fourth sends to its neighbour"


@dataclass(frozen=True)
class Repeat(Case, name="{queueing}_{number}", title="in {queueing}, {number} of {repeats}"):
    """A queueing, and which of its repeats it is, with other starts of its streams."""

    queueing: Queueing = axis("queueings")
    number: int = axis("repeats")
    repeats: int = axis(lambda config: [config.repeats])


def closed_form_bps(fabric: Fabric, queueing: Queueing) -> dict[str, float]:
    """Return the goodput of each flow in theory, in bit/s."""
    payload, place = payload_fraction(fabric.mtu_bytes), KINDS.get(queueing, 0)
    return {RATES[name]: fabric.nic_rate_bps / over[place] * payload for name, (*_, over) in FLOWS.items()}


def _jobs(session: Session, config: HeadOfLineConfig) -> list[StreamsJob]:
    hosts = session.live.fabric.computes
    streams = [Stream(hosts[source], hosts[sink], level) for source, sink, level, _ in FLOWS.values()]
    return [StreamsJob(session.stage, streams, config.timetable)]


def _measure(played: Played[Repeat, HeadOfLineConfig]) -> dict[str, float]:
    rows, played_s, hosts = played.rows("operations"), played.config.timetable.duration_s, played.fabric.computes
    of_victim = played.stalls(played_s, played.fabric.nics_of[hosts[FLOWS["victim"][0]]][0].port)
    stalled = {STALLED.name: of_victim["most_stalled_fraction"]} if of_victim else {}
    rates = {RATES[name]: goodput_bps(rows, hosts[source]) for name, (source, *_) in FLOWS.items()}
    return {**rates, **played.packets(), **played.stalls(played_s), **stalled}


STUDY = Study[Repeat, HeadOfLineConfig](
    title=lambda found: TITLE.format(format_rate(found.fabric.nic_rate_bps)),
    cases=(Repeat,),
    play=SameJobs(_jobs, lasts="timetable.duration_s"),
    measure=_measure,
    measures=(RATE, STALLED),
    theory=lambda found, one: closed_form_bps(found.fabric, one.case.queueing),
    answer=Answer(
        "Next to a full port that it does not use, the victim gets {}.",
        each="{victim_bps} in {queueing} (theory: {victim_in_theory_bps})",
        rows=MEDIANS,
    ),
    tables=(
        CaseTable(
            "Goodput of each flow",
            (
                Column("in", lambda flow: flow[0].case.queueing.words, is_once=True),
                Column("flow", lambda flow: flow[1]),
                Column("Mbit/s", lambda flow: spread(flow[0].each(RATES[flow[1]]), ",.0f in Mbit/s")),
                Column("in theory", lambda flow: flow[0][theory_name(RATES[flow[1]])], ",.0f in Mbit/s"),
                Column("off", lambda flow: over_theory(flow[0], RATES[flow[1]]) - 1, "+.1%"),
            ),
            "median over repeats, and from the least to the most; in theory: every sender sends all that it may, and "
            "full buffers are served in turn; where queues drop, TCP shares the full port only roughly evenly",
            rows=lambda found: [(one, name) for one in MEDIANS(found) for name in FLOWS],
        ),
        CaseTable(
            lambda found: f"Network, medians of {found.config.repeats} repeats",
            (
                "in {queueing}, dropped by queues {drops_packets}, retransmissions {retransmissions}, stalls {stalls}, "
                "longest stalled lane {most_stalled_fraction|.0%}, victim's NIC stalled {victim_stalled_fraction|.0%}",
                Column("fullest input buffer", lambda one: max(one.each("most_buffered_bytes")), ".1f KiB"),
            ),
            STALLS.note,
            rows=MEDIANS,
        ),
    ),
    side_by_side=SideBySide(MEDIANS, RATES, "goodput, Mbit/s", per=1e6),
)
