"""The figure of what programs keep as the load of others grows, of a study and of a result of before it was one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from experiments.protection.experiment import EXPERIMENT
from experiments.protection.study import OFFERED, REQUESTS
from tests.experiments.own_results import own_figures_drawn, own_result

TITLE, ONLY = "HFReduce, algbw, with storage and others", "HFReduce, algbw, with storage only"


def panels(tmp_path: Path, summary: dict[str, Any]) -> list[Axes]:
    result = own_result(tmp_path / "run", EXPERIMENT, summary=summary)
    (spec,) = EXPERIMENT.load_figures()
    figure = spec.draw(result)
    assert figure is not None
    return [axes for part in figure.subfigs for axes in part.axes]


def lines_of(panel: Axes) -> list[tuple[list[float], list[float]]]:
    data = ([np.asarray(one, dtype=float).tolist() for one in line.get_data()] for line in panel.lines)
    return [(places, values) for places, values in data]


def part(queueing: str, panel: str, axis: str, load: str, left: float, promised: float) -> dict[str, Any]:
    settings = {"queueing": queueing, "panel": panel, "axis": axis, "load": load}
    return {"phase": "p", "title": "p", "settings": settings, "aside": {"left": left, "promised": promised}}


def test_a_panel_has_a_line_per_queueing_the_promise_and_what_is_alone(tmp_path: Path) -> None:
    cases = [
        part("one shared queue", TITLE, OFFERED, "0", 1.0, 0.5),
        part("one shared queue", ONLY, REQUESTS, "2", 1.0, 0.5),
        part("one shared queue", TITLE, OFFERED, "200", 0.1, 0.5),
        part("one shared queue", ONLY, REQUESTS, "0", 1.1, 0.5),
        part("lanes", TITLE, OFFERED, "0", 0.9, 0.5),
        part("lanes", TITLE, OFFERED, "200", 0.6, 0.5),
    ]
    others, storage = panels(tmp_path, {"cases": cases})
    shared, lanes, promised, alone = lines_of(others)
    assert (shared, lanes) == (([0, 200], [1.0, 0.1]), ([0, 200], [0.9, 0.6]))
    assert (promised[1], alone[1]) == ([0.5, 0.5], [1.0, 1.0])
    assert [text.get_text() for text in others.texts] == ["its lane: 50%"]
    assert lines_of(storage)[0] == ([0, 2], [1.1, 1.0])
    assert (others.get_xlabel(), storage.get_xlabel()) == (OFFERED, REQUESTS)


def test_a_result_of_before_has_the_same_figure(tmp_path: Path) -> None:
    curves: dict[str, Any] = {
        "panels": [
            {
                "title": TITLE,
                "axis": "load offered by flows of others, of each NIC's rate",
                "is_fraction": True,
                "alone_Bps": 800_000.0,
                "promised_share": 0.5,
                "lane": "hfreduce",
                "loads": [0.0, 0.5, 2.0],
                "curves": {"shared": [800_000.0, 400_000.0, 80_000.0], "lanes": [800_000.0, 480_000.0, None]},
            },
            {
                "title": ONLY,
                "axis": REQUESTS,
                "is_fraction": False,
                "alone_Bps": 800_000.0,
                "promised_share": 0.5,
                "lane": "hfreduce",
                "loads": [0.0, 8.0],
                "curves": {"shared": [800_000.0, 400_000.0], "lanes": [None, None]},
            },
        ]
    }
    others, storage = panels(tmp_path, {"protection": curves})
    shared, lanes, promised, _ = lines_of(others)
    assert (shared[0], lanes[0]) == ([0, 50, 200], [0, 50])
    assert [*shared[1], *lanes[1]] == pytest.approx([1, 0.5, 0.1, 1, 0.6])
    assert promised[1] == [0.5, 0.5]
    assert lines_of(storage)[0] == ([0, 8], [1, 0.5])
    assert (others.get_xlabel(), storage.get_xlabel()) == (OFFERED, REQUESTS)


def test_a_result_that_tells_of_no_protection_has_no_figure_of_it(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT), EXPERIMENT) == set()
