"""``fabric exec``: unmodified programs on hosts of a fabric."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from rich.table import Table

from experiments.commands.live import lanes_of, live_fabric, routing_of
from experiments.commands.worlds import (
    add_capture_option,
    add_engine_option,
    add_fabric_options,
    enter_world,
    fabric_of,
    require_queueing,
)
from experiments.run.console import ERR
from experiments.run.live import LiveFabric
from fabric.errors import TrafficError, UsageError
from fabric.measure.census import lane_counters
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port
from fabric.units import format_size
from fabric.world.engines import current_engine
from traffic.programs.environment import own_environment, programs_environment

_END_S = 5.0
_SERVERS_READY_S, _LOOK_S = 5.0, 0.05
_BOUND = (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"))
"""Tables of /proc/net, and the state of sockets that wait for a peer: TCP's listen, UDP's without one."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric exec``."""
    stdin = "Its stdin is empty (/dev/null), in either engine, and so is that of background programs."
    parser.description = f"Run an unmodified program on hosts of the fabric. {stdin}"
    add_fabric_options(parser)
    parser.add_argument("hosts", nargs="+", metavar="HOST")
    add_capture_option(parser)
    background = "a program that runs meanwhile, e.g. a server"
    parser.add_argument("--background", action="append", default=[], metavar="HOST=COMMAND", help=background)
    parser.add_argument("--first-only", action="store_true", help="start it on the first host only, as mpirun needs")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="SECONDS")
    add_engine_option(parser)
    parser.set_defaults(command=run_program)


def run_program(options: argparse.Namespace, arguments: list[str]) -> int:
    """Run an unmodified program on hosts."""
    fabric = fabric_of(options)
    if not options.program:
        raise UsageError("no program; write it after two dashes: fabric exec TOPOLOGY HOST... -- PROGRAM")
    for host in options.hosts:
        fabric.host_named(host)
    require_queueing(fabric, options)
    enter_world(arguments, options, fabric, words=[*options.program, *options.background, *options.capture])
    return execute_in_world(fabric, options)


def execute_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Run a program on hosts at once, wait for all, print what each lane carried; 1 if one of them failed."""
    hosts = [fabric.host_named(name) for name in options.hosts]
    beside = [_background(fabric, text) for text in options.background]
    with live_fabric(fabric, lanes_of(options), routing_of(options), options.capture) as live:
        environment = current_engine().users_environment() | programs_environment(fabric, hosts)
        before = lane_counters(live.emulation, "sent_bytes")
        servers = [_start(live, host, command, environment) for host, command in beside]
        await_servers([host for host, _ in beside], servers)
        failed = _run_all(live, hosts[:1] if options.first_only else hosts, options, environment)
        for server in servers:
            _end(server)
        ERR.print(_lanes_table(live, before))
    for host, code in failed:
        ERR.print(f"{host}: {shlex.join(options.program)} ended with {code}", highlight=False)
    if failed and current_engine().has_own_kernel:
        seen = (
            "of this machine's /tmp, /run and /dev programs in virtual time see only directories that the command names"
        )
        ERR.print(f"note: {seen}", highlight=False, soft_wrap=True)
    return 1 if failed else 0


def _background(fabric: Fabric, text: str) -> tuple[NodeId, list[str]]:
    host, equals, command = text.partition("=")
    if not equals:
        raise UsageError(f"--background {text!r}: write HOST=COMMAND, e.g. z0h003='iperf3 -s'")
    return fabric.host_named(host), shlex.split(command)


def _start(
    live: LiveFabric, host: NodeId, command: Sequence[str], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return live.emulation.popen(host, command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise TrafficError(f"{host}: cannot start {command[0]!r}: {error.strerror}") from error


def await_servers(hosts: Sequence[NodeId], servers: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait until each host has a bound socket for each program that was started there, unless that has ended; at most
    as long as is given to one that listens to nobody."""
    deadline = time.monotonic() + _SERVERS_READY_S
    wanted = Counter(hosts)
    of_host = dict(zip(hosts, servers, strict=True))
    while time.monotonic() < deadline:
        waiting = [host for host, server in of_host.items() if server.poll() is None]
        if all(bound_sockets(of_host[host].pid) >= wanted[host] for host in waiting):
            return
        time.sleep(_LOOK_S)


def bound_sockets(pid: int) -> int:
    """Return how many TCP sockets listen and UDP sockets are bound in the host of a process; 0 if it has ended, or is
    not there yet."""
    process = Path(f"/proc/{pid}")
    try:
        if (process / "ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            return 0
    except OSError:
        return 0
    return sum(_in_table(process / "net" / name, state) for name, state in _BOUND)


def _in_table(table: Path, state: str) -> int:
    try:
        rows = table.read_text().splitlines()[1:]
    except OSError:  # The process has ended, or this kernel has no such protocol.
        return 0
    return sum(row.split()[3] == state for row in rows)


def _run_all(
    live: LiveFabric, hosts: Sequence[NodeId], options: argparse.Namespace, environment: dict[str, str]
) -> list[tuple[NodeId, int]]:
    """Return the hosts whose program failed, with its exit code."""
    running = []
    for rank, host in enumerate(hosts):
        own = own_environment(live.fabric, host, rank)
        running.append(_start_piped(live, host, options.program, environment | own, len(hosts) > 1))
    deadline = time.monotonic() + options.timeout
    failed = []
    for host, (process, reader) in zip(hosts, running, strict=True):
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end(process)
            raise TrafficError(f"{host}: {options.program[0]!r} still runs after {options.timeout:g} s") from None
        reader.join(_END_S)
        if code != 0:
            failed.append((host, code))
    return failed


def _start_piped(
    live: LiveFabric, host: NodeId, command: Sequence[str], environment: dict[str, str], with_name: bool
) -> tuple[subprocess.Popen[bytes], threading.Thread]:
    process = live.emulation.popen(
        host, command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    prefix = f"[{host}] " if with_name else ""
    reader = threading.Thread(target=_pass_on, args=(process.stdout, prefix), daemon=True)
    reader.start()
    return process, reader


def _pass_on(stream: IO[bytes], prefix: str) -> None:
    for line in stream:
        sys.stdout.write(prefix + line.decode(errors="replace"))
        sys.stdout.flush()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_S)


def _lanes_table(live: LiveFabric, before: dict[tuple[Port, str], int]) -> Table:
    after = lane_counters(live.emulation, "sent_bytes")
    hosts = [port for host in live.fabric.hosts for port in live.fabric.ports_of[host]]
    table = Table("lane", "sent by hosts", "most at one port", title="Bytes carried by each lane")
    for lane in live.emulation.lane_plan.lanes:
        sent = {port: after[port, lane.name] - before[port, lane.name] for port in live.fabric.link_at}
        busiest = max(sent, key=lambda port: sent[port])
        most = f"{format_size(sent[busiest])} at {busiest}" if sent[busiest] else ""
        table.add_row(lane.name, format_size(sum(sent[port] for port in hosts)), most)
    return table
