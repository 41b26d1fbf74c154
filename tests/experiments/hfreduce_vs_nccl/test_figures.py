"""The figure of algbw over growing numbers of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.hfreduce_vs_nccl.experiment import EXPERIMENT
from experiments.hfreduce_vs_nccl.figures import scaling
from tests.experiments.own_results import own_result
from tests.synthetic_result import PHASES

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
