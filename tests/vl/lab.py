"""Hosts, links and Open vSwitch bridges in a guest, every end of a link a port with virtual lanes."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fabric.emulation.openvswitch import Bridge, OpenVSwitch
from fabric.queueing import vl
from fabric.world.datapath import Datapath
from fabric.world.isolation import netns
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api import modules, netlink
from fabric.world.kernel_api.netlink import LinkEnd, Netlink, Request
from fabric.world.virtual import kernel

_NO_IPV6 = "net/ipv6/conf/default/disable_ipv6"
"""Interfaces to come would send packets of their own."""

RTM_DELLINK = 17
_PR_SET_TIMERSLACK = 29
MTU_BYTES = 4200
FRAME_BYTES = MTU_BYTES + 14
PAYLOAD_BYTES = MTU_BYTES - 20 - 8
"""Of a UDP datagram that makes a full frame."""
SEGMENT_BYTES = MTU_BYTES - 20 - 20 - 12
"""What a full TCP segment carries beside its headers and timestamps."""
CREDIT_BYTES = 256 * 1024
_LOOKS, _LOOK_S = 3000, 0.001
"""How often, and at what interval, links are looked at; link watch may let a second pass between its rounds."""


def load_module() -> None:
    """Make the qdisc known to this kernel, and sleeps exact (by default they last up to 50 us longer)."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    modules.load(kernel.running().module(modules.VL))


def one_lane(rate_bps: int, *, credit_bytes: int = CREDIT_BYTES, delay_ns: int = 0, return_ns: int = 0) -> vl.VlConfig:
    """Return a port with a single lane and credits."""
    return vl.VlConfig(rate_bps, {0: vl.LaneBuffer(credit_bytes=credit_bytes)}, delay_ns=delay_ns, return_ns=return_ns)


@dataclass(frozen=True)
class Interface:
    """An end of a link."""

    name: str
    index: int
    node: str

    @property
    def mac(self) -> str:
        """Its address."""
        return f"02:00:00:00:{self.index >> 8:02x}:{self.index & 255:02x}"


class Lab:
    """What is built; hosts are namespaces, switches are bridges in the guest's own namespace."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.switches: list[str] = []
        self.interfaces: dict[str, Interface] = {}
        self.ports: dict[str, vl.VlConfig] = {}
        self._sockets: dict[str, Netlink] = {"": Netlink()}
        self._namespaces: dict[str, int] = {}
        write_sysctl(_NO_IPV6, 1)

    def add_host(self, name: str) -> None:
        """Make a host."""
        with netns.created(name):
            write_sysctl(_NO_IPV6, 1)
        self.hosts.append(name)
        self._namespaces[name] = os.open(netns.netns_path(name), os.O_RDONLY)
        self._sockets[name] = Netlink(netns.netns_path(name))

    def socket_of(self, node: str) -> Netlink:
        """Return the netlink socket of a host, or for a switch the guest's own."""
        return self._sockets.get(node, self._sockets[""])

    def link(self, a: str, b: str, port: vl.VlConfig, reverse: vl.VlConfig | None = None) -> None:
        """Join two nodes by a link with interfaces named ``a-b`` and ``b-a``; ``reverse`` is the port of ``b``."""
        names = (f"{a}-{b}", f"{b}-{a}")
        ends = [
            self.interfaces.get(name) or Interface(name, 1000 + len(self.interfaces) + i, node)
            for i, (name, node) in enumerate(zip(names, (a, b), strict=True))
        ]
        made = [LinkEnd(end.name, end.index, end.mac, self._namespaces.get(end.node)) for end in ends]
        self.socket_of("").send([netlink.veth_pair(made[0], made[1], MTU_BYTES)])
        for end, options in zip(ends, (port, reverse or port), strict=True):
            self.interfaces[end.name] = end
            self.install(end.name, options)
            self.set_up(end.name, True)

    def install(self, name: str, port: vl.VlConfig) -> None:
        """Put the qdisc on an interface, in place of what it has."""
        end = self.interfaces[name]
        self.ports[name] = port
        self.socket_of(end.node).send([vl.install(end.index, name, port)])

    def change(self, name: str, port: vl.VlConfig, *draws: vl.DrawOptions) -> None:
        """Change the options of an interface's qdisc."""
        end = self.interfaces[name]
        self.ports[name] = port
        self.socket_of(end.node).send([vl.change(end.index, name, port, draws)])

    def set_up(self, name: str, up: bool) -> None:
        """Set an interface up or down."""
        end = self.interfaces[name]
        self.socket_of(end.node).send([netlink.link_state(end.index, name, up)])

    def ip(self, host: str) -> str:
        """Return a host's address."""
        return f"10.0.0.{self.hosts.index(host) + 1}"

    def give_addresses(self, hosts: Sequence[str] = ()) -> None:
        """Give every host (or these) its address, on its only interface, and all others' in its neighbour table.

        Until every link runs: what a host sends before the kernel has noticed its carrier vanishes.
        """
        self.await_links()
        for host in hosts or self.hosts:
            end = self._only_interface(host)
            self.socket_of(host).send([netlink.address(end.index, end.name, self.ip(host), 24)])
            self.give_neighbours(host)

    def give_neighbours(self, host: str) -> None:
        """Fill a host's neighbour table."""
        own = self._only_interface(host)
        others = {other: self._only_interface(other) for other in self.hosts if other != host}
        requests = [netlink.neighbour(own.index, self.ip(other), end.mac) for other, end in others.items()]
        self.socket_of(host).send(requests)

    def await_links(self) -> None:
        """Wait until the queues of all interfaces send. Raises TimeoutError naming those that do not."""
        for _ in range(_LOOKS):
            running = {
                name
                for node in ("", *self.hosts)
                for name, counters in self._sockets[node].link_counters().items()
                if counters.running
            }
            if running >= self.interfaces.keys():
                return
            time.sleep(_LOOK_S)
        raise TimeoutError(f"not running after {_LOOKS * _LOOK_S} s: {', '.join(self.interfaces.keys() - running)}")

    def _only_interface(self, host: str) -> Interface:
        return next(end for end in self.interfaces.values() if end.node == host)

    def unlink(self, a: str, b: str) -> None:
        """Delete a link."""
        end = self.interfaces[f"{a}-{b}"]
        body = netlink._IFINFO.pack(0, 0, end.index, 0, 0)
        self.socket_of(end.node).send([Request(RTM_DELLINK, 0, body, f"deleting {end.name}")])

    @contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Open sockets of a host."""
        with netns.inside(netns.netns_path(host)):
            yield

    def stats(self) -> dict[str, vl.PortStats]:
        """Return the state of every port, by the name of its interface."""
        found = {}
        for node in ("", *self.hosts):
            by_index = vl.read(self._sockets[node].dump_qdiscs())
            for end in self.interfaces.values():
                if self.socket_of(end.node) is self._sockets[node] and end.index in by_index:
                    found[end.name] = by_index[end.index]
        return found

    def switch(self, rules: Mapping[str, list[str]]) -> None:
        """Make every key of ``rules`` a bridge with the ports that start with its name, and give it its rules.

        In rules, ``{s-h}`` stands for the port number of the interface s-h.
        """
        ovs = OpenVSwitch(Path("/run/ovs"), Path("/run/ovs"), Datapath.KERNEL)
        ovs.start()
        ends = self.interfaces.values()
        ovs.add_bridges(
            [
                Bridge(bridge, {end.name: end.index - 999 for end in ends if end.node == bridge}, MTU_BYTES)
                for bridge in rules
            ]
        )
        numbers = {end.name: end.index - 999 for end in self.interfaces.values()}
        for bridge, lines in rules.items():
            self.set_rules(bridge, [line.format_map(numbers) for line in lines])
        for name, port in self.ports.items():  # Open vSwitch may have touched them.
            self.install(name, port)

    @staticmethod
    def set_rules(bridge: str, lines: list[str]) -> None:
        """Replace a bridge's rules."""
        text = "".join(line + "\n" for line in lines)
        command = ["ovs-ofctl", "replace-flows", bridge, "-"]
        subprocess.run(command, input=text, text=True, check=True, timeout=60, capture_output=True)

    def count(self, host: str, protocol: str, name: str) -> int:
        """Return a counter of a host's kernel, as /proc/net/snmp and netstat name it."""
        with self.inside(host):
            text = "".join(Path(f"/proc/thread-self/net/{file}").read_text() for file in ("snmp", "netstat"))
        names, values = (line.split() for line in text.splitlines() if line.startswith(f"{protocol}:"))
        return int(values[names.index(name)])

    def udp(self, host: str, *, tos: int = 0) -> socket.socket:
        """Return a datagram socket of a host, bound to port 5000."""
        with self.inside(host):
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        made.bind((self.ip(host), 5000))
        return made


def two_hosts(port: vl.VlConfig, reverse: vl.VlConfig | None = None) -> Lab:
    """Return two hosts, a and b, with a link."""
    lab = Lab()
    lab.add_host("a")
    lab.add_host("b")
    lab.link("a", "b", port, reverse)
    lab.give_addresses()
    return lab


def goodput_bps(lab: Lab, source: str, target: str, size_bytes: int) -> float:
    """Return the rate of frames, in bit/s, of a TCP connection that carries so much, its first fifth left out."""
    with lab.inside(target):
        listener = socket.create_server((lab.ip(target), 5001))
    child = os.fork()
    if child == 0:
        with lab.inside(source):
            sender = socket.create_connection((lab.ip(target), 5001))
        for _ in range(size_bytes // 1_000_000):
            sender.sendall(bytes(1_000_000))
        sender.close()
        os._exit(0)
    connection, _ = listener.accept()
    listener.close()
    connection.settimeout(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(262_144, size_bytes // 100))
    buffer, moments, got = bytearray(1 << 20), [], 0
    while part := connection.recv_into(buffer):
        got += part
        moments.append((time.monotonic_ns(), got))
    os.waitpid(child, 0)
    first_ns, first_bytes = next(moment for moment in moments if moment[1] > size_bytes / 5)
    last_ns, last_bytes = moments[-1]
    return (last_bytes - first_bytes) * 8e9 / (last_ns - first_ns) * FRAME_BYTES / SEGMENT_BYTES


def flood(lab: Lab, source: str, target: str, datagrams: int, *, tos: int = 0, pause_s: float = 0) -> int:
    """Fork a process that sends full datagrams as fast as its socket takes them, or after a pause each; return its
    number. Without a pause, a host whose link is down has sent, and lost, all of them at once."""
    child = os.fork()
    if child == 0:
        with lab.inside(source):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        data, address = bytes(PAYLOAD_BYTES), (lab.ip(target), 5000)
        for _ in range(datagrams):
            with suppress(OSError):  # No interface, no carrier: what is sent then is lost before it comes to us.
                sender.sendto(data, address)
            if pause_s:
                time.sleep(pause_s)
        os._exit(0)
    return child
