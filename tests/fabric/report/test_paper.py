"""Figures for papers: a column's width, text that stays text, what is left to the caption."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fabric.errors import UsageError
from fabric.report.figures.style import headed, save
from fabric.report.paper import Paper, on_paper, parse_width_in

COLUMN = Paper(3.3, is_bare=True)


@pytest.mark.parametrize(
    ("text", "inches"), [("3.3in", 3.3), ("84mm", 84 / 25.4), ("8.4cm", 8.4 / 2.54), ("240pt", 3.321)]
)
def test_widths_have_the_units_of_papers(text: str, inches: float) -> None:
    assert parse_width_in(text) == pytest.approx(inches, rel=1e-3)


@pytest.mark.parametrize("text", ["3.3", "in", "3.3 feet", ""])
def test_a_width_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a width; use in, cm, mm or pt"):
        parse_width_in(text)


def test_widths_that_nothing_fits_in_are_refused() -> None:
    with pytest.raises(UsageError, match=r"width of 1 in: use 2 to 30 in"):
        Paper(1.0, is_bare=True)
    with pytest.raises(UsageError, match=r"title and verdict take 6 in or more; leave them to your caption"):
        Paper(3.3)


def drawn(directory: Path, paper: Paper, *formats: str) -> tuple[Figure, dict[str, Path]]:
    """Three panels beside each other, 9 inches wide on a screen."""
    entries = ["one shared queue", "one lossless lane", "lossless lanes, others offer half"]
    with on_paper(paper):
        with headed("A title", "a subtitle", ["seed 1"], 9, 3, ("emulation: faithful", "#00755A")) as (figure, body):
            for panel in body.subplots(1, 3, sharey=True, width_ratios=[2, 1, 1]):
                for entry in entries:
                    panel.plot([1, 2], label=entry)
                panel.set_xlabel("time in the phase")
            handles, labels = panel.get_legend_handles_labels()
            body.legend(handles, labels, loc="outside lower center", ncols=3)
        paths = save(figure, directory, "figure", formats)
    return figure, {path.suffix: path for path in paths}


def text_of(svg: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg.read_text())


def test_a_column_has_its_width_its_panels_below_each_other_and_readable_text(tmp_path: Path) -> None:
    figure, made = drawn(tmp_path, COLUMN, "svg")
    svg = made[".svg"]
    width_pt = float(re.search(r'width="([\d.]+)pt"', svg.read_text())[1])  # type: ignore[index]
    assert width_pt == pytest.approx(3.3 * 72)
    panels = [axes for part in figure.subfigs for axes in part.axes]
    places = [axes.get_position() for axes in panels]
    assert [place.x0 for place in places] == pytest.approx([places[0].x0] * 3)
    assert [place.y0 for place in places] == sorted((place.y0 for place in places), reverse=True)
    assert [axes.xaxis.label.get_fontsize() for axes in panels] == pytest.approx([7.0] * 3)
    (legend,) = [one for part in figure.subfigs for one in part.legends]
    assert legend.get_window_extent().width <= figure.get_size_inches()[0] * figure.dpi
    shown = text_of(svg)
    assert "time in the phase" in shown, "text can be selected and searched"
    assert not {"A title", "a subtitle", "seed 1"} & set(shown)


def test_a_pdf_embeds_its_fonts_and_knows_what_was_left_to_the_caption(tmp_path: Path) -> None:
    _, made = drawn(tmp_path, COLUMN, "pdf", "png")
    pdf = made[".pdf"].read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"/Title (A title)" in pdf
    assert b"seed 1; emulation: faithful" in pdf
    streams = [zlib.decompress(found) for found in re.findall(rb"stream\r?\n(x.*?)\r?\nendstream", pdf, re.DOTALL)]
    assert any(b"Tj" in stream or b"TJ" in stream for stream in streams), "text is drawn as text"
    assert made[".png"].read_bytes()[16:20] == (990).to_bytes(4, "big"), "300 dots per inch, also after a PDF"


def test_what_a_run_draws_is_as_it_was(tmp_path: Path) -> None:
    figure, made = drawn(tmp_path, Paper(), "png", "svg")
    assert figure.get_size_inches()[0] == 9
    head, body, _ = figure.subfigs
    assert "A title" in [text.get_text() for text in head.texts]
    widths = [axes.get_position().width for axes in body.axes if isinstance(axes, Axes)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.05)
    assert body.axes[0].xaxis.label.get_fontsize() == 9
    assert text_of(made[".svg"]) == [], "paths, which look the same everywhere"
