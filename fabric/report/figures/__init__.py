"""Figures of a run, drawn from its directory alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fabric.errors import ResultError
from fabric.report.figures import congestion, jobs, machine, ports, side_by_side, stalled, timeline
from fabric.report.figures.style import save
from fabric.report.figures.topology import draw_topology
from fabric.report.paper import USUAL_FORMATS, Paper, on_paper
from fabric.results import Result


@dataclass(frozen=True)
class FigureSpec:
    """A figure: the file's name, what its caption says, and what draws it (None if the result has nothing to show).
    ``lacks``: what a result is without that other versions of the experiment wrote; empty if nothing."""

    name: str
    caption: str
    draw: Callable[[Result], Figure | None]
    lacks: Callable[[Result], str] = lambda _: ""


@dataclass(frozen=True)
class RepeatedSpec:
    """A figure over several runs of one setting: the file's name, and what draws it from their summaries, a subtitle
    and lines at its foot (None if they have nothing to show together)."""

    name: str
    draw: Callable[[Sequence[Mapping[str, Any]], str, Sequence[str]], Figure | None]


FIGURES = (
    FigureSpec(
        "timeline",
        "When each job played, and what all its connections and flows delivered meanwhile, on one scale.",
        timeline.timeline,
    ),
    FigureSpec(
        "throughput",
        "Throughput of the whole fabric over time, by service level; one panel per phase, one scale for all. "
        "If connections were not sampled: by lane, at the ports from leaves to hosts.",
        ports.throughput,
    ),
    FigureSpec(
        "busiest_port",
        "Throughput of the lanes at the busiest port, stacked: the whole is what its link sent. At the right end: the "
        "configured shares, which lanes may exceed by bandwidth that others leave idle.",
        ports.port_throughput,
    ),
    FigureSpec(
        "side_by_side",
        "The same traffic in every queueing that was played, one bar each. Black marks: theory, where it has a value.",
        side_by_side.side_by_side,
    ),
    FigureSpec(
        "steps",
        "Collectives: one dot per step, boxes from first to third quartile, whiskers to the farthest step within 1.5 "
        "times the box. algbw as nccl-tests defines it. Dashed: the ideal of the algorithm on this fabric.",
        jobs.collective_steps,
    ),
    FigureSpec(
        "congestion_trees",
        "Congestion trees of lossless phases, when largest in each part of the phase. Arrows point as packets "
        "travel: from a stalled port to the one it waits for, and finally to a root, whose link is red. Arrows are "
        "links with a lane that was stalled for more than 10 % of the interval between two samples.",
        congestion.trees_on_topology,
    ),
    FigureSpec(
        "tree_sizes",
        "How many ports were in the congestion tree of each root, the root's included, between each two samples; rows "
        "by the root's lane. White: nothing waited for it.",
        congestion.tree_sizes,
    ),
    FigureSpec(
        "stalled_time",
        "Fraction of the time between two samples for which lanes of links were stalled: a frame waited, the link was "
        "free, and the other end had no room. White: under 1 %, or no such lane in that queueing.",
        stalled.stalled_map,
    ),
    FigureSpec(
        "storage_latency",
        "Cumulative distribution of storage latencies, from the request to the last byte, on a logarithmic axis.",
        jobs.storage_latency,
    ),
    FigureSpec(
        "queue_depth",
        "Backlog at the ports with the deepest mean queues. White: empty. Blue lines: phases.",
        ports.queue_depth,
    ),
    FigureSpec(
        "topology",
        "Mean utilisation of every link in each phase. The two halves of a link are its two directions: each has the "
        "colour of the traffic sent by the nearer end. Hosts drawn as a group share one line: their busiest.",
        ports.topology_use,
    ),
    FigureSpec(
        "machine",
        "Whether the machine kept up: CPU time used, the switch's forwarding thread, and how late the scheduler woke a "
        "waiting thread. Dashed: the limits of the verdict, which judges by a high quantile and not by single points; "
        "limits far above all measured values are not drawn.",
        machine.machine,
    ),
)
"""The figures of every result that has samples for them."""
ANSWERING = ("side_by_side", "busiest_port", "throughput", "timeline")
"""Those of them that answer most, the first first."""


def all_figures(own: Sequence[FigureSpec]) -> dict[str, FigureSpec]:
    """Return the figures of a result by name: those of its experiment first, then those of every result."""
    return {spec.name: spec for spec in (*own, *FIGURES)}


def draw_all(result: Result, own: Sequence[FigureSpec] = ()) -> list[Path]:
    """Draw every figure that the result has samples for into its ``figures`` folder; returns PNG and SVG of each.

    ``own``: the figures of the result's experiment.
    """
    return draw_files(result, own, result.directory / "figures")


def draw_main(result: Result, own: Sequence[FigureSpec] = ()) -> list[Path]:
    """Draw the figure that answers most into the result's ``figures`` folder: the first of its experiment's that has
    something to show, or else of ANSWERING; returns PNG and SVG, or nothing if none has."""
    result.require_own_files()
    known = all_figures(own)
    for name in (*(spec.name for spec in own), *ANSWERING):
        if (figure := known[name].draw(result)) is not None:
            return save(figure, result.directory / "figures", name, USUAL_FORMATS)
    return []


def draw_files(
    result: Result,
    own: Sequence[FigureSpec],
    directory: Path,
    names: Sequence[str] = (),
    formats: Sequence[str] = USUAL_FORMATS,
) -> list[Path]:
    """Draw the figures of these names, by default all that the result has samples for, into a directory; returns the
    files. ``own``: the figures of the result's experiment. Raises ResultError as :func:`draw_figure` does."""
    result.require_own_files()
    if names:
        drawn = {name: draw_figure(result, name, own) for name in names}
        return [path for name, figure in drawn.items() for path in save(figure, directory, name, formats)]
    paths: list[Path] = []
    for spec in all_figures(own).values():
        figure = spec.draw(result)
        if figure is not None:
            paths += save(figure, directory, spec.name, formats)
    return paths


def draw_figure(result: Result, name: str, own: Sequence[FigureSpec] = (), paper: Paper | None = None) -> Figure:
    """Return a figure of the result, laid out for ``paper``; ``own``: those of its experiment. Raises ResultError if
    there is none of that name, or nothing to show in it."""
    specs = all_figures(own)
    if name not in specs:
        raise ResultError(f"figure {name!r}: does not exist; there are {', '.join(specs)}")
    with nullcontext() if paper is None else on_paper(paper):
        figure = specs[name].draw(result)
    if figure is None:
        why = specs[name].lacks(result)
        raise ResultError(
            f"{result.directory}: has nothing to show in the figure {name!r}" + (f": {why}" if why else "")
        )
    return figure


__all__ = [
    "ANSWERING",
    "FIGURES",
    "FigureSpec",
    "all_figures",
    "draw_all",
    "draw_figure",
    "draw_files",
    "draw_main",
    "draw_topology",
]
