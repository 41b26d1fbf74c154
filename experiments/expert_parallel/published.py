"""What are a step and the speed of its tokens beside what DeepSeek and DeepEP published?

Beside steps stands the schedule on paper with all times as measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.expert_parallel.config import GPUS, ExpertParallelConfig
from fabric.measures import Measure
from fabric.metrics import Metric, metric_path, metrics_of
from runs.case_tables import CaseTable
from runs.study import Found, Outcome, Played, Point, Question
from runs.true_scale import why_alone
from traffic.work.expert_measures import DTYPES, SENT, sent_Bps
from traffic.work.generators.deepep_kernels import PUBLISHED_BPS
from traffic.work.generators.expert_step import HIDDEN, PUBLISHED_S
from traffic.work.generators.routing import token_bytes

JOB = "step"


def _measure(played: Played[Any, ExpertParallelConfig]) -> list[Metric]:
    rows, is_whole = played.rows("work_operations", JOB), played.config.kernels == "deepep"
    rates = {SENT.of(what): sent_Bps(rows, what, is_whole) for what in DTYPES}
    return metrics_of(played.case.name, JOB, {name: rate for name, rate in rates.items() if rate == rate})


def _calls(found: Found[Any, ExpertParallelConfig], one: Outcome[Any]) -> Iterator[Point]:
    """Yield the calls that move tokens."""
    config, published = found.config, PUBLISHED_BPS.get(found.config.nodes * GPUS, {})
    for what, dtype in DTYPES.items():
        sent, rate = config.sent.nodes_per_token * config.tokens * config.shrink, one[metric_path(JOB, SENT.of(what))]
        numbers = {"rank_bytes": sent * token_bytes(HIDDEN, dtype), "call_Bps": rate}
        numbers |= {"nic_Bps": rate * ((config.nodes - 1) / config.nodes)}
        numbers |= {"published_Bps": published[what]} if published and not why_alone(found.fabric) else {}
        yield Point({"what": what}, numbers)


def _note(found: Found[Any, ExpertParallelConfig]) -> tuple[str, ...]:
    nodes, is_whole = found.config.nodes, found.config.kernels == "deepep"
    counted = "a whole call" if is_whole else "the time in which tokens go over the fabric"
    text = (
        f"bandwidth counts a rank's own node, as DeepEP's does; {nodes - 1}/{nodes} of it cross the NIC; it is that of "
    )
    return text + counted, why_alone(found.fabric) or ""


def _paper(found: Found[Any, ExpertParallelConfig]) -> list[Metric]:
    config = found.config
    numbers = {"step_s": config.paper_s, "published_step_s": PUBLISHED_S}
    return metrics_of("paper", "", {**numbers, "nodes_per_token_count": config.sent.nodes_per_token})


def _steps(found: Found[Any, ExpertParallelConfig]) -> list[dict[str, object]]:
    """Return the step on paper, and at the true rate the one that was measured."""
    paper = f"schedule on paper, {found.config.layers} layers, all times as measured"
    rows: list[dict[str, object]] = [{"what": paper, "step_s": found.config.paper_s}]
    return rows if why_alone(found.fabric) else [*rows, {"what": "DeepSeek's run, 4 layers", "step_s": PUBLISHED_S}]


PUBLISHED = Question[Any, ExpertParallelConfig](
    measure=_measure,
    measures=(
        SENT,
        Measure("published_step_s", "time of a step with all times as they were published"),
        Measure("nodes_per_token_count", "nodes that a token is sent to, mean"),
    ),
    over_cases=_paper,
    tables=(
        CaseTable(
            "Tokens over the fabric",
            lambda found: (
                "variant {variant}, what {what}, a rank sends {rank_bytes|.2f MB}, bandwidth {call_Bps}, "
                f"DeepEP EP{found.config.nodes * GPUS} {{published_Bps|.0f GB/s}}, over its NIC {{nic_Bps}}"
            ),
            _note,
            parts=_calls,
        ),
        CaseTable("Beside the measured step", "what {what}, step {step_s}", lambda of: why_alone(of.fabric), _steps),
    ),
)
