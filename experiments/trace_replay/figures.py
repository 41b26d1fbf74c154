"""The figures of a replay of traces: when each stream of each rank did what, and what a step's time goes to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from experiments.trace_replay.layers import TIMES, largest_layers
from experiments.trace_replay.tables import LAYERS
from fabric.records.palette import MIDDLE, series, series_of
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed
from fabric.report.paper import current_paper
from fabric.report.view.streams import StreamTrack, streams_of
from fabric.results import Result

_MOST_ROWS = 32
_MOST_LAYERS = 14
_MOST_NAME, _MOST_NAME_NARROW = 34, 24
_WIDTH_INCHES = 9.0
_ROW_INCHES = 0.2
_COMPUTE = "compute"
_PIXELS = 3000
"""Of a row: operations of one kind that are closer than one of them are drawn as one."""
_PARTS = {
    "computed_s": ("computing", MIDDLE),
    "exposed_s": ("exposed communication", series(2)),
    "hidden_s": ("hidden communication", series(4)),
}


def streams(result: Result) -> Figure | None:
    """Return when each stream of each rank did what in the first step; None if no operations were recorded."""
    tracks = streams_of(result)
    if not tracks:
        return None
    shown = tracks[:_MOST_ROWS]
    began_s = min(one.started_s for track in tracks for one in track.played)
    ended_s = max(one.ended_s for track in tracks for one in track.played)
    kinds = dict.fromkeys(one.kind for track in shown for one in track.played if one.kind != _COMPUTE)
    colours = series_of(sorted(kinds)) | {_COMPUTE: MIDDLE}
    title = "Operations of ranks by stream"
    if len(shown) < len(tracks):
        title += f", {len(shown)} of {len(tracks)} streams"
    with framed(result, title, _WIDTH_INCHES, 1.3 + _ROW_INCHES * len(shown)) as (figure, body):
        axes = body.subplots()
        several = len({track.job for track in tracks}) > 1
        for row, track in enumerate(shown):
            _draw_track(axes, row, track, (began_s, ended_s - began_s), colours)
        names = [f"{track.job}, {track.name}" if several else track.name for track in shown]
        axes.set_yticks(range(len(shown)), names)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, ended_s - began_s)
        axes.set_xlabel("time in the step")
        axes.xaxis.set_major_formatter(EngFormatter("s"))
        axes.grid(visible=False)
        handles = [Patch(color=colour, label=kind) for kind, colour in colours.items()]
        body.legend(handles=handles, loc="outside lower center", ncols=4)
    return figure


def _draw_track(axes: Axes, row: int, track: StreamTrack, span: tuple[float, float], colours: dict[str, str]) -> None:
    began_s, length_s = span
    least_s = length_s / _PIXELS
    for kind, colour in colours.items():
        spans = [(one.started_s - began_s, one.ended_s - began_s) for one in track.played if one.kind == kind]
        boxes = [
            [(start, row - 0.36), (end, row - 0.36), (end, row + 0.36), (start, row + 0.36)]
            for start, end in _joined(spans, least_s)
        ]
        if boxes:
            axes.add_collection(PolyCollection(boxes, facecolors=colour, linewidths=0))


def _joined(spans: Sequence[tuple[float, float]], least_s: float) -> list[tuple[float, float]]:
    """Return spans, joined where less than a pixel is between them; each is at least a pixel wide."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start - found[-1][1] < least_s:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, max(end, start + least_s)))
    return found


def layers(result: Result) -> Figure | None:
    """Return what a step's time goes to by layer and kind, a panel per trace; None if it is not known."""
    rows = result.table(LAYERS)
    if rows.empty:
        return None
    of_jobs = {str(job): largest_layers(of_job, _MOST_LAYERS) for job, of_job in rows.groupby("job", observed=True)}
    bars = sum(map(len, of_jobs.values()))
    is_narrow = current_paper().is_stacked(_WIDTH_INCHES)
    height = 1.1 + 0.6 * len(of_jobs) + (0.34 if is_narrow else 0.26) * bars
    with framed(result, "Where the time of a step goes", _WIDTH_INCHES, height) as (figure, body):
        panels = body.subplots(len(of_jobs), 1, squeeze=False, height_ratios=[len(one) + 1 for one in of_jobs.values()])
        for panel, (job, shown) in zip(panels[:, 0], of_jobs.items(), strict=True):
            places, left = np.arange(len(shown)), np.zeros(len(shown))
            for time in TIMES:
                label, colour = _PARTS[time]
                panel.barh(places, shown[time], left=left, color=colour, label=label, height=0.72)
                left = left + shown[time].to_numpy()
            panel.set_yticks(places, [_named(layer, kinds, is_narrow) for layer, kinds in shown.index])
            panel.invert_yaxis()
            panel.set_title(job)
            panel.set_xlabel("mean time per rank" if is_narrow else "time of a rank in a step, mean over ranks")
            panel.set_xlim(left=0)
            panel.xaxis.set_major_locator(MaxNLocator(2 if is_narrow else 6))
            panel.xaxis.set_major_formatter(EngFormatter("s"))
            panel.grid(visible=False, axis="y")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        body.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _named(layer: str, kinds: str, is_narrow: bool) -> str:
    """Return the name of a layer with what its communication is, in two lines where there is little room."""
    most = _MOST_NAME_NARROW if is_narrow else _MOST_NAME
    short = layer if len(layer) <= most else f"{layer[: most - 1]}…"
    gap = "\n" if is_narrow else " "
    return f"{short}{gap}({kinds})" if kinds else short


FIGURES = (
    FigureSpec(
        "streams",
        "What each stream of each rank did in the first step, and when. Free: nothing was to be done, or it waited.",
        streams,
    ),
    FigureSpec(
        "layers",
        "What the first step of each trace goes to by layer, means over ranks: computing, communication that computing "
        "waits for (exposed), and other communication (hidden), of the kinds in brackets. Layers are the trace's names "
        "of operations.",
        layers,
    ),
)
