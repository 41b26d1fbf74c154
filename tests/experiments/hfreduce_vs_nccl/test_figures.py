"""The figure of how busy the limits of nodes were."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from experiments.hfreduce_vs_nccl.experiment import EXPERIMENT
from experiments.hfreduce_vs_nccl.figures import limits_in_use
from runs.node_use import TABLES
from tests.experiments.own_results import own_result


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
