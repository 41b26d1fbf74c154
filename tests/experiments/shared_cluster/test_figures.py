"""Figures of jobs that share a fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.shared_cluster.experiment import EXPERIMENT
from experiments.shared_cluster.figures import port_shares, slowdowns
from tests.experiments.own_results import own_figures_drawn, own_result

SLOWDOWNS = [
    {"job": "a", "slowdown": 1.5, "alone_Bps": 3e6, "together_Bps": 2e6, "measure": "algbw"},
    {"job": "b", "slowdown": None, "alone_Bps": 3e6, "together_Bps": None, "measure": "read bandwidth"},
    {"job": "c", "slowdown": 2.0, "alone": "90 per s", "together": "45 per s", "measure": "file_create operations"},
]
"""The first two as results of earlier versions have them."""
SHARES = [
    {"port": "z0l00:1", "sent": 0.9, "jobs": {"a": 0.5, "b": 0.25}},
    {"port": "z0l00:2", "sent": 0.3, "jobs": {"a": 0.1, "b": 0.2}},
]
SUMMARY: dict[str, Any] = {"jobs": ["a", "b", "c"], "slowdowns": SLOWDOWNS, "port_shares": SHARES}


def test_slowdowns_are_bars_and_a_job_that_got_nothing_done_has_words(tmp_path: Path) -> None:
    figure = slowdowns(own_result(tmp_path / "run", EXPERIMENT, summary=SUMMARY))
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    assert [bar.get_width() for container in panel.containers for bar in container] == [1.5, 2.0]
    texts = [text.get_text() for text in panel.texts]
    assert texts == [
        "1.50   algbw: 3.000 MB/s → 2.000 MB/s",
        "did nothing in one of the phases that it did in the other",
        "2.00   file_create operations: 90 per s → 45 per s",
        "as alone",
    ]


def test_shares_of_a_port_add_up_to_what_it_sent(tmp_path: Path) -> None:
    figure = port_shares(own_result(tmp_path / "run", EXPERIMENT, summary=SUMMARY))
    assert figure is not None
    (panel,) = figure.subfigs[1].axes
    widths = {str(found.get_label()): [round(bar.get_width(), 6) for bar in found] for found in panel.containers}
    assert widths == {"a": [0.5, 0.1], "b": [0.25, 0.2], "headers and the like": [0.15, 0.0]}
    assert [label.get_text()[:10] for label in panel.get_yticklabels()] == ["z0l00:1 → ", "z0l00:2 → "]


def test_a_result_from_before_there_were_such_figures_has_none(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT), EXPERIMENT) == set()
