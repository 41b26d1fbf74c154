"""``fabric path``: the path and lane of packets between two hosts, by the plan, or of a real packet."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from app.commands.live import groundwork_asked, lanes_of, live_fabric, routing_of
from app.commands.options import add_down_option, add_engine_option, add_fabric_options, add_json_option
from app.commands.probe import Hop, planned_hops, probe
from app.commands.worlds import enter_world, fabric_of, links_down, require_queueing
from controllers.planning.paths import nics_for, planned_paths, port_load
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from fabric.errors import UsageError
from fabric.model.lanes import SERVICE_LEVELS, ServiceLevel
from fabric.model.network import Fabric, Nic, Port
from fabric.world.engine import Front
from runs.console import OUT

PlannedPath = tuple[tuple[Port, ...], float]
"""The ports that a packet leaves by, and the share of flows that go this way, or of packets where these are sprayed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric path``."""
    add_fabric_options(parser)
    parser.add_argument("source", metavar="HOST_A", help="the host that sends, e.g. z0h000")
    parser.add_argument("destination", metavar="HOST_B", help="the host that receives")
    levels = [level.label for level in SERVICE_LEVELS]
    which = "the Service Level of the packets, which chooses their lane"
    parser.add_argument("--level", choices=levels, default="hfreduce", help=which)
    rail = "by the NICs number N (default: the first that reach each other)"
    parser.add_argument("--rail", type=int, metavar="N", help=rail)
    add_down_option(parser)
    parser.add_argument("--probe", action="store_true", help="bring the fabric up and send a packet")
    add_json_option(parser)
    add_engine_option(parser)
    parser.set_defaults(command=show_path)


def show_path(options: argparse.Namespace, arguments: list[str]) -> int:
    """Print the path of packets between two hosts."""
    fabric = fabric_of(options)
    if not options.probe:
        return print_path(fabric, options)
    if options.down:
        raise UsageError("--down is for the plan only, and a probe needs links that are up: omit one of the two")
    require_queueing(fabric, options)
    enter_world(arguments, options, fabric, front=Front(groundwork=groundwork_asked(fabric, options)))
    return probe_in_world(fabric, options)


def _packet(fabric: Fabric, options: argparse.Namespace) -> tuple[tuple[Nic, Nic], ServiceLevel]:
    """Return the NICs and the service level that packets have. Raises TopologyError for a host that is none."""
    nics = nics_for(fabric, fabric.host_named(options.source), fabric.host_named(options.destination), options.rail)
    return nics, next(level for level in SERVICE_LEVELS if level.label == options.level)


def print_path(fabric: Fabric, options: argparse.Namespace) -> int:
    """Print the planned path and lane of packets between two hosts."""
    nics, level = _packet(fabric, options)
    lanes = lanes_of(options)
    plan = plan_routes(fabric, routing_of(options), links_down(fabric, options.down))
    hops = planned_hops(plan, fabric, lanes, nics, level)
    paths = planned_paths(plan, fabric, *nics)
    load = port_load(plan, fabric)
    if options.json:
        print(json.dumps({"planned": _hops_as_json(hops), **_choices_as_json(plan, fabric, paths, load)}))
        return 0
    OUT.print(_hops_table(fabric, hops, None))
    OUT.print(_choices_table(fabric, paths, load, "packets" if routing_of(options).policy.sprays else "flows"))
    for what, parts in plan.cuts.items():
        OUT.print(
            f"[red]{what} is cut[/] into {len(parts)} parts of {', '.join(str(len(part)) for part in parts)} NICs"
        )
    return 0


def _choices_as_json(plan: RoutePlan, fabric: Fabric, paths: Sequence[PlannedPath], load: Mapping[Port, float]) -> Any:
    return {
        "paths": [{"ports": [str(port) for port in path], "share": share} for path, share in paths],
        "destinations_by_port": {str(port): load[port] for port in sorted(load)},
        "cuts": plan.cuts,
    }


def _choices_table(fabric: Fabric, paths: Sequence[PlannedPath], load: Mapping[Port, float], what: str) -> Table:
    table = Table(f"share of {what}", "path", "destinations at its busiest port", title="all planned paths")
    for path, share in paths:
        busiest = max((port for port in path if port in load), key=lambda port: load[port])
        shown = " ".join(map(fabric.label_of, path))
        table.add_row(f"{share:.1%}", shown, f"{load[busiest]:g} at {fabric.label_of(busiest)}")
    return table


def probe_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Send a packet between two hosts and print its path next to the plan; 1 if they differ."""
    nics, level = _packet(fabric, options)
    with live_fabric(fabric, lanes_of(options), routing_of(options)) as live:
        found = probe(live, nics, level)
        planned = planned_hops(live.plan, fabric, live.emulation.lane_plan, nics, level)
        seen = tuple(hop.port for hop in found.hops)
        if live.routing.policy.sprays and seen in [path for path, _ in planned_paths(live.plan, fabric, *nics)]:
            planned = [Hop(port, planned[0].lane) for port in seen]  # One of the ways that the packet may take.
    agrees = found.delivered and list(found.hops) == planned
    if options.json:
        answer = {"planned": _hops_as_json(planned), "seen": _hops_as_json(found.hops), "delivered": found.delivered}
        print(json.dumps({**answer, "agrees": agrees}))
    else:
        OUT.print(_hops_table(fabric, planned, found.hops))
        OUT.print("delivered" if found.delivered else "[red]not delivered[/]")
        OUT.print("[green]as planned[/]" if agrees else "[red]not as planned[/]")
    return 0 if agrees else 1


def _hops_as_json(hops: Sequence[Hop]) -> list[dict[str, str]]:
    return [{"port": str(hop.port), "lane": hop.lane} for hop in hops]


def _hops_table(fabric: Fabric, planned: Sequence[Hop], seen: Sequence[Hop] | None) -> Table:
    table = Table("leaves by", "to", "lane", *(["seen at", "seen in lane"] if seen is not None else []))
    for place, hop in enumerate(planned):
        row = [fabric.label_of(hop.port), fabric.label_of(fabric.peer(hop.port)), hop.lane]
        if seen is not None:
            row += [fabric.label_of(seen[place].port), seen[place].lane] if place < len(seen) else ["nowhere", ""]
        table.add_row(*row)
    return table
