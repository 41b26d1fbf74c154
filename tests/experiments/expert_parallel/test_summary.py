"""What a step came to, from rows of operations."""

from __future__ import annotations

import pandas as pd
import pytest

from experiments.expert_parallel.summary import _sent_Bps, _slack_s
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.metrics import timelines
from traffic.work.operations import CollectiveCall, Compute
from traffic.work.step_metrics import exposed_s

GROUPS = {"rail.0": (0, 1)}


def step(end_of_dispatch: float, start_of_experts: float) -> tuple[WorkGraph, pd.DataFrame]:
    """A dispatch over the rail, and computing that waits for it, of two ranks; the second's dispatch ends at 1."""
    works, rows = [], []
    for rank, ended in enumerate((end_of_dispatch, 1.0)):
        work = RankWork()
        call = CollectiveCall(
            collective="all_to_all_v", size_bytes=100, sent_bytes=(50, 50), group="rail.0", stream="communication",
            name="dispatch of dispatch(F) 0",
        )  # fmt: skip
        sent = work.add(call)
        rest = work.add(Compute(duration_s=0.0, name="rest of dispatch(F) 0", stream="communication", after=(sent,)))
        work.add(Compute(duration_s=1.0, name="mlp(F) 0", stream="compute", after=(rest,)))
        works.append(work)
        times = [(0.0, ended), (ended, ended), (start_of_experts, start_of_experts + 1)]
        names = [one.name for one in work.operations]
        rows += [
            (1, rank, place, names[place], "rail.0" if place == 0 else None, 100 if place == 0 else 0, began, done)
            for place, (began, done) in enumerate(times)
        ]
    columns = ["step", "rank", "operation", "name", "partner", "size_bytes", "started_s", "ended_s"]
    return graph_of("step", works, GROUPS), pd.DataFrame(rows, columns=columns)


@pytest.mark.parametrize(("ended", "began", "slack_s"), [(2.0, 2.0, 0.0), (2.0, 2.5, 0.5), (0.5, 1.25, 0.25)])
def test_slack_is_until_computing_that_waits_begins_on_the_rank_with_the_least(
    ended: float, began: float, slack_s: float
) -> None:
    graph, rows = step(ended, began)
    assert _slack_s(timelines(graph, rows)) == {"dispatch(F)": pytest.approx(slack_s)}


def test_bandwidth_is_of_what_goes_over_rails() -> None:
    _, rows = step(2.0, 2.0)
    assert _sent_Bps(rows, "dispatch", False) == pytest.approx((100 / 2 + 100 / 1) / 2)


def test_bandwidth_of_a_whole_call_counts_its_notify_kernel_and_its_node() -> None:
    _, rows = step(2.0, 2.0)
    parts = [
        (1, 0, 3, "dispatch of dispatch(F) 0 notify", None, 0, -1.0, 0.0),
        (1, 0, 4, "dispatch of dispatch(F) 0 in node", None, 70, 0.0, 4.0),
        (1, 1, 3, "dispatch of dispatch(F) 0 notify", None, 0, -1.0, 0.0),
    ]
    rows = pd.concat([rows, pd.DataFrame(parts, columns=rows.columns)])
    assert _sent_Bps(rows, "dispatch", True) == pytest.approx((100 / 5 + 100 / 2) / 2)
    assert _sent_Bps(rows, "dispatch", False) == pytest.approx((100 / 2 + 100 / 1) / 2)


@pytest.mark.parametrize(("ended", "began", "waited_s"), [(2.0, 2.0, 2.0), (2.0, 2.5, 2.0), (0.5, 1.25, 0.5)])
def test_computing_waits_for_what_only_stands_for_a_communication_too(
    ended: float, began: float, waited_s: float
) -> None:
    """The rest of a phase is computing by its kind, and takes the place of a communication."""
    graph, rows = step(ended, began)
    (played,) = timelines(graph, rows)
    assert sum(exposed_s(played, 0).values()) == pytest.approx(waited_s)
