"""The results of ``resync``: how long a node took to be whole, who sent what, and what others lost meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from experiments.resync.config import Returns, Variant
from experiments.resync.measures import READ_RATE, READ_TIME, READ_TIME_WHILE_ROLLING, SLOWDOWN, STEP
from experiments.resync.rows import Span, share_inside, spans_of
from fabric.metrics import Metric, metrics_of
from fabric.model.identity import NodeId
from fabric.records.cells import Row, count_of, joined, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_size, format_time
from runs.session import PhaseOutcome
from traffic.metrics import begun, completion
from traffic.storage.client.verification import Verification

BESIDE, DURING = "beside", "during"
"""The load without a resync, and with one."""
_MOSTLY = 0.5
"""What part of an operation lies in a resync counts as during it from here on."""
BIN_S = 2.0
"""The figure of restarts has the latency of reads that begin in so long."""


class Rows(Protocol):
    """What is needed of a session."""

    def table(self, name: str) -> pd.DataFrame:
        """Return all rows of a table."""


@dataclass(frozen=True)
class Returned:
    """A phase in which a node came back. ``times``: seconds of the run at which it was ``back`` and ``whole`` (and
    ``whole_again``); ``shares``: rows of ``resync_shares``."""

    phase: str
    variant: Variant
    victim: NodeId
    times: Mapping[str, float]
    outcome: PhaseOutcome
    shares: pd.DataFrame
    verified: Verification
    polled_every_s: float


@dataclass(frozen=True)
class Rolled:
    """A phase in which nodes were restarted in turn, and whether services ``checks`` versions of chains before they
    answer reads. ``times``: seconds of the run of each one's restart."""

    phase: str
    checks: bool
    times: Mapping[str, float]
    outcome: PhaseOutcome


OnNics = Mapping[tuple[str, str], float]
"""What all hosts' NICs sent, by phase and Service Level."""


def summarize(session: Rows, returned: Sequence[Returned], rolled: Sequence[Rolled], on_nics: OnNics) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    numbers = {one.phase: numbers_of(session, one) for one in returned}
    waves = {one.phase: waves_of(session, one) for one in rolled}
    metrics: list[Metric] = [
        metric for phase, values in {**numbers, **waves}.items() for metric in metrics_of(phase, "storage", values)
    ]
    tables = [_cost_table(returned, numbers), _shares_table(returned), _bytes_table(session, on_nics)]
    return {
        "title": "A storage node that comes back",
        "answer": " ".join((*_sentences(returned, numbers), *_words_of_waves(rolled, waves))),
        "metrics": metrics,
        "tables": [*tables, *([_waves_table(rolled, waves)] if rolled else [])],
        "acknowledged_writes": {one.phase: one.verified.counts for one in returned},
        "resync": {
            "variants": [{"phase": one.phase, **numbers[one.phase]} for one in returned],
            "rolling": [latencies_of(session, one) for one in rolled],
        },
    }


# What a return costs --------------------------------------------------------------------------------------------------


def numbers_of(session: Rows, one: Returned) -> dict[str, float]:
    """Return the numbers of a phase by name; what cannot be said is missing.

    ``whole_s``: from its return until all targets served; ``sending_s``: for how long anything was sent;
    ``most_off_bytes``: by how much the peer is off that sent the most more or less than its part. Of reads and
    of steps of the allreduce: ``beside``, while the node was out and nothing was sent, and ``during``.
    """
    attempts = _of(session.table("resync_attempts"), one.phase)
    is_first = attempts["began_s"] <= one.times["whole"]
    first = attempts[is_first]
    spans = spans_of(first)
    found = {
        "whole_s": one.times["whole"] - one.times["back"],
        "sending_s": sum(span.seconds for span in spans),
        "resync_bytes": float(first["sent_bytes"].sum()),
        "expected_bytes": float(one.shares["expected_bytes"].sum()),
        "most_off_bytes": float((one.shares["sent_bytes"] - one.shares["expected_bytes"]).abs().max()),
        "attempts": float(len(first)),
        "attempts_stopped": float((first["outcome"] == "stopped").sum()),
        "busiest_over_mean": _over_mean(one.shares["sent_bytes"]),
        "placed_over_mean": _over_mean(one.shares["placed_chains"]),
        "lost": float(len(one.verified.lost)),
    }
    if one.variant.returns is Returns.SILENT:
        del found["expected_bytes"], found["most_off_bytes"]
    if "whole_again" in one.times:
        found["second_resync_bytes"] = float(attempts[~is_first]["sent_bytes"].sum())
        found["second_resyncs"] = float((attempts[~is_first]["outcome"] == "done").sum())
    found |= _load_numbers(session, one, spans)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _over_mean(values: pd.Series) -> float:
    mean = float(values.mean()) if len(values) else 0.0
    return float(values.max()) / mean if mean else math.nan


def _load_numbers(session: Rows, one: Returned, spans: Sequence[Span]) -> dict[str, float]:
    """Return the numbers of the load that played: in each stretch of time, what was mostly in it."""
    jobs = _of(session.table("jobs"), one.phase)
    ended_s = float(jobs[jobs["job"].astype(str) != "storage"]["ended_s"].max())
    when = {BESIDE: _quiet(session, one, ended_s), DURING: list(spans)}
    reads = _reads_of(session, one.phase)
    steps = _of(session.table("steps"), one.phase)
    found: dict[str, float] = {}
    for name, stretches in when.items():
        seconds = sum(span.seconds for span in stretches)
        here = _within(reads, stretches)
        done = completion(here, "read")
        if done is not None and seconds > 0:
            found[READ_RATE.of(name)] = float(here["size_bytes"].sum()) / seconds
            for percentile in ("p50", "p99"):
                found |= done.percentiles[percentile].named(READ_TIME.of(name, percentile))
        inside = _within(steps, stretches)
        if len(inside):
            found[STEP.of(name)] = float((inside["ended_s"] - inside["started_s"]).median())
    for load, measure in (("read", READ_RATE), ("step", STEP)):
        before, now = found.get(measure.of(BESIDE)), found.get(measure.of(DURING))
        if before and now:
            found[SLOWDOWN.of(load)] = before / now if measure is READ_RATE else now / before
    return found


def _quiet(session: Rows, one: Returned, ended_s: float) -> list[Span]:
    """Return when the load played, clients knew the chains, and nothing was to be sent: between the node's leaving and
    its return; of one that was silent, when it serves again, since only training plays beside it then."""
    if one.variant.returns is Returns.SILENT:
        return [Span(one.times["whole"], ended_s)]
    changes = _of(session.table("routing_changes"), one.phase)
    syncing = changes[changes["syncing"].astype(str) != ""]["at_s"]
    knows_s = one.times["loaded"] + one.polled_every_s + 1
    return [Span(knows_s, float(syncing.min()))] if len(syncing) and knows_s < syncing.min() else []


def _within(rows: pd.DataFrame, spans: Sequence[Span]) -> pd.DataFrame:
    """Return the rows that lie mostly within some spans."""
    inside = [
        share_inside(float(began_s), float(ended_s), spans) >= _MOSTLY
        for began_s, ended_s in zip(rows["started_s"], rows["ended_s"], strict=True)
    ]
    return rows[np.array(inside, dtype=bool)] if len(rows) else rows


def _of(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[table["phase"] == phase]


def _sentences(found: Sequence[Returned], numbers: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for one in found:
        values = numbers[one.phase]
        sent = format_size(int(values["resync_bytes"]))
        expected = values.get("expected_bytes")
        exact = (
            "" if expected is None else (", to the byte" if expected == values["resync_bytes"] else ", NOT AS EXPECTED")
        )
        again = (
            f", a second one {format_size(int(values['second_resync_bytes']))}" if "second_resyncs" in values else ""
        )
        whole = format_time(values["whole_s"])
        yield f"{one.phase}: whole after {whole}, {sent} sent{exact}{again}; {one.verified.sentence}"


def _cost_table(found: Sequence[Returned], numbers: Mapping[str, Mapping[str, float]]) -> SummaryTable:
    rows: list[Row] = []
    for one in found:
        values = numbers[one.phase]
        reads = [measured(values, READ_RATE.of(when)) for when in (BESIDE, DURING)]
        tails = [measured(values, READ_TIME.of(when, "p99")) for when in (BESIDE, DURING)]
        steps = [measured(values, STEP.of(when)) for when in (BESIDE, DURING)]
        sizes = [measured(values, name) for name in ("resync_bytes", "expected_bytes") if name in values]
        attempts = (measured(values, "attempts_stopped", ".0f"), " of ", measured(values, "attempts", ".0f"))
        times = (measured(values, name) for name in ("whole_s", "sending_s"))
        rows.append([one.phase, *times, joined(sizes, " of "), attempts, *reads, *tails, *steps])
    columns = [
        *("phase", "whole after", "sending for", "sent", "attempts in vain"),
        *("reads beside", "during", "read p99 beside", "during", "step beside", "during"),
    ]
    note = (
        "beside: the load while nothing is sent, the node being out (of silent ones: back again); during: while it is "
        "brought up to date"
    )
    return SummaryTable(title="What it costs to bring a node up to date", columns=columns, rows=rows, note=note)


def _shares_table(found: Sequence[Returned]) -> SummaryTable:
    rows: list[Row] = []
    for one in found:
        is_empty = one.variant.returns is Returns.EMPTY
        for row in one.shares.to_dict("records"):
            to_send = quantity(row["expected_bytes"] if is_empty else None, "size")
            chains = quantity(row["promised_chains"], "g"), count_of(row["placed_chains"])
            rows.append([str(row["phase"]), str(row["peer"]), *chains, to_send, quantity(row["sent_bytes"], "size")])
    return SummaryTable(
        title="Who sends it",
        columns=["phase", "peer", "promised, chains", "serves last in", "to send", "sent"],
        rows=rows,
        note="promised: by 3FS's placement, equal parts of each chain; only the last target that serves sends",
    )


# What lanes carry -----------------------------------------------------------------------------------------------------


def _bytes_table(session: Rows, on_nics: OnNics) -> SummaryTable:
    table = session.table("lane_bytes")
    rows: list[Row] = []
    for (phase, level), of_level in table.groupby(["phase", "service_level"], observed=True, sort=False):
        frames, payload = (int(of_level[name].sum()) for name in ("frame_bytes", "payload_bytes"))
        sent = on_nics.get((str(phase), str(level)), 0.0)
        causes = joined(
            (f"{row['cause']} ", quantity(row["payload_bytes"] or row["frame_bytes"], "size"))
            for row in of_level.to_dict("records")
            if row["cause"] != "greeting"
        )
        sizes = (quantity(size, "size") for size in (payload, frames, sent))
        over = quantity(sent / frames if frames and sent else None, ".3f")
        rows.append([str(phase), str(level), causes, *sizes, over])
    return SummaryTable(
        title="What storage sent, by cause",
        columns=["phase", "Service Level", "by cause", "chunks' data", "with its messages", "on NICs", "over messages"],
        rows=rows,
        note="by cause: chunks' data, of causes without any their messages; on NICs: with TCP's headers, "
        "acknowledgements and what it sends again",
    )


# Restarts in turn -----------------------------------------------------------------------------------------------------


def waves_of(session: Rows, one: Rolled) -> dict[str, float]:
    """Return the numbers of restarts: the latency of reads, how many took longer than a second, and in how many waves
    these began; percentiles are missing if there were no reads. ``read_longest_s``: of any, a failed one included."""
    reads = _reads_of(session, one.phase)
    took = reads["ended_s"] - reads["started_s"]
    changes = _of(session.table("routing_changes"), one.phase)
    changes = changes[changes["version"] > 1]
    late = reads[took > 1.0]
    found = {
        "reads": float(len(reads)),
        "reads_failed": float((reads["operation"] != "read").sum()),
        "reads_delayed": float(len(late)),
        "chain_versions": float(len(changes)),
        "waves": float(len(waves(late["started_s"].to_numpy(float)))),
    }
    if (done := completion(reads, "read")) is not None:
        for name in ("p50", "p99"):
            found |= done.percentiles[name].named(READ_TIME_WHILE_ROLLING.of(name))
        found["read_longest_s"] = float(took.max())
    return found


def waves(began_s: Sequence[float] | np.ndarray[Any, Any], apart_s: float = 5.0) -> list[Span]:
    """Return the stretches of time in which delayed reads begin; those further apart are waves of their own."""
    found: list[Span] = []
    for at_s in sorted(map(float, began_s)):
        if found and at_s - found[-1].ended_s <= apart_s:
            found[-1] = Span(found[-1].began_s, at_s)
        else:
            found.append(Span(at_s, at_s))
    return found


def _reads_of(session: Rows, phase: str) -> pd.DataFrame:
    """Return the reads of a phase, those that failed or were cut off included."""
    return begun(_of(session.table("operations"), phase), "read")


def latencies_of(session: Rows, one: Rolled) -> dict[str, Any]:
    """Return what the figure of restarts shows: percentiles of reads by when they began, of what is at least that, too;
    when chains changed, and when nodes were restarted; seconds from the phase's begin."""
    reads = _reads_of(session, one.phase)
    began_s = one.outcome.began_s
    bins = np.floor((reads["started_s"].to_numpy(float) - began_s) / BIN_S).clip(0).astype(int)
    changes = _of(session.table("routing_changes"), one.phase)
    changes = changes[changes["version"] > 1].sort_values("at_s")
    by_bin = []
    for number in sorted(set(bins.tolist())):
        if (done := completion(reads[bins == number], "read")) is not None:
            p50, p99 = done.percentiles["p50"], done.percentiles["p99"]
            by_bin.append({"at_s": float(BIN_S * number), "p50_s": p50.value_s, "p99_s": p99.value_s})
    return {
        "phase": one.phase,
        "checks": one.checks,
        "latency": by_bin,
        "changes_s": sorted({round(float(at_s) - began_s, 3) for at_s in changes["at_s"]}),
        "restarts_s": {name: at_s - began_s for name, at_s in one.times.items()},
    }


def _words_of_waves(rolled: Sequence[Rolled], found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for one in rolled:
        values = found[one.phase]
        delayed = f"{values['reads_delayed']:.0f} of {values['reads']:.0f} reads took more than 1 s"
        yield f"{one.phase}: {delayed}, the longest {format_time(values.get('read_longest_s', 0.0))}."


def _waves_table(rolled: Sequence[Rolled], found: Mapping[str, Mapping[str, float]]) -> SummaryTable:
    rows: list[Row] = []
    for one in rolled:
        values = found[one.phase]
        percentiles = (READ_TIME_WHILE_ROLLING.of(name) for name in ("p50", "p99"))
        times = [measured(values, name) for name in (*percentiles, "read_longest_s")]
        delayed = (measured(values, "reads_delayed", ".0f"), " of ", measured(values, "reads", ".0f"))
        counts = (count_of(len(one.times)), measured(values, "chain_versions", ".0f"))
        waves_seen = measured(values, "waves", ".0f")
        rows.append([one.phase, "yes" if one.checks else "no", *counts, *times, delayed, waves_seen])
    columns = [
        *("phase", "versions checked", "restarts", "new versions of chains", "read p50", "p99", "longest"),
        *("reads over 1 s", "waves of these"),
    ]
    return SummaryTable(title="Storage nodes restarted in turn", columns=columns, rows=rows)
