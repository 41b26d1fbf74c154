"""Figures of a run, drawn from its directory alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fabric.errors import ResultError
from fabric.figures import (
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
from fabric.figures.style import save
from fabric.figures.topology import draw_topology
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
        "What the whole fabric delivered over time, by service level; one panel a phase, one scale for all. "
        "Where connections were not sampled, by lane at the ports of leaves to hosts.",
        ports.throughput,
    ),
    FigureSpec(
        "busiest_port",
        "What each lane sent at the one port that was used most over all phases. Dashed: the lane's configured share, "
        "which it may exceed by what others leave idle.",
        ports.port_throughput,
    ),
    FigureSpec(
        "side_by_side",
        "The same traffic in every queueing that was played, a bar each. Black marks: what theory says, where it does.",
        side_by_side.side_by_side,
    ),
    FigureSpec(
        "protection",
        "What a program keeps of its bandwidth alone while others offer ever more, a curve per queueing. Dashed: what "
        "its lane promises, its share of every link and so of what the program has alone; above it: what others leave.",
        protection.protection,
    ),
    FigureSpec(
        "steps",
        "Collectives: a dot a step, boxes from first to third quartile, whiskers to the farthest step within 1.5 "
        "times the box. algbw as nccl-tests defines it. Dashed: the ideal of the algorithm on this fabric.",
        jobs.collective_steps,
    ),
    FigureSpec(
        "scaling",
        "Collectives over growing numbers of nodes: median algbw over the steps of a phase, a line a variant, at the "
        "scale of the system that the fabric stands for. Shaded: what others measured.",
        scaling.scaling,
    ),
    FigureSpec(
        "steps_around_cuts",
        "Steps of an allreduce by when they ended, every cut at 0 and one line a cut; shaded: the link is down. "
        "Dashed: the median step of the phase without cuts.",
        cuts.steps_around_cuts,
    ),
    FigureSpec(
        "blackouts",
        "Cumulative distribution of how long flows of probes that cross a cut had no network, on a logarithmic axis. "
        "Dotted: cuts of a host's only link, which no route leads round.",
        cuts.blackouts,
    ),
    FigureSpec(
        "repair_parts",
        "What the controller took to repair a cut, part by part, medians over the cuts that it repaired before the "
        "link came back. Diamond: all flows that cross the cut were through again; before the end of the bar where "
        "switches repair by themselves, or had rules before they confirmed them.",
        cuts.repair_parts,
    ),
    FigureSpec(
        "calendar",
        "Every day of the replayed year, a column a week: its cuts, and what part of an undisturbed day's training it "
        "lacks, by policy and duration of cuts. Days are compressed, cuts are not.",
        year.calendar,
    ),
    FigureSpec(
        "spreading",
        "Ports of switches with deep queues and what bystanders lose beside an incast, by routing policy and queueing. "
        "Bystanders apart share no port with the incast by static routes, those crossing an uplink of a leaf.",
        spreading.spreading,
    ),
    FigureSpec(
        "congestion_trees",
        "Congestion trees of lossless phases, when they were largest in each part of the phase. Arrows go as packets "
        "do: from a port that stood still towards the one it waits for, at last a root, whose link is red. Arrows are "
        "links with a lane that stood still for more than 10 % of the interval between two samples.",
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
        "How long lanes of links stood still between each two samples: a frame waited, the link was free, and the "
        "other end had no room. White: under 1 %, or no such lane in that queueing.",
        stalled.stalled_map,
    ),
    FigureSpec(
        "storage_latency",
        "Cumulative distribution of storage latencies, from the request to the last byte, on a logarithmic axis.",
        jobs.storage_latency,
    ),
    FigureSpec(
        "queue_depth",
        "Bytes waiting at the ports with the deepest mean queues. White: nothing waited. Blue lines: phases.",
        ports.queue_depth,
    ),
    FigureSpec(
        "topology",
        "Mean utilisation of every link over each phase. A link's two halves are its two directions: each has the "
        "colour of what the nearer end sends. Hosts drawn as a group share one line, as busy as their busiest.",
        ports.topology_use,
    ),
    FigureSpec(
        "machine",
        "Whether the machine kept up: CPU time used, the switch's forwarding thread, and how late the scheduler woke a "
        "waiting thread. Dashed: the limits of the verdict, which judges by a high quantile and not by single points; "
        "limits far above all that was measured are not drawn.",
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
