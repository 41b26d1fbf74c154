"""The experiment's figures: which bars they have and how long these are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from experiments.isolation.experiment import EXPERIMENT
from fabric.model.lanes import Queueing
from fabric.records.palette import QUEUEINGS
from tests.experiments.own_results import own_figures_drawn, own_result
from tests.experiments.studies import figures_drawn

KEPT = {
    ("5%", "lanes"): 0.6,
    ("5%", "one shared queue"): 0.54,
    ("50%", "lanes"): 0.57,
    ("50%", "one shared queue"): 0.18,
}


def summary() -> dict[str, Any]:
    """Return a summary of what HFReduce keeps, and of its level at the busiest port, under two loads."""
    cases = []
    for (load, queueing), kept in KEPT.items():
        settings = {"queueing": queueing, "load": load}
        parts = [({"program": "HFReduce, algbw"}, {"kept": kept}), ({"level": "hfreduce"}, {"got": kept / 2})]
        cases += [
            {"phase": "p", "title": "t", "settings": {**settings, **words}, "aside": {**numbers, "promised": 0.5}}
            for words, numbers in parts
        ]
    return {"title": "t", "answer": "a", "cases": cases, "metrics": {}, "tables": []}


def drawn(directory: Path, name: str) -> list[Axes]:
    result = own_result(directory / name, EXPERIMENT, summary=summary())
    figure = next(one for one in EXPERIMENT.load_figures() if one.name == name).draw(result)
    assert figure is not None
    return figure.subfigs[1].axes


@pytest.mark.parametrize(("name", "part"), [("isolation", 1.0), ("port_shares", 0.5)])
def test_a_panel_per_load_a_bar_per_queueing_and_the_promise_across_it(tmp_path: Path, name: str, part: float) -> None:
    panels = drawn(tmp_path, name)
    assert [panel.get_title(loc="left") for panel in panels] == [
        f"others offer {load} of each NIC" for load in ("5%", "50%")
    ]
    for panel, load in zip(panels, ("5%", "50%"), strict=True):
        bars = {str(group.get_label()): [bar.get_width() for bar in group] for group in panel.containers}
        assert bars == {queueing: [pytest.approx(part * kept)] for (of, queueing), kept in KEPT.items() if of == load}
        assert [line.get_xdata() for line in panel.lines] == [[0.5], [0.5]]
        assert [group[0].get_facecolor() for group in panel.containers] == [
            to_rgba(QUEUEINGS[queueing]) for queueing in (Queueing.LANES, Queueing.SHARED)
        ]
        assert panel.yaxis_inverted(), "the first case is at the top, in each panel"
        assert panel.xaxis.get_major_formatter()(0.5) == "50%"


def test_a_result_without_cases_has_no_such_figures(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT), EXPERIMENT) == set()
    assert figures_drawn(tmp_path / "other", EXPERIMENT, summary()) >= {"isolation", "port_shares"}
