"""What became of reads, flows and packets as loads grew?"""

from __future__ import annotations

from typing import Any

from experiments.protection.cases import loads
from experiments.protection.config import ProtectionConfig
from runs.case_tables import CaseTable, Column
from runs.counted_operations import NOTE
from runs.study import Question
from traffic.measures import OPERATIONS

PLAYED = (
    Column("others", lambda one: one.case.point.other_load, ".0%"),
    Column("storage depth", lambda one: one.case.point.storage_depth),
)

COMPLETION = Question[Any, ProtectionConfig](
    measure=lambda played: played.packets("drops_packets", "sent_packets", "retransmissions"),
    measures=tuple(one.without("operation", f"of flows of others, {one.meaning}") for one in OPERATIONS),
    tables=(
        CaseTable(
            "Completion of reads and flows",
            (
                *PLAYED,
                "in {queueing}, p99 of reads {read.p99_s}, reads failed {read.failed}, p99 of flows {other.p99_s}, "
                "completed {other.operations}, abandoned {other.abandoned}, failed {other.failed}, "
                "refused {other.refused}",
            ),
            (NOTE, "refused: the flow arrived while max_flows of its host were running, and did not start"),
            rows=loads("points"),
        ),
        CaseTable(
            "Network",
            (
                *PLAYED,
                "in {queueing}, packets sent {sent_packets}, dropped by queues {drops_packets}, "
                "retransmissions {retransmissions}",
            ),
            rows=loads("points"),
        ),
    ),
)
