"""Published setups on one page: a table each, and a figure of all numbers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.reproduction.comparing import COLUMNS, Compared
from experiments.reproduction.config import CaseConfig
from fabric.report.figures.style import GREY, VERDICT_COLOURS, headed, save

_HERE = Path(__file__).parent
_ROW_INCHES = 0.19
_MOST_OFF = 0.25
"""How far off the figure's axis goes; what is farther off is drawn at its end."""


def write_page(cases: Mapping[str, CaseConfig], numbers: Sequence[Compared], directory: Path) -> Path:
    """Write ``index.html`` and the figure into a directory; return the page."""
    directory.mkdir(parents=True, exist_ok=True)
    png, _ = save(draw(cases, numbers), directory / "figures", "reproduction")
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    text = environment.get_template("page.html").render(
        figure=base64.b64encode(png.read_bytes()).decode(),
        columns=COLUMNS,
        total=len(numbers),
        inside=sum(number.is_within for number in numbers),
        cases=[_described(name, case, numbers) for name, case in cases.items() if case.not_yet is None],
        waiting=[case for case in cases.values() if case.not_yet is not None],
    )
    page = directory / "index.html"
    partial = page.with_suffix(".partial")
    partial.write_text(text)
    partial.replace(page)
    return page


def _described(name: str, case: CaseConfig, numbers: Sequence[Compared]) -> dict[str, object]:
    own = [number for number in numbers if number.case == name]
    return {
        **{key: getattr(case, key) for key in ("title", "source", "link", "read")},
        "name": name,
        "rows": [number.cells for number in own],
        "gaps": list(dict.fromkeys(f"{one.config.name}: {one.config.gap}." for one in own if one.config.gap)),
    }


def draw(cases: Mapping[str, CaseConfig], numbers: Sequence[Compared]) -> Figure:
    """Return the figure: how far each of ours is off, with its interval and its tolerance, case by case."""
    rows = [number for number in numbers if number.off is not None]
    height = 0.6 + _ROW_INCHES * (len(rows) + 1.5 * len({number.case for number in rows}))
    title = "How far ours is from theory, or else from what was published"
    foot = ["Diamonds: farther off than the axis goes. Intervals are of medians, 95 %."]
    with headed(title, "grey: within tolerance; dots: ours, with intervals", foot, 8.5, height) as (figure, body):
        axes = body.subplots()
        labels: dict[float, str] = {}
        place, case = 0.0, ""
        for number in rows:
            if number.case != case:
                case = number.case
                labels[place + 0.5] = case
                place += 1.5
            _draw_number(axes, place, number)
            labels[place] = number.config.name
            place += 1
        axes.axvline(0, color=GREY, linewidth=1)
        axes.set_yticks(list(labels), list(labels.values()), fontsize=7)
        for text in axes.get_yticklabels():
            if text.get_text() in cases:
                text.set_fontweight("bold")
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(place, -0.3)
        axes.set_xlim(-1.1 * _MOST_OFF, 1.1 * _MOST_OFF)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.0%}")
        axes.grid(visible=False, axis="y")
    return figure


def _draw_number(axes: Axes, place: float, number: Compared) -> None:
    off, ours, tolerance = number.off, number.ours, number.config.tolerance
    assert off is not None
    assert ours is not None
    colour = VERDICT_COLOURS["faithful" if number.is_within else "invalid"]
    axes.barh(place, 2 * tolerance, left=-tolerance, height=0.75, color="#e4e4e4")
    at = max(-_MOST_OFF, min(_MOST_OFF, off))
    axes.plot(at, place, "o" if at == off else "D", color=colour, markersize=4)
    if ours.low is not None and ours.high is not None and ours.median:
        ends = [max(-_MOST_OFF, min(_MOST_OFF, (1 + off) * end / ours.median - 1)) for end in (ours.low, ours.high)]
        axes.hlines(place, ends[0], ends[1], color=colour, linewidth=1.2)
