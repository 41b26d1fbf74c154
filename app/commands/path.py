"""``fabric path``: the path and lane of packets between two hosts, by the plan, or of a real packet."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from app.commands.live import groundwork_asked, lanes_of, live_fabric, routing_of
from app.commands.options import add_down_option, add_engine_option, add_fabric_options, add_json_option
from app.commands.probe import Hop, Packets, planned_hops, probe
from app.commands.worlds import enter_world, fabric_of, links_down, require_queueing
from controllers.planning.ecmp import TCP, UDP, FiveTuple
from controllers.planning.paths import nics_for, planned_paths, port_load, probe_flow
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from fabric.errors import UsageError
from fabric.model.lanes import SERVICE_LEVELS
from fabric.model.network import Fabric, Nic, Port
from fabric.world.engine import Front
from runs.console import OUT
from traffic.transport.queue_pairs import ROCE_PORT, udp_source_port

_PROTOCOLS = {"tcp": TCP, "udp": UDP}
_NAMES = {number: name for name, number in _PROTOCOLS.items()}
_PORT, _QUEUE_PAIR, _FLOW_LABEL = 0xFFFF, 0xFFFFFF, 0xFFFFF
"""The largest number that each may be."""
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
    flow = parser.add_mutually_exclusive_group()
    ports = "of a flow of these ports, e.g. tcp:40000:5201: ECMP chooses by them (default: of a probe)"
    flow.add_argument("--flow", metavar="PROTOCOL:SOURCE:DESTINATION", help=ports)
    pair = "of RDMA's queue pair of these numbers, HOST_A's first, with its flow label (default: it has none)"
    flow.add_argument("--queue-pair", metavar="OWN:PEER[:LABEL]", help=pair)
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


def _packets(fabric: Fabric, options: argparse.Namespace) -> Packets:
    """Return the packets that the options describe. Raises TopologyError for an unknown host, UsageError."""
    nics = nics_for(fabric, fabric.host_named(options.source), fabric.host_named(options.destination), options.rail)
    level = next(level for level in SERVICE_LEVELS if level.label == options.level)
    return Packets(nics, level, _flow(nics, options))


def _flow(nics: tuple[Nic, Nic], options: argparse.Namespace) -> FiveTuple:
    """Return the five-tuple that the options name, by default a probe's. Raises UsageError."""
    ends = nics[0].ip, nics[1].ip
    if options.queue_pair is not None:
        most = (_QUEUE_PAIR, _QUEUE_PAIR, _FLOW_LABEL)
        own, peer, *label = _numbers("--queue-pair ", options.queue_pair, most, 2)
        return FiveTuple(*ends, UDP, udp_source_port(label[0] if label else 0, own, peer), ROCE_PORT)
    if options.flow is None:
        return probe_flow(*nics)
    protocol, _, ports = options.flow.partition(":")
    if protocol not in _PROTOCOLS:
        raise UsageError(f"--flow {options.flow}: no protocol {protocol!r} here; begin it with tcp: or udp:")
    source, destination = _numbers(f"--flow {protocol}:", ports, (_PORT, _PORT), 2)
    return FiveTuple(*ends, _PROTOCOLS[protocol], source, destination)


def _numbers(option: str, text: str, most: Sequence[int], least: int) -> list[int]:
    """Return numbers between colons, each from 1 up to its limit. Raises UsageError."""
    parts = text.split(":")
    numbers = [int(part) for part in parts if part.isdecimal()]
    if len(numbers) != len(parts) or not least <= len(parts) <= len(most):
        count = " or ".join(map(str, sorted({least, len(most)})))
        raise UsageError(f"{option}{text}: give {count} numbers with colons between")
    for number, limit in zip(numbers, most, strict=False):
        if not 1 <= number <= limit:
            raise UsageError(f"{option}{text}: {number} is not between 1 and {limit}")
    return numbers


def print_path(fabric: Fabric, options: argparse.Namespace) -> int:
    """Print the planned path and lane of packets between two hosts."""
    packets = _packets(fabric, options)
    lanes = lanes_of(options)
    plan = plan_routes(fabric, routing_of(options), links_down(fabric, options.down))
    hops = planned_hops(plan, fabric, lanes, packets)
    paths = planned_paths(plan, fabric, *packets.nics)
    load = port_load(plan, fabric)
    if options.json:
        print(
            json.dumps(
                {
                    "planned": _hops_as_json(hops),
                    **_flow_as_json(packets),
                    **_choices_as_json(plan, fabric, paths, load),
                }
            )
        )
        return 0
    OUT.print(_hops_table(fabric, hops, None, _flow_in_words(packets)))
    OUT.print(_choices_table(fabric, paths, load, "packets" if routing_of(options).policy.sprays else "flows"))
    for what, parts in plan.cuts.items():
        OUT.print(
            Text.assemble(
                (f"{what} is cut", "red"), f" into {len(parts)} parts of {', '.join(map(str, map(len, parts)))} NICs"
            )
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
    packets = _packets(fabric, options)
    with live_fabric(fabric, lanes_of(options), routing_of(options)) as live:
        found = probe(live, packets)
        planned = planned_hops(live.plan, fabric, live.emulation.lane_plan, packets)
        seen = tuple(hop.port for hop in found.hops)
        if live.routing.policy.sprays and seen in [path for path, _ in planned_paths(live.plan, fabric, *packets.nics)]:
            planned = [Hop(port, planned[0].lane) for port in seen]  # One of the ways that the packet may take.
    agrees = found.delivered and list(found.hops) == planned
    if options.json:
        answer = {
            "planned": _hops_as_json(planned),
            **_flow_as_json(packets),
            "seen": _hops_as_json(found.hops),
            "delivered": found.delivered,
        }
        print(json.dumps({**answer, "agrees": agrees}))
    else:
        OUT.print(_hops_table(fabric, planned, found.hops, _flow_in_words(packets)))
        OUT.print(Text("delivered") if found.delivered else Text("not delivered", "red"))
        OUT.print(Text("as planned", "green") if agrees else Text("not as planned", "red"))
    return 0 if agrees else 1


def _hops_as_json(hops: Sequence[Hop]) -> list[dict[str, str]]:
    return [{"port": str(hop.port), "lane": hop.lane} for hop in hops]


def _flow_as_json(packets: Packets) -> dict[str, dict[str, str | int]]:
    flow = packets.flow
    ports = {"source_port": flow.source_port, "destination_port": flow.destination_port}
    return {"flow": {"protocol": _NAMES[flow.protocol], **ports}}


def _flow_in_words(packets: Packets) -> str:
    flow = packets.flow
    return f"{_NAMES[flow.protocol]} port {flow.source_port} to {flow.destination_port}"


def _hops_table(fabric: Fabric, planned: Sequence[Hop], seen: Sequence[Hop] | None, title: str) -> Table:
    table = Table("leaves by", "to", "lane", *(["seen at", "seen in lane"] if seen is not None else []), title=title)
    for place, hop in enumerate(planned):
        row = [fabric.label_of(hop.port), fabric.label_of(fabric.peer(hop.port)), hop.lane]
        if seen is not None:
            row += [fabric.label_of(seen[place].port), seen[place].lane] if place < len(seen) else ["nowhere", ""]
        table.add_row(*row)
    return table
