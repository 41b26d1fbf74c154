"""How figures look: colours, the frame with title, provenance and verdict, and how they are saved."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patheffects import withStroke

from fabric.errors import ResultError
from fabric.records.palette import GREY, LANES, OWN_LANES, PALE, UNKNOWN, VERDICTS, lane_colours
from fabric.report.figures.narrow import make_text_smaller, stack_panels
from fabric.report.paper import SCREEN_FONT_PT, USUAL_FORMATS, current_paper
from fabric.results import Phase, Result
from fabric.units import format_rate, format_time

_colours_of_run: ContextVar[Mapping[str, str]] = ContextVar("colours_of_run", default=LANES)
"""Of the run whose figure is being drawn."""
LEVEL_ORDER = tuple(LANES)
LINE_STYLES = ("-", "--", "-.", ":")
HALO = (withStroke(linewidth=3.6, foreground="white"),)
"""Around dark marks, so that they stand out from dark bars."""

_RC = {
    "font.size": SCREEN_FONT_PT,
    "font.family": "DejaVu Sans",
    "axes.titlesize": SCREEN_FONT_PT,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "svg.hashsalt": "fabric",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType, embedded: journals refuse matplotlib's usual type 3.
}
_HEADER_INCHES = 0.62
_FOOTER_LINE_INCHES = 0.165
_PNG_DPI, _PAPER_DPI = 150, 300


def heat_map() -> LinearSegmentedColormap:
    """Return a map from pale (little) to near black (much), readable with colour blindness and in grey."""
    colours = mpl.colormaps["magma_r"]([0.06 + 0.9 * step / 255 for step in range(256)])
    return LinearSegmentedColormap.from_list("heat", list(colours))


def level_names(result: Result) -> list[str]:
    """Return the lanes that a run's config has, in the order of their names, then its service levels; none if it does
    not say."""
    try:
        queues = result.config.get("queues") or {}
    except ResultError:  # It still plays.
        return []
    return [*sorted(queues.get("lanes") or {}), *sorted(queues.get("service_levels") or {})]


def level_colour(name: str) -> str:
    """Return the colour of a service level or lane, the same in every figure of a run (:func:`framed`)."""
    return _colours_of_run.get().get(name) or OWN_LANES[crc32(name.encode()) % len(OWN_LANES)]


def level_place(name: str) -> int:
    """Return the place of a service level or lane in LEVEL_ORDER; others come last."""
    return LEVEL_ORDER.index(name) if name in LEVEL_ORDER else len(LEVEL_ORDER)


def phase_styles(phases: Sequence[Phase]) -> dict[str, tuple[Any, str]]:
    """Return a colour and a line style for each phase, apart from those of service levels by their dash."""
    colours = mpl.colormaps["viridis"]
    last = max(len(phases) - 1, 1)
    return {
        phase.name: (colours(0.9 * number / last), LINE_STYLES[number % len(LINE_STYLES)])
        for number, phase in enumerate(phases)
    }


def phase_label(phase: Phase, width: int = 38) -> str:
    """Return a phase's title and queueing, wrapped."""
    return textwrap.fill(f"{phase.title} [{phase.queueing}]", width)


def scale_text(result: Result) -> str:
    """Return the scale of rates as every figure states it."""
    reference = format_rate(float(result.fabric["reference_nic_rate_bps"]))
    if result.scale == 1:
        return f"rates at true scale ({reference})"
    return f"rates 1 : {result.scale:,.6g} of {reference}"


def provenance(result: Result) -> str:
    """Return what a figure's reader must know of the run: topology, scale, queueing, seed, engine."""
    queueing = ", ".join(dict.fromkeys(phase.queueing for phase in result.phases)) or "none"
    parts = [
        str(result.fabric["name"]),
        scale_text(result),
        f"queueing: {queueing}",
        f"seed {result.manifest.get('seed', 'unknown')}",
        f"engine {result.manifest.get('engine', 'unknown')}",
    ]
    return "  ·  ".join(parts)


def format_decimal_size(size_bytes: float) -> str:
    """Return a size in decimal units, whose powers are those of a logarithmic axis."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:.3g} B"


def scale_to_log_time(panel: Axes) -> None:
    """Make a panel's x axis one of times in seconds, logarithmic, with units at its powers of ten."""
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _: format_time(value))
    panel.xaxis.set_minor_formatter(lambda value, _: "")


def verdict_colour(status: str) -> str:
    """Return the colour of a verdict's badge."""
    return VERDICTS.get(status, UNKNOWN)


class ShownFigure(Figure):
    """A figure that a notebook shows as an image, also where it has not been told to by ``%matplotlib inline``.

    ``style``: what it was drawn with, and is laid out by. ``about``: its title, and what its reader must know of it.
    """

    style: Mapping[str, Any] = _RC
    about: tuple[str, str] = ("", "")

    def draw(self, renderer: Any) -> None:
        """Draw it; parts that are made only now look as those that are there."""
        with mpl.rc_context(dict(self.style)):
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        with io.BytesIO() as file:
            FigureCanvasAgg(self).print_png(file)  # type: ignore[no-untyped-call]
            return file.getvalue()


@contextmanager
def framed(result: Result, title: str, width: float, height: float) -> Iterator[tuple[Figure, SubFigure]]:
    """Yield a figure with its body to draw in, ``width`` x ``height`` inches without title and footer."""
    status = str(result.verdict["status"])
    subtitle = str(result.summary.get("title") or result.manifest.get("experiment", ""))
    badge = (f"emulation: {status}", verdict_colour(status))
    before = _colours_of_run.set(lane_colours(level_names(result)))
    try:
        with headed(title, subtitle, _footer(result), width, height, badge) as (figure, body):
            yield figure, body
            if status == "invalid":
                _watermark(figure)
    finally:
        _colours_of_run.reset(before)


@contextmanager
def headed(
    title: str, subtitle: str, footer: Sequence[str], width: float, height: float, badge: tuple[str, str] | None = None
) -> Iterator[tuple[Figure, SubFigure]]:
    """Yield a figure with its body to draw in, between a title with a subtitle and lines at its foot. ``badge``: words
    at the upper right, and their colour."""
    paper = current_paper()
    style = {**_RC, "svg.fonttype": "path" if paper.is_usual else "none"}
    with mpl.rc_context(style):
        size_in = (width * paper.scale(width), height)
        if paper.is_bare:
            figure = ShownFigure(figsize=size_in, layout="constrained", facecolor="white")
            body = cast(SubFigure, figure.subfigures())
        else:
            figure, body = _framed_figure(title, subtitle, footer, size_in, badge)
        figure.style, figure.about = style, (title, "; ".join([*footer, *badge[:1]] if badge else footer))
        if paper.is_stacked(width):
            stack_panels(figure, body, SCREEN_FONT_PT * paper.text_scale(width))
        yield figure, body
        make_text_smaller(figure, paper.text_scale(width))


def _framed_figure(
    title: str, subtitle: str, footer: Sequence[str], size_in: tuple[float, float], badge: tuple[str, str] | None
) -> tuple[ShownFigure, SubFigure]:
    width, height = size_in
    lines = [part for line in footer for part in textwrap.wrap(line, int(width * 16.5))]
    heights = [_HEADER_INCHES, height, 0.12 + _FOOTER_LINE_INCHES * len(lines)]
    figure = ShownFigure(figsize=(width, sum(heights)), layout="constrained", facecolor="white")
    head, body, foot = figure.subfigures(3, 1, height_ratios=heights)
    _draw_head(head, title, subtitle, width, badge)
    foot.text(0.1 / width, 0.95, "\n".join(lines), va="top", fontsize=7, color=GREY, linespacing=1.5)
    return figure, body


def _footer(result: Result) -> list[str]:
    reasons = [str(reason) for reason in result.verdict.get("reasons", [])]
    return [provenance(result), *(["verdict: " + "; ".join(reasons)] if reasons else [])]


def _draw_head(head: SubFigure, title: str, subtitle: str, width: float, badge: tuple[str, str] | None) -> None:
    room = int(width * 13) - 20
    head.text(0.1 / width, 0.74, title, ha="left", va="center", fontsize=12, fontweight="bold")
    head.text(0.1 / width, 0.28, textwrap.shorten(subtitle, room, placeholder=" …"), va="center", color=GREY)
    if badge is None:
        return
    words, colour = badge
    head.text(
        1 - 0.15 / width,
        0.66,
        words,
        ha="right",
        va="center",
        color="white",
        fontweight="bold",
        bbox={"boxstyle": "round,pad=0.4", "facecolor": colour, "edgecolor": "none"},
    )


def _watermark(figure: Figure) -> None:
    size = 13 * min(figure.get_figwidth(), 1.4 * figure.get_figheight())
    figure.text(
        0.5, 0.5, "INVALID", ha="center", va="center", rotation=25, fontsize=size, fontweight="bold",
        color=VERDICTS["invalid"], alpha=0.22, zorder=100,
    )  # fmt: skip


def save(figure: Figure, directory: Path, name: str, formats: Sequence[str] = USUAL_FORMATS) -> list[Path]:
    """Write a figure as files of some of the formats of :mod:`fabric.report.paper`; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    title, subject = figure.about if isinstance(figure, ShownFigure) else ("", "")
    paths = []
    with mpl.rc_context(dict(figure.style) if isinstance(figure, ShownFigure) else _RC):
        for suffix in formats:
            figure.set_dpi(_PNG_DPI if current_paper().is_usual else _PAPER_DPI)  # A PDF's changes it.
            paths.append(directory / f"{name}.{suffix}")
            if suffix == "png":  # savefig() draws all twice.
                FigureCanvasAgg(figure).print_png(paths[-1])  # type: ignore[no-untyped-call]
            elif suffix == "svg":
                FigureCanvasSVG(figure).print_svg(paths[-1], metadata={"Date": None})  # type: ignore[no-untyped-call]
            else:
                about = {"Title": title, "Subject": subject, "CreationDate": None}
                FigureCanvasPdf(figure).print_pdf(paths[-1], metadata=about)  # type: ignore[no-untyped-call]
            figure.set_layout_engine("none")  # All has its place; to look for it again takes as long as to draw.
    return paths


def times(factor: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return what a second axis needs whose values are ``factor`` times the first's."""
    return (lambda value: value * factor, lambda value: value / factor)


def known(value: float | None) -> float:
    """Return a number of a summary; NaN, which is drawn nowhere, for one that nothing measured."""
    return math.nan if value is None else value


def panel_grid(body: SubFigure, count: int, columns: int, **options: Any) -> list[Axes]:
    """Return ``count`` axes in rows of ``columns``; places left over are empty."""
    columns = min(columns, count)
    grid = body.subplots(-(-count // columns), columns, squeeze=False, **options)
    panels: list[Axes] = list(grid.flat)
    for panel in panels[count:]:
        panel.set_visible(False)
    for panel in panels[max(0, count - columns) : count]:
        panel.tick_params(labelbottom=True)
    return panels[:count]
