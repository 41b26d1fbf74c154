"""The KV cache as a kind of job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fabric.errors import ConfigError
from fabric.measures import Better, Measure
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from fabric.percentiles import nearest_ranks, percentiles
from fabric.tables import Column, Table, common
from traffic.job_kind import DataFlow, DataOfJob, JobKind, Measures
from traffic.measures import OPERATIONS, JobRows, Window, bandwidth, of_operations
from traffic.storage.job import PRELOAD
from traffic.storage.kv_cache.arrivals import window_of
from traffic.storage.kv_cache.config import KvCacheConfig
from traffic.storage.kv_cache.job import KvCacheJob

if TYPE_CHECKING:  # Programs in hosts are forked from a process that lists kinds of jobs, and pandas is large.
    import pandas as pd

KV_REQUESTS = Table(
    "One row per request to a KV cache.",
    {
        **common("phase", "job", "service_level", "host"),
        "instance": Column("int64", "count", "which copy of the trace, from 0"),
        "request": Column("int64", "count", "number of the request in the trace, from 0"),
        "due_s": Column("float64", "s", "when it came, however long it then waited for others"),
        "started_s": Column("float64", "s", "when it was looked up; none if it still waited when the load ended"),
        "ready_s": Column("float64", "s", "when its first token was ready; none if the load ended before"),
        "ended_s": Column("float64", "s", "when all blocks that it wrote were there; none if they never were"),
        "input_tokens": Column("int64", "count", "tokens of its input"),
        "blocks": Column("int64", "count", "blocks of its input"),
        "hit_blocks": Column("int64", "count", "blocks that it found, as a prefix"),
        "hit_blocks_in_theory": Column("int64", "count", "blocks that it would have found if writes took no time"),
        "hit_tokens": Column("int64", "count", "tokens of the blocks that it found"),
        "read_bytes": Column("int64", "bytes", "what it read"),
        "written_bytes": Column("int64", "bytes", "blocks that it wrote whole"),
        "compute_s": Column("float64", "s", "time to compute what it did not find; 0 if it was not looked up"),
        "compute_all_s": Column(
            "float64", "s", "time to compute all of it: the time to the first token without a cache"
        ),
    },
)


def _faults(config: KvCacheConfig, fabric: Fabric) -> Iterator[str]:
    if not fabric.storages:
        yield f"{fabric.name} has no storage nodes; give it some (topology.storage)"
    if config.requests.trace is not None:
        try:
            window_of(config.requests, config.blocks, 0)
        except ConfigError as error:
            yield from (f"requests: {error.source}: {fault}" for fault in error.faults)


def _data(_: KvCacheConfig, fabric: Fabric, clients: Sequence[NodeId]) -> list[DataFlow]:
    pairs = [(client, server) for client in clients for server in fabric.storages]
    return [(a, b, 1 / len(pairs)) for pair in pairs for a, b in (pair, pair[::-1])]


FIRST_TOKEN = Measure(
    "first_token.<percentile>_s",
    "percentile of the time from a request's arrival to its first token",
    Better.LESS,
    is_of_many=True,
)
FIRST_TOKEN_WITHOUT = Measure(
    "first_token_without.<percentile>_s", "the same, if all tokens of the request were computed and no request waited"
)
REQUESTS = (
    FIRST_TOKEN,
    Measure(
        "first_token.<percentile>_at_least_s",
        "the least that this percentile can be",
        Better.LESS,
        is_least=True,
        is_of_many=True,
    ),
    FIRST_TOKEN_WITHOUT,
    Measure("requests", "requests that came"),
    Measure("answered", "requests that had their first token", Better.MORE),
    Measure("hit_blocks", "blocks that requests found in the cache", Better.MORE),
    Measure("hit_blocks_in_theory", "blocks that a cache without end would have had"),
    Measure("hit_tokens", "tokens that requests found in the cache", Better.MORE),
    Measure("hit_fraction", "blocks found, of those that requests looked for", Better.MORE),
    Measure("exposed_read_s", "time that a request waits for reads beyond its computing, mean", Better.LESS),
    Measure(
        "exposed_read_at_least_s",
        "the least that this mean can be: some requests had no first token",
        Better.LESS,
        is_least=True,
    ),
    Measure("saved_s", "time to the first token that the cache saves, beside computing alone, mean", Better.MORE),
    Measure("saved_at_most_s", "the most that this mean can be: some requests had no first token", Better.MORE),
    Measure("remove.per_second", "removals of blocks per second"),
    Measure("read.least_client_Bps", "bytes per second of the client that reads least", Better.MORE),
    Measure("read.most_client_Bps", "bytes per second of the client that reads most", Better.MORE),
)
_of_operations = of_operations("read", "write", "remove")


def of_requests(requests: pd.DataFrame, windows: Sequence[Window] = ()) -> dict[str, float]:
    """Return the numbers of requests, by rows of ``kv_requests`` and from when to when their load played: how many came
    and were answered, what they found, and the time to the first token with the cache and, for computing alone,
    without.

    Those are of all requests that came, whatever they waited for. One that had no first token when the load ended
    counts as one that took longer than the time it had (:mod:`fabric.percentiles`), or than all others if no window
    says when that was. So percentiles may be ``first_token.p99_at_least_s``, and means are bounds then:
    ``exposed_read_at_least_s``, ``saved_at_most_s``.
    """
    begun = requests[requests["started_s"].notna()]
    found: dict[str, float] = {
        "requests": float(len(requests)),
        "answered": float(requests["ready_s"].notna().sum()),
        "hit_blocks": float(begun["hit_blocks"].sum()),
        "hit_blocks_in_theory": float(begun["hit_blocks_in_theory"].sum()),
        "hit_tokens": float(begun["hit_tokens"].sum()),
    }
    if len(begun):
        found["hit_fraction"] = found["hit_blocks"] / float(begun["blocks"].sum())
    return found | (_first_tokens(requests, windows) if len(requests) else {})


def _first_tokens(requests: pd.DataFrame, windows: Sequence[Window]) -> dict[str, float]:
    answered = requests["ready_s"].notna()
    ends_s = requests["due_s"].map(lambda due_s: _end_of(due_s, windows))
    last_s = float(requests[["due_s", "started_s", "ready_s"]].max().max())
    until_s = requests["ready_s"].fillna(ends_s).fillna(last_s)
    took_s = until_s - requests["due_s"]
    is_cut, is_late = ~answered & ends_s.notna(), ~answered & ends_s.isna()
    exposed_s = (until_s - requests["started_s"] - requests["compute_s"]).fillna(0)
    percents = {"p50": 50, "p99": 99}
    with_it = percentiles(took_s[answered], took_s[is_cut], took_s[is_late], list(percents.values()))
    without_s = nearest_ranks(requests["compute_all_s"], *percents.values())
    found: dict[str, float] = {}
    for name, one, all_s in zip(percents, with_it, without_s, strict=True):
        found |= one.named(FIRST_TOKEN.of(name)) | {FIRST_TOKEN_WITHOUT.of(name): all_s}
    exposed, saved = ("exposed_read_s", "saved_s") if answered.all() else ("exposed_read_at_least_s", "saved_at_most_s")
    found[exposed] = float(exposed_s.where(answered, exposed_s.clip(lower=0)).mean())
    found[saved] = float((requests["compute_all_s"] - took_s).mean())
    return found


def _end_of(due_s: float, windows: Sequence[Window]) -> float:
    """Return when the load ended to which a request came; NaN if no window says."""
    return next((until_s for began_s, until_s in windows if began_s <= due_s <= until_s), math.nan)


def of_clients(operations: pd.DataFrame, windows: Sequence[Window]) -> dict[str, float]:
    """Return the numbers of operations beside those that all kinds have: removals per second, and what the client read
    that read the least, and the one that read the most, by rows of ``operations``; missing where nothing is to be
    said."""
    seconds = sum(until_s - began_s for began_s, until_s in windows)
    removals = operations[operations["operation"] == "remove"]
    reads = operations[operations["operation"] == "read"]
    found: dict[str, float] = {}
    if len(removals) and seconds:
        inside = sum(int(removals["ended_s"].between(*one).sum()) for one in windows)
        found["remove.per_second"] = inside / seconds
    if len(reads) and seconds:
        rates = [bandwidth(rows, windows) for _, rows in reads.groupby("host", observed=True)]
        found |= {"read.least_client_Bps": min(rates), "read.most_client_Bps": max(rates)}
    return found


def of_kv_cache(rows: JobRows) -> Mapping[str, float]:
    """Return the numbers of a job: of its operations, clients and requests (:func:`of_requests`)."""
    of_operations = {**_of_operations(rows), **of_clients(rows.table("operations"), rows.windows)}
    return {**of_operations, **of_requests(rows.table("kv_requests"), rows.windows)}


KV_CACHE = JobKind(
    name="kv_cache",
    meaning="Clients of a KV cache on storage: requests look up, read, compute, write what was missing.",
    config=KvCacheConfig,
    level=ServiceLevel.STORAGE,
    least_nodes=1,
    make=KvCacheJob,
    measures=Measures(
        of_kv_cache, speeds=("read.bandwidth_Bps", "write.bandwidth_Bps"), declared=(*OPERATIONS, *REQUESTS)
    ),
    data=DataOfJob(_data, serving=lambda fabric: fabric.storages),
    faults=_faults,
    tables={"kv_requests": KV_REQUESTS},
    preload=(*PRELOAD, "traffic.storage.kv_cache.player"),
)
