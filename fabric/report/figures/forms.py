"""Draws the figures of cases by their forms, of one run or of several: :mod:`fabric.records.figure_forms`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from fabric.estimates import Estimate, estimate
from fabric.metrics import Numbers
from fabric.records.figure_forms import CASES, Bands, Bars, Form, Level, Lines, Looks, Number, Scatter, frontier
from fabric.records.palette import GREY, INK, QUEUEINGS, series
from fabric.records.words import number_words
from fabric.report.figures import FigureSpec, RepeatedSpec
from fabric.report.figures.style import HALO, LINE_STYLES, framed, headed, panel_grid
from fabric.results import Result
from fabric.units import format_time

_WORDS_PT, _GAP_PT = 8.0, 3.0
"""Of the number at a bar, and from the bar or a mark to it."""
_BESIDE = 0.1
"""From the points of one line to those of the next, of the way to the next category."""
_WIDTH = 0.8
"""Of all bars at a place, of the way to the next one."""
_MARKERS = "osD^vPX*"
_LARGE_MARKERS = "Xd^v*sP"
"""Of single points."""
_FAINT = 0.75
_APART = 1.5
"""How far a band goes, to both sides of the only place that has it."""
_MOST_TICKS = 6
"""Of numbers with a unit."""
_HEADROOM = 1.04
"""So that a level at the top is not the frame."""
_BEHIND_WORDS = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.0}
"""Of the words at a level, which other lines may cross."""


@dataclass(frozen=True)
class Shown:
    """A case: its settings in words, and its numbers in each run."""

    settings: Mapping[str, str]
    runs: Sequence[Numbers]

    def format(self, text: str) -> str:
        """Return a text with settings in braces replaced by their words."""
        return text.format_map(self.settings)

    def estimate(self, number: Number) -> Estimate | None:
        """Return a number over the runs that have it; None if none has."""
        known = [value for value in map(number.of, self.runs) if not math.isnan(value)]
        return estimate(known) if known else None

    def value(self, number: Number) -> float:
        """Return its median over runs; NaN if none has it."""
        found = self.estimate(number)
        return math.nan if found is None else found.median


def figure_of(form: Form, earlier: Callable[[Result], Sequence[Shown]] = lambda _: ()) -> FigureSpec:
    """Return the figure of a run. ``earlier``: the cases of a result whose summary has none, for it is of an earlier
    version."""

    def drawn(result: Result) -> Figure | None:
        cases = _suitable(form, shown([result.summary]) if CASES in result.summary else earlier(result))
        if not cases:
            return None
        with framed(result, form.title, form.looks.width, _height(form, cases)) as (figure, body):
            _draw(body, form, cases)
        return figure

    def lacks(result: Result) -> str:
        if CASES in result.summary or earlier(result):
            return ""
        return "its summary lists no cases, as those of earlier versions do not; run the experiment again"

    return FigureSpec(form.name, form.caption, drawn, lacks)


def figure_over_runs(form: Form) -> RepeatedSpec:
    """Return the same figure over several runs: medians and their intervals."""

    def drawn(summaries: Sequence[Mapping[str, Any]], subtitle: str, footer: Sequence[str]) -> Figure | None:
        cases = _suitable(form, shown(summaries))
        if not cases:
            return None
        with headed(form.title, subtitle, footer, form.looks.width, _height(form, cases)) as (figure, body):
            _draw(body, form, cases)
        return figure

    return RepeatedSpec(form.name, drawn)


def shown(summaries: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """Return the cases of runs; none if the runs have other cases than each other. Of cases that are shown in other
    numbers of parts, such as points of a distribution, these are the parts that all runs have, by their settings."""
    listed = [summary.get(CASES, ()) for summary in summaries]
    names = [[one["phase"] for one in cases] for cases in listed]
    if not listed or any(dict.fromkeys(one).keys() != dict.fromkeys(names[0]).keys() for one in names):
        return []
    if any(one != names[0] for one in names):
        listed = _parts_of_all(listed)
    runs = [[_numbers(summary, one) for one in cases] for summary, cases in zip(summaries, listed, strict=True)]
    return [
        Shown({**one["settings"], "title": one["title"]}, [run[place] for run in runs])
        for place, one in enumerate(listed[0])
    ]


def _parts_of_all(listed: Sequence[Sequence[Mapping[str, Any]]]) -> list[list[Mapping[str, Any]]]:
    """Return the parts of each run's cases that all runs have, in the order of the first run."""
    by_key = [{(one["phase"], *sorted(one["settings"].items())): one for one in cases} for cases in listed]
    keys = [key for key in by_key[0] if all(key in run for run in by_key)]
    return [[run[key] for key in keys] for run in by_key]


def _numbers(summary: Mapping[str, Any], case: Mapping[str, Any]) -> Numbers:
    start = f"{case['phase']}."
    measured = {path: value for path, value in summary.get("metrics", {}).items() if path.startswith(start)}
    found = {**case["aside"], **{path.removeprefix(start): value for path, value in measured.items()}}
    return Numbers({name: value for name, value in found.items() if value is not None})


def _suitable(form: Form, cases: Sequence[Shown]) -> list[Shown]:
    """Return the cases that have the settings of a form, and its numbers: all that are stacked, all or one that say
    where a point is, else one or more."""
    texts = _texts(form)
    return [one for one in cases if all(_has(one, text) for text in texts) and _has_enough(form, one)]


def _has_enough(form: Form, case: Shown) -> bool:
    known = sum(not math.isnan(case.value(number)) for number in form.numbers)
    if isinstance(form, Scatter):
        return known in (1, len(form.numbers))
    return known == len(form.numbers) if isinstance(form, Bars) and form.stacked else known > 0


def _texts(form: Form) -> list[str]:
    """Return the texts of a form with settings in braces."""
    if isinstance(form, Scatter):
        return [form.colour, form.words]
    texts = [form.x, form.colour, form.rows if isinstance(form, Lines) else form.panels]
    return texts if isinstance(form, Bars) else [*texts, form.line]


def _has(case: Shown, text: str) -> bool:
    try:
        case.format(text)
    except KeyError:
        return False
    return True


def _height(form: Form, cases: Sequence[Shown]) -> float:
    if isinstance(form, Lines):
        rows, columns = len(_distinct(cases, form.rows)), form.looks.columns
        return form.looks.height * (-(-rows * len(form.numbers) // columns) if columns else rows)
    places = len(_distinct(cases, form.x)) if isinstance(form, Bars) else 0
    return form.looks.height + form.looks.places.inches * places


def _distinct(cases: Sequence[Shown], text: str) -> list[str]:
    return list(dict.fromkeys(one.format(text) for one in cases))


def _draw(body: SubFigure, form: Form, cases: Sequence[Shown]) -> None:
    panels = _panels(body, form, cases)
    handles: dict[str, Any] = {}
    for panel in panels:
        handles |= {label: handle for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
                    if label not in handles}  # fmt: skip
    if len(handles) > 1:
        columns = min(form.looks.legend, len(handles))
        body.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)


def _panels(body: SubFigure, form: Form, cases: Sequence[Shown]) -> list[Axes]:
    if isinstance(form, Scatter):
        return _scatter_panels(body, form, cases)
    if isinstance(form, Bands):
        return _band_panels(body, form, cases)
    return _bar_panels(body, form, cases) if isinstance(form, Bars) else _line_panels(body, form, cases)


def _colour(place: int) -> str:
    return series(place)


def _colours_of(names: Sequence[str]) -> list[str]:
    """Return a colour for each name: that of a queueing in all figures, if all are queueings."""
    of_queueings = {queueing.words: colour for queueing, colour in QUEUEINGS.items()}
    if of_queueings.keys() >= set(names):
        return [of_queueings[name] for name in names]
    return list(map(_colour, range(len(names))))


# Bars -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bar:
    """A bar: the names of its place and of its colour, its case, and its number."""

    place: str
    colour: str
    case: Shown
    number: Number

    def words(self, text: str, value: float) -> str:
        """Return a format of its value and of other numbers of its case by name."""
        names = dict.fromkeys(name for run in self.case.runs for name in run)
        return text.format(value, **{name: self.case.value(Number(name, "")) for name in names})


def _bars_of(form: Bars, cases: Sequence[Shown]) -> list[_Bar]:
    return [
        _Bar(
            case.format(form.x) if form.x else number.label,
            case.format(form.colour) if form.colour else number.label,
            case,
            number,
        )
        for case in cases
        for number in form.numbers
        if not math.isnan(case.value(number))
    ]


def _bar_panels(body: SubFigure, form: Bars, cases: Sequence[Shown]) -> list[Axes]:
    titles = _distinct(cases, form.panels)
    panels: list[Axes] = list(body.subplots(1, len(titles), squeeze=False, sharey=not form.stacked)[0])
    ends: dict[Axes, list[_End]] = {}
    if form.looks.places.by:
        cases = sorted(cases, key=lambda one: one.value(Number(form.looks.places.by, "")), reverse=True)
    for panel, title in zip(panels, titles, strict=True):
        mine = [one for one in cases if one.format(form.panels) == title]
        ends[panel] = _draw_bars(panel, form, mine)
        panel.set_title(title.replace(", ", ",\n", 1), fontsize=8)
    for panel in panels if form.stacked else panels[:1]:  # Those of others are shared.
        if not form.looks.horizontal:
            _finish_y(panel, form.looks)
        panel.set_ylabel(form.labels[1])
    for panel, found in ends.items():  # Scales and limits are known by now.
        for end in found:
            _write_at_end(panel, form, end)
    return panels


def _draw_bars(panel: Axes, form: Bars, cases: Sequence[Shown]) -> list[_End]:
    """Draw bars; return the ends of those whose numbers have to keep clear of marks."""
    ends: list[_End] = []
    bars = _bars_of(form, cases)
    places, colours = (
        list(dict.fromkeys(names)) for names in zip(*((one.place, one.colour) for one in bars), strict=True)
    )
    width = 0.7 if form.stacked else _WIDTH / len(colours)
    below = dict.fromkeys(places, 0.0)
    for number, (colour, shade) in enumerate(zip(colours, _colours_of(colours), strict=True)):
        mine = [one for one in bars if one.colour == colour]
        shift = 0.0 if form.stacked else (number - (len(colours) - 1) / 2) * width
        at = [places.index(one.place) + shift for one in mine]
        values = [max(one.case.value(one.number), 0.0) if form.stacked else one.case.value(one.number) for one in mine]
        foot = [below[one.place] for one in mine]
        draw: Callable[..., Any] = panel.barh if form.looks.horizontal else panel.bar
        drawn = draw(at, values, width if form.stacked else width * 0.9, color=shade, label=colour,
             **{"left" if form.looks.horizontal else "bottom": foot})  # fmt: skip
        wholes = [low + value for low, value in zip(foot, values, strict=True)]
        if (words := form.looks.bar_words) and not (form.stacked and colour != colours[-1]):
            written = [one.words(words, whole) for one, whole in zip(mine, wholes, strict=True)]
            if form.marks and not form.stacked and not any(one.number.upto for one in mine):
                marks = [[one.case.value(mark) for mark in form.marks] for one in mine]
                ends += map(_End, written, at, wholes, marks)
            else:
                panel.bar_label(drawn, written, padding=3 if form.looks.places.inches else 0, fontsize=_WORDS_PT,
                                **_look_of_words(form, mine))  # fmt: skip
        if form.stacked:
            below |= {one.place: whole for one, whole in zip(mine, wholes, strict=True)}
        _draw_beside(panel, form, mine, at, has_marks=not (form.stacked and number))
    _finish_bars(panel, form, places)
    for level in form.levels:
        _draw_level(panel, level, cases, form.looks.horizontal)
    return ends


@dataclass(frozen=True)
class _End:
    """The number at the end of a bar: where the bar is across and along its panel, and where its marks are along."""

    words: str
    across: float
    along: float
    marks: Sequence[float]


def _write_at_end(panel: Axes, form: Bars, end: _End) -> None:
    """Write the number of a bar at its end, or beyond a mark that it would cover there."""
    horizontal, place = form.looks.horizontal, 0 if form.looks.horizontal else 1

    def fraction(along: float) -> float:
        at = panel.transScale.transform((along, 1.0) if horizontal else (1.0, along))
        return float(panel.transLimits.transform(at)[place])

    extent = panel.get_window_extent()
    length_pt = (extent.width if horizontal else extent.height) * 72 / panel.figure.dpi
    room = (_WORDS_PT * (0.62 * len(end.words) if horizontal else 1.3) + 2 * _GAP_PT) / length_pt
    along = end.along
    for mark in sorted(one for one in end.marks if not math.isnan(one)):
        if -_GAP_PT / length_pt < fraction(mark) - fraction(along) < room:
            along = max(along, mark)
    at, gap = ((along, end.across), (_GAP_PT, 0.0)) if horizontal else ((end.across, along), (0.0, _GAP_PT))
    sides: dict[str, Any] = {"ha": "left", "va": "center"} if horizontal else {"ha": "center", "va": "bottom"}
    panel.annotate(end.words, at, gap, textcoords="offset points", fontsize=_WORDS_PT, annotation_clip=False, **sides)


def _look_of_words(form: Bars, bars: Sequence[_Bar]) -> dict[str, Any]:
    """Return where numbers of bars are that have a line at their end, and what sets others off from marks."""
    if any(one.number.upto for one in bars):
        return {"label_type": "center", "color": "white"}
    return {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.4}, "zorder": 4} if form.marks else {}


def _draw_beside(panel: Axes, form: Bars, bars: Sequence[_Bar], at: Sequence[float], has_marks: bool) -> None:
    """Draw the marks of bars, and lines up to other numbers and over the intervals."""
    turn = -1 if form.looks.horizontal else 1
    for mark in form.marks if has_marks else ():
        values = [one.case.value(mark) for one in bars]
        marker = "|" if mark.marker == "_" and form.looks.horizontal else mark.marker
        panel.plot(*(at, values)[::turn], marker, color=mark.colour, markersize=mark.size, markeredgewidth=1.6,
                   label=mark.label, path_effects=HALO)  # fmt: skip
    across = panel.hlines if form.looks.horizontal else panel.vlines
    for place, one in zip(at, bars, strict=True):
        if one.number.upto:
            value, most = one.case.value(one.number), one.case.value(Number(one.number.upto, "", one.number.factor))
            across(place, value, most, color=GREY, linewidth=1.0)
            panel.plot(*((place,), (most,))[::turn], "_", color=GREY, markersize=6)
        found = one.case.estimate(one.number)
        if not form.stacked and found is not None and found.low is not None and found.high is not None:
            across(place, found.low, found.high, color=INK, linewidth=1.2)


def _finish_bars(panel: Axes, form: Bars, places: Sequence[str]) -> None:
    names = [place if form.looks.places.inches else place.replace(", ", ",\n") for place in places]
    if form.looks.horizontal:
        panel.set_yticks(range(len(places)), names)
        panel.yaxis.set_inverted(True)  # Panels share it.
        if form.looks.percent_y:
            panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        panel.set_xticks(range(len(places)), names)
    if form.looks.places.are_counts:
        (panel.xaxis if form.looks.horizontal else panel.yaxis).set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel(form.labels[0])
    panel.grid(visible=False, axis="y" if form.looks.horizontal else "x")


def _draw_level(panel: Axes, level: Level, cases: Sequence[Shown], horizontal: bool = False) -> None:
    found = [value for one in cases if not math.isnan(value := one.value(level.number))]
    lines = {level.words.format(value): value for value in (found if level.words else found[:1])}
    look: dict[str, Any] = {"color": level.number.colour, "linestyle": level.dash, "linewidth": 1.4}
    for words, value in lines.items():
        if level.at is not None:
            panel.hlines(value, level.at - 0.5, level.at + 0.5, label=level.number.label, **look)
        else:
            (panel.axvline if horizontal else panel.axhline)(value, label=level.number.label, **look)
        if words:
            panel.annotate(words, (0, value), (2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
                           fontsize=7, color=level.number.colour, bbox=_BEHIND_WORDS)  # fmt: skip


# Lines ----------------------------------------------------------------------------------------------------------------


def _line_panels(body: SubFigure, form: Lines, cases: Sequence[Shown]) -> list[Axes]:
    rows = _distinct(cases, form.rows)
    numbers = [one for one in form.numbers if any(not math.isnan(case.value(one)) for case in cases)]
    shown = [(row, number) for row in rows for number in numbers]
    across = form.looks.columns or len(numbers)
    of_row = {row: [one for one in cases if one.format(form.rows) == row] for row in rows}
    is_x_shared = form.looks.log2_x or len({tuple(_places(form, mine)) for mine in of_row.values()}) == 1
    panels = panel_grid(body, len(shown), across, sharex=is_x_shared, sharey=form.looks.log_y)
    for panel, (row, number) in zip(panels, shown, strict=True):
        mine = of_row[row]
        lines = list(_lines_of(form, mine, cases))
        for place, (look, points) in enumerate(lines):
            _draw_line(panel, form, number, points, look, (place - (len(lines) - 1) / 2) * _BESIDE)
        panel.set_title(row)
        for level in form.levels:
            if level.of in ("", number.label):
                _draw_level(panel, level, mine)
        _finish_x(panel, form, mine)
        _finish_y(panel, form.looks, number.is_time)
    for place, (panel, (_, number)) in enumerate(zip(panels, shown, strict=True)):
        if len(form.numbers) > 1:
            panel.set_ylabel(form.labels[1] or number.label)
            panel.set_title(": ".join(filter(None, (panel.get_title(loc="left"), number.label * bool(form.labels[1])))))
        elif not (form.looks.log_y and place % across):  # Else it is shared.
            panel.set_ylabel(form.labels[1])
    for panel, (row, _) in list(zip(panels, shown, strict=True))[-across:]:
        panel.set_xlabel(of_row[row][0].format(form.labels[0]))
    return panels


def _lines_of(
    form: Lines, cases: Sequence[Shown], all_cases: Sequence[Shown]
) -> Iterator[tuple[dict[str, Any], list[Shown]]]:
    """Yield the look and the cases of each line of a row; looks are the same in all rows."""
    colours, dashes = _distinct(all_cases, form.colour or form.line), _distinct(all_cases, form.dash)
    for line in _distinct(cases, form.line):
        points = [one for one in cases if one.format(form.line) == line]
        place = dashes.index(points[0].format(form.dash)) if form.dash else 0
        yield (
            {
                "label": line,
                "color": _colour(colours.index(points[0].format(form.colour or form.line))),
                "linestyle": LINE_STYLES[place % len(LINE_STYLES)],
                "marker": _MARKERS[place % len(_MARKERS)],
            },
            points,
        )


def _places(form: Lines, cases: Sequence[Shown]) -> dict[str, float]:
    """Return where each word of the x axis is: at its number, or one after the other."""
    names = _distinct(cases, form.x)
    if form.looks.log2_x or form.looks.places.are_numbers:
        return {name: float(name) for name in sorted(names, key=float)}
    return {name: float(place) for place, name in enumerate(names)}


def _draw_line(panel: Axes, form: Lines, number: Number, points: Sequence[Shown], look: Mapping[str, Any],
               beside: float) -> None:  # fmt: skip
    """Draw a line over numbers; over categories points, each ``beside`` its place, since lines do not join those."""
    is_joined = _are_numbers([one.format(form.x) for one in points])
    places = {name: place + (0 if is_joined else beside) for name, place in _places(form, points).items()}
    known = [(places[one.format(form.x)], estimate) for one in points if (estimate := one.estimate(number)) is not None]
    found = sorted(known, key=lambda one: one[0])
    panel.plot([place for place, _ in found], [one.median for _, one in found], markersize=4, markerfacecolor="white",
               **{**look, "linestyle": look["linestyle"] if is_joined else ""})  # fmt: skip
    for place, one in found:
        if one.low is not None and one.high is not None:
            panel.vlines(place, one.low, one.high, color=look["color"], linewidth=1.2)


def _are_numbers(texts: Sequence[str]) -> bool:
    try:
        return all(math.isfinite(float(text)) for text in texts)
    except ValueError:
        return False


def _finish_x(panel: Axes, form: Lines, cases: Sequence[Shown]) -> None:
    if form.looks.places.are_numbers:
        panel.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True, steps=[1, 2, 5, 10]))
        return
    places = list(_places(form, cases).items())
    if form.looks.log2_x:
        panel.set_xscale("log", base=2)
    ticks = places[:: -(-len(places) // _MOST_TICKS)] if form.looks.x_form else places
    names = [number_words(place, form.looks.x_form) if form.looks.x_form else name for name, place in ticks]
    panel.set_xticks([place for _, place in ticks], names)
    panel.minorticks_off()


# Bands ----------------------------------------------------------------------------------------------------------------


def _band_panels(body: SubFigure, form: Bands, cases: Sequence[Shown]) -> list[Axes]:
    titles = _distinct(cases, form.panels)
    panels: list[Axes] = list(body.subplots(1, len(titles), squeeze=False, sharey=True)[0])
    looks = _band_looks(form, cases)
    for panel, title in zip(panels, titles, strict=True):
        mine = [one for one in cases if one.format(form.panels) == title]
        for (line, number), look in looks.items():
            points = [one for one in mine if one.format(form.line) == line]
            _draw_band(panel, form, points, look["color"])
            _draw_places(panel, [(float(one.format(form.x)), one.estimate(number)) for one in points], look)
            if number.upto:
                _draw_upto(panel, form, number, points)
        for level in form.levels:
            _draw_level(panel, level, mine)
        places = sorted({one.format(form.x) for one in mine}, key=float)
        panel.set_xscale("log", base=2)
        panel.set_xticks([float(place) for place in places], places)
        panel.minorticks_off()
        panel.set_xlabel(form.labels[0])
        panel.set_title(title, fontsize=9)
    panels[0].set_ylabel(form.labels[1])
    _finish_y(panels[0], form.looks)
    return panels


def _band_looks(form: Bands, cases: Sequence[Shown]) -> dict[tuple[str, Number], dict[str, Any]]:
    """Return the look of each line. Lines may lie on one another, so later ones are thinner, of smaller markers."""
    numbers = [one for one in form.numbers if any(not math.isnan(case.value(one)) for case in cases)]
    by_line = {one.format(form.line): one.format(form.colour) for one in reversed(cases)}
    lines = [(line, number) for line in _distinct(cases, form.line) for number in numbers]
    groups = [by_line[line] if form.colour else f"{line}: {number.label}" for line, number in lines]
    colours = list(dict.fromkeys(groups))
    looks: dict[tuple[str, Number], dict[str, Any]] = {}
    for place, ((line, number), group) in enumerate(zip(lines, groups, strict=True)):
        dash = groups[:place].count(group) if form.colour else place
        looks[line, number] = {
            "label": number.label if not form.line else line if len(numbers) == 1 else f"{line}: {number.label}",
            "color": _colour(colours.index(group)),
            "linestyle": LINE_STYLES[dash % len(LINE_STYLES)],
            "marker": _MARKERS[dash % len(_MARKERS)],
            "markersize": max(4.0, 9 - 1.2 * place),
            "linewidth": max(1.0, 2.2 - 0.25 * place),
        }
        if number.marker != "_":
            look = {"color": number.colour, "linestyle": "", "marker": number.marker, "markersize": number.size}
            looks[line, number] |= look
    return looks


def _draw_places(panel: Axes, points: Sequence[tuple[float, Estimate | None]], look: Mapping[str, Any]) -> None:
    found = [(place, one) for place, one in sorted(points, key=lambda point: point[0]) if one is not None]
    if found:
        panel.plot([place for place, _ in found], [one.median for _, one in found], markerfacecolor="white", **look)
    for place, one in found:
        if one.low is not None and one.high is not None:
            panel.vlines(place, one.low, one.high, color=look["color"], linewidth=1.2)


def _draw_upto(panel: Axes, form: Bands, number: Number, cases: Sequence[Shown]) -> None:
    upto = Number(number.upto, "", number.factor)
    ends = [(float(one.format(form.x)), one.value(number), one.value(upto)) for one in cases]
    known = [one for one in ends if not any(map(math.isnan, one))]
    if known:
        places, values, most = zip(*known, strict=True)
        panel.vlines(places, values, most, color=GREY, linewidth=1.0)
        panel.plot(places, most, "_", color=GREY, markersize=12)


def _draw_band(panel: Axes, form: Bands, cases: Sequence[Shown], colour: str) -> None:
    """Shade an interval over the places that have it, half as far again on both sides where there is but one; several
    lines may have the same one, which is shaded once."""
    if form.band is None:
        return
    low, high = form.band
    ends = {float(one.format(form.x)): (one.value(low), one.value(high)) for one in cases}
    known = {place: pair for place, pair in sorted(ends.items()) if not any(map(math.isnan, pair))}
    label = cases[0].format(low.label) if known else ""
    if not known or label in panel.get_legend_handles_labels()[1]:
        return
    places, pairs = list(known), list(known.values())
    if len(places) == 1:
        places, pairs = [places[0] / _APART, places[0] * _APART], 2 * pairs
    lows, highs = zip(*pairs, strict=True)
    panel.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0, label=label)


def _finish_y(panel: Axes, looks: Looks, is_time: bool = False) -> None:
    if looks.log_y or is_time:
        panel.set_yscale("log")
        panel.yaxis.set_minor_formatter(NullFormatter())
    else:
        panel.set_ylim(0, looks.most_y or _HEADROOM * panel.get_ylim()[1])
    if is_time:
        panel.yaxis.set_major_formatter(lambda value, _: format_time(value))
    if looks.percent_y:
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))


# Points ---------------------------------------------------------------------------------------------------------------


def _scatter_panels(body: SubFigure, form: Scatter, cases: Sequence[Shown]) -> list[Axes]:
    panels: list[Axes] = list(body.subplots(1, len(form.xs), squeeze=False)[0])
    whole = [one for one in cases if not any(math.isnan(one.value(number)) for number in form.numbers)]
    for panel, x in zip(panels, form.xs, strict=True):
        for place, colour in enumerate(_distinct(whole, form.colour)):
            _draw_points(panel, form, x, [one for one in whole if one.format(form.colour) == colour], place)
        for one in cases:
            if one not in whole:
                _draw_alone(panel, form, one.value(x), one.value(form.y))
        if x.is_time:
            panel.set_xscale("log")
            panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            panel.xaxis.set_major_formatter(lambda value, _: format_time(value))
            panel.xaxis.set_minor_formatter(NullFormatter())
        else:
            panel.set_xlim(left=0)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(x.label)
        panel.set_ylabel(form.y.label)
    return panels


def _draw_points(panel: Axes, form: Scatter, x: Number, cases: Sequence[Shown], place: int) -> None:
    """Draw the points of a colour: several are small dots, one alone is large and hollow, for it may cover another."""
    colour, at = _colour(place), [(one.value(x), one.value(form.y)) for one in cases]
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": colour, "linewidth": 1.8, "zorder": 4}
    look |= {"marker": _LARGE_MARKERS[place % len(_LARGE_MARKERS)], "s": 110}
    if len(cases) > 1:
        look = {"color": colour, "alpha": _FAINT, "edgecolor": "white", "linewidth": 0.5, "zorder": 2, "s": 20}
        best = frontier(at, more_x=not x.is_time)
        panel.step(*zip(*best, strict=True), where="post" if x.is_time else "pre", color=colour, lw=1.2, zorder=1)
    panel.scatter(*zip(*at, strict=True), label=cases[0].format(form.colour) or None, **look)
    thin: dict[str, Any] = {"color": colour, "linewidth": 0.8, "alpha": _FAINT, "zorder": 1}
    for one, (across, along) in zip(cases, at, strict=True):
        panel.annotate(
            one.format(form.words), (across, along), (5, 3), textcoords="offset points", fontsize=7, color=GREY
        )
        of_x, of_y = one.estimate(x), one.estimate(form.y)
        if of_x is not None and of_x.low is not None and of_x.high is not None:
            panel.hlines(along, of_x.low, of_x.high, **thin)
        if of_y is not None and of_y.low is not None and of_y.high is not None:
            panel.vlines(across, of_y.low, of_y.high, **thin)


def _draw_alone(panel: Axes, form: Scatter, x: float, y: float) -> None:
    """Draw a line at what a case has of one number alone, named at its end."""
    style: dict[str, Any] = {"color": GREY, "linestyle": ":", "linewidth": 1}
    words: dict[str, Any] = {"color": GREY, "fontsize": 7.5, "textcoords": "offset points"}
    if not math.isnan(y):
        panel.axhline(y, **style)
        panel.annotate(form.alone, (0, y), (3, -9), xycoords=("axes fraction", "data"), **words)
    if not math.isnan(x):
        panel.axvline(x, **style)
        panel.annotate(form.alone, (x, 0), (-3, 3), xycoords=("data", "axes fraction"), ha="right", **words)
