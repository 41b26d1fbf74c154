"""What a step came to, from rows of operations."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pandas as pd
import pytest

from experiments.expert_parallel.config import ExpertParallelConfig
from experiments.expert_parallel.experiment import EXPERIMENT
from experiments.expert_parallel.study import STUDY, Variant
from fabric.metrics import by_path
from fabric.units import format_time
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.studies import figures_drawn, study_result
from topologies.load import load_fabric
from traffic.work.expert_measures import least_slack_s, sent_Bps
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
    assert least_slack_s(timelines(graph, rows)) == {"dispatch(F)": pytest.approx(slack_s)}


def test_bandwidth_is_of_what_goes_over_rails() -> None:
    _, rows = step(2.0, 2.0)
    assert sent_Bps(rows, "dispatch", False) == pytest.approx((100 / 2 + 100 / 1) / 2)


def test_bandwidth_of_a_whole_call_counts_its_notify_kernel_and_its_node() -> None:
    _, rows = step(2.0, 2.0)
    parts = [
        (1, 0, 3, "dispatch of dispatch(F) 0 notify", None, 0, -1.0, 0.0),
        (1, 0, 4, "dispatch of dispatch(F) 0 in node", None, 70, 0.0, 4.0),
        (1, 1, 3, "dispatch of dispatch(F) 0 notify", None, 0, -1.0, 0.0),
    ]
    rows = pd.concat([rows, pd.DataFrame(parts, columns=rows.columns)])
    assert sent_Bps(rows, "dispatch", True) == pytest.approx((100 / 5 + 100 / 2) / 2)
    assert sent_Bps(rows, "dispatch", False) == pytest.approx((100 / 2 + 100 / 1) / 2)


@pytest.mark.parametrize(("ended", "began", "waited_s"), [(2.0, 2.0, 2.0), (2.0, 2.5, 2.0), (0.5, 1.25, 0.5)])
def test_computing_waits_for_what_only_stands_for_a_communication_too(
    ended: float, began: float, waited_s: float
) -> None:
    """The rest of a phase is computing by its kind, and takes the place of a communication."""
    graph, rows = step(ended, began)
    (played,) = timelines(graph, rows)
    assert sum(exposed_s(played, 0).values()) == pytest.approx(waited_s)


def session_of(rows: pd.DataFrame, steps: list[list[Any]], *rates: str) -> Session:
    tables = {
        "work_operations": rows.assign(phase="idle", job="step"),
        "work_steps": pd.DataFrame(steps, columns=["phase", "job", "play", "step", "rank", "started_s", "ended_s"]),
    }
    fabric = load_fabric("next_generation_ep64", list(rates))
    return cast(Session, SimpleNamespace(live=SimpleNamespace(fabric=fabric), table=tables.__getitem__, phases=[]))


def summary_of(*rates: str, ended: bool = True) -> tuple[ExpertParallelConfig, dict[str, Any]]:
    """Return the summary of a step of 3 s at a 64th of its size, in which the experts' computing began 0.5 s late."""
    config = cast(ExpertParallelConfig, resolve("expert_parallel", ["variants=[{name: idle}]"])[1])
    graph, rows = step(2.0, 2.5)
    steps = [["idle", "step", 1, 1, rank, 0.0, 3.0] for rank in (0, 1)]
    session = session_of(rows if ended else rows[:0], steps if ended else [], *rates)
    with patch.object(ExpertParallelConfig, "graph", lambda *_: graph):
        return config, STUDY.summarize(session, config, Variant.grid(config))


def test_a_metric_a_table_and_a_figure_have_a_time_at_one_size(tmp_path: Path) -> None:
    """Metrics were those of the shrunk step, 64 times as short as what stood in the table and the figure."""
    config, summary = summary_of()
    metrics = by_path(summary["metrics"])
    assert undeclared("expert_parallel", summary["metrics"]) == []
    assert config.shrink == 64
    assert (metrics["idle.step.step_s"], metrics["idle.step.played_step_s"]) == (192.0, 3.0)
    assert metrics["idle.step.exposed_s"] == pytest.approx(64 * 2.0)
    assert metrics["idle.step.slack.dispatch_f_s"] == pytest.approx(64 * 0.5)
    assert metrics["paper.step_s"] == config.paper_s
    steps = summary["tables"][0]
    assert steps.columns == ["variant", "step", "change from idle", "computing waits", "slack, dispatch(F)"]
    assert steps.words == [["idle", format_time(192.0), "0.0%", format_time(128.0), format_time(32.0)]]
    bars = {name: drawn_widths(tmp_path / name, summary, name) for name in ("expert_steps", "slack")}
    waits = {"computing, or idle at an end": [64e3], "computing waits for tokens": [128e3]}
    assert bars == {"expert_steps": waits, "slack": {"dispatch(F)": [32e3]}}


def drawn_widths(directory: Path, summary: dict[str, Any], name: str) -> dict[str, list[float]]:
    """Return the widths of a figure's bars, by their label."""
    figure = next(one for one in EXPERIMENT.load_figures() if one.name == name)
    drawn = figure.draw(study_result(directory, EXPERIMENT, summary))
    assert drawn is not None
    (panel,) = drawn.subfigs[1].axes
    return {str(group.get_label()): [bar.get_width() for bar in group] for group in panel.containers}


def test_what_is_published_stands_beside_the_true_rate_only() -> None:
    _, true = summary_of()
    _, scaled = summary_of("nic_rate=4 Gbit/s", "uplink_rate=4 Gbit/s")
    for summary, cells, count in ((true, ["51 GB/s", "50 GB/s"], 2), (scaled, ["-", "-"], 1)):
        _, speeds, paper = summary["tables"]
        assert [row[4] for row in speeds.words] == cells
        assert len(paper.words) == count
        for table in (speeds, paper):
            assert ("rates here are 1 : 100 of the true ones" in (table.note_words or "")) is (summary is scaled)


def test_where_no_step_ended_nothing_is_made_up(tmp_path: Path) -> None:
    _, summary = summary_of(ended=False)
    assert summary["answer"] == "idle: no step ended, so its slack is not known."
    assert [metric.path for metric in summary["metrics"] if metric.path.startswith("idle")] == []
    assert not any(math.isnan(metric.value) for metric in summary["metrics"])
    assert summary["tables"][0].words == [["idle", "-", "-", "-"]]
    assert figures_drawn(tmp_path / "run", EXPERIMENT, summary) == set()
