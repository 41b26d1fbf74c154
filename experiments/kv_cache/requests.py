"""What do requests of a trace find in a cache, and how soon is their first token there?"""

from __future__ import annotations

from typing import Any

from experiments.kv_cache.cases import CacheCase, Prefill, Trace
from experiments.kv_cache.config import KvCacheStudyConfig
from runs.case_tables import CaseTable, Column, say
from runs.study import Found, Outcome, Question

CACHE = "kv_cache"
"""The name of the job."""
SAID = {
    Trace: "Time compressed {times_compressed|g}: {kv_cache.hit_blocks|.0f} blocks found of "
    "{kv_cache.hit_blocks_in_theory|.0f} that LRU finds if writes take no time.",
    Prefill: "By {order}: first token after {kv_cache.first_token.p50_s} instead of "
    "{kv_cache.first_token_without.p50_s} (medians).",
}
AnyFound = Found[Any, KvCacheStudyConfig]


def _answer(found: AnyFound) -> str:
    return " ".join(say(one, SAID[type(one.case)]) for one in found.outcomes if "kv_cache.requests" in one.values)


def _aside(found: AnyFound, one: Outcome[CacheCase]) -> dict[str, float]:
    nic_Bps = found.fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
    return {
        "times_compressed": one.case.cache(found.config).requests.compression,
        "read_fraction": one.values.get("kv_cache.read.bandwidth_Bps", 0.0) / nic_Bps,
        "written_fraction": one.values.get("kv_cache.write.bandwidth_Bps", 0.0) / nic_Bps,
    }


def first_tokens(found: AnyFound) -> list[dict[str, Any]]:
    """Return of each request that was answered its time to the first token, with the cache and without, by phase."""
    return [_first_tokens(found, one) for one in found.outcomes if one.case.is_long]


def _first_tokens(found: AnyFound, one: Outcome[CacheCase]) -> dict[str, Any]:
    rows = found.session.table("kv_requests")
    rows = rows[(rows["phase"] == one.case.name) & (rows["job"] == CACHE) & rows["ready_s"].notna()]
    return {
        "title": one.case.title,
        "with_s": (rows["ready_s"] - rows["due_s"]).tolist(),
        "without_s": rows["compute_all_s"].tolist(),
        "found": (rows["hit_blocks"] / rows["blocks"]).tolist(),
    }


REQUESTS = Question[Any, KvCacheStudyConfig](
    kinds=(Trace, Prefill),
    aside=_aside,
    answer=_answer,
    tables=(
        CaseTable(
            "Requests",
            (
                "phase {title}, time compressed {times_compressed}",
                Column("answered", "{kv_cache.answered|.0f} of {window|.0f}"),
                Column("blocks found, of LRU's", "{kv_cache.hit_blocks|.0f} of {kv_cache.hit_blocks_in_theory|.0f}"),
                "tokens found {kv_cache.hit_tokens}, read, of the NIC {read_fraction|.2%}, "
                "written {written_fraction|.2%}, first token, median {kv_cache.first_token.p50_s}, "
                "p99 {kv_cache.first_token.p99_s}, without a cache, median {kv_cache.first_token_without.p50_s}, "
                "p99 {kv_cache.first_token_without.p99_s}, waiting for reads {kv_cache.exposed_read_s}",
            ),
            "LRU's: what a cache would find whose writes take no time; first token: from when the request came; "
            "without a cache: computing alone, of the same requests; waiting for reads: the mean time that computing "
            "does not hide; >: at least, since what holds this rank had none when the load ended",
            having="kv_cache.requests",
        ),
    ),
)
