"""What does a KV cache on storage read, write, remove and save, and what can one client have of it?

Requests of a trace find prefixes in the cache and read them as real packets, layer by layer, beside which the rest is
computed; they write what was missing, and what is old is removed. 3FS's README has 40 GiB/s as the peak of a client
with a NIC of 400 Gbit/s, and removals beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from experiments.kv_cache.cases import (
    AllreduceAlone,
    CacheCase,
    Peak,
    Prefill,
    ReadsAlone,
    Removal,
    Together,
    Trace,
    Training,
    cases_of,
)
from experiments.kv_cache.config import KvCacheStudyConfig
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from fabric.records.cells import Cell, count_of, joined, measured
from fabric.records.figure_forms import Bars, Level, Lines, Looks, Number
from fabric.records.palette import GREY
from runs.case_tables import CaseTable, Column, say
from runs.counted_operations import operation_metrics
from runs.job_metrics import sent_over_time
from runs.jobs import started
from runs.session import PhaseOutcome, Session
from runs.study import Found, Outcome, Played, Study, play_case
from runs.true_scale import scale_words, true_rate
from traffic.collectives.nccl import NcclJob
from traffic.collectives.step_numbers import collective_medians
from traffic.job import Job
from traffic.metrics import payload_fraction
from traffic.storage.kv_cache.job import FiniteKvCacheJob, KvCacheJob
from traffic.storage.kv_cache.kinds import of_clients, of_requests

CACHE, TRAINING = "kv_cache", "allreduce"
"""The names of the jobs."""
README_BPS = 40 * 2**30
"""What 3FS's README has as the peak of a client with a NIC of 400 Gbit/s, in bytes per second."""
GIB = 2**30
BY_LINK, READ, ALGBW = "kv_cache.read.by_link_Bps", "kv_cache.read.bandwidth_Bps", "allreduce.algbw_Bps"
_KINDS = ("read", "write", "remove")
_LONG = (Trace, Prefill)
"""Phases that last until all requests are answered; the others are shorter than requests: they are about rates."""
_BY_LINK = (Peak, Removal)
"""Phases in which hardly anything but one client's reads comes by its link. What that carries is exact; the bytes of a
read are in no known moment of its time, which is a tenth of such a phase."""
AnyPlayed = Played[CacheCase, KvCacheStudyConfig]
AnyFound = Found[CacheCase, KvCacheStudyConfig]
AnyOutcome = Outcome[CacheCase]


def run_kv_cache(session: Session, config: KvCacheStudyConfig) -> dict[str, Any]:
    """Play all studies and return the summary."""
    cases = tuple(cases_of(config))
    session.use_queueing(config.queueings[0])
    counted: dict[str, Mapping[str, float]] = {}
    for case in cases:
        if isinstance(case, ReadsAlone):
            counted |= _play_training(session, config, [one for one in cases if isinstance(one, Training)])
            session.use_queueing(config.queueings[0])
        elif not isinstance(case, Training):
            job = _job(session, config, case)
            play_case(session, case, [job], _length_s(config, job))
            counted[case.name] = {"window": len(job.window.arrivals), **job.counts}
    return STUDY.summarize(session, config, cases, counted)


def _job(session: Session, config: KvCacheStudyConfig, case: CacheCase) -> KvCacheJob:
    fabric, cache = session.live.fabric, case.cache(config)
    if isinstance(case, _LONG):
        return FiniteKvCacheJob(session.stage, cache, fabric.computes[:1], config.patience, name=CACHE)
    servers = fabric.storages[: case.servers] if isinstance(case, Peak) else ()
    clients = fabric.computes if isinstance(case, Training) else fabric.computes[:1]
    return KvCacheJob(session.stage, cache, clients, name=CACHE, servers=servers)


def _length_s(config: KvCacheStudyConfig, job: KvCacheJob) -> float:
    is_long = isinstance(job, FiniteKvCacheJob)
    return job.window.arrivals[-1].after_s if is_long else config.phase_time


def _play_training(
    session: Session, config: KvCacheStudyConfig, cases: Sequence[CacheCase]
) -> dict[str, Mapping[str, float]]:
    """Play all phases with the same clients and ranks; return what the cache counted until the end of each."""
    reads = _job(session, config, cases[0])
    allreduce = NcclJob(session.stage, config.training, session.live.fabric.computes, name=TRAINING)
    counted: dict[str, Mapping[str, float]] = {}
    with started(session, [allreduce, reads]):
        for case in cases:
            jobs: list[Job] = [allreduce, reads]
            if isinstance(case, Together):
                session.use_queueing(case.queueing)
            else:
                jobs = [reads] if isinstance(case, ReadsAlone) else [allreduce]
            session.run_phase(case.name, case.title, jobs, config.phase_time)
            counted[case.name] = {"window": len(reads.window.arrivals), **reads.counts}
    return counted


def _in_time(played: AnyPlayed) -> tuple[float, float]:
    return played.phase.load_s if isinstance(played.case, _LONG) else played.counted_s


def _measure(played: AnyPlayed) -> list[Metric]:
    rows, fabric, in_time = played.rows("operations", CACHE), played.fabric, _in_time(played)
    values: dict[str, float] = {}
    for kind in _KINDS:
        values |= operation_metrics(rows, kind, in_time)
    values |= of_clients(rows, [in_time])
    requests = played.rows("kv_requests", CACHE)
    values |= of_requests(requests, [played.phase.load_s]) if len(requests) else {}
    if "read.bandwidth_Bps" in values:
        nics = max(1, rows["host"].nunique()) * fabric.nic_rate_bps / 8
        values["read.share_of_nics"] = values["read.bandwidth_Bps"] / nics
    sent = _sent_to_client(played.session, in_time)
    if len(sent) > 1:
        rate_Bps = float(sent.iloc[-1] - sent.iloc[0]) / float(sent.index[-1] - sent.index[0])  # noqa: N806 - a unit
        values["link_busy_fraction"] = 8 * rate_Bps / fabric.nic_rate_bps
        if isinstance(played.case, _BY_LINK):
            values["read.by_link_Bps"] = rate_Bps * payload_fraction(fabric.mtu_bytes)
            values["read.share_of_nics"] = 8 * values["read.by_link_Bps"] / fabric.nic_rate_bps
    if "kv_files_removed" in played.counted:
        values["kv_files_removed"] = float(played.counted["kv_files_removed"])
    values["dropped_packets"] = float(played.outcome.conservation.dropped_by_queues)
    steps = played.rows("steps", TRAINING)
    steps = steps[steps["started_s"] >= in_time[0]]
    training = {} if steps.empty else {**collective_medians(steps), "steps": float(len(steps))}
    return [*metrics_of(played.case.name, CACHE, values), *metrics_of(played.case.name, TRAINING, training)]


def load_words(config: KvCacheStudyConfig) -> str:
    """Return which requests a run played, in words."""
    requests, serving = config.cache.requests, config.cache.serving
    source = requests.trace or "generated"
    parts = [f"{source} from request {requests.first} on", f"{serving.model} in {serving.value.value}"]
    parts += [f"{requests.instances} copies"] if requests.instances > 1 else []
    parts += [f"those that find {requests.hot:.0%} or more"] if requests.hot else []
    parts += [f"bytes 1 : {serving.scale:,}"] if serving.scale > 1 else []
    return ", ".join(parts)


def _of(found: AnyFound, *kinds: type[CacheCase]) -> list[AnyOutcome]:
    return [one for one in found.outcomes if isinstance(one.case, kinds)]


# Tables ---------------------------------------------------------------------------------------------------------------


def _client_rates(one: AnyOutcome) -> Cell:
    """Return what the clients read, from the one that read the least to the one that read the most."""
    ends = ("kv_cache.read.least_client_Bps", "kv_cache.read.most_client_Bps")
    return (
        joined((measured(one.values, name, ".3g in GiB/s") for name in ends), " to ") if ends[0] in one.values else None
    )


def _request_columns(found: AnyFound) -> list[Column]:
    nic_Bps = found.fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
    return [
        Column("phase", "title"),
        Column("time compressed", lambda one: one.case.cache(found.config).requests.compression, ""),
        Column("answered", lambda one: joined(map(count_of, (one["kv_cache.answered"], one["window"])), " of ")),
        Column("blocks found, of LRU's", _hits),
        Column("tokens found", "kv_cache.hit_tokens"),
        Column("read, of the NIC", lambda one: one.values.get(READ, 0.0) / nic_Bps, ".2%"),
        Column("written", lambda one: one.values.get("kv_cache.write.bandwidth_Bps", 0.0) / nic_Bps, ".2%"),
        Column("first token, median", "kv_cache.first_token.p50_s"),
        Column("p99", "kv_cache.first_token.p99_s"),
        Column("without a cache, median", "kv_cache.first_token_without.p50_s"),
        Column("p99", "kv_cache.first_token_without.p99_s"),
        Column("waiting for reads", "kv_cache.exposed_read_s"),
    ]


def _hits(one: AnyOutcome) -> Cell:
    return joined((count_of(one["kv_cache.hit_blocks"]), count_of(one["kv_cache.hit_blocks_in_theory"])), " of ")


TABLES = (
    CaseTable(
        "Requests",
        _request_columns,
        "LRU's: what a cache would find whose writes take no time; first token: from when the request came; without a "
        "cache: computing alone, of the same requests; waiting for reads: the mean time that computing does not hide; "
        ">: at least, since what holds this rank had none when the load ended",
        rows=lambda found: [one for one in _of(found, *_LONG) if "kv_cache.requests" in one.values],
    ),
    CaseTable(
        "One client that reads",
        (
            Column("storage nodes", "servers"),
            Column("requests open", "depth"),
            Column("GiB/s", BY_LINK, ".3g in GiB/s"),
            Column("of its NIC", lambda one: one[BY_LINK] / one["nic_Bps"], ".1%"),
            Column("its link busy", "kv_cache.link_busy_fraction"),
            Column("median read", "kv_cache.read.p50_s"),
            Column("p99", "kv_cache.read.p99_s"),
            Column("dropped", "kv_cache.dropped_packets"),
        ),
        f"3FS's README: a peak of 40 GiB/s of 400 Gbit/s, {README_BPS / (400e9 / 8):.0%}; a read: one request to one "
        "storage node; GiB/s: what came by the client's link, less headers; busy: with them",
        rows=lambda found: _of(found, Peak),
    ),
    CaseTable(
        "Reads beside removals",
        (
            Column("phase", "title"),
            Column("GiB/s read", BY_LINK, ".3g in GiB/s"),
            Column("files removed", "kv_cache.kv_files_removed"),
            Column("removals", lambda one: one.values.get("kv_cache.remove.operations", 0)),
            Column("per s", lambda one: one.values.get("kv_cache.remove.per_second", 0)),
            Column("median", "kv_cache.remove.p50_s"),
            Column("p99", "kv_cache.remove.p99_s"),
        ),
        "files removed: out of the index; removals: chunks, each on all its replicas",
        rows=lambda found: _of(found, Removal),
    ),
    CaseTable(
        "Reads of all clients beside an allreduce on the same nodes",
        (
            Column("phase", "title"),
            Column("GiB/s read", lambda one: one.values.get(READ) or None, ".3g in GiB/s"),
            Column("by a client", _client_rates),
            Column("p99 of reads", "kv_cache.read.p99_s"),
            Column("algbw, GB/s", ALGBW, ".3g in GB/s"),
            Column("step", "allreduce.step_s"),
            Column("dropped", "kv_cache.dropped_packets"),
        ),
        rows=lambda found: _of(found, Training),
    ),
)


# The answer -----------------------------------------------------------------------------------------------------------


def _sentences(found: AnyFound) -> Iterator[str]:
    for one in (one for one in _of(found, Trace) if "kv_cache.hit_blocks" in one.values):
        compression = one.case.cache(found.config).requests.compression
        yield f"Time compressed {compression:g}: " + say(
            one,
            "{kv_cache.hit_blocks|.0f} blocks found of {kv_cache.hit_blocks_in_theory|.0f} that LRU finds if writes "
            "take no time.",
        )
    for one in (one for one in _of(found, Prefill) if "kv_cache.first_token_without.p50_s" in one.values):
        yield say(
            one,
            "By {order}: first token after {kv_cache.first_token.p50_s} instead of "
            "{kv_cache.first_token_without.p50_s} (medians).",
        )
    if peaks := _of(found, Peak):
        fabric, best = found.fabric, max(peaks, key=lambda one: one.values.get(BY_LINK, 0.0))
        rate = best.values.get(BY_LINK, 0.0)
        yield (
            f"One client reads {true_rate(fabric, rate) / GIB:.3g} GiB/s at most{scale_words(fabric)}, "
            f"{8 * rate / fabric.nic_rate_bps:.0%} of its NIC, from {best.case.format('{servers}')} storage nodes; "
            "3FS's README has 40 GiB/s of 400 Gbit/s, 86 %."
        )
    for one in _of(found, Removal):
        removals, rate = one.values.get("kv_cache.remove.operations", 0), one.values.get(BY_LINK, 0.0)
        yield f"Beside {removals:,.0f} removals it reads {rate / GIB:.3g} GiB/s."
    for one, reads, allreduce in _kept(found):
        yield f"{one.case.title.capitalize()}: reads keep {reads:.0%}, the allreduce {allreduce:.0%}."


def _kept(found: AnyFound) -> Iterator[tuple[AnyOutcome, float, float]]:
    """Yield what reads and the allreduce keep together of what each has alone."""
    alone = ((ReadsAlone, READ), (AllreduceAlone, ALGBW))
    rates = [one.values.get(name, 0.0) for kind, name in alone for one in _of(found, kind)]
    if rates and all(rates):
        reads, allreduce = rates
        for one in _of(found, Together):
            yield one, one.values.get(READ, 0.0) / reads, one.values.get(ALGBW, 0.0) / allreduce


def _aside(found: AnyFound, outcome: AnyOutcome) -> dict[str, float]:
    kept = {
        name: value
        for one, reads, allreduce in _kept(found)
        if one is outcome
        for name, value in (("reads_kept_fraction", reads), ("allreduce_kept_fraction", allreduce))
    }
    return {"nic_Bps": found.fabric.nic_rate_bps / 8, **kept}


# Figures --------------------------------------------------------------------------------------------------------------


def _more(found: AnyFound) -> dict[str, Any]:
    """Return what figures draw that are of rows: each request's time to the first token, and removals over time."""
    outcomes = {outcome.phase.name: outcome for outcome in found.session.phases}
    return {
        "kv_cache": {
            "load": load_words(found.config),
            "first_tokens": [_first_tokens(found.session, one) for one in _of(found, *_LONG)],
            "removal": [_over_time(found.session, outcomes[one.case.name]) for one in _of(found, Removal)],
        }
    }


def _rows(session: Session, table: str, phase: str) -> pd.DataFrame:
    rows = session.table(table)
    return rows[(rows["phase"] == phase) & (rows["job"] == CACHE)]


def _first_tokens(session: Session, one: AnyOutcome) -> dict[str, Any]:
    """Return of each request that was answered its time to the first token, with the cache and without."""
    rows = _rows(session, "kv_requests", one.case.name)
    rows = rows[rows["ready_s"].notna()]
    return {
        "title": one.case.title,
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
    rows = _rows(session, "operations", phase.name)
    removed, _ = np.histogram(rows[rows["operation"] == "remove"]["ended_s"].to_numpy(np.float64), at_s)
    return {
        "at_s": [float(at - from_s) for at in at_s],
        "in_Bps": [float(rate) for rate in np.diff(sent.to_numpy()) / np.diff(at_s)],
        "removals_per_s": [float(rate) for rate in removed / np.diff(at_s)],
    }


def _sent_to_client(session: Session, in_time: tuple[float, float]) -> pd.Series[float]:
    """Return how many bytes the port to the first client had sent, at each sample of a stretch of time."""
    fabric = session.live.fabric
    return sent_over_time(session.table("ports"), fabric.peer(fabric.nics_of[fabric.computes[0]][0].port), in_time)


STUDY = Study[CacheCase, KvCacheStudyConfig](
    title="A KV cache on storage",
    cases=lambda config: tuple(cases_of(config)),
    measure=_measure,
    measures=(
        Measure("read.share_of_nics", "bytes of reads per second over what the clients' NICs carry", Better.MORE),
        Measure(
            "read.by_link_Bps", "payload that reached the client per second, by the counters of its link", Better.MORE
        ),
        Measure("link_busy_fraction", "share of its rate that the client's link carried"),
        Measure("kv_files_removed", "files of the cache that were removed"),
        Measure("dropped_packets", "packets that queues dropped in the phase", Better.LESS),
    ),
    aside=_aside,
    answer=lambda found: " ".join(_sentences(found)),
    tables=TABLES,
    more=_more,
    figures=(
        Lines(
            "peak",
            "What one client of the cache reads from a number of storage nodes, with so many requests to them open at "
            "once (depth), beside its NIC and the peak in 3FS's README.",
            "One client of a KV cache: what it reads",
            numbers=(Number(BY_LINK, "reads (GiB/s)", 1 / GIB),),
            x="{servers}",
            line="depth {depth}",
            labels=("number of storage nodes", "reads (GiB/s)"),
            levels=(
                Level(Number("nic_Bps", "its NIC", 1 / GIB, colour=GREY), "--"),
                Level(Number(lambda of: README_BPS if of["nic_Bps"] > README_BPS else np.nan, "3FS's README", 1 / GIB)),
            ),
            looks=Looks(7.0, 3.8, legend=6, log2_x=True),
        ),
        Bars(
            "beside_training",
            "What the reads of all clients and an allreduce on the same nodes keep of what each has alone, by "
            "queueing.",
            "What reads and an allreduce on the same nodes keep",
            numbers=(
                Number("reads_kept_fraction", "reads of the cache"),
                Number("allreduce_kept_fraction", "allreduce"),
            ),
            x="{queueing}",
            labels=("", "bandwidth kept, of that alone"),
            looks=Looks(7.0, 3.4, legend=2, percent_y=True, most_y=1.15, bar_words="{:.0%}"),
        ),
    ),
)
