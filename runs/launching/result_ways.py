"""The ways of a result's flows: by its config's topology and the routing of each phase."""

from __future__ import annotations

from collections.abc import Sequence

from controllers.planning.policies import POLICIES, Policy
from controllers.routing import Routing
from fabric.delivered import Flow
from fabric.errors import FabricError, UsageError
from fabric.model.encoding import fabric_as_json
from fabric.model.identity import NodeId
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.records.packed import details_in
from fabric.report.view.flows import WaysOf
from fabric.report.view.model import Ways
from fabric.results import Phase, Result
from runs.ways import Moved, WayFinder
from topologies.load import fabric_of


def ways_of(result: Result) -> Ways:
    """Return how to find the ways of a result's flows, or why they cannot be found."""
    try:
        topology = result.config["topology"]
        if not isinstance(topology, dict):
            raise UsageError("its config.yaml names its topology instead of holding it")
        fabric = fabric_of(topology, str(result.directory / "config.yaml"))
        if fabric_as_json(fabric)["links"] != result.fabric["links"]:
            raise UsageError("its topology now makes other links than the run had")
        queues = QueueConfig.model_validate(result.config.get("queues", {}))
        routing = Routing.model_validate(result.config.get("routing", {}))
    except (FabricError, ValueError, KeyError, TypeError) as error:
        return Ways(missing=str(error))
    return Ways(_finder(result, fabric, queues, routing))


def _finder(result: Result, fabric: Fabric, queues: QueueConfig, routing: Routing) -> WaysOf:
    moves = _moves(result)

    def find(phase: Phase, flows: Sequence[Flow]) -> list[tuple[tuple[str, ...], ...]]:
        used = routing.model_copy(update={"policy": _policy(phase, routing)})
        finder = WayFinder(fabric, plan_lanes(queues, Queueing(phase.queueing)), used, moves)
        return [
            tuple(tuple(lane.port for lane in way) for way in finder.ways(flow, [phase.ended_s])[0]) for flow in flows
        ]

    return find


def _policy(phase: Phase, routing: Routing) -> Policy:
    """Return the policy of a phase, which its label begins with unless the experiment calls it otherwise."""
    return next((policy for policy in POLICIES if policy.name in phase.routing), routing.policy)


def _moves(result: Result) -> tuple[Moved, ...]:
    table = result.table("controller")
    rows = table[table["kind"] == "moved"]
    return tuple(
        Moved(at_s, NodeId.parse(leaf), ip, port)
        for at_s, details in zip(rows["at_s"].tolist(), rows["details"].tolist(), strict=True)
        for leaf, ip, port in details_in(details)["moves"]
    )
