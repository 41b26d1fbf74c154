"""What training is measured by, on rows that are made by hand."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest

from traffic.work import metrics
from traffic.work.graph import WorkGraph
from traffic.work.operations import CollectiveCall, Compute, Receive, Send

# Two ranks: compute 0-4, an allreduce of the first half beside it, then a message, on which rank 1 computes again.
ALLREDUCE = CollectiveCall(collective="allreduce", size_bytes=8, group="all", stream="comm")
GRAPH = WorkGraph(
    "two",
    (
        (
            Compute(duration_s=2.0, stream="compute"),
            ALLREDUCE,
            Compute(duration_s=2.0, stream="compute", after=(0,)),
            Send(peer=1, size_bytes=8, after=(2,)),
        ),
        (
            Compute(duration_s=3.0, stream="compute"),
            ALLREDUCE,
            Receive(peer=0, size_bytes=8, after=(1,)),
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
KINDS = (("compute", "allreduce", "compute", "send"), ("compute", "allreduce", "receive", "compute"))
PARTNERS = (("", "all", "", "rank 1"), ("", "all", "rank 0", ""))


def operations(later_s: float = 0.0, step: int = 0) -> pd.DataFrame:
    rows: list[dict[str, Any]] = [
        {
            "step": step,
            "rank": rank,
            "operation": place,
            "kind": KINDS[rank][place],
            "stream": "compute" if KINDS[rank][place] == "compute" else "comm",
            "partner": PARTNERS[rank][place],
            "started_s": began + later_s,
            "ended_s": ended + later_s,
        }
        for (rank, place), (began, ended) in TIMES.items()
    ]
    return pd.DataFrame(rows).astype({"kind": "category", "partner": "category"})


def test_a_step_lasts_from_its_first_rank_to_its_last() -> None:
    steps = pd.DataFrame({"step": [4, 4, 5], "started_s": [1.0, 1.5, 4.0], "ended_s": [3.0, 3.5, 4.5]})
    assert metrics.step_times(steps).to_dict() == {4: 2.5, 5: 0.5}


def test_communication_is_exposed_while_nothing_computes() -> None:
    rows = metrics.exposed(operations()).to_dict("records")
    found = {(row["rank"], row["kind"]): (row["busy_s"], row["exposed_s"]) for row in rows}
    assert found[0, "allreduce"] == (3.0, 1.0)
    assert found[0, "send"] == (0.5, 0.5)
    assert found[0, "all"] == (3.0, 1.0), "the send is within the allreduce"
    assert found[1, "allreduce"] == (2.0, 2.0)
    assert found[1, "all"] == (3.0, 3.0)


def test_computing_that_stands_for_a_communication_hides_none() -> None:
    rows = operations()
    rows.loc[rows["kind"] == "compute", "stream"] = "communication in node"
    found = metrics.exposed(rows).set_index(["rank", "kind"])
    assert (found["exposed_s"] == found["busy_s"]).all()
    assert (metrics.bubbles(rows)["computed_s"] == 0).all()


def test_a_bubble_is_what_a_rank_does_not_compute_of_a_step() -> None:
    found = metrics.bubbles(pd.concat([operations(), operations(100.0, step=1)]))
    assert found["computed_s"].tolist() == [4.0, 4.0, 4.0, 4.0]
    assert found["bubble_s"].tolist() == [3.0, 3.0, 3.0, 3.0]
    assert found["bubble_fraction"].tolist() == [0.75] * 4
    nothing = operations()
    assert math.isnan(metrics.bubbles(nothing[nothing["kind"] != "compute"])["bubble_fraction"].iloc[0])


def test_slack_is_until_what_follows_starts() -> None:
    found = metrics.slack(GRAPH, operations()).set_index(["rank", "operation"])["slack_s"].to_dict()
    assert found == {
        (0, 0): 0.0,
        (0, 1): 2.0,  # Nothing on its rank follows, and the step ends at 7.
        (0, 2): 0.0,
        (0, 3): 0.5,  # Rank 1 asks for the message at 5.
        (1, 0): 3.0,  # The next on its stream waits for the message.
        (1, 1): 0.0,
        (1, 2): 0.0,
        (1, 3): 0.0,
    }


def test_the_last_to_come_to_a_collective_is_named() -> None:
    (row,) = metrics.stragglers(operations()).to_dict("records")
    assert row == {"step": 0, "group": "all", "call": 0, "kind": "allreduce", "last_rank": 1, "waited_s": 1.0}
    assert metrics.waited_for(operations()).to_dict("records") == [
        {"step": 0, "rank": 1, "for_rank": 0, "waited_s": 1.0}
    ]


def test_a_summary_has_medians_of_steps() -> None:
    steps = pd.DataFrame({"step": [0, 1, 2], "started_s": [0.0, 7.0, 20.0], "ended_s": [7.0, 13.0, 29.0]})
    assert metrics.summary(steps, operations()) == {
        "step_s": 7.0,
        "bubble_s": 3.0,
        "exposed.all_s": 2.0,
        "exposed.allreduce_s": 1.5,
        "exposed.receive_s": 1.0,
        "exposed.send_s": 0.5,
    }
    assert metrics.summary(steps, operations().iloc[:0]) == {"step_s": 7.0}


def test_training_as_a_whole() -> None:
    assert metrics.scale_factor(8, per_s=36.0, alone_per_s=5.0) == 0.9
    assert metrics.tokens_per_s(2048 * 64, 2.0) == 65_536
    assert metrics.model_flops_utilisation(6e15, 10.0, 4, 300e12) == 0.5
    by_staleness = {"staleness": 3}
    assert metrics.time_to_accuracy_s(lambda setting: 1000 * (1 + setting["staleness"] / 10), by_staleness, 0.5) == 650
    with pytest.raises(ValueError, match="0 ranks"):
        metrics.scale_factor(0, 1, 1)
    with pytest.raises(ValueError, match="a step of 0 s has no throughput"):
        metrics.tokens_per_s(1, 0)
    with pytest.raises(ValueError, match="1 ranks of 0 FLOP/s compute nothing"):
        metrics.model_flops_utilisation(1, 1, 1, 0)
