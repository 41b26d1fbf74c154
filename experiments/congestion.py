"""What every run says of its lossless phases: congestion trees, where ports stood still, and whom that slowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from controllers.paths import planned_paths
from controllers.plan import RoutePlan
from controllers.planner import plan_routes
from controllers.routing import Policy, Routing
from experiments.congestion_tables import Found, congestion_metrics, congestion_tables
from experiments.probe import nics_for
from experiments.session import Session
from fabric.congestion import PortLane
from fabric.lanes import LanePlan, Queueing, ServiceLevel, plan_lanes
from fabric.model import Fabric, Nic
from fabric.results import Phase
from fabric.stalled import Wire, moments, stalled_frame, stalled_time, trees_frame
from fabric.victims import Flow, Way, delivered, flows_frame

_LEVELS = {level.label: level for level in ServiceLevel}
_MEASURED = ("stalls", "ports", "waits", "flows")


def tell_congestion(session: Session, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the rows of congestion_trees, stalled_time and flow_stalls of a run, and return its summary with their
    metrics and tables. One without lossless phases has its summary unchanged."""
    fabric = session.live.fabric
    measured = {name: session.table(name) for name in _MEASURED}
    found: list[Found] = []
    for outcome in session.phases:
        phase = outcome.phase
        lanes = plan_lanes(session.queues, Queueing(phase.queueing))
        frames = congestion_frames(fabric, measured, phase, WayFinder(fabric, lanes, outcome.routing))
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
    fabric: Fabric, measured: Mapping[str, pd.DataFrame], phase: Phase, ways: WayFinder
) -> dict[str, pd.DataFrame]:
    """Return the rows that a phase adds to each table; nothing if it was not lossless.

    ``measured`` has the tables stalls, ports, waits and flows.
    """
    wires = {str(port): Wire(str(link.other(port)), link.rate_bps) for port, link in fabric.directed_ports()}
    time = stalled_time(measured["stalls"], measured["ports"], wires, phase)
    if time is None:
        return {}
    seen = list(moments(time, measured["waits"], wires))
    flows = delivered(measured["flows"], phase, time.sampled_s)
    return {
        "stalled_time": stalled_frame(time, phase.name, wires),
        "congestion_trees": trees_frame(seen, phase.name, {host.name for host in fabric.hosts}),
        "flow_stalls": flows_frame(phase, flows, {flow: ways.ways(flow) for flow in flows}, seen, time, wires),
    }


@dataclass(frozen=True)
class WayFinder:
    """Which lanes of which ports flows take by the routes of a phase.

    Routes that hash or adapt may lead a flow by every way that a hash may choose. What goes round failed links is not
    followed.
    """

    fabric: Fabric
    lanes: LanePlan
    routing: Routing

    def ways(self, flow: Flow) -> tuple[Way, ...]:
        """Return every way that a flow's packets may take. What acknowledges them goes back, and is no part of it."""
        lane = self.lanes.lane_of(_LEVELS[flow.service_level]).name
        plan = _plan(self.fabric, self.routing.policy is Policy.STATIC)
        return tuple(
            tuple(PortLane(str(port), lane) for port in path)
            for nics in self._nics(flow)
            for path, _ in planned_paths(plan, self.fabric, *nics)
        )

    def _nics(self, flow: Flow) -> list[tuple[Nic, Nic]]:
        """Return the NICs at either end: storage nodes talk to each other in all of their zones."""
        source, sink = self.fabric.host_named(flow.host), self.fabric.host_named(flow.peer)
        in_zones = [(nic, self.fabric.nic_in_zone(sink, nic.zone)) for nic in self.fabric.nics_of[source]]
        return [(nic, peer) for nic, peer in in_zones if peer is not None] or [nics_for(self.fabric, source, sink)]


@lru_cache(maxsize=2)
def _plan(fabric: Fabric, is_static: bool) -> RoutePlan:
    return plan_routes(fabric, Routing(policy=Policy.STATIC if is_static else Policy.ECMP))
