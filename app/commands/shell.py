"""``fabric shell``: a fabric with Mininet's prompt."""

from __future__ import annotations

import argparse
import os
import sys

from rich.text import Text

from app.commands.live import groundwork_asked, lanes_of, live_fabric, routing_of
from app.commands.options import (
    add_capture_option,
    add_engine_option,
    add_fabric_options,
    add_sflow_options,
    add_share_option,
    add_verbs_option,
)
from app.commands.streams import begin_world_streams, export_of, words_of_streams
from app.commands.worlds import enter_world, fabric_of, require_queueing
from fabric.model.network import Fabric
from fabric.world import engines, inside
from fabric.world.engine import Front
from fabric.world.engines import current_engine
from fabric.world.programs import verbs
from fabric.world.virtual.dialogue import LONGEST_LINE_BYTES
from runs.captures import require_captures
from runs.console import ERR

PROMPT = "mininet> "
"""Mininet's own."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric shell``."""
    waits = "In virtual time the clock stands still while the prompt waits, and keys go to the prompt only."
    parser.description = f"Bring the fabric up with Mininet's prompt. {waits}"
    add_fabric_options(parser)
    add_engine_option(parser)
    add_capture_option(parser)
    add_sflow_options(parser, is_entered=True)
    add_share_option(parser)
    add_verbs_option(parser)
    parser.set_defaults(command=run_shell)


def run_shell(options: argparse.Namespace, arguments: list[str]) -> int:
    """Bring a fabric up and show Mininet's prompt."""
    fabric = fabric_of(options)
    if not inside.is_inside():
        require_captures(fabric, options.capture, engines.ENGINES[options.engine])
    require_queueing(fabric, options)
    if options.verbs and not inside.is_inside():
        verbs.require(engines.ENGINES[options.engine], "--verbs")
    if not inside.is_inside():
        arguments = begin_world_streams(arguments, options)
    front = Front(groundwork=groundwork_asked(fabric, options))
    enter_world(arguments, options, fabric, ask=ask, words=words_of_streams(options), front=front)
    return shell_in_world(fabric, options)


def shell_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Bring the fabric up and show Mininet's prompt until it is left."""
    lanes, routing = lanes_of(options), routing_of(options)
    with live_fabric(fabric, lanes, routing, options.capture, export_of(options), options.verbs) as live:
        ERR.print(f"Mininet's prompt; try: {_example(fabric)}nodes, net, help, exit", highlight=False)
        if not current_engine().has_terminal:
            os.environ.update(current_engine().users_environment())  # Which the shells of nodes inherit.
            ERR.print("virtual time stands still while the prompt waits; keys go to the prompt only", highlight=False)
        live.emulation.command_line()
    return 0


def _example(fabric: Fabric) -> str:
    """Return a ping between hosts that reach each other, by the user's names; nothing if there are none."""
    first = fabric.hosts[0]
    other = next((host for host in fabric.hosts if fabric.nic_pair(first, host)), None)
    names = [fabric.own_names.get(host, host.name) for host in (first, other) if host is not None]
    return f"{names[0]} ping -c 3 {names[1]}, " if len(names) == 2 else ""


def ask() -> str | None:
    """Return the next line of stdin, showing the prompt; None at its end. Ctrl-C begins a new line, as in Mininet."""
    if sys.stdin is None:
        return None  # Closed before we came.
    if sys.stdin.isatty():
        import readline  # noqa: F401 - from now on input() has editing and history.
    while True:
        try:
            line = input(PROMPT)
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\nInterrupt")
            continue
        size_bytes = len(os.fsencode(line))
        if size_bytes < LONGEST_LINE_BYTES and "\0" not in line:
            return line
        why = f" a line of {size_bytes} bytes; the limit is {LONGEST_LINE_BYTES}, and none is NUL"
        ERR.print(Text.assemble(("not run:", "red"), why))
