"""The figures of algbw over growing numbers of nodes, and of how busy their limits were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.hfreduce_vs_nccl.experiment import EXPERIMENT
from experiments.hfreduce_vs_nccl.figures import limits_in_use, scaling, scaling_nvlink, sizes
from experiments.hfreduce_vs_nccl.tables import TABLES
from tests.experiments.own_results import own_figures_drawn, own_result
from tests.synthetic_result import PHASES

# As results of before there were GPUs have it: a phase is at its number of ranks.
SCALING: dict[str, Any] = {
    "title": "Allreduce of 200 kB",
    "series": [{"label": "HFReduce", "service_level": "hfreduce", "phases": [name for name, *_ in PHASES]}],
    "bands": [{"label": "paper", "service_level": "hfreduce", "from_Bps": 6.3e9, "to_Bps": 8.1e9}],
    "caps": [{"label": "host's memory: 13.3 GB/s", "algbw_Bps": 13.3e9}],
}


def test_scaling_has_a_point_per_phase_with_steps_at_full_scale(tmp_path: Path) -> None:
    result = own_result(tmp_path / "run", EXPERIMENT, summary={"scaling": SCALING})
    figure = scaling(result)
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    line = panel.lines[-1]
    steps = result.table("steps")
    alone = steps[steps["phase"] == "hfreduce_alone"]
    median = float((alone["size_bytes"] / (alone["ended_s"] - alone["started_s"])).median())
    assert np.asarray(line.get_xdata()).tolist() == [12] * 4
    assert float(np.asarray(line.get_ydata())[0]) == pytest.approx(median * result.scale / 1e9)
    assert [text.get_text() for text in panel.texts] == ["host's memory: 13.3 GB/s"]


@pytest.mark.parametrize("options", [{}, {"summary": {"scaling": SCALING}, "without": ("steps",)}])
def test_without_steps_or_series_there_is_none(tmp_path: Path, options: dict[str, Any]) -> None:
    assert scaling(own_result(tmp_path / "run", EXPERIMENT, **options)) is None


@pytest.mark.parametrize(("key", "draw"), [("scaling", scaling), ("scaling_nvlink", scaling_nvlink), ("sizes", sizes)])
def test_phases_are_where_the_summary_says(tmp_path: Path, key: str, draw: Any) -> None:
    places = {name: 16.0 * 2**place for place, (name, *_) in enumerate(PHASES)}
    told = {key: {**SCALING, "x": places, "x_label": "GPUs"}}
    figure = draw(own_result(tmp_path / "run", EXPERIMENT, summary=told))
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    assert np.asarray(panel.lines[-1].get_xdata()).tolist() == [16, 64, 128, 256]  # Storage alone has no steps of it.
    assert panel.get_xlabel() == "GPUs (log)"


def limit_rows(*busy: float) -> pd.DataFrame:
    rows = [
        ["hfreduce_alone", "z0h000", limit, 1, 8, value]
        for limit, value in zip(["memory", "root port"], busy, strict=True)
    ]
    rows.append(["hfreduce_alone", "z0h001", "memory", 1, 8, 0.1])
    return pd.DataFrame(rows, columns=list(TABLES["node_limits"].columns)).astype(TABLES["node_limits"].dtypes)


def test_limits_in_use_has_a_cell_per_phase_and_limit_of_the_busiest_node(tmp_path: Path) -> None:
    result = own_result(tmp_path / "run", EXPERIMENT, own={"node_limits": limit_rows(0.57, 0.914)})
    figure = limits_in_use(result)
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    assert [text.get_text() for text in panel.texts] == ["91%", "57%"]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["root port", "memory"]


def test_a_result_of_before_there_were_gpus_still_has_its_figure(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT, summary={"scaling": SCALING}), EXPERIMENT) == {
        "scaling"
    }
