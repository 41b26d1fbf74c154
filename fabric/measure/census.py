"""Conservation: every packet sent is delivered, still queued, dropped by a rule or dropped by a queue, and counted.

A census reads all counters of a fabric at rest; the difference of two shows what happened between them. A packet in
no counter was lost by the emulator, not by the emulated network:

- on each wire: packets (and bytes) that left a port's queues, less those that arrived at the other end;
- in each switch: packets that arrived, less those handed to a port's queues (sent, waiting or dropped there), less
  those that its rules dropped or that injected loss took.

A cut link loses the packets that are in its queues, on its wire, or sent into its dead ports, and the kernel counts
only part of them. What is missing exactly where a port was down is booked as lost in cuts, up to what the injector has
seen there (:class:`fabric.failures.report.FaultReport`); one packet more, or one missing anywhere else, is
unaccounted for. Where rules change meanwhile, Open vSwitch credits what a rule did in its last moments to the one after
it. So a rule's drops are an upper bound there, for they may include packets that an older one sent. What is dropped for
want of a way is exact: a meter counts it in the datapath.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.emulation.namespaces import ports_by_namespace
from fabric.errors import EmulationError
from fabric.failures.report import FaultReport
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port
from fabric.queueing import vl
from fabric.queueing.counters import QueueReader
from fabric.records.conservation import Conservation
from fabric.world.isolation import netns
from fabric.world.kernel_api.netlink import LinkCounters, Netlink

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

_REST_TIMEOUT_S = 20.0
_REST_S = 0.2
_HOST_COUNTERS = {
    "retransmissions": ("Tcp:RetransSegs", "Rdma:Resent"),
    "sent_twice": ("TcpExt:TCPDSACKRecv", "TcpExt:TCPDSACKOfoRecv", "Rdma:Duplicates"),
    "overtook": ("TcpExt:TCPOFOQueue", "Rdma:Early"),
    "naks": ("Rdma:Naks",),
    "cnps": ("Rdma:CnpsReceived",),
    "memory_pressures": ("TcpExt:TCPMemoryPressures",),
    "backlog_drops": ("TcpExt:TCPBacklogDrop",),
    "pruned": ("TcpExt:RcvPruned", "TcpExt:OfoPruned", "TcpExt:TCPRcvQDrop"),
    "timeouts": ("TcpExt:TCPTimeouts", "Rdma:Timeouts"),
    "spurious_timeouts": ("TcpExt:TCPSpuriousRTOs",),
    "udp_dropped": ("Udp:RcvbufErrors", "Udp:MemErrors"),
    "connections_dropped": ("TcpExt:ListenDrops", "TcpExt:TCPReqQFullDrop"),
    "challenges": ("TcpExt:TCPChallengeACK", "TcpExt:TCPACKSkippedChallenge"),
    "syn_challenges": ("TcpExt:TCPSYNChallenge",),
}
"""What makes up each field of HostCount: RFC 4022, RFC 4113 and Linux' own (``net/ipv4/proc.c``). ListenDrops has
ListenOverflows in it; a challenge is sent, or not if one was just now (Skipped). Queue pairs' are the guest kernel's
(``rdma_counts.c.inc``), and not missed elsewhere."""
_OF_RDMA = frozenset(
    {"Rdma:Resent", "Rdma:Duplicates", "Rdma:Early", "Rdma:Naks", "Rdma:CnpsReceived", "Rdma:Timeouts"}
)


@dataclass(frozen=True)
class PortCount:
    """A port's cumulative counters: through its queues and in from the wire, in packets and bytes."""

    sent_packets: int
    sent_bytes: int
    waiting_packets: int
    dropped_packets: int
    received_packets: int
    received_bytes: int
    dropped_by_cause: Mapping[str, int] = field(default_factory=dict)
    """What makes up ``dropped_packets``, where queues tell: see :class:`fabric.queueing.vl.DropCause`."""

    @property
    def offered_packets(self) -> int:
        """Packets handed to the port's queues."""
        return self.sent_packets + self.waiting_packets + self.dropped_packets


@dataclass(frozen=True)
class HostCount:
    """What hosts' sockets counted.

    Segments and RDMA's frames sent again; those that had arrived before, by what receivers reported (DSACK) or saw;
    those that ``overtook`` an earlier one; ``naks`` and ``cnps`` that came to queue pairs; retransmission timeouts, and
    those of them that were in vain; how often TCP as a whole was short of memory; segments that arrived and were
    dropped, since a program held the socket too long (``backlog_drops``) or it had no room (``pruned``); datagrams that
    found no room; connections that a listener's queue had no place for; segments that TCP took for an attacker's and
    challenged (RFC 5961), and the SYNs among them.
    ``not_counted`` names what this kernel lacks.
    """

    retransmissions: int = 0
    sent_twice: int = 0
    overtook: int = 0
    timeouts: int = 0
    spurious_timeouts: int = 0
    memory_pressures: int = 0
    backlog_drops: int = 0
    pruned: int = 0
    udp_dropped: int = 0
    connections_dropped: int = 0
    challenges: int = 0
    syn_challenges: int = 0
    naks: int = 0
    cnps: int = 0
    not_counted: tuple[str, ...] = ()

    def since(self, before: HostCount) -> HostCount:
        """Return what was counted after ``before``."""
        grown = {name: getattr(self, name) - getattr(before, name) for name in _HOST_COUNTERS}
        return HostCount(**grown, not_counted=self.not_counted)

    @classmethod
    def together(cls, counts: Iterable[HostCount]) -> HostCount:
        """Return what hosts counted in all."""
        total, lacking = Counter[str](), set[str]()
        for one in counts:
            lacking.update(one.not_counted)
            total.update({name: getattr(one, name) for name in _HOST_COUNTERS})
        return cls(**total, not_counted=tuple(sorted(lacking)))

    @property
    def short_of_memory(self) -> int:
        """How often TCP was short of memory. What was dropped for want of room in a socket counts only if the memory of
        all was short, too: otherwise the connection's own window was too small for it, as the config may want."""
        return self.memory_pressures + self.backlog_drops + (self.pruned if self.memory_pressures else 0)

    @property
    def discarded(self) -> int:
        """How many segments were dropped since their acknowledgement was older than a window (RFC 5961, 5.2); an RST
        out of place is counted with them. SYNs are not: many are sent again where a lane takes a second to pass one."""
        return self.challenges - self.syn_challenges


@dataclass(frozen=True)
class Census:
    """The counters of every port, the packets that each switch's rules have dropped, and what hosts' sockets count, by
    the name of the host."""

    ports: dict[Port, PortCount]
    dropped_by_rules: Mapping[NodeId, int]
    hosts: Mapping[str, HostCount] = field(default_factory=dict)


def take_census(emulation: Emulation, rule_drops: Callable[[], Mapping[NodeId, int]]) -> Census:
    """Return a census once nothing moves any more, though the switches have looked for what to move; they may have had
    to wait for a core. Raises EmulationError if something still moves after 20 s."""
    deadline = time.monotonic() + _REST_TIMEOUT_S
    before = _count_ports(emulation)
    while True:
        time.sleep(_REST_S)
        emulation.switches.finish_pass()
        now = _count_ports(emulation)
        if now == before and not any(count.waiting_packets for count in now.values()):
            return Census(now, rule_drops(), _count_hosts(emulation))
        if time.monotonic() > deadline:
            busy = [str(port) for port, count in now.items() if count != before[port]]
            raise EmulationError(
                f"the fabric is not at rest after {_REST_TIMEOUT_S:g} s: packets still move at "
                f"{len(busy)} ports ({', '.join(busy[:5])}); stop the programs that send"
            )
        before = now


def lane_counters(emulation: Emulation, counter: str = "sent_packets") -> dict[tuple[Port, str], int]:
    """Return a counter of :data:`fabric.queueing.counters.COUNTERS` for each lane of each port."""
    names = {lane.number: lane.name for lane in emulation.lane_plan.lanes}
    counters: dict[tuple[Port, str], int] = {}
    for namespace, ports in ports_by_namespace(emulation):
        by_index = {emulation.indices[port]: port for port in ports}
        with Netlink(namespace) as link:
            keys, rows = QueueReader().read(link.dump_qdiscs())
        for (index, lane), value in zip(keys, rows[counter].tolist(), strict=True):
            counters[by_index[index], names[lane]] = value
    return counters


def _count_hosts(emulation: Emulation) -> dict[str, HostCount]:
    names = [host.name for guest in range(emulation.guests) for host in emulation.hosts_of(guest)]
    return dict(zip(names, map(host_count, emulation.in_hosts(_snmp_of_all)), strict=True))


def host_count(snmp: str) -> HostCount:
    """Return a host's counters since it was made, from what its ``/proc/net/snmp`` and ``netstat`` say."""
    values: dict[str, int] = {}
    lines = [line.split() for line in snmp.splitlines()]
    for names, numbers in zip(lines[::2], lines[1::2], strict=True):
        group = names[0]
        values.update({group + name: int(number) for name, number in zip(names[1:], numbers[1:], strict=True)})
    counted = {field: sum(values.get(name, 0) for name in names) for field, names in _HOST_COUNTERS.items()}
    lacking = tuple(
        name for names in _HOST_COUNTERS.values() for name in names if name not in values and name not in _OF_RDMA
    )
    return HostCount(**counted, not_counted=lacking)


def _snmp_of(namespace: Path | None) -> str:
    assert namespace is not None, "hosts have namespaces"
    with netns.inside(namespace):
        files = (Path(f"/proc/thread-self/net/{name}") for name in ("snmp", "netstat", "rdma"))
        return "".join(file.read_text() for file in files if file.exists())


def _snmp_of_all(namespaces: Sequence[Path]) -> list[str]:
    return [_snmp_of(namespace) for namespace in namespaces]


def _count_ports(emulation: Emulation) -> dict[Port, PortCount]:
    counts: dict[Port, PortCount] = {}
    for namespace, ports in ports_by_namespace(emulation):
        with Netlink(namespace) as link:
            counts |= _count(link, ports, emulation)
    return counts


def _count(link: Netlink, ports: list[Port], emulation: Emulation) -> dict[Port, PortCount]:
    wires = link.link_counters()
    dump = link.dump_qdiscs()
    if lossless := vl.read(dump):
        return {port: _vl_count(lossless[emulation.indices[port]], wires[port.interface]) for port in ports}
    keys, counters = QueueReader().read(dump)
    sums: dict[int, list[int]] = {}
    for (index, _), row in zip(keys, counters[list(_COUNTED)].tolist(), strict=True):
        total = sums.setdefault(index, [0] * len(_COUNTED))
        for place, value in enumerate(row):
            total[place] += value
    return {port: _port_count(sums[emulation.indices[port]], wires[port.interface]) for port in ports}


_COUNTED = ("sent_packets", "sent_bytes", "backlog_packets", "drops_packets")
"""Of :data:`fabric.queueing.counters.COUNTERS`, in the order of :func:`_port_count`."""


def _port_count(queues: list[int], wire: LinkCounters) -> PortCount:
    sent_packets, sent_bytes, waiting, dropped = queues
    return PortCount(sent_packets, sent_bytes, waiting, dropped, wire.rx_packets, wire.rx_bytes)


def _vl_count(port: vl.PortStats, wire: LinkCounters) -> PortCount:
    lanes = port.lanes.values()
    causes = {cause.name.lower(): sum(lane.dropped_packets[cause] for lane in lanes) for cause in vl.DropCause}
    return PortCount(
        sent_packets=sum(lane.sent_packets for lane in lanes),
        sent_bytes=sum(lane.sent_bytes for lane in lanes),
        waiting_packets=port.link_packets + sum(lane.backlog_packets for lane in lanes),
        dropped_packets=sum(causes.values()),
        received_packets=wire.rx_packets,
        received_bytes=wire.rx_bytes,
        dropped_by_cause=causes,
    )


def conservation(fabric: Fabric, before: Census, after: Census, faults: FaultReport = FaultReport()) -> Conservation:  # noqa: B008
    """Return what happened between two censuses taken under the same queues, with ``faults`` between them."""
    changes = {port: _change(before.ports[port], count) for port, count in after.ports.items()}
    rules = {node: after.dropped_by_rules[node] - before.dropped_by_rules[node] for node in after.dropped_by_rules}
    losses = [*_wire_losses(fabric, changes, faults), *_switch_losses(fabric, changes, rules, faults)]
    host_ports = [port for host in fabric.hosts for port in _sending_ports(fabric, host)]
    at_switches = [change for port, change in changes.items() if port.node.is_switch]
    by_host = {name: count.since(before.hosts[name]) for name, count in after.hosts.items()}
    hosts = HostCount.together(by_host.values())
    return Conservation(
        sent_packets=sum(changes[port].sent_packets for port in host_ports),
        sent_bytes=sum(changes[port].sent_bytes for port in host_ports),
        switched_bytes=sum(change.received_bytes for change in at_switches),
        dropped_by_queues=sum(change.dropped_packets for change in changes.values()),
        dropped_by_rules=sum(rules.values()),
        waiting_packets=sum(change.waiting_packets for change in changes.values()),
        unaccounted={loss.place: loss.unexplained for loss in losses if loss.unexplained},
        unaccounted_bytes=sum(loss.unexplained_bytes for loss in losses),
        retransmissions=hosts.retransmissions,
        sent_twice=hosts.sent_twice,
        overtook=hosts.overtook,
        naks=hosts.naks,
        cnps=hosts.cnps,
        lost_in_cuts={loss.place: loss.in_cuts for loss in losses if loss.in_cuts},
        lost_by_faults=sum(faults.by_loss.values()),
        tcp_short_of_memory=hosts.short_of_memory,
        dropped_by_cause=_sum_of_causes(changes.values()),
        switched_packets=sum(change.received_packets for change in at_switches),
        timeouts=hosts.timeouts,
        spurious_timeouts=hosts.spurious_timeouts,
        tcp_pruned=0 if hosts.memory_pressures else hosts.pruned,
        udp_dropped=hosts.udp_dropped,
        connections_dropped=hosts.connections_dropped,
        discarded=hosts.discarded,
        not_counted=hosts.not_counted,
        dropped_at_senders=_dropped_at(host_ports, changes, faults),
        udp_dropped_at={name: one.udp_dropped for name, one in by_host.items() if one.udp_dropped},
        connections_dropped_at={
            name: one.connections_dropped for name, one in by_host.items() if one.connections_dropped
        },
    )


def _dropped_at(ports: Iterable[Port], changes: Mapping[Port, PortCount], faults: FaultReport) -> dict[str, int]:
    """Return what each of some ports dropped, but for those of links that failures changed."""
    spared = {port for change in faults.link_changes for port in change.link.ports}
    return {
        str(port): changes[port].dropped_packets
        for port in ports
        if port not in spared and changes[port].dropped_packets
    }


@dataclass(frozen=True)
class _Loss:
    """Packets (and bytes) missing at a place, of which a cut there can have taken ``at_most`` so many."""

    place: str
    packets: int
    size_bytes: int
    at_most: int

    @property
    def in_cuts(self) -> int:
        return max(0, min(self.packets, self.at_most))

    @property
    def unexplained(self) -> int:
        return self.packets - self.in_cuts

    @property
    def unexplained_bytes(self) -> int:
        """All bytes missing here, unless a cut took the packets: which of them it took, nobody knows."""
        return 0 if self.in_cuts and not self.unexplained else abs(self.size_bytes)


def _wire_losses(fabric: Fabric, changes: Mapping[Port, PortCount], faults: FaultReport) -> Iterator[_Loss]:
    for port, link in fabric.every_directed_port():
        here, there = changes[port], changes[link.other(port)]
        packets = here.sent_packets - there.received_packets
        size_bytes = here.sent_bytes - there.received_bytes
        yield _Loss(f"wire {port} to {link.other(port)}", packets, size_bytes, faults.on_wires.get(port, 0))


def _switch_losses(
    fabric: Fabric, changes: Mapping[Port, PortCount], rules: Mapping[NodeId, int], faults: FaultReport
) -> Iterator[_Loss]:
    nodes = [(host, (*fabric.ports_of[host], *fabric.inner_ports_of(host))) for host in fabric.hosts_with_inside]
    for switch, ports in [*((switch, fabric.ports_of[switch]) for switch in fabric.switches), *nodes]:
        by_loss = sum(faults.by_loss.get(port, 0) for port in ports)
        packets = _missing_in_switch([changes[port] for port in ports], by_loss)
        by_rules = rules.get(switch, 0)
        # Open vSwitch credits packets of the last moments before a rule changed to the new one: what it says a rule
        # has dropped since may include what the old one had sent on. So beside failures it is a bound.
        counted = min(by_rules, max(0, packets)) if faults.link_changes else by_rules
        loss = _Loss(f"switch {switch}", packets - counted, 0, faults.in_switches.get(switch, 0))
        yield replace(loss, size_bytes=loss.unexplained * fabric.frame_bytes)


def _sending_ports(fabric: Fabric, host: NodeId) -> list[Port]:
    """Return the ports by which a host's programs send: its NICs, or those of its CPU and GPUs."""
    inner = [port for link in fabric.inner_links_of(host) for port in link.ports]
    return [port for port in inner if port.node.role in (Role.CPU, Role.GPU)] or list(fabric.ports_of[host])


def _change(before: PortCount, after: PortCount) -> PortCount:
    return PortCount(
        after.sent_packets - before.sent_packets,
        after.sent_bytes - before.sent_bytes,
        after.waiting_packets - before.waiting_packets,
        after.dropped_packets - before.dropped_packets,
        after.received_packets - before.received_packets,
        after.received_bytes - before.received_bytes,
        {cause: count - before.dropped_by_cause.get(cause, 0) for cause, count in after.dropped_by_cause.items()},
    )


def _sum_of_causes(changes: Iterable[PortCount]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for change in changes:
        total.update(change.dropped_by_cause)
    return {cause: count for cause, count in total.items() if count}


def _missing_in_switch(changes: list[PortCount], counted: int) -> int:
    received = sum(change.received_packets for change in changes)
    return received - sum(change.offered_packets for change in changes) - counted
