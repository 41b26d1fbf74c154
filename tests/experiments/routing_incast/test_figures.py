"""The figures of how far an incast's congestion spreads, and whom it slows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from experiments.routing_incast.experiment import EXPERIMENT
from runs.job_metrics import DOWN, TIERS, TO_CLIENT
from tests.experiments.own_results import own_figures_drawn, own_result

METRICS = {tier: f"congested_ports.{tier.replace(' → ', '_to_').replace(' ', '_')}" for tier in TIERS}


def summary() -> dict[str, Any]:
    """Return a summary of two policies, of which the second has more congested ports at spines."""
    cases: list[dict[str, Any]] = []
    metrics: dict[str, float] = {}
    for policy, spines, slowdown in (("static", 1, 1.0), ("adaptive", 4, 1.5)):
        for traffic in ("bystanders alone", "with the incast"):
            is_beside = traffic == "with the incast"
            phase = f"{policy}_{'incast' if is_beside else 'alone'}"
            settings = {"queueing": "one shared queue", "policy": policy, "traffic": traffic}
            cases.append({"phase": phase, "title": phase, "settings": settings, "aside": {}})
            counts = {**dict.fromkeys(TIERS, 0), **({TO_CLIENT: 1, DOWN: spines} if is_beside else {})}
            metrics |= {f"{phase}.{METRICS[tier]}": float(count) for tier, count in counts.items()}
            if is_beside:
                metrics |= {f"{phase}.apart.slowdown": slowdown, f"{phase}.apart.worst_slowdown": 2 * slowdown}
    return {"cases": cases, "metrics": metrics}


def drawn(tmp_path: Path, name: str) -> Figure:
    result = own_result(tmp_path / name, EXPERIMENT, summary=summary())
    figure = next(one for one in EXPERIMENT.load_figures() if one.name == name).draw(result)
    assert figure is not None
    return figure


def test_spreading_stacks_tiers_and_says_how_many_there_are(tmp_path: Path) -> None:
    (panel,) = drawn(tmp_path, "spreading").subfigs[1].axes
    widths = {container.get_label(): [bar.get_width() for bar in container] for container in panel.containers}
    assert widths["leaf → client"] == [0, 1, 0, 1]
    assert widths["spine → leaf"] == [0, 1, 0, 4]
    assert [text.get_text() for text in panel.texts] == ["0", "2", "0", "5"]


def test_slowdowns_go_up_to_the_slowest_pair(tmp_path: Path) -> None:
    (panel,) = drawn(tmp_path, "slowdowns").subfigs[1].axes
    assert [bar.get_height() for group in panel.containers for bar in group] == [1.0, 1.5]
    assert [line.get_segments()[0][:, 1].tolist() for line in panel.collections] == [[1.0, 2.0], [1.5, 3.0]]  # type: ignore[attr-defined]


def test_a_result_that_tells_of_no_spreading_has_no_figure_of_it(tmp_path: Path) -> None:
    assert own_figures_drawn(own_result(tmp_path / "run", EXPERIMENT), EXPERIMENT) == set()
