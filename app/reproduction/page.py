"""Published setups on one page: a table each, and a figure of all numbers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from app.reproduction.comparing import COLUMNS, NOTHING, Compared, Judgement, told
from app.reproduction.config import CaseConfig
from fabric.records.palette import GREY, PALE, VERDICTS
from fabric.report.figures.style import headed, save
from fabric.units import format_change

_HERE = Path(__file__).parent
_WIDTH, _NUMBER_INCHES, _CASE_INCHES = 9.0, 0.1, 0.14
"""Of the figure: its width, the height of a number, and what a case has above its first."""
_MOST_OFF = 0.25
"""How far off the figure's axes go; what is farther off is drawn at their ends."""
_BAND = PALE
_JUDGED = 2
"""Columns at the end of a row that judge."""
_PANELS: Mapping[str, Callable[[Compared], Judgement | None]] = {
    "beside theory": lambda number: number.by_theory,
    "beside what was published": lambda number: number.by_published,
}


def write_page(cases: Mapping[str, CaseConfig], numbers: Sequence[Compared], directory: Path) -> Path:
    """Write ``index.html`` and the figure into a directory; return the page."""
    directory.mkdir(parents=True, exist_ok=True)
    png, _ = save(draw(numbers), directory / "figures", "reproduction")
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    text = environment.get_template("page.html").render(
        figure=base64.b64encode(png.read_bytes()).decode(),
        columns=COLUMNS,
        judged=_JUDGED,
        nothing=NOTHING,
        told=told(numbers),
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


def draw(numbers: Sequence[Compared]) -> Figure:
    """Return the figure: a row per case, in it how far each of its numbers is from theory and from what was published,
    with its interval and what is allowed."""
    rows: dict[str, list[Compared]] = {}
    for number in numbers:
        if any(one.off is not None for one in number.judgements):
            rows.setdefault(number.case, []).append(number)
    height = 1.1 + sum(_CASE_INCHES + _NUMBER_INCHES * len(own) for own in rows.values())
    foot = [
        f"Diamonds: farther off than {_MOST_OFF:.0%}. Intervals are of medians, 95 %.",
        "A bound that was published, or the upper end of a range, is 0 on the right.",
    ]
    subtitle = "grey: what is allowed; dots: ours, green within, red outside"
    title = "How far ours is from theory, and from what was published"
    with headed(title, subtitle, foot, _WIDTH, height) as (figure, body):
        panels = body.subplots(1, len(_PANELS), sharey=True)
        labels: dict[float, str] = {}
        place = 0.0
        for case, own in rows.items():
            place += _CASE_INCHES
            labels[place + _NUMBER_INCHES * (len(own) - 1) / 2] = case
            for number in own:
                for axes, judged in zip(panels, _PANELS.values(), strict=True):
                    _draw_number(axes, place, number, judged(number))
                place += _NUMBER_INCHES
        for axes, title in zip(panels, _PANELS, strict=True):
            _finish(axes, title, max(place, _CASE_INCHES))
        panels[0].set_yticks(list(labels), list(labels.values()), fontsize=8)
    return figure


def _finish(axes: Axes, title: str, end: float) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.axvline(0, color=GREY, linewidth=1, zorder=1)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(end, 0)
    axes.set_xlim(-1.1 * _MOST_OFF, 1.1 * _MOST_OFF)
    axes.xaxis.set_major_formatter(lambda value, _: format_change(value, 0))
    axes.grid(visible=False, axis="y")


def _draw_number(axes: Axes, place: float, number: Compared, judged: Judgement | None) -> None:
    if judged is None or judged.off is None or number.ours is None:
        return
    off, ours = judged.off, number.ours
    low, high = (2 * _MOST_OFF if end is None else end for end in (judged.below, judged.above))
    axes.barh(place, low + high, left=-low, height=_NUMBER_INCHES, color=_BAND, zorder=0)
    colour = VERDICTS["faithful" if judged.is_within else "invalid"]
    at = max(-_MOST_OFF, min(_MOST_OFF, off))
    axes.plot(at, place, "o" if at == off else "D", color=colour, markersize=3.5, zorder=3)
    if ours.low is not None and ours.high is not None and ours.median:
        ends = [max(-_MOST_OFF, min(_MOST_OFF, (1 + off) * end / ours.median - 1)) for end in (ours.low, ours.high)]
        axes.hlines(place, ends[0], ends[1], color=colour, linewidth=1.2, zorder=2)
