"""Do lanes keep training, storage and other traffic out of each other's way?

Cases on one fabric: HFReduce, NCCL, storage and other traffic each alone, in the first queueing of ``queueings``; then
all at once in each of them: one shared queue per port, lanes, and the same two without loss; each with other traffic at
a moderate load and, with ``heavy_load``, at a heavy one. The same jobs and seeds play in all cases, so cases differ
only in the other traffic and in the queues. Fire-Flyer 2 maps each kind to a Virtual Lane with a share (arXiv
2408.14158v2, VI-A1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.isolation.cases import Alone, AnyFound, Mix
from experiments.isolation.config import IsolationConfig
from experiments.isolation.playing import all_jobs, play
from experiments.isolation.port import PORT
from experiments.isolation.programs import PROGRAMS, RATES
from fabric.measures import Better, Measure
from runs.case_tables import Answer, CaseTable, Column
from runs.session import Session
from runs.side_by_side import SideBySide
from runs.stall_metrics import STALLS
from runs.study import Outcome, Played, Question, SameJobs, Study

COMPARED = {words: rate for words, (rate, _) in RATES.items()} | {
    "storage reads, p99 of latency": "read.p99_s",
    "other flows, p99 of completion": "flow.p99_s",
}
"""What the figure of all queueings compares with the same alone."""


def _read_back(session: Session, _: IsolationConfig, jobs: Sequence[Any]) -> dict[str, Any]:
    session.tell("reading back, over the fabric, all that storage has acknowledged")
    return {"acknowledged_writes": jobs[2].verify_acknowledged().counts}


def _network(played: Played[Any, IsolationConfig]) -> dict[str, float]:
    ports, phase = played.session.table("ports"), played.phase
    backlogs = ports["backlog_bytes"][ports["at_s"].between(phase.started_s, phase.ended_s)]
    return {
        **played.packets("drops_packets", "sent_packets", "retransmissions"),
        "deepest_queue_bytes": 0 if backlogs.empty else int(backlogs.max()),
        **played.stalls(),
    }


def _mixes(found: AnyFound) -> list[Outcome[Any]]:
    return [one for one in found.outcomes if isinstance(one.case, Mix)]


def _said(found: AnyFound) -> str:
    promised = found.config.queues.promised
    return (
        "Of their bandwidth alone, HFReduce and storage reads keep, while other traffic offers {} (promised in lanes: "
        f"{promised['hfreduce']:.0%} and {promised['storage']:.0%})."
    )


NETWORK = Question[Any, IsolationConfig](
    measure=_network,
    measures=(
        Measure("deepest_queue_bytes", "most bytes that a port of a switch had queued in a sample", Better.LESS),
    ),
    tables=(
        CaseTable(
            "Network",
            (
                "phase {title}, packets sent {sent_packets|.0f}, dropped by queues {drops_packets|.0f}",
                Column("of packets", lambda one: one["drops_packets"] / max(1, one["sent_packets"]), ".2%"),
                "retransmissions {retransmissions|.0f}, deepest queue {deepest_queue_bytes|.0f KiB}",
            ),
        ),
        STALLS,
    ),
)

STUDY = Study[Any, IsolationConfig](
    title="Isolation: training, storage and other traffic on one fabric",
    cases=(Alone, Mix),
    play=SameJobs(all_jobs, play, behind=_read_back),
    answer=Answer(
        _said,
        by="{load} of every NIC's rate",
        each="{hfreduce.algbw_Bps / alone|.0%} and {read.bandwidth_Bps / alone|.0%} in {queueing} (p99 of reads: "
        "{read.p99_s / alone|.1f x})",
        rows=_mixes,
    ),
    further=(PROGRAMS, NETWORK, PORT),
    side_by_side=SideBySide(
        lambda found: [one for one in _mixes(found) if not one.case.load.is_heavy],
        COMPARED,
        is_over_alone=True,
        without_end=("flow.failed", "flow.refused"),
    ),
)
