"""Figures of a run, drawn from its directory alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fabric.errors import ResultError
from fabric.report.figures import (
    congestion,
    cuts,
    jobs,
    machine,
    ports,
    protection,
    scaling,
    side_by_side,
    spreading,
    stalled,
    year,
)
from fabric.report.figures.style import save
from fabric.report.figures.topology import draw_topology
from fabric.results import Result


@dataclass(frozen=True)
class FigureSpec:
    """A figure: the file's name, what its caption says, and what draws it (None if the result has nothing to show)."""

    name: str
    caption: str
    draw: Callable[[Result], Figure | None]


FIGURES = (
    FigureSpec(
        "throughput",
        "Throughput of the whole fabric over time, by service level; one panel per phase, one scale for all. "
        "If connections were not sampled: by lane, at the ports from leaves to hosts.",
        ports.throughput,
    ),
    FigureSpec(
        "busiest_port",
        "Throughput of each lane at the busiest port of all phases. Dashed: the lane's configured share, which it may "
        "exceed by bandwidth that others leave idle.",
        ports.port_throughput,
    ),
    FigureSpec(
        "side_by_side",
        "The same traffic in every queueing that was played, one bar each. Black marks: theory, where it has a value.",
        side_by_side.side_by_side,
    ),
    FigureSpec(
        "protection",
        "Bandwidth of a program, relative to that alone, as the load of others grows; one curve per queueing. Dashed: "
        "the share that its lane promises; above it: bandwidth that others leave idle.",
        protection.protection,
    ),
    FigureSpec(
        "steps",
        "Collectives: one dot per step, boxes from first to third quartile, whiskers to the farthest step within 1.5 "
        "times the box. algbw as nccl-tests defines it. Dashed: the ideal of the algorithm on this fabric.",
        jobs.collective_steps,
    ),
    FigureSpec(
        "scaling",
        "Collectives over growing numbers of nodes: median algbw over the steps of a phase, one line per variant, at "
        "the scale of the system that the fabric stands for. Shaded: measured by others.",
        scaling.scaling,
    ),
    FigureSpec(
        "steps_around_cuts",
        "Steps of an allreduce by the time they ended, cuts at 0, one line per cut; shaded: the link is down. "
        "Dashed: the median step of the phase without cuts.",
        cuts.steps_around_cuts,
    ),
    FigureSpec(
        "blackouts",
        "Cumulative distribution of blackouts of probe flows that cross a cut, on a logarithmic axis. Dotted: cuts of "
        "a host's only link, which no route avoids.",
        cuts.blackouts,
    ),
    FigureSpec(
        "repair_parts",
        "Time that the controller took to repair a cut, part by part: medians over the cuts that it repaired before "
        "the link came back. Diamond: packets of all flows that cross the cut arrived again; this is before the end "
        "of the bar if switches repair locally, or had rules before they confirmed them.",
        cuts.repair_parts,
    ),
    FigureSpec(
        "calendar",
        "Every day of the replayed year, one column per week: its cuts, and the training lost as a fraction of an "
        "undisturbed day's, by policy and duration of cuts. Days are compressed, cuts are not.",
        year.calendar,
    ),
    FigureSpec(
        "spreading",
        "Ports of switches with deep queues, and slowdown of bystanders by an incast, by routing policy and queueing. "
        "Bystanders apart share no port with the incast by static routes; those crossing share an uplink of a leaf.",
        spreading.spreading,
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


def draw_all(result: Result) -> list[Path]:
    """Draw every figure that the result has samples for into its ``figures`` folder; returns PNG and SVG of each."""
    paths: list[Path] = []
    for spec in FIGURES:
        figure = spec.draw(result)
        if figure is not None:
            paths += save(figure, result.directory / "figures", spec.name)
    return paths


def draw_figure(result: Result, name: str) -> Figure:
    """Return a figure of :data:`FIGURES`. Raises ResultError if there is none, or nothing to show in it."""
    specs = {spec.name: spec for spec in FIGURES}
    if name not in specs:
        raise ResultError(f"figure {name!r}: does not exist; there are {', '.join(specs)}")
    figure = specs[name].draw(result)
    if figure is None:
        raise ResultError(f"{result.directory}: has nothing to show in the figure {name!r}")
    return figure


__all__ = ["FIGURES", "FigureSpec", "draw_all", "draw_figure", "draw_topology"]
