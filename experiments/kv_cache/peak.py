"""What can one client have of a cache, and what does it have while old blocks are removed?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from experiments.kv_cache.cases import CacheCase, Peak, Removal
from experiments.kv_cache.config import KvCacheStudyConfig
from experiments.kv_cache.requests import CACHE, AnyFound
from fabric.records.figure_forms import Level, Lines, Looks, Number
from fabric.records.palette import GREY
from fabric.results import Phase
from runs.case_tables import CaseTable
from runs.job_metrics import sent_over_time
from runs.session import Session
from runs.study import Outcome, Question
from runs.true_scale import scale_words, true_rate

GIB = 2**30
README_BPS = 40 * GIB
"""What 3FS's README has as the peak of a client with a NIC of 400 Gbit/s, in bytes per second."""
BY_LINK = "kv_cache.read.by_link_Bps"


def sent_to_client(session: Session, in_time: tuple[float, float]) -> pd.Series[float]:
    """Return how many bytes the port to the first client had sent, at each sample of a stretch of time."""
    fabric = session.live.fabric
    return sent_over_time(session.table("ports"), fabric.peer(fabric.nics_of[fabric.computes[0]][0].port), in_time)


def _peak_answer(found: AnyFound) -> str:
    fabric, best = found.fabric, max(found.outcomes, key=lambda one: one.values.get(BY_LINK, 0.0))
    rate = best.values.get(BY_LINK, 0.0)
    return (
        f"One client reads {true_rate(fabric, rate) / GIB:.3g} GiB/s at most{scale_words(fabric)}, "
        f"{8 * rate / fabric.nic_rate_bps:.0%} of its NIC, from {best.case.format('{servers}')} storage nodes; "
        "3FS's README has 40 GiB/s of 400 Gbit/s, 86 %."
    )


def _removal_answer(found: AnyFound) -> str:
    (one,) = found.outcomes
    removals, rate = one.values.get("kv_cache.remove.operations", 0), one.values.get(BY_LINK, 0.0)
    return f"Beside {removals:,.0f} removals it reads {rate / GIB:.3g} GiB/s."


def removals(found: AnyFound) -> list[dict[str, list[float]]]:
    """Bytes that arrived over the client's link between samples of each phase of removals, headers included, and the
    chunks removed meanwhile."""
    phases = [one.phase for one in found.session.phases if one.phase.name == Removal().name]
    return [_over_time(found.session, phase) for phase in phases]


def _over_time(session: Session, phase: Phase) -> dict[str, list[float]]:
    sent, rows = sent_to_client(session, phase.load_s), session.table("operations")
    rows = rows[(rows["phase"] == phase.name) & (rows["job"] == CACHE) & (rows["operation"] == "remove")]
    at_s = sent.index.to_numpy(np.float64)
    removed, _ = np.histogram(rows["ended_s"].to_numpy(np.float64), at_s)
    return {
        "at_s": (at_s - phase.load_s[0]).tolist(),
        "in_Bps": (np.diff(sent.to_numpy()) / np.diff(at_s)).tolist(),
        "removals_per_s": (removed / np.diff(at_s)).tolist(),
    }


def _aside(found: AnyFound, one: Outcome[CacheCase]) -> dict[str, float]:
    nic_Bps = found.fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
    return {"nic_Bps": nic_Bps, "of_nic": one[BY_LINK] / nic_Bps}


PEAK = Question[Any, KvCacheStudyConfig](
    kinds=Peak,
    aside=_aside,
    answer=_peak_answer,
    tables=(
        CaseTable(
            "One client that reads",
            "storage nodes {servers}, requests open {depth}, GiB/s {kv_cache.read.by_link_Bps|.3g in GiB/s}, "
            "of its NIC {of_nic|.1%}, its link busy {kv_cache.link_busy_fraction}, median read {kv_cache.read.p50_s}, "
            "p99 {kv_cache.read.p99_s}, dropped {kv_cache.dropped_packets}",
            f"3FS's README: a peak of 40 GiB/s of 400 Gbit/s, {README_BPS / (400e9 / 8):.0%}; a read: one request to "
            "one storage node; GiB/s: what came by the client's link, less headers; busy: with them",
        ),
    ),
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
    ),
)
REMOVAL = Question[Any, KvCacheStudyConfig](
    kinds=Removal,
    answer=_removal_answer,
    tables=(
        CaseTable(
            "Reads beside removals",
            "phase {title}, GiB/s read {kv_cache.read.by_link_Bps|.3g in GiB/s}, "
            "files removed {kv_cache.kv_files_removed}, removals {kv_cache.remove.operations}, "
            "per s {kv_cache.remove.per_second}, median {kv_cache.remove.p50_s}, p99 {kv_cache.remove.p99_s}",
            "files removed: out of the index; removals: chunks, each on all its replicas",
        ),
    ),
)
