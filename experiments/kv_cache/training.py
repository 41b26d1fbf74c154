"""What do reads of all clients and an allreduce on the same nodes keep of what each has alone?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.kv_cache.cases import AllreduceAlone, CacheCase, ReadsAlone, Together, Training
from experiments.kv_cache.config import KvCacheStudyConfig
from experiments.kv_cache.requests import CACHE, AnyFound
from fabric.metrics import Metric, metrics_of
from fabric.records.cells import Cell, joined, measured
from fabric.records.figure_forms import Bars, Looks, Number
from runs.case_tables import CaseTable, Column, say
from runs.session import Session
from runs.study import Outcome, Played, Question, SameJobs
from traffic.collectives.nccl import NcclJob
from traffic.collectives.step_numbers import collective_numbers
from traffic.job import Job
from traffic.storage.kv_cache.job import KvCacheJob

TRAINING = "allreduce"
READ, ALGBW = "kv_cache.read.bandwidth_Bps", "allreduce.algbw_Bps"


def _made(session: Session, config: KvCacheStudyConfig) -> Sequence[Job]:
    nodes, cache = session.live.fabric.computes, config.cache_for(Training.study)
    allreduce = NcclJob(session.stage, config.training, nodes, name=TRAINING)
    return allreduce, KvCacheJob(session.stage, cache, nodes, name=CACHE)


def _play(session: Session, config: KvCacheStudyConfig, case: Training, jobs: Sequence[Any]) -> Mapping[str, float]:
    session.use_queueing(case.queueing if isinstance(case, Together) else config.queueings[0])
    allreduce, reads = jobs
    playing = [reads] if isinstance(case, ReadsAlone) else [allreduce] if isinstance(case, AllreduceAlone) else jobs
    session.run_phase(case.name, case.title, playing, config.phase_time)
    return {"window": len(reads.window.arrivals), **reads.counts}


PLAY = SameJobs(_made, _play)


def _measure(played: Played[CacheCase, KvCacheStudyConfig]) -> list[Metric]:
    steps = played.rows("steps", TRAINING)
    steps = steps[steps["started_s"] >= played.counted_s[0]]
    return metrics_of(played.case.name, TRAINING, collective_numbers(steps))


def _kept(found: AnyFound, one: Outcome[CacheCase]) -> dict[str, float]:
    """The shares of their own rates alone that reads and the allreduce keep together."""
    reads, allreduce = found.of(ReadsAlone().name).values.get(READ), found.of(AllreduceAlone().name).values.get(ALGBW)
    if not (reads and allreduce and isinstance(one.case, Together)):
        return {}
    kept = {"reads_kept_fraction": one.values.get(READ, 0.0) / reads}
    return {**kept, "allreduce_kept_fraction": one.values.get(ALGBW, 0.0) / allreduce}


def _client_rates(one: Outcome[CacheCase]) -> Cell:
    """The slowest and the fastest client's read rate."""
    ends = ("kv_cache.read.least_client_Bps", "kv_cache.read.most_client_Bps")
    rates = (measured(one.values, name, ".3g in GiB/s") for name in ends)
    return joined(rates, " to ") if ends[0] in one.values else None


def _answer(found: AnyFound) -> str:
    text = "{title}: reads keep {reads_kept_fraction|.0%}, the allreduce {allreduce_kept_fraction|.0%}."
    kept = [one for one in found.outcomes if "reads_kept_fraction" in one.values]
    return " ".join(say(one, text).capitalize() for one in kept)


BESIDE_TRAINING = Question[Any, KvCacheStudyConfig](
    kinds=Training,
    measure=_measure,
    aside=_kept,
    answer=_answer,
    tables=(
        CaseTable(
            "Reads of all clients beside an allreduce on the same nodes",
            (
                Column("phase", "title"),
                Column("GiB/s read", lambda one: one.values.get(READ) or None, ".3g in GiB/s"),
                Column("by a client", _client_rates),
                "p99 of reads {kv_cache.read.p99_s}, algbw, GB/s {allreduce.algbw_Bps|.3g in GB/s}, "
                "step {allreduce.step_s}, dropped {kv_cache.dropped_packets}",
            ),
        ),
    ),
    figures=(
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
