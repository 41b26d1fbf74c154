"""What does a KV cache on storage read, write, remove and save, and what can one client have of it?

Requests of a trace find prefixes in the cache and read them as real packets, layer by layer, beside which the rest is
computed; they write what was missing, and what is old is removed. 3FS's README has 40 GiB/s as the peak of a client
with a NIC of 400 Gbit/s, and removals beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.kv_cache.cases import CacheCase, Peak, ReadsAlone, Training, cases_of
from experiments.kv_cache.config import KvCacheStudyConfig
from experiments.kv_cache.peak import PEAK, REMOVAL, removals, sent_to_client
from experiments.kv_cache.requests import CACHE, REQUESTS, first_tokens
from experiments.kv_cache.training import BESIDE_TRAINING, PLAY
from fabric.measures import Better, Measure
from fabric.metrics import Metric, metrics_of
from runs.counted_operations import operation_metrics
from runs.session import Session
from runs.study import Played, Study, play_case
from traffic.metrics import payload_fraction
from traffic.storage.kv_cache.job import FiniteKvCacheJob, KvCacheJob
from traffic.storage.kv_cache.kinds import of_clients, of_requests

AnyPlayed = Played[CacheCase, KvCacheStudyConfig]


def run_kv_cache(session: Session, config: KvCacheStudyConfig) -> dict[str, Any]:
    """Play all studies and return the summary; training with the same clients and ranks in all its phases."""
    cases = tuple(cases_of(config))
    counted: dict[str, Mapping[str, float]] = {}
    for case in cases:
        if isinstance(case, ReadsAlone):
            counted |= PLAY(session, config, [one for one in cases if isinstance(one, Training)])[0]
        elif not isinstance(case, Training):
            session.use_queueing(config.queueings[0])
            job = _job(session, config, case)
            play_case(session, case, [job], _length_s(config, job))
            counted[case.name] = {"window": len(job.window.arrivals), **job.counts}
    return STUDY.summarize(session, config, cases, counted)


def _job(session: Session, config: KvCacheStudyConfig, case: CacheCase) -> KvCacheJob:
    fabric, cache = session.live.fabric, case.cache(config)
    if case.is_long:
        return FiniteKvCacheJob(session.stage, cache, fabric.computes[:1], config.patience, name=CACHE)
    servers = fabric.storages[: case.servers] if isinstance(case, Peak) else ()
    return KvCacheJob(session.stage, cache, fabric.computes[:1], name=CACHE, servers=servers)


def _length_s(config: KvCacheStudyConfig, job: KvCacheJob) -> float:
    is_long = isinstance(job, FiniteKvCacheJob)
    return job.window.arrivals[-1].after_s if is_long else config.phase_time


def _in_time(played: AnyPlayed) -> tuple[float, float]:
    return played.phase.load_s if played.case.is_long else played.counted_s


def _measure(played: AnyPlayed) -> list[Metric]:
    """Return the numbers of the clients, and of the link of the first one."""
    rows, in_time, fabric = played.rows("operations", CACHE), _in_time(played), played.fabric
    values: dict[str, float] = {}
    for kind in ("read", "write", "remove"):
        values |= operation_metrics(rows, kind, in_time)
    values |= of_clients(rows, [in_time])
    requests = played.rows("kv_requests", CACHE)
    values |= of_requests(requests, [played.phase.load_s]) if len(requests) else {}
    if "read.bandwidth_Bps" in values:
        nics = max(1, rows["host"].nunique()) * fabric.nic_rate_bps / 8
        values["read.share_of_nics"] = values["read.bandwidth_Bps"] / nics
    sent = sent_to_client(played.session, in_time)
    if len(sent) > 1:
        rate_Bps = float(sent.iloc[-1] - sent.iloc[0]) / float(sent.index[-1] - sent.index[0])  # noqa: N806 - a unit
        values["link_busy_fraction"] = 8 * rate_Bps / fabric.nic_rate_bps
        if played.case.is_by_link:
            values["read.by_link_Bps"] = rate_Bps * payload_fraction(fabric.mtu_bytes)
            values["read.share_of_nics"] = 8 * values["read.by_link_Bps"] / fabric.nic_rate_bps
    if "kv_files_removed" in played.counted:
        values["kv_files_removed"] = float(played.counted["kv_files_removed"])
    values["dropped_packets"] = float(played.outcome.conservation.dropped_by_queues)
    return metrics_of(played.case.name, CACHE, values)


def load_words(config: KvCacheStudyConfig) -> str:
    """Return which requests a run played, in words."""
    requests, serving = config.cache.requests, config.cache.serving
    source = requests.trace or "generated"
    parts = [f"{source} from request {requests.first} on", f"{serving.model} in {serving.value.value}"]
    parts += [f"{requests.instances} copies"] if requests.instances > 1 else []
    parts += [f"those that find {requests.hot:.0%} or more"] if requests.hot else []
    parts += [f"bytes 1 : {serving.scale:,}"] if serving.scale > 1 else []
    return ", ".join(parts)


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
    more=lambda of: {
        "kv_cache": {"load": load_words(of.config), "first_tokens": first_tokens(of), "removal": removals(of)}
    },
    further=(REQUESTS, PEAK, REMOVAL, BESIDE_TRAINING),
)
