"""The results of ``kv_cache``: what each phase came to, study by study, and what its figures draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from experiments.kv_cache.config import KvCacheStudyConfig, Study
from fabric.metrics import Metric, metrics_of
from fabric.model.network import Fabric
from fabric.records.summary_table import SummaryTable
from fabric.units import format_time
from runs.counted_operations import counted_s, operation_metrics, told_time
from runs.session import PhaseOutcome, Session
from runs.true_scale import scale_words, true_rate
from traffic.collectives.step_numbers import collective_medians
from traffic.metrics import payload_fraction
from traffic.storage.kv_cache.config import KvCacheConfig
from traffic.storage.kv_cache.kinds import of_clients, of_requests

README_BPS = 40 * 2**30
"""What 3FS's README has as the peak of a client with a NIC of 400 Gbit/s, in bytes per second."""
GIB = 2**30
_CACHE, _TRAINING = "kv_cache", "allreduce"
_KINDS = ("read", "write", "remove")
_SHORT = (Study.PEAK, Study.REMOVAL, Study.TRAINING)
"""Studies whose phases are shorter than requests: they are about rates."""

_BY_LINK = (Study.PEAK, Study.REMOVAL)
"""Studies in which hardly anything but one client's reads comes by its link. What that carries is exact; the bytes of a
read are in no known moment of its time, which is a tenth of such a phase."""


@dataclass(frozen=True)
class Played:
    """A phase: its cache, how many requests its window has and how many were left out of it, what the job counted until
    its end, and how many storage nodes it read from, if that was chosen."""

    study: Study
    phase: str
    cache: KvCacheConfig
    requests: int
    counts: Mapping[str, int]
    left_out: int = 0
    servers: int | None = None


@dataclass(frozen=True)
class Outcome:
    """A phase and its numbers, by name."""

    played: Played
    title: str
    values: Mapping[str, float]
    training: Mapping[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> list[Metric]:
        """Its numbers as metrics."""
        phase = self.played.phase
        return [*metrics_of(phase, _CACHE, self.values), *metrics_of(phase, _TRAINING, self.training)]


def summarize(session: Session, config: KvCacheStudyConfig, played: Sequence[Played]) -> dict[str, Any]:
    """Return the tables, metrics and answer of a run."""
    outcomes = {outcome.phase.name: outcome for outcome in session.phases}
    found = [_seen(session, config, one, outcomes[one.phase]) for one in played]
    nic_Bps = session.live.fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
    tables = [
        _requests_table(found, nic_Bps),
        _peak_table(found, nic_Bps),
        _removal_table(found),
        _training_table(found),
    ]
    return {
        "title": "A KV cache on storage",
        "answer": " ".join(_sentences(session.live.fabric, found)),
        "metrics": [metric for one in found for metric in one.metrics],
        "tables": [table for table in tables if table is not None],
        "kv_cache": {
            "nic_Bps": nic_Bps,
            "load": load_words(config),
            "peaks": _peaks(found),
            "first_tokens": [_first_tokens(session, one) for one in found if one.played.study not in _SHORT],
            "removal": [_over_time(session, outcomes[one.played.phase]) for one in _of(found, Study.REMOVAL)],
            "training": [_kept(one) for one in _of(found, Study.TRAINING)],
        },
    }


def load_words(config: KvCacheStudyConfig) -> str:
    """Return which requests a run played, in words."""
    requests, serving = config.cache.requests, config.cache.serving
    source = requests.trace or "generated"
    parts = [f"{source} from request {requests.first} on", f"{serving.model} in {serving.value.value}"]
    parts += [f"{requests.instances} copies"] if requests.instances > 1 else []
    parts += [f"those that find {requests.hot:.0%} or more"] if requests.hot else []
    parts += [f"bytes 1 : {serving.scale:,}"] if serving.scale > 1 else []
    return ", ".join(parts)


def _of(found: Sequence[Outcome], study: Study) -> list[Outcome]:
    return [one for one in found if one.played.study is study]


def _seen(session: Session, config: KvCacheStudyConfig, played: Played, outcome: PhaseOutcome) -> Outcome:
    phase = outcome.phase
    warm_up_s = config.warm_up if played.study in _SHORT else 0.0
    rows = _rows(session, "operations", phase.name, _CACHE)
    values: dict[str, float] = {}
    for kind in _KINDS:
        values |= operation_metrics(rows, kind, counted_s(phase, warm_up_s))
    values |= of_clients(rows, [counted_s(phase, warm_up_s)])
    requests = _rows(session, "kv_requests", phase.name, _CACHE)
    values |= of_requests(requests, [phase.load_s]) if len(requests) else {}
    if "read.bandwidth_Bps" in values:
        nics = max(1, rows["host"].nunique()) * session.live.fabric.nic_rate_bps / 8
        values["read.share_of_nics"] = values["read.bandwidth_Bps"] / nics
    sent = _sent_to_client(session, counted_s(phase, warm_up_s))
    if len(sent) > 1:
        rate_Bps = float(sent.iloc[-1] - sent.iloc[0]) / float(sent.index[-1] - sent.index[0])  # noqa: N806 - a unit
        values["link_busy_fraction"] = 8 * rate_Bps / session.live.fabric.nic_rate_bps
        if played.study in _BY_LINK:
            values["read.by_link_Bps"] = rate_Bps * payload_fraction(session.live.fabric.mtu_bytes)
            values["read.share_of_nics"] = 8 * values["read.by_link_Bps"] / session.live.fabric.nic_rate_bps
    values |= {name: float(played.counts[name]) for name in ("kv_files_removed",) if name in played.counts}
    values["dropped_packets"] = float(outcome.conservation.dropped_by_queues)
    steps = _rows(session, "steps", phase.name, _TRAINING)
    steps = steps[steps["started_s"] >= counted_s(phase, warm_up_s)[0]]
    training = {} if steps.empty else {**collective_medians(steps), "steps": float(len(steps))}
    return Outcome(played, phase.title, values, training)


def _rows(session: Session, table: str, phase: str, job: str) -> pd.DataFrame:
    rows = session.table(table)
    return rows[(rows["phase"] == phase) & (rows["job"] == job)]


# Tables ---------------------------------------------------------------------------------------------------------------


def _time(values: Mapping[str, float], name: str) -> str:
    return format_time(values[name]) if name in values else "-"


def _rate(values: Mapping[str, float], kind: str) -> str:
    return f"{values.get(f'{kind}.bandwidth_Bps', 0.0) / GIB:.3g}"


def _by_link(one: Outcome) -> float:
    """Return what a client read in bytes per second, by its link; 0 if there are no samples of that."""
    return one.values.get("read.by_link_Bps", 0.0)


def _client_rates(values: Mapping[str, float]) -> str:
    """Return what the clients read, from the one that read the least to the one that read the most."""
    if "read.least_client_Bps" not in values:
        return "-"
    return " to ".join(f"{values[f'read.{which}_client_Bps'] / GIB:.3g}" for which in ("least", "most"))


def _requests_table(found: Sequence[Outcome], nic_Bps: float) -> SummaryTable | None:  # noqa: N803
    rows = []
    for one in found:
        values, requests = one.values, one.played.cache.requests
        if one.played.study in _SHORT or "requests" not in values:
            continue
        rows.append(
            [
                one.title,
                f"{requests.compression:g}",
                f"{values['answered']:.0f} of {one.played.requests}",
                f"{values['hit_blocks']:.0f} of {values['hit_blocks_in_theory']:.0f}",
                f"{values['hit_tokens']:,.0f}",
                *(f"{values.get(f'{kind}.bandwidth_Bps', 0.0) / nic_Bps:.2%}" for kind in ("read", "write")),
                *(told_time(values, f"first_token.{name}") for name in ("p50", "p99")),
                *(_time(values, f"first_token_without.{name}_s") for name in ("p50", "p99")),
                told_time(values, "exposed_read"),
            ]
        )
    if not rows:
        return None
    return SummaryTable(
        title="Requests",
        columns=[
            *("phase", "time compressed", "answered", "blocks found, of LRU's", "tokens found", "read, of the NIC"),
            *("written", "first token, median", "p99", "without a cache, median", "p99", "waiting for reads"),
        ],
        rows=rows,
        note="LRU's: what a cache would find whose writes take no time; first token: from when the request came; "
        "without a cache: computing alone, of the same requests; waiting for reads: the mean time that computing does "
        "not hide; >: at least, since what holds this rank had none when the load ended",
    )


def _peak_table(found: Sequence[Outcome], nic_Bps: float) -> SummaryTable | None:  # noqa: N803
    rows = [
        [
            str(one.played.servers),
            str(one.played.cache.storage.client.max_requests),
            f"{_by_link(one) / GIB:.3g}",
            f"{_by_link(one) / nic_Bps:.1%}",
            f"{one.values['link_busy_fraction']:.1%}" if "link_busy_fraction" in one.values else "-",
            *(told_time(one.values, f"read.{name}") for name in ("p50", "p99")),
            f"{one.values['dropped_packets']:,.0f}",
        ]
        for one in _of(found, Study.PEAK)
    ]
    if not rows:
        return None
    return SummaryTable(
        title="One client that reads",
        columns=[
            "storage nodes",
            "requests open",
            "GiB/s",
            "of its NIC",
            "its link busy",
            "median read",
            "p99",
            "dropped",
        ],
        rows=rows,
        note=f"3FS's README: a peak of 40 GiB/s of 400 Gbit/s, {README_BPS / (400e9 / 8):.0%}; a read: one request to "
        "one storage node; GiB/s: what came by the client's link, less headers; busy: with them",
    )


def _removal_table(found: Sequence[Outcome]) -> SummaryTable | None:
    rows = [
        [
            one.title,
            f"{_by_link(one) / GIB:.3g}",
            f"{one.values.get('kv_files_removed', 0):,.0f}",
            f"{one.values.get('remove.operations', 0):,.0f}",
            f"{one.values.get('remove.per_second', 0):,.0f}",
            *(told_time(one.values, f"remove.{name}") for name in ("p50", "p99")),
        ]
        for one in _of(found, Study.REMOVAL)
    ]
    if not rows:
        return None
    return SummaryTable(
        title="Reads beside removals",
        columns=["phase", "GiB/s read", "files removed", "removals", "per s", "median", "p99"],
        rows=rows,
        note="files removed: out of the index; removals: chunks, each on all its replicas",
    )


def _training_table(found: Sequence[Outcome]) -> SummaryTable | None:
    rows = [
        [
            one.title,
            _rate(one.values, "read") if one.values.get("read.bandwidth_Bps") else "-",
            _client_rates(one.values),
            told_time(one.values, "read.p99"),
            f"{one.training['algbw_Bps'] / 1e9:.3g}" if one.training else "-",
            _time(one.training, "step_s"),
            f"{one.values['dropped_packets']:,.0f}",
        ]
        for one in _of(found, Study.TRAINING)
    ]
    if not rows:
        return None
    return SummaryTable(
        title="Reads of all clients beside an allreduce on the same nodes",
        columns=["phase", "GiB/s read", "by a client", "p99 of reads", "algbw, GB/s", "step", "dropped"],
        rows=rows,
    )


# The answer -----------------------------------------------------------------------------------------------------------


def _sentences(fabric: Fabric, found: Sequence[Outcome]) -> Iterator[str]:
    for one in (one for one in _of(found, Study.TRACE) if "hit_blocks" in one.values):
        values = one.values
        yield (
            f"Time compressed {one.played.cache.requests.compression:g}: {values['hit_blocks']:.0f} blocks found of "
            f"{values['hit_blocks_in_theory']:.0f} that LRU finds if writes take no time."
        )
    for one in _of(found, Study.PREFILL):
        values = one.values
        if "first_token_without.p50_s" in values:
            yield (
                f"By {one.played.cache.io.order.value}: first token after {told_time(values, 'first_token.p50')} "
                f"instead of {format_time(values['first_token_without.p50_s'])} (medians)."
            )
    if peaks := _of(found, Study.PEAK):
        best = max(peaks, key=_by_link)
        rate = _by_link(best)
        yield (
            f"One client reads {true_rate(fabric, rate) / GIB:.3g} GiB/s at most{scale_words(fabric)}, "
            f"{8 * rate / fabric.nic_rate_bps:.0%} of its NIC, from {best.played.servers} storage nodes; 3FS's README "
            "has 40 GiB/s of 400 Gbit/s, 86 %."
        )
    for one in _of(found, Study.REMOVAL):
        values = one.values
        yield f"Beside {values.get('remove.operations', 0):,.0f} removals it reads {_by_link(one) / GIB:.3g} GiB/s."
    yield from _kept_sentences(_of(found, Study.TRAINING))


def _kept_sentences(found: Sequence[Outcome]) -> Iterator[str]:
    parts = {one.played.phase: _kept(one) for one in found}
    reads, steps = parts.get("training_reads_alone"), parts.get("training_allreduce_alone")
    if not reads or not steps or not reads["read_Bps"] or not steps["algbw_Bps"]:
        return
    for one in found:
        both = parts[one.played.phase]
        if "together" in one.played.phase:
            kept = both["read_Bps"] / reads["read_Bps"], both["algbw_Bps"] / steps["algbw_Bps"]
            yield f"{one.title.capitalize()}: reads keep {kept[0]:.0%}, the allreduce {kept[1]:.0%}."


# Figures --------------------------------------------------------------------------------------------------------------


def _peaks(found: Sequence[Outcome]) -> list[dict[str, Any]]:
    return [
        {
            "servers": one.played.servers,
            "depth": one.played.cache.storage.client.max_requests,
            "read_Bps": _by_link(one),
        }
        for one in _of(found, Study.PEAK)
    ]


def _first_tokens(session: Session, one: Outcome) -> dict[str, Any]:
    """Return of each request that was answered its time to the first token, with the cache and without."""
    rows = _rows(session, "kv_requests", one.played.phase, _CACHE)
    rows = rows[rows["ready_s"].notna()]
    return {
        "title": one.title,
        "with_s": [float(value) for value in rows["ready_s"] - rows["due_s"]],
        "without_s": [float(value) for value in rows["compute_all_s"]],
        "found": [float(value) for value in rows["hit_blocks"] / rows["blocks"]],
    }


def _over_time(session: Session, outcome: PhaseOutcome) -> dict[str, Any]:
    """Return what came in by the client's link, headers included, from sample to sample of a phase, and how many chunks
    were removed meanwhile. A read's bytes are in no known moment of its time, so its link is looked at."""
    phase = outcome.phase
    from_s, _ = phase.load_s
    sent = _sent_to_client(session, phase.load_s)
    at_s = sent.index.to_numpy(np.float64)
    rows = _rows(session, "operations", phase.name, _CACHE)
    removed, _ = np.histogram(rows[rows["operation"] == "remove"]["ended_s"].to_numpy(np.float64), at_s)
    return {
        "at_s": [float(at - from_s) for at in at_s],
        "in_Bps": [float(rate) for rate in np.diff(sent.to_numpy()) / np.diff(at_s)],
        "removals_per_s": [float(rate) for rate in removed / np.diff(at_s)],
    }


def _sent_to_client(session: Session, in_time: tuple[float, float]) -> pd.Series[float]:
    """Return how many bytes the port to the first client had sent, at each sample of a stretch of time."""
    fabric = session.live.fabric
    port = str(fabric.peer(fabric.nics_of[fabric.computes[0]][0].port))
    ports = session.table("ports")
    rows = ports[ports["at_s"].between(*in_time) & (ports["port"] == port)]
    return rows.groupby("at_s")["sent_bytes"].sum()


def _kept(one: Outcome) -> dict[str, Any]:
    return {
        "title": one.title,
        "phase": one.played.phase,
        "read_Bps": one.values.get("read.bandwidth_Bps", 0.0),
        "algbw_Bps": one.training.get("algbw_Bps", 0.0),
    }
