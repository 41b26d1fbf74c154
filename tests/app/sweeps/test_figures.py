"""Figures over many runs: what is drawn, by the numbers in it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.sweeps import figures
from app.sweeps.config import FigureConfig
from app.sweeps.figures import draw, draw_figures, draw_repeats
from app.sweeps.study import Findings
from fabric.errors import ResultError
from fabric.report.figures import RepeatedSpec
from tests.app.sweeps.plain_runs import METRIC, SHARE, InTurn, planned, swept
from tests.app.sweeps.test_study import busy_with_seed_2

BY_SHARE = {"y": METRIC, "x": SHARE, "lines": "queueings"}


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    return swept(planned(figures=[BY_SHARE]), tmp_path, InTurn(busy_with_seed_2))


def panels(figure: Figure) -> list[Axes]:
    return [axes for part in figure.subfigs for axes in part.axes]


def drawn(findings: Findings, **config: Any) -> Figure:
    return draw(findings.plan, findings.runs, FigureConfig(**config))


def words(figure: Figure) -> str:
    return " ".join(" ".join(text.get_text() for part in figure.subfigs for text in part.texts).split())


def test_a_line_goes_through_the_medians_of_runs_that_count(findings: Findings) -> None:
    figure = drawn(findings, **BY_SHARE)
    (axes,) = panels(figure)
    line = next(line for line in axes.lines if line.get_label() == "lanes")
    assert np.asarray(line.get_xydata()).tolist() == [[0.1, 102.0], [0.3, 302.0]]
    assert "4 of 12 runs are left out: 4 invalid" in words(figure)


def test_a_line_goes_through_the_least_of_what_is_known_no_better_and_the_footer_says_so(findings: Findings) -> None:
    known, least = "lanes.flow.p99_s", "lanes.flow.p99_at_least_s"
    values = list(range(1, len(findings.runs) + 1))
    is_least = [value % 2 == 0 for value in values]
    runs = findings.runs.assign(
        **{
            known: [np.nan if one else value for value, one in zip(values, is_least, strict=True)],
            least: [value if one else np.nan for value, one in zip(values, is_least, strict=True)],
        }
    )
    figure = draw(findings.plan, runs, FigureConfig(y=known, x=SHARE, lines="queueings"))
    (axes,) = panels(figure)
    dots = [line for line in axes.lines if line.get_marker() == "."]
    shown = sorted(value for line in dots for value in np.ravel(line.get_ydata()))
    counted = sorted(value for value, one in zip(values, findings.runs["verdict"], strict=True) if one != "invalid")
    assert shown == counted
    told = sum(is_least[value - 1] for value in counted)
    assert f"Of {told} of the values it is only known that they are at least as large." in words(figure)


def test_a_panel_over_runs_says_where_its_median_is_the_least_that_it_can_be() -> None:
    runs = [
        {"title": "p99", "unit": "x", "values": [1.0, 5.0 + number], "at_least": [False, number > 0]}
        for number in range(3)
    ]
    assert figures._merged_panel(runs)["at_least"] == [False, True]
    assert "at_least" not in figures._merged_panel([{**runs[0], "at_least": [False, False]}] * 3)
    few = [{**runs[0], "values": [1.0, value], "at_least": [False, value == 9.0]} for value in (5.0, 6.0, 9.0)]
    assert "at_least" not in figures._merged_panel(few), "six stays the median however large the third is"


def test_axes_that_a_figure_does_not_name_have_a_panel_for_each_value(findings: Findings) -> None:
    found = panels(drawn(findings, y=METRIC, x=SHARE))
    assert [axes.get_title(loc="left") for axes in found] == ["queueings shared", "queueings lanes"]


def test_a_heat_map_has_a_median_per_cell(findings: Findings) -> None:
    (axes,) = panels(drawn(findings, y=METRIC, x=SHARE, down="queueings"))
    assert axes.images[0].get_array().tolist() == [[102.0, 302.0], [102.0, 302.0]]  # type: ignore[union-attr]
    assert [text.get_text() for text in axes.texts] == ["102 B/s", "302 B/s"] * 2


def test_an_axis_in_braces_is_what_the_run_has_there(findings: Findings) -> None:
    (axes,) = panels(drawn(findings, **{**BY_SHARE, "y": "{queueings}.hfreduce.algbw_Bps"}))
    assert [line.get_label() for line in axes.lines if not str(line.get_label()).startswith("_")] == ["lanes"]


def test_a_metric_that_no_run_has_is_an_error_that_names_those_there_are(findings: Findings) -> None:
    with pytest.raises(ResultError, match=f"lanes.speed: no run has this metric; there are {METRIC}"):
        drawn(findings, y="lanes.speed", x=SHARE)


def test_figures_are_files(findings: Findings, tmp_path: Path) -> None:
    paths = draw_figures(findings.plan, findings.runs, tmp_path / "figures")
    assert [path.name for path in paths] == ["figure_1.png", "figure_1.svg"]
    own = RepeatedSpec("own", lambda summaries, subtitle, footer: drawn(findings, **BY_SHARE))
    nothing = RepeatedSpec("nothing", lambda summaries, subtitle, footer: None)
    paths = draw_repeats(findings.plan, findings.runs, findings.summaries, tmp_path / "figures", [own, nothing])
    names = {path.name for path in paths}
    assert names >= {"side_by_side.png", "repeats.png", "own.png"}
    assert "nothing.png" not in names
    assert all(path.stat().st_size > 5000 for path in paths)


def test_repeats_have_one_panel_of_what_some_runs_know_only_the_least_of(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panel of those alone that know it would be of the least congested runs."""
    values = np.arange(1.0, len(findings.runs) + 1)
    is_least = values == values.max()
    columns = {
        "lanes.flow.p99_s": np.where(is_least, np.nan, values),
        "lanes.flow.p99_at_least_s": np.where(is_least, values, np.nan),
    }
    seen: dict[str, int] = {}

    def noted(plan: Any, runs: Any, measures: Any, counted: Any) -> Figure:
        seen.update({measure: counted[phases[0][1]].count() for measure, phases in measures})
        return Figure()

    monkeypatch.setattr(figures, "_dots", noted)
    runs = findings.runs.assign(**columns, verdict="faithful")
    draw_repeats(findings.plan, runs, [], tmp_path / "figures")
    assert {name: count for name, count in seen.items() if "p99" in name} == {"flow.p99_s": len(runs)}


@pytest.mark.parametrize(("seeds", "are_few"), [(1, False), (3, True), (6, False)])
def test_the_foot_of_a_figure_says_where_intervals_are_of_few_seeds(seeds: int, are_few: bool) -> None:
    plan: Any = SimpleNamespace(runs=[SimpleNamespace(seed=seed) for seed in range(seeds)], axes=())
    _, *notes = figures._footer(plan, pd.DataFrame({"verdict": ["faithful"] * seeds}))
    said = f"{seeds} seeds are too few for a 95% interval"
    assert [note.partition(":")[0] for note in notes] == [said] * are_few
