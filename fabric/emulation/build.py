"""The fabric emulated: Mininet hosts and Open vSwitch switches built from the model.

Mininet itself uses one shell per node and several processes per link. Here hosts are network namespaces held by file,
links and queues are netlink batches, bridges are one transaction of a database, and a node's shell starts on first use
(``node.cmd``, the CLI): hundreds of hosts are up within seconds, and everything Mininet offers on top still works.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from fabric.emulation import arrivals, drawing, insides, openvswitch, uncharging
from fabric.emulation.arrivals import Arrival
from fabric.emulation.drawing import Drawing, SwitchPorts
from fabric.emulation.host_routes import closed_blocks, goes_by_source, named_nics, routes_by_destination
from fabric.emulation.mininet_net import FabricNet
from fabric.emulation.mininet_parts import Mininet, OVSSwitch
from fabric.emulation.openvswitch import OpenVSwitch
from fabric.emulation.prompt import Prompt, PromptInGuest
from fabric.errors import EmulationError
from fabric.model.identity import CONTROLLER_ADDRESS, OPENFLOW_PORT, OPENFLOW_SOCKET, NodeId, Role
from fabric.model.lanes import LanePlan
from fabric.model.network import ADDRESSES, GATEWAY, SHARED_MAC, Fabric, Link, Nic, Port
from fabric.model.partition import Partition, partition
from fabric.queueing import htb, lossless, red
from fabric.queueing.htb import ShapedPort, install_requests, replace_requests
from fabric.queueing.vl import DrawOptions
from fabric.world import inside
from fabric.world.datapath import Datapath
from fabric.world.engines import current_engine
from fabric.world.isolation import limits, netns
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, Request
from fabric.world.programs import guest_calls, verbs
from fabric.world.programs import hosts as programs
from fabric.world.programs.guest_calls import OtherGuest
from fabric.world.virtual.dialogue import UserOutside, take_terminal
from fabric.world.virtual.guest import CONTROL
from fabric.world.virtual.joining import Crossing, address_of, guest_link, link_id

_FIRST_HOST_INDEX = 10
_FIRST_SWITCH_INDEX = 1000
_SIOCETHTOOL = 0x8946
# ethtool's switches. What makes packets other than they are on a wire is off: TSO, GSO, GRO.
_MERGES = (0x1F, 0x24, 0x2C)
# Rx and tx checksums, scatter-gather. Where a process switches, they are off, too: its packets would have no checksum,
# so that ping works and TCP hangs. In the kernel they save a copy of each packet and two sums over it.
_IN_ONE_KERNEL = (0x15, 0x17, 0x19)
_TRUESIZE_FACTOR = 4
"""A socket is charged for the memory of a frame, not its bytes: 4.2 KB in pages and headers come to 3 times as much."""
_WARM_UP_S = 0.3
_GREETINGS = 20_000
"""Of fabrics up to 140 NICs, everyone greets everyone. In a guest, each flow that is learned takes most of a ms."""
_NEIGHBOURS = 1 << 20
"""Parts of nodes have an entry for each other that they send to, of which a kernel keeps 1,024 by default, in all."""
_DISCARD_PORT = 9  # RFC 863: nobody listens there.
_HOST_SYSCTLS = {
    "net/ipv6/conf/default/disable_ipv6": "1",  # Of NICs, which come later: loopback, which is there, has ::1.
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_rmem": "4096 131072 67108864",
    "net/ipv4/tcp_wmem": "4096 65536 67108864",
}


MakeQueues = Callable[[ShapedPort, LanePlan], list[Request]]
P = ParamSpec("P")
Answer = TypeVar("Answer")


@dataclass
class Emulation:
    """A fabric that is up: its Mininet, its Open vSwitch, its queues. Made by :func:`emulate`."""

    fabric: Fabric
    lane_plan: LanePlan
    switches: OpenVSwitch
    net: Any
    indices: dict[Port, int]
    is_uncharging: bool = False
    """Whether frames are taken off their senders' accounts as they leave a host."""
    draws: Mapping[Port, tuple[DrawOptions, ...]] = field(default_factory=dict)
    """The budgets that ports of nodes with an inside draw on."""
    drawing: Drawing | None = None
    """How ports draw ways for frames, if they do."""
    partition: Partition = field(kw_only=True)
    number: int = 0
    """Of the guest that this is in, where several play a run. The first has the whole fabric at hand, by way of the
    others; each of these has its own part."""

    @property
    def datapath(self) -> Datapath:
        """Where packets are switched."""
        return self.switches.datapath

    @property
    def guests(self) -> int:
        """How many guests play this run."""
        return self.partition.guests

    def hosts_of(self, guest: int) -> tuple[NodeId, ...]:
        """Return the hosts that a guest has."""
        return self.partition.hosts_of(guest)

    def namespace_of_guest(self, guest: int) -> Path | None:
        """Return a guest's own network namespace, with its switches' ports; None: the world's own."""
        return None if guest == self.number else netns.in_guest(guest, None)

    def namespace_of(self, node: NodeId) -> Path | None:
        """Return the network namespace that a host's programs run in; of switches the world's own (None), or that of
        their guest."""
        guest = self.partition.guest_of(node)
        if node.is_switch:
            return self.namespace_of_guest(guest)
        path = netns.netns_path(node.host.name)
        return path if guest == self.number else netns.in_guest(guest, path)

    @property
    def host_namespaces(self) -> list[Path]:
        """The network namespaces of the hosts of this guest."""
        return [netns.netns_path(host.host.name) for host in self.hosts_of(self.number)]

    def namespace_of_port(self, port: Port) -> Path | None:
        """Return the network namespace that a port's interface is in; None: the world's own."""
        if _is_at_switch(self.fabric, port):
            return self.namespace_of_guest(self.partition.guest_of(port.node))
        return self.namespace_of(port.node.host)

    def reported_name(self, port: Port) -> str:
        """Return the name by which the kernel reports a port's interface: a host's own name for one that is in it."""
        return port.interface if _is_at_switch(self.fabric, port) else port.host_interface

    def ports_of_host(self, host: NodeId) -> tuple[Port, ...]:
        """Return the ports in a host's namespace: its NICs, or its parts' ports if it has an inside."""
        if host in self._with_inside:
            return insides.part_ports(self.fabric, host)
        return self.fabric.ports_of[host]

    @cached_property
    def _with_inside(self) -> frozenset[NodeId]:
        return frozenset(self.fabric.hosts_with_inside)

    def ports_of_switches(self, guest: int) -> tuple[Port, ...]:
        """Return the ports in a guest's own namespace: those of switches and of nodes with an inside."""
        fabric = self.fabric
        inner = [
            port
            for host in fabric.hosts_with_inside
            if self.partition.guest_of(host) == guest
            for port in (*insides.bridge_ports(fabric, host), *insides.switch_ports(fabric, host))
        ]
        switches = self.partition.switches_of(guest)
        return (*(port for switch in switches for port in fabric.ports_of[switch]), *inner)

    def shaped_port(self, port: Port) -> ShapedPort:
        """Return what a port's queues are made from."""
        link = self.fabric.link_plugged_into(port)
        is_host = not _is_at_switch(self.fabric, port)
        return ShapedPort(
            interface=port.interface,
            index=self.indices[port],
            rate_bps=link.rate_bps,
            mtu_bytes=self.fabric.mtu_bytes,
            slack_s=current_engine().timing.slack_s,
            delay_ns=link.delay_ns,
            crosses=port in self.partition.crossing_ports,
            is_host=is_host,
            delays_on_arrival=is_host and not current_engine().has_own_kernel,
            draws=self.draws.get(port, ()),
            to_switch=link.other(port).node.is_switch,
        )

    def set_lanes(self, plan: LanePlan) -> None:
        """Give every port the queues of another plan. Call it while nothing is sent: what waits is lost."""
        insides.require(self.fabric, plan.queueing)
        self._everywhere(Emulation._set_own_lanes, plan)

    def _set_own_lanes(self, plan: LanePlan) -> None:
        self._provide(plan)
        self._send_to_switches(plan, replace_requests)
        self._send_to_hosts(plan, replace_requests)
        self.lane_plan = plan

    def _everywhere(
        self, method: Callable[Concatenate[Emulation, P], Answer], *arguments: P.args, **settings: P.kwargs
    ) -> list[Answer]:
        """Return what a method of this class returns of this part of the fabric and, at the same time, of that of each
        other guest of the run."""
        pending = [other.begin(in_this_part, method, arguments, settings) for other in self._others]
        return [method(self, *arguments, **settings), *(one.result() for one in pending)]

    @property
    def _others(self) -> Sequence[OtherGuest]:
        return guest_calls.others() if self.guests > 1 and self.number == 0 else ()

    def _provide(self, plan: LanePlan) -> None:
        """Make what queues are made of known to the kernel. Raises EmulationError if it cannot be had."""
        if plan.cut_through_bytes and self.guests > 1:
            raise EmulationError(f"queues.cut_through: is for runs in one guest, not in {self.guests}; omit either")
        if plan.queueing.is_of_vl:
            lossless.provide()
            return
        if self.datapath is Datapath.USERSPACE:
            arrivals.require(self.fabric)
            marks = any(lane.marking is not None for lane in plan.lanes)
            red.require_datapath(current_engine(), plan.queueing, marks, self.fabric.frame_bytes)
        htb.provide(plan)

    def _send_to_switches(self, plan: LanePlan, make: MakeQueues) -> None:
        with Netlink() as link:
            link.send(self._requests(self.ports_of_switches(self.number), plan, make))
            self._uncharge(link, not plan.queueing.is_of_vl)

    def _send_to_hosts(self, plan: LanePlan, make: MakeQueues) -> None:
        for host in self.hosts_of(self.number):
            with Netlink(self.namespace_of(host)) as link:
                link.send(self._requests(self.ports_of_host(host), plan, make))

    def _uncharge(self, link: Netlink, wanted: bool) -> None:
        """Let frames that have left a host no longer be charged to it, where this machine's kernel switches; and let
        those of links with a delay arrive late."""
        if self.datapath is not Datapath.KERNEL or current_engine().has_own_kernel or wanted == self.is_uncharging:
            return
        ports = [self.fabric.peer(port) for host in self.fabric.hosts for port in self.fabric.ports_of[host]]
        delays_ns = {port: self.fabric.link_plugged_into(port).delay_ns for port in ports}
        late = [Arrival(port.interface, self.indices[port], delay) for port, delay in delays_ns.items() if delay]
        at_once = {self.indices[port]: port.interface for port, delay in delays_ns.items() if not delay}
        if wanted:
            uncharging.install(link, at_once)
            arrivals.install(link, late, self.fabric.mtu_bytes)
        else:
            uncharging.remove(link, at_once)
            arrivals.remove(link, late)
        self.is_uncharging = wanted

    def draw_ways(self, wanted: Drawing | None) -> None:
        """Let switches' ports draw a way for each frame in this manner from now on, or no more. Call it while nothing
        is sent. Raises EmulationError where a process switches."""
        if wanted is not None and self.datapath is Datapath.USERSPACE:
            raise EmulationError(
                f"routing.policy: packets that take ways {wanted.draw.value} need Open vSwitch's kernel datapath "
                "(module openvswitch), which this machine lacks; use --engine virtual, or another policy"
            )
        if wanted != self.drawing:
            self._everywhere(Emulation._draw_own_ways, wanted)

    def _draw_own_ways(self, wanted: Drawing | None) -> None:
        ports = self._ports_that_draw()
        with Netlink() as link:
            if self.drawing is not None:
                drawing.remove(link, ports)
            if wanted is not None:
                inner = sum(len(self.fabric.parts_of(host)) for host in self.fabric.hosts)
                drawing.install(link, wanted, ports, len(self.fabric.nics) + inner)
        self.drawing = wanted

    def _ports_that_draw(self) -> list[SwitchPorts]:
        """Return the ports of this part's switches that could choose among several to other switches."""
        found = []
        for switch in self.partition.switches_of(self.number):
            ends: tuple[dict[int, str], dict[int, str]] = ({}, {})
            for port in self.fabric.ports_of[switch]:
                ends[self.fabric.peer(port).node.is_switch][self.indices[port]] = port.interface
            if len(ends[True]) > 1:
                found.append(SwitchPorts(switch.dpid, *ends))
        return found

    def _requests(self, ports: Sequence[Port], plan: LanePlan, make: MakeQueues) -> list[Request]:
        return [request for port in ports for request in make(self.shaped_port(port), plan)]

    def warm_up(self) -> None:
        """Send a packet between NICs, so that switches know flows beforehand: between every two that reach each other,
        or in a large fabric, where those are millions, between each and another (``greeted``).

        Then, where packets are switched in userspace, give that process room for every frame that may wait in a queue.
        """
        self._everywhere(Emulation._greet)
        time.sleep(_WARM_UP_S)
        if self.datapath is Datapath.USERSPACE:
            ports = sum(len(self.fabric.ports_of[switch]) for switch in self.fabric.switches)
            queued = ports * sum(lane.limit_bytes for lane in self.lane_plan.lanes)
            self.switches.enlarge_buffers(_TRUESIZE_FACTOR * queued)

    def _greet(self) -> None:
        others = greeted(self.fabric)
        for host in self.hosts_of(self.number):
            with netns.inside(netns.netns_path(host.name)):
                _greet(self.fabric.nics_of[host], others)

    def ask_for_ecn(self) -> None:
        """Let hosts agree on ECN on every connection: programs may choose what steers by marks once it is there."""
        self.set_in_hosts({"net/ipv4/tcp_ecn": "1"})

    def set_in_hosts(self, sysctls: Mapping[str, str]) -> None:
        """Give every host's network namespace these settings."""
        self._everywhere(Emulation._set_in_own_hosts, sysctls)

    def _set_in_own_hosts(self, sysctls: Mapping[str, str]) -> None:
        for namespace in self.host_namespaces:
            with netns.inside(namespace):
                for name, value in sysctls.items():
                    write_sysctl(name, value)

    def in_hosts(self, function: Callable[[Sequence[Path]], list[Any]]) -> list[Any]:
        """Return what a function of a module returns of the namespaces of all hosts, guest by guest."""
        return [result for results in self._everywhere(Emulation._in_own_hosts, function) for result in results]

    def _in_own_hosts(self, function: Callable[[Sequence[Path]], list[Any]]) -> list[Any]:
        return function(self.host_namespaces)

    @property
    def switch_pids(self) -> list[int]:
        """The process of ovs-vswitchd in each guest, by its number there."""
        return self._everywhere(Emulation._own_switch_pid)

    def _own_switch_pid(self) -> int:
        return self.switches.switch_pid

    def settle_counters(self) -> None:
        """Wait until the counters of rules hold all that the datapath has done."""
        self._everywhere(Emulation._settle_own_counters)

    def _settle_own_counters(self) -> None:
        self.switches.settle_counters()

    def stop(self) -> None:
        """End the switches; what those of other guests have said goes to the logs of this one."""
        for guest, logs in enumerate(self._everywhere(Emulation._stop_own)):
            for name, text in logs.items():
                (self.switches.log_directory / f"guest{guest}-{name}").write_text(text)

    def _stop_own(self) -> dict[str, str]:
        self.switches.stop()
        files = sorted(self.switches.log_directory.iterdir()) if self.number else []
        return {file.name: file.read_text(errors="replace") for file in files if file.is_file()}

    def offer_verbs(self) -> None:
        """Let hosts have an RDMA device per NIC. Call it before the first program starts on one."""
        self._everywhere(Emulation._offer_own_verbs)

    def make_verbs(self) -> None:
        """Make an RDMA device per NIC of hosts now: programs of the fabric itself do not furnish their hosts."""
        self.offer_verbs()
        for host in self.fabric.hosts:
            if self.popen(host, ["true"]).wait():
                raise EmulationError(f"{host.name}: no RDMA device could be made; its program has said why")

    def _offer_own_verbs(self) -> None:
        verbs.offer()

    def popen(self, host: NodeId, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start an unmodified program on a host, with the usual limit of open files.

        What enters the host sets that: with a ``preexec_fn`` Python forks, which in a guest copies much of its memory.
        """
        return subprocess.Popen([*self.net.get(host.name).program_prefix(), *command], **options)

    def command_line(self) -> None:
        """Show Mininet's prompt until the user leaves it."""
        if current_engine().has_terminal:
            Prompt(self.net)
            return
        terminal = take_terminal()
        try:
            PromptInGuest(self.net, stdin=UserOutside(CONTROL))
        finally:
            os.close(terminal)


def controller_sockets(guests: int) -> Path | None:
    """Return the directory in which a controller listens to sockets; None: it listens to TCP.

    In one kernel switches reach it without TCP. The first TCP connection fixes the random draws of all later ones, so
    a fabric that stands leaves it to the run.
    """
    return inside.CONTROLLER_DIR if guests == 1 and current_engine().has_own_kernel else None


def emulate(fabric: Fabric, plan: LanePlan, log_directory: Path, datapath: Datapath) -> Emulation:
    """Bring a fabric up in this world, with queues and without rules; its switches call a controller on loopback.

    Where other guests play with this one, each brings its part up. Raises EmulationError naming what could not be made.
    """
    others = guest_calls.others()
    parts = partition(fabric, 1 + len(others))
    pending = [other.begin(_emulate_part_here, parts, other.number, plan, datapath) for other in others]
    emulation = _emulate_part(parts, 0, plan, log_directory, datapath)
    for one in pending:
        one.result()
    return emulation


_here: Emulation | None = None
"""In another guest than the first: its part of the fabric."""


def _emulate_part_here(parts: Partition, number: int, plan: LanePlan, datapath: Datapath) -> None:
    global _here
    logs = inside.RUN_DIR / "logs"
    logs.mkdir(exist_ok=True)
    _here = _emulate_part(parts, number, plan, logs, datapath)


def in_this_part(method: Callable[..., Answer], arguments: Sequence[Any], settings: Mapping[str, Any]) -> Answer:
    """Return, in another guest than the first, what a method returns of its part of the fabric."""
    assert _here is not None, "the first guest has let it bring its part up"
    return method(_here, *arguments, **settings)


def _emulate_part(parts: Partition, number: int, plan: LanePlan, log_directory: Path, datapath: Datapath) -> Emulation:
    fabric = parts.fabric
    limits.require_open_files(fabric)
    if fabric.inside and current_engine().has_own_kernel:
        write_sysctl("net/ipv4/neigh/default/gc_thresh3", _NEIGHBOURS)
    insides.require(fabric, plan.queueing)
    indices = _number_interfaces(fabric)
    _make_hosts(fabric, parts.hosts_of(number))
    _make_links(parts, number, indices, _MERGES if datapath is Datapath.KERNEL else (*_MERGES, *_IN_ONE_KERNEL))
    fastest_frame_s = fabric.frame_bytes * 8 / max(link.rate_bps for link in fabric.links)
    switches = OpenVSwitch(
        inside.RUN_DIR / "openvswitch", log_directory, datapath, openvswitch.pass_period_s(fastest_frame_s)
    )
    switches.start()
    draws = insides.draws_by_port(fabric, indices)

    def controller_of(switch: NodeId) -> str:
        if controller_sockets(parts.guests) is not None:
            return switches.controller_at(inside.CONTROLLER_DIR / OPENFLOW_SOCKET, switch.name)
        return f"tcp:{CONTROLLER_ADDRESS if number == 0 else address_of(0)}:{OPENFLOW_PORT}"

    bridges = openvswitch.bridges_of(fabric, parts.switches_of(number), controller_of)
    with switches.adding_bridges(bridges):
        net = FabricNet(fabric) if number == 0 else None
        emulation = Emulation(fabric, plan, switches, net, indices, draws=draws, partition=parts, number=number)
        emulation._provide(plan)
        if not plan.queueing.is_of_vl:
            emulation._send_to_hosts(plan, install_requests)
    insides.add_bridges(switches, fabric, parts.hosts_of(number))
    emulation._send_to_switches(plan, install_requests)  # Open vSwitch would take away what it finds on a new port.
    if plan.queueing.is_of_vl:  # What a host's end may send is what the switch's has room for.
        emulation._send_to_hosts(plan, install_requests)
    inside.name_hosts(_names(fabric))
    programs.describe_nics(
        (host.name, port.host_interface, fabric.link_plugged_into(port).rate_bps)
        for host in parts.hosts_of(number)
        for port in emulation.ports_of_host(host)
    )
    return emulation


def build_with_stock_mininet(fabric: Fabric) -> float:
    """Build the same hosts, switches and links by Mininet's own means, for comparison; return the seconds it took.

    Names differ, so that both can stand in one world. No queues, no addresses, no controller.
    """
    started = time.monotonic()
    net = Mininet(build=False, controller=None)
    nodes = {}
    for number, node in enumerate(fabric.hosts):
        nodes[node] = net.addHost(f"h{number}")
    for number, node in enumerate(fabric.switches):
        nodes[node] = net.addSwitch(f"s{number}", cls=OVSSwitch, datapath="user", dpid=f"{number + 1:016x}")
    for link in fabric.links:
        net.addLink(nodes[link.a.node], nodes[link.b.node])
    net.start()
    return time.monotonic() - started


def _names(fabric: Fabric) -> list[tuple[str, str]]:
    """Return addresses, each with a name: those of each host (``named_nics``) by its name and the user's own for it,
    and a name for each NIC of those that have several: ``st042.z1`` for the one in a zone, or ``z0h007.nic1``."""
    names = []
    named = named_nics(fabric)
    for host, nics in fabric.nics_of.items():
        names += [(nic.ip, host.name) for nic in named[host]]
        by_zone = len({nic.zone for nic in nics}) == len(nics)
        for nic in nics if len(nics) > 1 else ():
            names.append((nic.ip, f"{host}.z{nic.zone}" if by_zone else f"{host}.nic{nic.port.number}"))
        for part in fabric.parts_of(host):
            if part.role is not Role.NVSWITCH:
                names.append((fabric.address_inside(part), part.name))
        if host in fabric.own_names:
            names += [(nic.ip, fabric.own_names[host]) for nic in named[host]]
    return names


def greeted(fabric: Fabric) -> dict[Nic, list[Nic]]:
    """Return the NICs that each greets before a run: all that it reaches, or in a large fabric the next of them.

    Open vSwitch learns a flow for each port of arrival and destination, at every switch on the way: of the whole
    Fire-Flyer 2, some 7 million, a hundred times what a run uses, which would take gigabytes and half an hour.
    """
    nics = fabric.nics
    if len(nics) ** 2 <= _GREETINGS:
        return {nic: [other for other in nics if fabric.reaches(nic, other)] for nic in nics}
    return {nic: _next_reached(fabric, place) for place, nic in enumerate(nics)}


def _next_reached(fabric: Fabric, place: int) -> list[Nic]:
    """Return the first NIC after that at ``place``, and round, that it reaches; none if there is none."""
    nics = fabric.nics
    following = (nics[(place + step) % len(nics)] for step in range(1, len(nics)))
    return list(islice((other for other in following if fabric.reaches(nics[place], other)), 1))


def _greet(nics: Iterable[Nic], others: Mapping[Nic, Sequence[Nic]]) -> None:
    for nic in nics:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind((nic.ip, 0))
            for other in others[nic]:
                sock.sendto(b"", (other.ip, _DISCARD_PORT))


def _number_interfaces(fabric: Fabric) -> dict[Port, int]:
    """Return interface indices chosen beforehand, so that nothing has to be looked up."""
    indices = {}
    next_index = _FIRST_SWITCH_INDEX
    for port in sorted([*fabric.link_at, *fabric.inner_link_at]):
        if _is_at_switch(fabric, port):
            indices[port] = next_index
            next_index += 1
        elif port.node.is_inside:
            indices[port] = _FIRST_HOST_INDEX + _index_of_part(port)
        else:
            indices[port] = _FIRST_HOST_INDEX + port.number
    return indices


def _index_of_part(port: Port) -> int:
    """Return a number for each port of a node's parts: its CPU's, then two for each GPU."""
    return 0 if port.node.role is Role.CPU else 1 + 2 * port.node.place + port.number


def _is_at_switch(fabric: Fabric, port: Port) -> bool:
    """Whether a port is one of a bridge: a switch's, that of a node with an inside, or its NVSwitch's."""
    if port.node.role is Role.COMPUTE:
        return fabric.inside is not None
    return port.node.is_switch or port.node.role is Role.NVSWITCH


def _make_hosts(fabric: Fabric, hosts: Iterable[NodeId]) -> None:
    for host in hosts:
        with netns.created(host.name):
            own = insides.HOST_SYSCTLS if host.role is Role.COMPUTE and fabric.inside else {}
            for name, value in (_HOST_SYSCTLS | own).items():
                write_sysctl(name, value)


def _make_links(parts: Partition, number: int, indices: dict[Port, int], offloads: Sequence[int]) -> None:
    """Make every link of a guest's part, and those to other guests, and have their ends up before a switch has them:
    one that comes up later counts as cut."""
    fabric, hosts = parts.fabric, parts.hosts_of(number)
    namespaces = {host: os.open(netns.netns_path(host.name), os.O_RDONLY | os.O_CLOEXEC) for host in hosts}
    try:
        with Netlink() as link:
            link.send([_pair(fabric, made, indices, namespaces) for made in parts.links_within(number)])
            link.send([*_crossings(parts, number, indices, namespaces)])
            switch_ports = [
                port for port in indices if _is_at_switch(fabric, port) and parts.guest_of(port.node) == number
            ]
            _switch_off(offloads, [port.interface for port in switch_ports])
            link.send([netlink.link_state(indices[port], port.interface, up=True) for port in switch_ports])
    finally:
        for descriptor in namespaces.values():
            os.close(descriptor)
    closed = closed_blocks(fabric)
    for host in hosts:
        _configure_host(fabric, host, indices, offloads, closed.get(host, ()))


def _pair(fabric: Fabric, link: Link, indices: dict[Port, int], namespaces: dict[NodeId, int]) -> Request:
    a, b = (_link_end(fabric, port, indices, namespaces) for port in link.ports)
    return netlink.veth_pair(a, b, fabric.mtu_bytes)


def _crossings(
    parts: Partition, number: int, indices: dict[Port, int], namespaces: dict[NodeId, int]
) -> Iterator[Request]:
    """Yield what makes a guest's ends of the links to others."""
    for place, link in enumerate(parts.crossing):
        for port in link.ports:
            if parts.guest_of(port.node) == number:
                other = parts.guest_of(link.other(port).node)
                end = _link_end(parts.fabric, port, indices, namespaces)
                crossing = Crossing(link_id(place), other, link.delay_ns, indices[link.other(port)])
                yield guest_link(end, parts.fabric.mtu_bytes, crossing)


def _link_end(fabric: Fabric, port: Port, indices: dict[Port, int], namespaces: dict[NodeId, int]) -> LinkEnd:
    # A switch end has the MAC of its index; it is never an address of a packet.
    at_switch = _is_at_switch(fabric, port)
    name, namespace = (port.interface, None) if at_switch else (port.host_interface, namespaces[port.node.host])
    return LinkEnd(name, indices[port], _mac_of(fabric, port, indices), namespace)


def _mac_of(fabric: Fabric, port: Port, indices: dict[Port, int]) -> str:
    if not _is_at_switch(fabric, port):
        return SHARED_MAC if port.node.is_inside else fabric.nics_of[port.node][port.number].mac
    return "06:00:" + ":".join(f"{byte:02x}" for byte in indices[port].to_bytes(4, "big"))


def _configure_host(
    fabric: Fabric, host: NodeId, indices: dict[Port, int], offloads: Sequence[int], closed: Iterable[str]
) -> None:
    requests = [netlink.link_state(1, "lo", up=True)]
    ports = insides.part_ports(fabric, host)
    if ports:
        requests += insides.namespace_requests(fabric, host, indices)
    else:
        ports = fabric.ports_of[host]
        requests += _nic_requests(fabric, host, indices)
    requests += [netlink.alternative_name(indices[port], port.interface) for port in ports]
    requests += [netlink.unreachable(network) for network in closed]
    path = netns.netns_path(host.name)
    with netns.inside(path):
        _switch_off(offloads, [port.host_interface for port in ports])
    with Netlink(path) as link:
        link.send(requests)


def _nic_requests(fabric: Fabric, host: NodeId, indices: dict[Port, int]) -> Iterator[Request]:
    """Yield what gives a host's NICs their addresses and routes, all by the one neighbour that each has."""
    routes = routes_by_destination(fabric, host)
    by_source = goes_by_source(fabric, host)
    for nic in fabric.nics_of[host]:
        index, name = indices[nic.port], nic.port.interface
        yield netlink.address(index, name, nic.ip, 32)
        yield netlink.link_state(index, name, up=True)
        yield netlink.neighbour(index, GATEWAY, SHARED_MAC)
        for network, by in routes:
            if by == nic:
                yield netlink.route(index, name, network, nic.ip, gateway=GATEWAY)
        if by_source:
            table = 1 + nic.port.number
            yield netlink.route(index, name, str(ADDRESSES), nic.ip, table, GATEWAY)
            yield netlink.rule_from(nic.ip, table)


def _switch_off(offloads: Sequence[int], interfaces: Sequence[str]) -> None:
    """Switch off, by ethtool's ioctl, what a NIC could do in the kernel's place."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for interface in interfaces:
            for command in offloads:
                _ethtool(sock, interface, command)


def _ethtool(sock: socket.socket, interface: str, command: int) -> None:
    value = ctypes.create_string_buffer(struct.pack("=II", command, 0), 8)
    request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
    try:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    except OSError as error:
        raise EmulationError(f"{interface}: ethtool command {command:#x} refused: {error.strerror}") from error
