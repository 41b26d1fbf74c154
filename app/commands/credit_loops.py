"""``fabric topo loops``: whether the routes of a fabric allow lossless ports to wait for each other in a circle."""

from __future__ import annotations

import argparse
import json

from app.commands.options import (
    add_down_option,
    add_json_option,
    add_routing_options,
    add_set_option,
    add_topology,
)
from runs.console import OUT


def add_loop_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric topo loops``."""
    add_topology(parser)
    add_routing_options(parser)
    add_down_option(parser)
    add_set_option(parser, "change a key of the topology, e.g. placement=packed")
    add_json_option(parser)
    parser.set_defaults(command=show_loops)


def show_loops(options: argparse.Namespace, _: list[str]) -> int:
    """Print how many ports are in credit loops, and one of these."""
    from app.commands.live import routing_of
    from app.commands.worlds import fabric_of, links_down  # They load what brings fabrics up.
    from controllers.planning.credit_loops import a_loop, dependencies, in_loops
    from controllers.planning.planner import plan_routes

    fabric, routing = fabric_of(options), routing_of(options)
    found = dependencies(fabric, plan_routes(fabric, routing, links_down(fabric, options.down)))
    loops = in_loops(found)
    loop = a_loop(loops)
    if options.json:
        print(json.dumps({"ports": len(found), "in_loops": len(loops), "loop": [str(port) for port in loop]}))
        return 0
    if not loop:
        OUT.print(f"no credit loop: on these routes of {fabric.name} lossless ports cannot deadlock while they stay")
        return 0
    around = " -> ".join(str(port) for port in (*loop, loop[0]))
    OUT.print(f"credit loop: {around}", soft_wrap=True)
    share = f"{len(loops)} of {len(found)} ports of switches that pass packets on are in loops or between them"
    why = "in a lossless queueing, traffic that fills one stops for good"
    OUT.print(f"{share}: {why}. Keep traffic off a part of it, or change the topology.", soft_wrap=True)
    return 0
