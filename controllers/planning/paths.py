"""The paths of packets by a plan, and the load of each port."""

from __future__ import annotations

from collections.abc import Iterator

from controllers.planning.ecmp import UDP, FiveTuple, way_of
from controllers.planning.plan import FlowRule, RoutePlan, is_route
from controllers.planning.planner import Moves
from fabric.errors import ControllerError, UsageError
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic, Port
from fabric.model.rails import nic_pairs

PROBE_PORT = 33434
"""The UDP port that probes come from and go to: where traceroute's begin."""


def probe_flow(source_nic: Nic, destination_nic: Nic) -> FiveTuple:
    """Return the 5-tuple of a probe."""
    return FiveTuple(source_nic.ip, destination_nic.ip, UDP, PROBE_PORT, PROBE_PORT)


def planned_path(
    plan: RoutePlan, fabric: Fabric, source_nic: Nic, destination_nic: Nic, flow: FiveTuple | None = None
) -> tuple[Port, ...]:
    """Return the ports that send a packet on its way, in order, the source's NIC first.

    ``flow`` (by default a probe's) decides where the plan hashes; where it sprays packets, this is one of their paths.
    Raises ControllerError, naming the switch and the
    rule, if the packet is dropped or delivered elsewhere.
    """
    flow = flow or probe_flow(source_nic, destination_nic)
    path = [source_nic.port]
    while (arrived := fabric.peer(path[-1])) != destination_nic.port:
        rule = _rule_at(plan, fabric, path, source_nic, destination_nic)
        ways = plan.ways(rule)
        path.append(Port(arrived.node, ways[way_of(rule.hashing, flow) if rule.hashing else 0]))
    return tuple(path)


def planned_paths(
    plan: RoutePlan, fabric: Fabric, source_nic: Nic, destination_nic: Nic, moves: Moves | None = None
) -> list[tuple[tuple[Port, ...], float]]:
    """Return every path that the plan may choose, each with its share of flows, or of packets where it sprays these;
    errors as planned_path's.

    ``moves``: the uplinks that adaptive routing has led destinations to since.
    """
    moved = moves or {}

    def on(path: list[Port], share: float) -> Iterator[tuple[tuple[Port, ...], float]]:
        arrived = fabric.peer(path[-1])
        if arrived == destination_nic.port:
            yield tuple(path), share
            return
        ways = plan.ways(_rule_at(plan, fabric, path, source_nic, destination_nic))
        place = arrived.node, destination_nic.ip
        chosen = (moved[place],) if place in moved else ways
        for port in chosen:
            yield from on([*path, Port(arrived.node, port)], share / len(chosen))

    return list(on([source_nic.port], 1.0))


def _rule_at(plan: RoutePlan, fabric: Fabric, path: list[Port], source_nic: Nic, destination_nic: Nic) -> FlowRule:
    """Return the rule that acts on a packet at the end of its path so far."""
    arrived = fabric.peer(path[-1])
    if not arrived.node.is_switch:
        fault = f"the plan delivers to {arrived.node}; plan again for this fabric"
    elif (rule := plan.lookup(arrived.node.dpid, arrived.number, source_nic.ip, destination_nic.ip)).is_drop:
        fault = f"{arrived.node} drops it ({rule.purpose}); choose another pair"
    elif len(path) > len(fabric.switches):
        fault = f"the plan loops at {arrived.node}; plan again for this fabric"
    else:
        return rule
    journey = f"{source_nic.node} ({source_nic.ip}) to {destination_nic.node} ({destination_nic.ip})"
    raise ControllerError(f"{journey}: {fault}")


def path_load(plan: RoutePlan, fabric: Fabric, source_nic: Nic, destination_nic: Nic) -> dict[Port, float]:
    """Return the share of a pair's flows that each port is expected to send."""
    load: dict[Port, float] = {}
    for path, share in planned_paths(plan, fabric, source_nic, destination_nic):
        for port in path:
            load[port] = load.get(port, 0.0) + share
    return load


def port_load(plan: RoutePlan, fabric: Fabric) -> dict[Port, float]:
    """Return how many destinations each used port of each switch sends, 0 for ports that send none.

    A destination that is hashed over several ports counts for each by its share.
    """
    load: dict[Port, float] = {}
    for switch in fabric.switches:
        shares: dict[int, float] = {}
        for rule in plan.rules[switch.dpid]:
            if is_route(rule.key):
                ways = plan.ways(rule)
                for port in ways:
                    shares[port] = shares.get(port, 0) + 1 / len(ways)
        load.update({port: shares.get(port.number, 0) for port in fabric.ports_of[switch]})
    return load


def all_nics_for(fabric: Fabric, source: NodeId, destination: NodeId) -> list[tuple[Nic, Nic]]:
    """Return the pairs of NICs over which two hosts divide what they send each other: see
    :func:`fabric.model.rails.nic_pairs`. Raises UsageError as :func:`nics_for`."""
    return nic_pairs(fabric, source, destination) or [nics_for(fabric, source, destination)]


def nics_for(fabric: Fabric, source: NodeId, destination: NodeId, rail: int | None = None) -> tuple[Nic, Nic]:
    """Return the NICs over which two hosts talk: see :meth:`Fabric.nic_pair`.

    Raises UsageError if the fabric carries nothing between them: storage NICs speak only within their zone, and NICs of
    different planes do not reach each other.
    """
    if source == destination:
        raise UsageError(f"{source} and {destination}: are the same host, and packets do not leave it; choose another")
    pair = fabric.nic_pair(source, destination, rail)
    if pair is None and rail is not None:
        raise UsageError(f"{source} and {destination}: their NICs number {rail} do not reach each other; choose others")
    if pair is None and Role.STORAGE in (source.role, destination.role):
        raise UsageError(f"{source} and {destination}: storage traffic stays in its zone, and they share none")
    if pair is None:
        raise UsageError(f"{source} and {destination}: no network has a NIC of both; choose others")
    return pair
