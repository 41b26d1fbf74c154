"""The figures and the table of a replay of traces, from rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from experiments.trace_replay.figures import FIGURES, layers, streams
from experiments.trace_replay.layers import OTHERS, largest_kinds, largest_layers
from experiments.trace_replay.tables import LAYERS, TABLES
from fabric.results import Result
from fabric.tables import TABLES as SHARED
from fabric.tables import Table
from tests.figure_axes import axis_faults, precision_faults
from tests.synthetic_result import Recipe, write_result
from traffic.work.kinds import WORK

RANKS = 20


class ReplayResult(Result):
    """One that knows the tables of replays."""

    @property
    def known_tables(self) -> Mapping[str, Table]:
        return {**SHARED, **WORK.tables, **TABLES}


def layer_rows(ranks: int = 2) -> pd.DataFrame:
    rows = [
        {"phase": "replay", "job": "ddp", "rank": rank, "layer": layer, "kind": kind, "operations": 2, "size_bytes": 8,
         "computed_s": computed, "exposed_s": exposed, "hidden_s": hidden}
        for rank in range(ranks)
        for layer, kind, computed, exposed, hidden in [
            ("attention", "compute", 3.0, 0.0, 0.0), ("attention", "allreduce", 0.0, 1.0 + rank, 0.5),
            ("mlp", "compute", 0.1, 0.0, 0.0), ("norm", "compute", 0.2, 0.0, 0.0)]
    ]  # fmt: skip
    return pd.DataFrame(rows)


def operation_rows() -> pd.DataFrame:
    return pd.DataFrame(
        {"phase": "replay", "job": "ddp", "host": f"z0h{rank:03}", "rank": rank, "step": 0, "operation": place,
         "name": "", "kind": kind, "stream": stream, "partner": "", "size_bytes": 0, "ready_s": 1.0,
         "started_s": start, "ended_s": start + took}
        for rank in range(RANKS)
        for place, (kind, stream, start, took) in enumerate(
            [("compute", "gpu", 1.0, 0.5), ("compute", "gpu", 1.5, 0.25), ("allreduce", "comm", 1.5, 1.0)])
    )  # fmt: skip


@pytest.fixture
def result(tmp_path: Path) -> ReplayResult:
    own = {"work_operations": operation_rows(), LAYERS: layer_rows()}
    recipe = Recipe("fire_flyer_2_tiny", own_tables={**WORK.tables, **TABLES}, own=own)
    write_result(tmp_path / "r", recipe)
    return ReplayResult(tmp_path / "r")


def drawn(figure: Figure | None) -> Figure:
    assert figure is not None
    assert axis_faults(figure) + precision_faults(figure) == []
    return figure


def axes_of(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.get_axes() for text in axes.get_yticklabels()]


def test_each_stream_of_each_rank_is_a_row_as_far_as_there_is_room(result: ReplayResult) -> None:
    names = axes_of(drawn(streams(result)))
    assert names[:2] == ["rank 0 comm", "rank 0 gpu"]
    assert len(names) == 32 < 2 * RANKS


def test_layers_are_bars_of_means_over_ranks(result: ReplayResult) -> None:
    figure = drawn(layers(result))
    assert axes_of(figure) == ["attention (allreduce)", "mlp", "norm"]
    widths = [[round(bar.get_width(), 6) for bar in bars] for bars in figure.get_axes()[0].containers]
    assert widths == [[3.0, 0.1, 0.2], [1.5, 0.0, 0.0], [0.5, 0.0, 0.0]]


def test_layers_that_take_little_are_one() -> None:
    assert list(largest_layers(layer_rows(), 2).index) == [("attention", "allreduce"), ("2 others", "")]
    found = largest_kinds(layer_rows(), 3)
    assert list(found.index) == [("attention", "compute"), ("attention", "allreduce"), (OTHERS, "2 kinds")]
    assert found["computed_s"].sum() == pytest.approx(3.3)


def test_a_result_without_operations_has_neither(tmp_path: Path) -> None:
    write_result(tmp_path / "r", Recipe("fire_flyer_2_tiny"))
    assert [one.draw(ReplayResult(tmp_path / "r")) for one in FIGURES] == [None, None]
