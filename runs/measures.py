"""What numbers mean that several experiments report: of packets, lossless lanes, operations and kinds of jobs."""

from __future__ import annotations

from fabric.measures import Better, Measure
from runs import congestion, stall_metrics
from runs.kinds import KINDS
from traffic.measures import OPERATIONS

PACKETS = (
    Measure("sent_packets", "packets that hosts sent in the phase"),
    Measure("drops_packets", "packets that queues dropped in the phase", Better.LESS),
    Measure(
        "retransmissions",
        "segments that TCP, frames that RDMA, and packets that messages sent again in the phase",
        Better.LESS,
    ),
    Measure("sent_twice", "those sent again in the phase that had arrived", Better.LESS),
    Measure("overtaking", "segments that came to a receiver before one that was sent earlier, in the phase"),
    Measure("timeouts", "timeouts of TCP and of queue pairs, and probes of messages, in the phase", Better.LESS),
)
QUEUE_PAIRS = (
    Measure("naks", "negative acknowledgements in the phase: of queue pairs, and of trimmed packets", Better.LESS),
    Measure("cnps", "congestion notification packets that came to queue pairs in the phase"),
)
SHARED: tuple[Measure, ...] = (
    *PACKETS,
    *QUEUE_PAIRS,
    *stall_metrics.MEASURES,
    *congestion.MEASURES,
    *OPERATIONS,
    *(measure for kind in KINDS for measure in kind.measures.declared),
)
"""Those that are not of a single experiment."""
