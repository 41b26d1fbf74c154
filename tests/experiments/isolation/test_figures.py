"""The experiment's figure: which bars it has and how long they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.isolation.figures import _draw_got, _draw_kept, isolation
from fabric.results import Result
from tests.synthetic_result import Recipe, write_result

PHASES = [
    {"name": name, "queueing": name.partition("_")[0], "other_load": 0.5 if "_" in name else 0.05}
    for name in ("shared", "shared_heavy", "lanes", "lanes_heavy")
]
FOUND: dict[str, Any] = {
    "port": "z0l02:1",
    "rate_bps": 5e6,
    "promised": {"hfreduce": 0.5, "storage": 0.4, "other": 0.1},
    "phases": PHASES,
    "kept": [{"title": "HFReduce", "promised": 0.5, "values": [0.54, 0.18, 0.6, None]}],
    "got": {phase["name"]: {"hfreduce": 0.2, "storage": 0.3, "other": 0.4} for phase in PHASES},
}


def bars_of(axes: Axes) -> list[Rectangle]:
    return [bar for bar in axes.patches if isinstance(bar, Rectangle)]


def test_a_bar_per_load_and_queueing_and_the_promise_across_them() -> None:
    axes = Figure().subplots()
    _draw_kept(axes, FOUND)
    assert sorted(bar.get_width() for bar in bars_of(axes)) == [0.0, 0.18, 0.54, 0.6]
    assert [text.get_text() for text in axes.texts if "offer" in text.get_text()] == [
        "others offer 50% of each NIC",
        "others offer 5% of each NIC",
    ]
    assert "unknown" in [text.get_text() for text in axes.texts]
    assert all(np.allclose(np.asarray(line.get_xdata(), dtype=float), 0.5) for line in axes.lines)
    assert len(axes.lines) == 2


def test_service_levels_are_stacked_within_the_link_in_the_shared_queue_too() -> None:
    axes = Figure().subplots()
    _draw_got(axes, FOUND)
    ends = [bar.get_x() + bar.get_width() for bar in bars_of(axes)]
    assert ends == pytest.approx([0.2, 0.5, 0.9] * len(PHASES) + [0.5, 0.9, 1.0])
    assert axes.get_xlim() == (0.0, 1.0)
    assert [label.get_text().replace("\n", " ") for label in axes.get_yticklabels()] == [
        "one shared queue, others offer 50%",
        "lanes, others offer 50%",
        "one shared queue, others offer 5%",
        "lanes, others offer 5%",
        "promised in lanes",
    ]


def test_another_experiment_has_no_such_figure(tmp_path: Path) -> None:
    assert isolation(Result(write_result(tmp_path / "a", Recipe()))) is None
