"""What every run reports of its lossless phases: congestion trees, stalled ports, and the flows that they slowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from experiments.run.congestion_tables import Found, congestion_metrics, congestion_tables
from experiments.run.session import Session
from experiments.run.ways import WayFinder
from fabric.model.lanes import Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.results import Phase
from fabric.stalls.intervals import Wire, moments, stalled_frame, stalled_time, trees_frame
from fabric.stalls.victims import delivered, flows_frame

_MEASURED = ("stalls", "ports", "waits", "flows", "operations")


def tell_congestion(session: Session, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the rows of congestion_trees, stalled_time and flow_stalls of a run, and return its summary with their
    metrics and tables. One without lossless phases has its summary unchanged."""
    fabric = session.live.fabric
    measured = {name: session.table(name) for name in _MEASURED}
    found: list[Found] = []
    for outcome in session.phases:
        phase = outcome.phase
        lanes = plan_lanes(session.queues, Queueing(phase.queueing))
        finder = WayFinder(fabric, lanes, outcome.routing, outcome.moves)
        frames = congestion_frames(fabric, measured, phase, finder)
        for name, frame in frames.items():
            session.keep_frame(name, frame)
        if frames:
            found.append(Found(phase, frames["congestion_trees"], frames["stalled_time"], frames["flow_stalls"]))
    metrics = {f"{one.phase.name}.{name}": value for one in found for name, value in congestion_metrics(one).items()}
    return {
        **summary,
        "metrics": {**summary["metrics"], **metrics},
        "tables": [*summary["tables"], *congestion_tables(found)],
    }


def congestion_frames(
    fabric: Fabric, measured: Mapping[str, pd.DataFrame], phase: Phase, finder: WayFinder
) -> dict[str, pd.DataFrame]:
    """Return the rows that a phase adds to each table; nothing if it was not lossless.

    ``measured`` has the tables stalls, ports, waits, flows and operations.
    """
    wires = {str(port): Wire(str(link.other(port)), link.rate_bps) for port, link in fabric.directed_ports()}
    time = stalled_time(measured["stalls"], measured["ports"], wires, phase)
    if time is None:
        return {}
    seen = list(moments(time, measured["waits"], wires))
    flows = delivered(measured["flows"], measured["operations"], phase, time.sampled_s)
    ways = {flow: finder.ways(flow, [moment.at_s for moment in seen]) for flow in flows}
    return {
        "stalled_time": stalled_frame(time, phase.name, wires),
        "congestion_trees": trees_frame(seen, phase.name, {host.name for host in fabric.hosts}),
        "flow_stalls": flows_frame(phase, flows, ways, seen, time, wires),
    }
