"""``fabric path``, ``fabric shell`` and ``fabric exec``: a fabric up for a person or a program."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

from rich.table import Table

from controllers.planning.paths import nics_for, planned_paths, port_load
from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from controllers.routing import Routing
from experiments.commands.probe import Hop, planned_hops, probe
from experiments.run.captures import captures
from experiments.run.config import queues_of
from experiments.run.console import ERR, OUT, tell
from experiments.run.live import LiveFabric, bring_up
from fabric.errors import TrafficError, UsageError
from fabric.measure.census import lane_counters
from fabric.model.identity import NodeId
from fabric.model.lanes import Queueing, ServiceLevel, plan_lanes
from fabric.model.network import Fabric, Link, Port
from fabric.units import format_size
from fabric.world import inside
from fabric.world.engines import current_engine

Path = tuple[tuple[Port, ...], float]
"""The ports that a packet leaves by, and the share of flows that go this way."""
_MASTER_PORT = 29500  # torchrun's
_END_S = 5.0


@contextmanager
def _live(fabric: Fabric, options: argparse.Namespace) -> Iterator[LiveFabric]:
    lanes = plan_lanes(queues_of(options.overrides), Queueing(options.queueing))
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    with bring_up(fabric, lanes, logs, tell, _routing(options)) as live:
        ERR.print(f"[dim]up in {live.ready_s:.1f} s[/]", highlight=False)
        with captures(live.emulation, getattr(options, "capture", [])):
            yield live


def _routing(options: argparse.Namespace) -> Routing:
    return Routing.model_validate({"policy": options.routing, "repair": options.repair})


def _links_down(fabric: Fabric, names: Sequence[str]) -> list[Link]:
    """Return the links plugged into the named ports. Raises UsageError for a name that is no port of the fabric."""
    ports = {str(port): link for port, link in fabric.link_at.items()}
    for name in names:
        if name not in ports:
            raise UsageError(f"--down {name}: {fabric.name} has no such port; write a port like {next(iter(ports))}")
    return [ports[name] for name in names]


def print_path(fabric: Fabric, options: argparse.Namespace) -> int:
    """Print the planned path and lane of packets between two hosts."""
    nics = nics_for(fabric, fabric.host_named(options.source), fabric.host_named(options.destination), options.rail)
    level = ServiceLevel[options.level.upper()]
    lanes = plan_lanes(queues_of(options.overrides), Queueing(options.queueing))
    plan = plan_routes(fabric, _routing(options), _links_down(fabric, options.down))
    hops = planned_hops(plan, fabric, lanes, nics, level)
    paths = planned_paths(plan, fabric, *nics)
    load = port_load(plan, fabric)
    if options.json:
        print(json.dumps({"planned": _hops_as_json(hops), **_choices_as_json(plan, fabric, paths, load)}))
        return 0
    OUT.print(_hops_table(fabric, hops, None))
    OUT.print(_choices_table(paths, load))
    for what, parts in plan.cuts.items():
        OUT.print(
            f"[red]{what} is cut[/] into {len(parts)} parts of {', '.join(str(len(part)) for part in parts)} NICs"
        )
    return 0


def _choices_as_json(plan: RoutePlan, fabric: Fabric, paths: Sequence[Path], load: Mapping[Port, float]) -> Any:
    return {
        "paths": [{"ports": [str(port) for port in path], "share": share} for path, share in paths],
        "destinations_by_port": {str(port): load[port] for port in sorted(load)},
        "cuts": plan.cuts,
    }


def _choices_table(paths: Sequence[Path], load: Mapping[Port, float]) -> Table:
    table = Table("share of flows", "path", "destinations at its busiest port", title="all planned paths")
    for path, share in paths:
        busiest = max((port for port in path if port in load), key=lambda port: load[port])
        table.add_row(f"{share:.1%}", " ".join(map(str, path)), f"{load[busiest]:g} at {busiest}")
    return table


def probe_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Send a packet between two hosts and print its way beside the plan; 1 if they differ."""
    nics = nics_for(fabric, fabric.host_named(options.source), fabric.host_named(options.destination), options.rail)
    level = ServiceLevel[options.level.upper()]
    with _live(fabric, options) as live:
        planned = planned_hops(live.plan, fabric, live.emulation.lane_plan, nics, level)
        found = probe(live, nics, level)
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
        row = [str(hop.port), str(fabric.peer(hop.port)), hop.lane]
        if seen is not None:
            row += [str(seen[place].port), seen[place].lane] if place < len(seen) else ["nowhere", ""]
        table.add_row(*row)
    return table


def shell_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Bring the fabric up and show Mininet's prompt until it is left."""
    with _live(fabric, options) as live:
        ERR.print("Mininet's prompt; try: z0h000 ping -c 3 z0h001, nodes, net, help, exit", highlight=False)
        if not current_engine().has_terminal:
            os.environ.update(current_engine().users_environment())  # Which the shells of nodes inherit.
            ERR.print("virtual time stands still while the prompt waits; keys go to the prompt only", highlight=False)
        live.emulation.command_line()
    return 0


def execute_in_world(fabric: Fabric, options: argparse.Namespace) -> int:
    """Run a program on hosts at once, wait for all, print what each lane carried; 1 if one of them failed."""
    hosts = [fabric.host_named(name) for name in options.hosts]
    beside = [_background(fabric, text) for text in options.background]
    with _live(fabric, options) as live:
        environment = current_engine().users_environment() | _environment(fabric, hosts)
        before = lane_counters(live.emulation, "sent_bytes")
        servers = [_start(live, host, command, environment) for host, command in beside]
        if servers:
            time.sleep(0.5)
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


def _environment(fabric: Fabric, hosts: Sequence[NodeId]) -> dict[str, str]:
    """Return what tells programs of each other: ours, and what torchrun and Open MPI go by."""
    addresses = [fabric.nics_of[host][0].ip for host in hosts]
    hostfile = inside.RUN_DIR / "hostfile"
    hostfile.write_text("".join(f"{host} slots=1\n" for host in hosts))
    remote_shell = inside.RUN_DIR / "rsh"
    remote_shell.write_text('#!/bin/sh\nhost=$1\nshift\nexec nsenter --net=/run/netns/"$host" sh -c "$*"\n')
    remote_shell.chmod(0o755)
    return {
        "FABRIC_HOSTS": ",".join(str(host) for host in hosts),
        "FABRIC_ADDRESSES": ",".join(addresses),
        "FABRIC_HOSTFILE": str(hostfile),
        "FABRIC_RSH": str(remote_shell),
        "WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": addresses[0],
        "MASTER_PORT": str(_MASTER_PORT),
        "OMPI_MCA_plm_rsh_agent": str(remote_shell),
        "OMPI_MCA_orte_default_hostfile": str(hostfile),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # Whoever is in a world is root.
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8",
        "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/8",
    }


def _start(
    live: LiveFabric, host: NodeId, command: Sequence[str], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return live.emulation.popen(host, command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise TrafficError(f"{host}: cannot start {command[0]!r}: {error.strerror}") from error


def _run_all(
    live: LiveFabric, hosts: Sequence[NodeId], options: argparse.Namespace, environment: dict[str, str]
) -> list[tuple[NodeId, int]]:
    """Return the hosts whose program failed, with its exit code."""
    running = []
    for rank, host in enumerate(hosts):
        nic = live.fabric.nics_of[host][0].port.interface
        own = {"FABRIC_HOST": host.name, "FABRIC_RANK": str(rank), "RANK": str(rank), "LOCAL_RANK": "0"}
        own["GLOO_SOCKET_IFNAME"] = nic
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
