"""Options that commands share. They load little: help and completion need them, and nothing of what runs."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from controllers.planning.policies import POLICIES
from controllers.routing import Repair
from fabric.errors import FabricError, UsageError
from fabric.model.lanes import Queueing
from fabric.units import parse_size_bytes, parse_time_s

SFLOW_FILE = "--sflow-file"
"""For ourselves: where a world's switches export to."""
TOPOLOGY = "a topology's name (fabric topo list) or file"


def add_engine_option(parser: argparse.ArgumentParser) -> None:
    """Let a command choose its engine, and the memory of a guest."""
    from fabric.world import engines  # What engines need takes a while to load, and few commands have one.
    from runs.engine_choice import RULE

    text = (
        "namespace: real time, needs root; virtual: exact, in virtual time, without root; computing takes no time "
        f"there ({RULE})"
    )
    parser.add_argument("--engine", choices=engines.ENGINES, type=_engine, default=_BY_RULE, help=text)
    memory = (
        "memory of the virtual engine's guest, e.g. 8GiB (default: 4GiB, more for large fabrics); allocated from this "
        "machine as it is used"
    )
    parser.add_argument("--memory", type=size_bytes, metavar="SIZE", help=memory)


_BY_RULE = "by the rule"
"""What argparse hands to :func:`_engine` where the option was not given."""


def _engine(text: str) -> str:
    from runs.engine_choice import chosen_engine

    if text is not _BY_RULE:
        return text
    try:
        return chosen_engine()
    except FabricError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_live_options(parser: argparse.ArgumentParser, what: str, metrics: str = "") -> None:
    """Let a command serve a page while it plays: of ``what``; ``metrics``: what else is at its port."""
    live = f"show {what} while it plays: a page on 127.0.0.1, whose address is printed, and a table in the terminal"
    parser.add_argument("--live", action="store_true", help=live)
    port = f"of the page{metrics}, with --live (default: any that is free)"
    parser.add_argument("--port", type=int, metavar="PORT", help=port)


def live_port(options: argparse.Namespace) -> int | None:
    """The port of a command's page, 0 for any that is free; None without ``--live``. Raises UsageError for the port of
    a page that is not asked for."""
    if options.port is not None and not options.live:
        raise UsageError(f"--port {options.port}: is of the page of --live; give that, too, or omit it")
    return options.port or 0 if options.live else None


def size_bytes(text: str) -> int:
    """Return a size in bytes, as argparse's types do. Raises ArgumentTypeError."""
    try:
        return parse_size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def time_s(text: str | float) -> float:
    """Return seconds, of an argument such as ``10 min``. Raises ArgumentTypeError."""
    try:
        found = parse_time_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a time above 0, e.g. '10 min'")
    return found


def seconds(text: str) -> float:
    """Return seconds, of an argument such as ``10 min``, or a plain number of them. Raises ArgumentTypeError."""
    try:
        return time_s(float(text))
    except ValueError:
        return time_s(text)


def add_set_option(parser: argparse.ArgumentParser, text: str | None = None) -> None:
    """Let a command change settings."""
    usual = "change a key of the config, e.g. queues.lanes.storage.share=0.2 or topology.placement=packed"
    text = f"{text or usual}; values are YAML; may be repeated"
    parser.add_argument("--set", action="append", default=[], metavar="a.b=value", dest="overrides", help=text)


def add_capture_option(parser: argparse.ArgumentParser) -> None:
    """Let a command write what passes ports into files."""
    text = (
        "write what passes a port into a pcap file, e.g. z0l03:7=a.pcap, or with z0l03:7=- to stdout while it passes, "
        "for | wireshark -k -i - (docs/streams.md); may be repeated"
    )
    parser.add_argument("--capture", action="append", default=[], metavar="PORT=FILE", help=text)


def add_share_option(parser: argparse.ArgumentParser) -> None:
    """Let hosts share a directory."""
    text = (
        "a directory below /tmp or /run, which are each host's own, that all hosts share with this machine; those that "
        "the command names are shared anyway; may be repeated"
    )
    parser.add_argument("--share", action="append", default=[], type=_directory, metavar="DIR", help=text)


def add_verbs_option(parser: argparse.ArgumentParser) -> None:
    """Let hosts have RDMA devices."""
    text = "give each host an RDMA device per NIC, mlx5_0 for eth0: soft RoCE v2, in virtual time only (default: none)"
    parser.add_argument("--verbs", action="store_true", help=text)


def _directory(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a directory of this machine; make it first: mkdir {text}")
    return Path(text).absolute()


def add_sflow_options(parser: argparse.ArgumentParser, is_entered: bool = False) -> None:
    """Let a command's switches export sFlow; ``is_entered``: the command goes on in a world, which is told the file."""
    text = (
        "let every switch export sFlow v5 to a collector in your own network, e.g. 127.0.0.1:6343 or [::1]:6343 "
        "(docs/streams.md); default: none do"
    )
    parser.add_argument("--sflow", metavar="HOST:PORT", help=text)
    sampling = "with --sflow: sample one in N packets that arrive at a switch (default: 400, Open vSwitch's)"
    parser.add_argument("--sflow-sampling", type=int, metavar="N", help=sampling)
    polling = "with --sflow: export counters of ports so often, in whole seconds (default: 30, Open vSwitch's)"
    parser.add_argument("--sflow-polling", type=int, metavar="SECONDS", help=polling)
    if is_entered:
        parser.add_argument(SFLOW_FILE, help=argparse.SUPPRESS)


def add_json_option(parser: argparse.ArgumentParser, what: str = "print the answer as JSON") -> None:
    """Let a command answer programs."""
    parser.add_argument("--json", action="store_true", help=what)


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Let a command be given a topology."""
    parser.add_argument("topology", metavar="TOPOLOGY", help=TOPOLOGY)


def add_fabric_options(parser: argparse.ArgumentParser) -> None:
    """Let a command choose a topology, its routing and its queues."""
    add_topology(parser)
    add_routing_options(parser)
    queueings = [queueing.value for queueing in Queueing]
    text = (
        "one queue per port, or lanes; lossless: by credits, in the virtual engine or with the kernel datapath "
        "(docs/limits.md lists what it does not model of InfiniBand and PFC)"
    )
    parser.add_argument("--queueing", choices=queueings, default="lanes", help=text)
    values = "as in fabric run: topology.placement=packed, queues.lanes.storage.share=0.2; topology. may be omitted"
    add_set_option(parser, values)


def add_routing_options(parser: argparse.ArgumentParser, whose: str = "") -> None:
    """Let a command choose how packets are routed, and how failures are repaired; ``whose`` begins the help."""
    policies, repairs = [one.name for one in POLICIES], [one.value for one in Repair]
    which = f"{whose}which of several equal paths packets take"
    parser.add_argument("--routing", choices=policies, default="static", help=which)
    parser.add_argument("--repair", choices=repairs, default="wait", help=f"{whose}what happens when a link fails")


def add_down_option(parser: argparse.ArgumentParser) -> None:
    """Let a command plan routes around links that are down: ``--down``, for :func:`.worlds.links_down`."""
    down = "plan as if the link at this port were down, e.g. z0l00:5; may be repeated"
    parser.add_argument("--down", action="append", default=[], metavar="PORT", help=down)
