"""What does limiting its senders do about an incast: how few at once keep its throughput, and at which price?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.incast.config import IncastConfig
from runs.case_tables import Answer, CaseTable, Column, say
from runs.study import Found, Outcome, Part, Question, over_repeats
from traffic.storage.closed_forms import payload_Bps

KEPT = 0.95
"""A limit keeps throughput with this part of the best that any limit or none has, or of what a NIC delivers if that is
less: bytes of a read are counted evenly over its time, which may be more in the counted time than there were."""
RATE = "read.bandwidth_Bps"
KEEPS = (
    "{control} in {queueing}: {limit}, {read.bandwidth_Bps|.1f in GB/s} for {alone.read.bandwidth_Bps|.1f in GB/s} "
    "GB/s (median {read.p50_s / alone|.2f x or unknown}, p99 {read.p99_s / alone|.2f x or unknown})"
)


def kept(found: Sequence[Outcome[Any]], delivered_Bps: float) -> Iterator[Part[Any]]:  # noqa: N803 - bytes
    """Yield for each setting that was played without a limit the smallest limit that keeps throughput, if one does.
    ``delivered_Bps``: what a NIC delivers, in bytes per second."""
    for setting in over_repeats(found, "{queueing} {control} {servers}"):
        best = min(delivered_Bps, max(setting.each(RATE)))
        first, *limited = sorted(setting.outcomes, key=lambda one: one.case.limit or 0)
        if first.case.limit is None:
            enough = (one for one in limited if one[RATE] >= KEPT * best)
            yield Part("", next(enough, Outcome(first.case, ())))


def _kept(found: Found[Any, IncastConfig]) -> list[Part[Any]]:
    return list(kept(found.outcomes, payload_Bps(found.fabric)))


def _of_most(found: Found[Any, IncastConfig]) -> list[Part[Any]]:
    most = max(one.case.servers for one in found.outcomes)
    return [one for one in _kept(found) if one.case.servers == most]


LIMITS = Question[Any, IncastConfig](
    answer=Answer(
        "{}.",
        by=f"With {{servers}} servers, the fewest senders at once that keep {KEPT:.0%} of the best throughput, "
        "beside no limit",
        each=lambda one: say(one, KEEPS if one.is_measured else "{control} in {queueing}: no limit keeps it"),
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
    ),
)
