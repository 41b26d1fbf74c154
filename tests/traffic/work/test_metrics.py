"""What training is measured by, on rows that are made by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from traffic.work import metrics
from traffic.work.generators.steady import SteadyPart
from traffic.work.graph import WorkGraph
from traffic.work.operations import CollectiveCall, Compute, Receive, Send
from traffic.work.step_metrics import bubble, compute_s, exposed_s, slack_s, waited_for

# Two ranks: compute 0-4, an allreduce of the first half beside it, then a message, on which rank 1 computes again.
ALLREDUCE = CollectiveCall(collective="allreduce", size_bytes=8, group="all", stream="comm", after=(0,))
GRAPH = WorkGraph(
    "two",
    (
        (
            Compute(duration_s=2.0, stream="compute"),
            ALLREDUCE,
            Compute(duration_s=2.0, stream="compute", after=(0,)),
            Send(peer=1, size_bytes=8, after=(2,), name="pipeline send"),
        ),
        (
            Compute(duration_s=3.0, stream="compute"),
            ALLREDUCE,
            Receive(peer=0, size_bytes=8, after=(1,), name="pipeline receive"),
            Compute(duration_s=1.0, stream="compute", after=(2,)),
        ),
    ),
)
TIMES = {
    (0, 0): (0.0, 2.0),
    (0, 1): (2.0, 5.0),
    (0, 2): (2.0, 4.0),
    (0, 3): (4.0, 4.5),
    (1, 0): (0.0, 3.0),
    (1, 1): (3.0, 5.0),
    (1, 2): (5.0, 6.0),
    (1, 3): (6.0, 7.0),
}


def operations(later_s: float = 0.0, step: int = 0) -> pd.DataFrame:
    rows: list[dict[str, Any]] = [
        {"step": step, "rank": rank, "operation": place, "started_s": began + later_s, "ended_s": ended + later_s}
        for (rank, place), (began, ended) in TIMES.items()
    ]
    return pd.DataFrame(rows)


def test_a_step_lasts_from_its_first_rank_to_its_last_and_steps_in_a_row_share_their_time() -> None:
    steps = pd.DataFrame(
        {"play": [4, 4, 5], "step": [4, 4, 5], "started_s": [1.0, 1.5, 4.0], "ended_s": [3.0, 3.5, 4.5]}
    )
    assert metrics.step_times(steps).to_dict() == {4: 2.5, 5: 0.5}
    in_a_row = pd.DataFrame(
        {"play": [0] * 4, "step": [0, 0, 1, 1], "started_s": [1.0, 1.5, 3.0, 4.0], "ended_s": [3.0, 4.0, 5.0, 7.0]}
    )
    assert metrics.step_times(in_a_row).to_dict() == {0: 3.0}


def test_played_steps_are_timelines_by_which_the_same_is_said_of_them_as_of_those_on_paper() -> None:
    found = metrics.timelines(
        GRAPH, pd.concat([operations(), operations(100.0, step=1)]).sample(frac=1, random_state=1)
    )
    assert [one.end_s for one in found] == [7.0, 7.0]
    assert found[0] == found[1]
    (one, _) = found
    assert [compute_s(one, rank) for rank in (0, 1)] == [4.0, 4.0]
    assert [bubble(one, rank) for rank in (0, 1)] == [0.75, 0.75]
    assert exposed_s(one, 0) == {"allreduce": 1.0}, "of what has no name, what it is"
    assert exposed_s(one, 1) == {"pipeline": 3.0}, "the receive is what computing waits for"
    assert slack_s(one, 0) == {"": 2.0, "pipeline send": 2.5}, "nothing waits for them, and the step ends at 7"
    assert slack_s(one, 1) == {"": 0.0, "pipeline receive": 0.0}
    assert waited_for(one) == {(1, 0): 3.0}
    assert metrics.of_timelines(found) == {
        "bubble_fraction": 0.75, "exposed_s": 3.0, "exposed.pipeline_s": 3.0
    }  # fmt: skip
    assert metrics.of_timelines([]) == {}


def test_a_rank_that_does_nothing_has_no_rows() -> None:
    idle = WorkGraph("three", (*GRAPH.operations, ()))
    (one,) = metrics.timelines(idle, operations())
    assert (one.end_s, one.starts[2]) == (7.0, ())
    assert metrics.of_timelines([one])["bubble_fraction"] == 0.75


def test_a_whole_step_follows_from_the_micro_batches_that_were_played() -> None:
    """Of two stages, 5 of 100 micro-batches were played: forward passes of the last begin every 0.5 s from 1 s on."""
    rows = [
        {"rank": 1, "stream": stream, "name": name, "started_s": 10 + at, "ended_s": 10 + at + 0.2}
        for number in range(5)
        for stream, name, at in (
            ("compute", f"forward {number}.0", 1 + 0.5 * number),
            ("compute", f"forward {number}.0", 1.1 + 0.5 * number),
            ("receive forward", f"pipeline receive forward {number}.0", 0.9),
        )
    ]
    rows.append({"rank": 0, "stream": "compute", "name": "forward 0.0", "started_s": 10.0, "ended_s": 14.0})
    part = SteadyPart(micro_batches=100, played=5, stages=2)
    assert metrics.whole_step_s(pd.DataFrame(rows), part, [1]) == pytest.approx(4.0 + 95 * 0.5)


def test_training_as_a_whole() -> None:
    assert metrics.scale_factor(8, per_s=36.0, alone_per_s=5.0) == 0.9
    assert metrics.tokens_per_s(2048 * 64, 2.0) == 65_536
    assert metrics.model_flops_utilisation(6e15, 10.0, 4, 300e12) == 0.5
    assert metrics.end_to_end_s(1001, 100, 0.5) == 5.5, "whole steps"
    by_staleness = {"staleness": 3.0}
    assert metrics.time_to_accuracy_s(lambda setting: 1000 * (1 + setting["staleness"] / 10), by_staleness, 0.5) == 650
    with pytest.raises(ValueError, match="0 ranks"):
        metrics.scale_factor(0, 1, 1)
    with pytest.raises(ValueError, match="a step of 0 s has no throughput"):
        metrics.tokens_per_s(1, 0)
    with pytest.raises(ValueError, match="1 ranks of 0 FLOP/s compute nothing"):
        metrics.model_flops_utilisation(1, 1, 1, 0)
