"""Figures of cases: of one run what it measured, of several the medians with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.records.figure_forms import Bands, Bars, Form, Level, Lines, Looks, Number, Places, Scatter, least_known
from fabric.report.figures.forms import figure_over_runs, shown

LINES = Lines(
    "rates",
    "Rates.",
    "Rates by limit",
    numbers=(Number("rate_Bps", "GB/s", 1e-9), Number(least_known("read.p99_s"), "p99", is_time=True)),
    x="{limit}",
    line="{control}",
    rows="{servers} servers",
    levels=(Level(Number("nic_Bps", "its NIC", 1e-9), of="GB/s"),),
)
STACKED = Bars(
    "parts",
    "Parts.",
    "Parts by limit",
    numbers=(Number("a_s", "computing"), Number(lambda of: of["b_s"] - of["a_s"], "waiting")),
    marks=(Number("ideal_s", "ideal"),),
    x="{limit}",
    panels="{control}",
    stacked=True,
)


def summary_of(scale: float = 1.0, left_out: str = "") -> dict[str, Any]:
    """Return a summary of two limits with each of two controls, by four servers."""
    cases: list[dict[str, Any]] = []
    metrics: dict[str, float] = {}
    for number, (control, limit) in enumerate((one, other) for one in ("line", "cubic") for other in ("off", "2")):
        phase = f"{control}_{limit}"
        settings = {"control": control, "limit": limit, "servers": "4"}
        cases.append({"phase": phase, "title": phase, "settings": settings, "aside": {"nic_Bps": 25e9, "ideal_s": 2}})
        values = {"rate_Bps": scale * (number + 1) * 1e9, "read.p99_at_least_s": 0.5, "a_s": scale, "b_s": 3 * scale}
        metrics |= {f"{phase}.{name}": value for name, value in values.items()}
    return {"cases": cases, "metrics": {path: value for path, value in metrics.items() if path != left_out}}


def drawn(form: Form, *summaries: Mapping[str, Any]) -> Figure:
    figure = figure_over_runs(form).draw(summaries, "runs", ["at the foot"])
    assert figure is not None
    return figure


def panels_of(figure: Figure) -> list[Axes]:
    return [axes for part in figure.subfigs for axes in part.axes]


def test_a_line_has_a_point_per_case_and_a_level_where_it_belongs() -> None:
    rates, times = panels_of(drawn(LINES, summary_of()))
    assert [list(map(float, line.get_ydata())) for line in rates.lines] == [[1, 2], [3, 4], [25, 25]]  # type: ignore[arg-type]
    assert [list(map(float, line.get_ydata())) for line in times.lines] == [[0.5, 0.5]] * 2  # type: ignore[arg-type]
    assert (rates.get_title(loc="left"), rates.get_ylabel()) == ("4 servers", "GB/s")
    assert all(line.get_linestyle() == "None" for line in rates.lines[:2]), "nothing lies between off and 2"
    assert [label.get_text() for label in rates.get_xticklabels()] == ["off", "2"]
    left, right = (list(map(float, line.get_xdata())) for line in rates.lines[:2])  # type: ignore[arg-type]
    assert all(one < place < other for one, place, other in zip(left, (0, 1), right, strict=True)), "none hides another"
    assert times.get_yscale() == "log"


def test_each_row_of_panels_has_its_height_when_they_stand_in_columns() -> None:
    beside, below = (drawn(replace(LINES, looks=Looks(columns=columns)), summary_of()) for columns in (2, 1))
    assert below.get_figheight() - beside.get_figheight() == pytest.approx(Looks().height, rel=0.1)


def test_over_runs_points_are_medians_with_intervals() -> None:
    rates, _ = panels_of(drawn(LINES, *map(summary_of, (1.0, 2.0, 5.0))))
    assert list(map(float, rates.lines[0].get_ydata())) == [2, 4]  # type: ignore[arg-type]
    spans = [found.get_segments()[0][:, 1].tolist() for found in rates.collections]  # type: ignore[attr-defined]
    assert spans[0] == [1.0, 5.0]


def test_runs_of_other_cases_have_no_figure_together() -> None:
    other = summary_of()
    other["cases"] = other["cases"][:2]
    assert shown([summary_of(), other]) == []
    assert figure_over_runs(LINES).draw([summary_of(), other], "", []) is None
    assert figure_over_runs(LINES).draw([{}], "", []) is None


def test_parts_are_stacked_and_a_case_without_one_is_left_out() -> None:
    line, cubic = panels_of(drawn(STACKED, summary_of(left_out="cubic_off.b_s")))
    assert [(bar.get_y(), bar.get_height()) for bar in line.patches] == [(0, 1), (0, 1), (1, 2), (1, 2)]  # type: ignore[attr-defined]
    assert len(cubic.patches) == 2
    assert [len(panel.lines) for panel in (line, cubic)] == [1, 1], "marks are drawn once"
    assert (line.get_title(loc="left"), cubic.get_title(loc="left")) == ("line", "cubic")


@pytest.mark.parametrize(
    ("x", "colour", "places"), [("", "{title}", 2), ("{title}", "", 4), ("{limit}", "{control}", 2)]
)
def test_numbers_are_places_or_colours_of_bars(x: str, colour: str, places: int) -> None:
    numbers = (Number("a_s", "computing", upto="b_s"), Number("b_s", "all"))
    form = Bars("parts", "Parts.", "Parts", numbers if not (x and colour) else numbers[:1], x=x, colour=colour,
                looks=Looks(horizontal=True))  # fmt: skip
    (panel,) = panels_of(drawn(form, summary_of()))
    assert len(panel.get_yticks()) == places
    assert len(panel.patches) == (4 if x and colour else 8)
    assert all(not math.isnan(bar.get_width()) for bar in panel.patches)  # type: ignore[attr-defined]


def banded(known: int, *summaries: dict[str, Any], lines: int = 1) -> list[Axes]:
    """Return the panels of lines over 1 and 2, of which the first so many cases have a published interval."""
    for summary in summaries:
        for place, case in enumerate(summary["cases"]):
            case["settings"] |= {"limit": str(1 + place % 2)}
            case["aside"] |= {"low_Bps": 1e9 + place * 1e9, "high_Bps": 3e9} if place < known else {}
    band = (Number("low_Bps", "published, {control}", 1e-9), Number("high_Bps", "", 1e-9))
    numbers = (Number("rate_Bps", "here", 1e-9), Number("ideal_s", "published", marker="x"))[:lines]
    form = Bands("bands", "Bands.", "Rates", numbers, x="{limit}", line="{control}", panels="{servers}", band=band)
    return panels_of(drawn(form, *summaries))


def test_a_line_stands_before_the_interval_that_its_cases_have() -> None:
    (panel,) = banded(2, summary_of())
    assert [list(map(float, line.get_ydata())) for line in panel.lines] == [[1, 2], [3, 4]]  # type: ignore[arg-type]
    (band,) = panel.collections
    assert {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()} == {(1, 1), (1, 3), (2, 2), (2, 3)}  # type: ignore[union-attr]
    assert panel.get_legend_handles_labels()[1] == ["published, line", "line", "cubic"]
    assert panel.get_xscale() == "log"


def test_an_interval_of_one_place_is_seen_and_none_is_none() -> None:
    (panel,) = banded(1, summary_of())
    corners = panel.collections[0].get_paths()[0].vertices.tolist()  # type: ignore[union-attr]
    assert min(corner[0] for corner in corners) < 1 < max(corner[0] for corner in corners)
    (without,) = banded(0, summary_of())
    assert list(without.collections) == []


def test_bands_over_runs_have_medians_with_intervals() -> None:
    (panel,) = banded(0, *map(summary_of, (1.0, 2.0, 5.0)))
    assert list(map(float, panel.lines[0].get_ydata())) == [2, 4]  # type: ignore[arg-type]
    spans = [found.get_segments()[0][:, 1].tolist() for found in panel.collections]  # type: ignore[attr-defined]
    assert spans[0] == [1.0, 5.0]


def test_a_number_with_a_marker_is_points_beside_the_lines() -> None:
    (panel,) = banded(0, summary_of(), lines=2)
    looks = {str(line.get_label()): (line.get_linestyle(), line.get_marker()) for line in panel.lines}
    assert looks.keys() == {"line: here", "line: published", "cubic: here", "cubic: published"}
    assert {look for name, look in looks.items() if "published" in name} == {("None", "x")}
    assert all(dash != "None" for name, (dash, _) in looks.items() if "here" in name)


TRADE = Scatter(
    "points",
    "Points.",
    "Points",
    xs=(Number("reads_bps", "reads (Gbit/s)"), Number(least_known("read.p99_s"), "p99", is_time=True)),
    y=Number("steps_bps", "allreduce (Gbit/s)"),
    colour="{control}",
    words="{name}",
)


def trades(scale: float = 1.0, *left_out: str) -> dict[str, Any]:
    """Return a summary of a grid of three points, a single one, and each program alone."""
    points = {"lanes": ("none", 50, 6, 2e-4), "one": ("grid", 40, 7, 3e-4), "two": ("grid", 60, 4, 1e-4),
              "beaten": ("grid", 30, 3, 4e-4)}  # fmt: skip
    metrics = {f"{name}.reads_bps": scale * reads for name, (_, reads, *_) in points.items()}
    metrics |= {f"{name}.steps_bps": steps for name, (_, _, steps, _) in points.items()}
    metrics |= {f"{name}.read.p99_s": late_s for name, (*_, late_s) in points.items()}
    metrics |= {"steps_alone.steps_bps": 12, "reads_alone.reads_bps": 80}
    controls = {name: control for name, (control, *_) in points.items()} | dict.fromkeys(
        ("steps_alone", "reads_alone"), "none"
    )
    cases = [
        {"phase": name, "title": name, "settings": {"control": control, "name": name}, "aside": {}}
        for name, control in controls.items()
    ]
    return {"cases": cases, "metrics": {path: value for path, value in metrics.items() if path not in left_out}}


def dots(panel: Axes) -> dict[str, Any]:
    return {str(drawn.get_label()): np.asarray(drawn.get_offsets()).tolist() for drawn in panel.collections}


def test_a_trade_off_has_a_dot_per_point_and_joins_the_best_of_a_grid() -> None:
    reads, late = panels_of(drawn(TRADE, trades()))
    assert dots(reads) == {"none": [[50, 6]], "grid": [[40, 7], [60, 4], [30, 3]]}
    assert np.asarray(reads.lines[0].get_xydata()).tolist() == [[40, 7], [60, 4]]
    assert np.asarray(late.lines[0].get_xydata()).tolist() == [[1e-4, 4], [3e-4, 7]]
    assert (late.get_xscale(), late.get_xlabel(), late.get_ylabel()) == ("log", "p99", "allreduce (Gbit/s)")
    assert [text.get_text() for text in late.texts] == ["lanes", "one", "two", "beaten", "alone"]


def test_what_a_program_has_alone_is_a_line_where_it_has_an_axis() -> None:
    reads, late = panels_of(drawn(TRADE, trades()))
    assert [line.get_xydata().tolist() for line in reads.lines[1:]] == [[[0, 12], [1, 12]], [[80, 0], [80, 1]]]  # type: ignore[union-attr]
    assert [line.get_xydata().tolist() for line in late.lines[1:]] == [[[0, 12], [1, 12]]]  # type: ignore[union-attr]


def test_a_point_without_one_of_its_numbers_is_left_out() -> None:
    reads, _ = panels_of(drawn(TRADE, trades(1.0, "two.read.p99_s")))
    assert dots(reads)["grid"] == [[40, 7], [30, 3]]


def test_points_over_runs_are_medians_with_intervals() -> None:
    reads, _ = panels_of(drawn(TRADE, *map(trades, (1.0, 2.0, 5.0))))
    points, across, along = reads.collections[:3]
    assert np.asarray(points.get_offsets()).tolist() == [[100, 6]]
    spans = [found.get_segments()[0].tolist() for found in (across, along)]  # type: ignore[attr-defined]
    assert spans == [[[50, 6], [250, 6]], [[100, 6], [100, 6]]]


def test_panels_of_one_number_stand_in_columns_with_a_level_for_each_value() -> None:
    form = Lines("rates", "Rates.", "Rates", numbers=(Number("rate_Bps", "GB/s", 1e-9),), x="{servers}", line="{limit}",
                 rows="{control}",  levels=(Level(Number("a_s", "a"), words="{:.1f} s"),),
                 looks=Looks(log2_x=True, x_form="size", columns=2))  # fmt: skip
    line, cubic = panels_of(drawn(form, summary_of()))
    assert [panel.get_title(loc="left") for panel in (line, cubic)] == ["line", "cubic"]
    assert line.get_subplotspec().rowspan.start == cubic.get_subplotspec().rowspan.start == 0  # type: ignore[union-attr]
    assert [text.get_text() for text in line.texts] == ["1.0 s"], "both cases have that value"
    assert [label.get_text() for label in line.get_xticklabels()] == ["4 B"]


def test_bars_are_in_the_order_of_a_number_and_say_others_of_their_case() -> None:
    looks = Looks(horizontal=True, height=1.0, places=Places(0.5, by="rate_Bps"), bar_words="{:.0f} of {nic_Bps:.0e}")
    rates = (Number("rate_Bps", "GB/s", 1e-9),)
    form = Bars("rates", "Rates.", "Rates", rates, x="{control}, {limit}", looks=looks)
    figure = drawn(form, summary_of())
    (panel,) = panels_of(figure)
    assert [label.get_text() for label in panel.get_yticklabels()] == [
        "cubic, 2",
        "cubic, off",
        "line, 2",
        "line, off",
    ]
    assert [text.get_text() for text in panel.texts] == [f"{value} of 2e+10" for value in (4, 3, 2, 1)]
    assert figure.get_figheight() == pytest.approx(drawn(LINES, summary_of()).get_figheight() - 4.2 + 1.0 + 4 * 0.5)


def test_a_stack_says_its_whole() -> None:
    form = replace(STACKED, looks=Looks(bar_words="{:.0f}", places=Places(are_counts=True)))
    line, _ = panels_of(drawn(form, summary_of()))
    assert [text.get_text() for text in line.texts] == ["3", "3"], "1 computing and 2 waiting"


def test_lines_of_one_colour_differ_in_dash_and_go_up_to_another_number() -> None:
    numbers = (Number("rate_Bps", "here", 1e-9, upto="nic_Bps"), Number("unknown_Bps", "nowhere"))
    form = Bands("bands", "Bands.", "Rates", numbers, x="{servers}", line="{control}", colour="{servers} servers")
    (panel,) = panels_of(drawn(form, summary_of()))
    lines = [line for line in panel.lines if str(line.get_label()) in ("line", "cubic")]
    assert len({line.get_color() for line in lines}) == 1
    assert len({line.get_linestyle() for line in lines}) == 2
    spans = [segment[:, 1].tolist() for found in panel.collections for segment in found.get_segments()]  # type: ignore[attr-defined]
    assert spans == [[1, 25], [2, 25], [3, 25], [4, 25]]


def test_numbers_are_at_their_places_and_each_panel_has_its_own_axis() -> None:
    form = Lines(
        "loads",
        "Loads.",
        "By load",
        numbers=(Number("left", "left"),),
        x="{load}",
        line="{queueing}",
        rows="{panel}",
        labels=("{axis}", "left"),
        looks=Looks(columns=2, places=Places(are_numbers=True)),
    )
    places = {"others": ("load, %", ("0", "50", "200")), "storage": ("batches", ("8", "0", "2"))}
    cases = [
        {
            "phase": f"{panel}_{load}",
            "title": load,
            "settings": {"queueing": "lanes", "panel": panel, "axis": axis, "load": load},
            "aside": {"left": float(load) / 10},
        }
        for panel, (axis, loads) in places.items()
        for load in loads
    ]
    others, storage = panels_of(drawn(form, {"cases": cases}))
    assert [panel.get_xlabel() for panel in (others, storage)] == ["load, %", "batches"]
    assert [list(map(float, panel.lines[0].get_xdata())) for panel in (others, storage)] == [[0, 50, 200], [0, 2, 8]]  # type: ignore[arg-type]
    assert list(map(float, storage.lines[0].get_ydata())) == [0, 0.2, 0.8]  # type: ignore[arg-type]
    assert others.get_xlim()[1] > 200 > 10 > storage.get_xlim()[1]


def test_of_runs_with_other_parts_those_are_shown_that_all_have() -> None:
    def summary(values: Mapping[str, float]) -> dict[str, Any]:
        cases = [
            {"phase": "p", "title": "p", "settings": {"count": count}, "aside": {"share": value}}
            for count, value in values.items()
        ]
        return {"cases": cases}

    found = shown([summary({"0": 0.1, "1": 0.2, "2": 1.0}), summary({"1": 0.4, "0": 0.3})])
    share = Number("share", "share")
    assert [(one.settings["count"], one.value(share)) for one in found] == [("0", 0.2), ("1", pytest.approx(0.3))]


@pytest.mark.parametrize("horizontal", [True, False])
def test_no_number_at_the_end_of_a_bar_covers_a_mark(horizontal: bool) -> None:
    """Marks stand in bars, at their ends, just beyond them and far away."""
    ends, marks = (9.0, 9.0, 9.0, 9.0), (4.0, 9.0, 9.3, 10.0)
    cases = [
        {"phase": f"p{number}", "title": f"p{number}", "settings": {"limit": str(number)}, "aside": {"mark": mark}}
        for number, mark in enumerate(marks)
    ]
    metrics = {f"p{number}.end": end for number, end in enumerate(ends)}
    form = Bars("ends", "Ends.", "Ends", (Number("end", ""),), marks=(Number("mark", "a mark"),), x="{limit}",
                panels="all", looks=Looks(horizontal=horizontal, bar_words="{:.1f} of ten"))  # fmt: skip
    figure = drawn(form, {"cases": cases, "metrics": metrics})
    figure.draw_without_rendering()
    (panel,) = panels_of(figure)
    texts = {text.get_text(): text for text in panel.texts}
    assert list(texts) == ["9.0 of ten"]
    along = 0 if horizontal else 1
    for number, (text, mark) in enumerate(zip(panel.texts, marks, strict=True)):
        box = text.get_window_extent()
        low, high = ((box.x0, box.x1), (box.y0, box.y1))[along]
        at = panel.transData.transform((mark, number) if horizontal else (number, mark))[along]
        assert not low < at < high, (mark, low, at, high)
