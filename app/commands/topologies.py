"""``fabric topo`` and ``fabric check``: what can be looked at without bringing anything up."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from app.commands.options import TOPOLOGY, add_json_option, add_topology
from fabric.config import read_yaml
from fabric.errors import ConfigError
from runs.console import OUT
from topologies.containerlab_files import is_lab, left_out
from topologies.htsim_files import SUFFIX
from topologies.load import load_fabric, topology_path


def add_topo_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric topo``."""
    from app.commands.credit_loops import add_loop_options

    commands = parser.add_subparsers(required=True, metavar="list|show|draw|loops")
    listing = commands.add_parser("list", help="the topologies that come with the project: sizes, rates, what they are")
    add_json_option(listing)
    listing.set_defaults(command=list_topologies)
    show = commands.add_parser("show", help="counts, port budget, bisection, oversubscription and relative cost")
    show.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY)
    show.add_argument("other", metavar="TOPOLOGY", nargs="?", help="a second one to set beside it")
    add_json_option(show)
    show.set_defaults(command=show_topology)
    draw = commands.add_parser("draw", help="draw one as a picture")
    add_topology(draw)
    draw.add_argument("-o", "--out", required=True, type=Path, metavar="FILE.svg", help="the picture to write")
    draw.set_defaults(command=draw_topology)
    loops = commands.add_parser(
        "loops", help="look for credit loops: whether lossless ports may deadlock on its routes"
    )
    add_loop_options(loops)


def add_check_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric check``."""
    what = "a YAML file, the name of a topology or of an experiment, or the folder of one of your own"
    parser.add_argument("file", metavar="TOPOLOGY|EXPERIMENT|FILE", help=what)
    parser.set_defaults(command=check_file)


def list_topologies(options: argparse.Namespace, _: list[str]) -> int:
    """Print the topologies that come with the project."""
    from topologies.listing import listed, render

    found = listed()
    if options.json:
        print(json.dumps([one.as_json() for one in found], indent=1))
    else:
        OUT.print(render(found))
    return 0


def show_topology(options: argparse.Namespace, _: list[str]) -> int:
    """Print a topology's counts, or two side by side."""
    from topologies import compare
    from topologies.node_table import inside_as_json, render_inside
    from topologies.summary import render, summarize

    if options.other is not None:
        both = [compare.priced(name) for name in (options.topology, options.other)]
        if options.json:
            print(json.dumps([one.as_json() for one in both], indent=1))
        else:
            OUT.print(compare.render(*both))
        return 0
    fabric = load_fabric(options.topology)
    summary = summarize(fabric)
    if options.json:
        print(json.dumps(summary.as_json() | {"inside": inside_as_json(fabric)}, indent=1))
        return 0
    OUT.print(render(summary))
    if (table := render_inside(fabric)) is not None:
        OUT.print(table)
    return 0


def draw_topology(options: argparse.Namespace, _: list[str]) -> int:
    """Draw a topology into a file."""
    from fabric.model.encoding import fabric_as_json
    from fabric.report import figures

    figures.draw_topology(fabric_as_json(load_fabric(options.topology)), options.out)
    print(f"drawn: {options.out}")
    return 0


def check_file(options: argparse.Namespace, _: list[str]) -> int:
    """Check a topology's or an experiment's file."""
    from runs.registry import EXPERIMENTS, resolve

    if options.file in EXPERIMENTS or Path(options.file).is_dir() or _is_of_experiment(options.file):
        resolved = resolve(options.file, [])
        print(f"{options.file}: good; experiment {resolved.experiment.name} on {resolved.fabric.name}")
    else:
        _check_topology(options.file)
    return 0


def _check_topology(name: str) -> None:
    """Print that a topology can be wired and routed, and which nodes the user's names mean. Raises ConfigError."""
    from controllers.planning.planner import routing_faults
    from controllers.routing import Routing

    fabric = load_fabric(name)
    if faults := list(routing_faults(fabric, Routing())):
        raise ConfigError(name, faults)
    own = [f"  {fabric.shown(node)}" for node in fabric.nodes if node in fabric.own_names]
    print("\n".join([f"{name}: good; {len(fabric.hosts)} hosts, {len(fabric.switches)} switches", *own]))
    path = topology_path(name)
    if path.suffix != SUFFIX and is_lab(data := read_yaml(path), path):
        for note in left_out(data, name):
            print(f"  left out of containerlab's file: {note}")


def _is_of_experiment(name: str) -> bool:
    """Whether a file is an experiment's config and no topology, which may be htsim's."""
    path = Path(name) if Path(name).is_file() else topology_path(name)
    return path.suffix != SUFFIX and "experiment" in read_yaml(path)
