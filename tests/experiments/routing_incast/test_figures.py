"""The figure of how far an incast's congestion spreads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments.routing_incast.experiment import EXPERIMENT
from experiments.routing_incast.figures import spreading
from tests.experiments.own_results import own_figures_drawn, own_result

SPREADING: dict[str, Any] = {
    "backlog_bytes": 16384,
    "share": 0.05,
    "variants": [
        {
            "policy": policy,
            "queueing": "shared",
            "alone": {"leaf → client": 0, "spine → leaf": 0},
            "beside": {"leaf → client": 1, "spine → leaf": spines},
            "slowdowns": {"apart": {"slowdown": slowdown, "worst_slowdown": 2 * slowdown}},
        }
        for policy, spines, slowdown in (("static", 1, 1.0), ("adaptive", 4, 1.5))
    ],
}


def test_spreading_stacks_tiers_and_marks_the_slowest_pair(tmp_path: Path) -> None:
    result = own_result(tmp_path / "run", EXPERIMENT, summary={"spreading": SPREADING})
    figure = spreading(result)
    assert figure is not None
    counts, slowdowns = (panel for panel in figure.subfigs[1].axes)
    heights = {container.get_label(): [bar.get_height() for bar in container] for container in counts.containers}
    assert heights["leaf → client"] == [1, 1]
    assert heights["spine → leaf"] == [1, 4]
    assert [bar.get_y() for bar in counts.containers[-1]] == [1, 1]
    assert [bar.get_height() for group in slowdowns.containers for bar in group] == [1.0, 1.5]
    assert np.asarray(slowdowns.lines[0].get_ydata()).tolist() == [2.0, 3.0]


def test_a_result_that_tells_of_no_spreading_has_no_figure_of_it(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT), EXPERIMENT) == set()
