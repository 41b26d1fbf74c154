"""Switches without Open vSwitch: they execute rules and groups on one packet at a time, hop by hop.

Written from OpenFlow's words (of the rules that match, the one with the highest priority acts; a fast-failover group
takes its first live bucket; what would leave by the port that it came in by is dropped, unless IN_PORT is meant or the
port of arrival was overwritten), not from the plan's own lookup, so that a mistake there is seen. The actions are those
of the messages that real switches get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from typing import Any, NamedTuple

from controllers.app import messages
from controllers.app.openflow import ofproto_v1_3_parser
from controllers.planning.plan import BOUNCED, Bucket, FailoverGroup, FlowRule, Mark, RoutePlan, RuleKey
from controllers.planning.updates import Changes, Installed
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Link, Nic, Port

AT_20_MBIT = ("nic_rate=20 Mbit/s", "uplink_rate=20 Mbit/s", "inter_zone.rate=20 Mbit/s")
"""Settings of a topology for tests that write rates and times out, whatever rate the file has."""

HOP_LIMIT = 200


@dataclass(frozen=True)
class Packet:
    """The addresses of an IPv4 packet; ``mac`` is its Ethernet source."""

    source: str
    destination: str
    mac: int = 0x0200_0A00_0001


class End(Enum):
    """How a packet's way may end."""

    DELIVERED = "delivered"
    MISDELIVERED = "delivered to another"
    ON_A_DEAD_WIRE = "on a dead wire"
    COUNTED = "dropped and counted by a rule or group"
    SILENT = "ignored, and counted by nobody: it would leave by the port it came in by"


class Sending(NamedTuple):
    """What some actions do: write ``value`` where ``mask`` is 1 into the source address, and send out of ``port``, also
    if the packet came in by it, where they ``forget`` that."""

    port: int
    value: int = 0
    mask: int = 0
    forget: bool = False

    @classmethod
    def by(cls, actions: list[Any]) -> Sending:
        """Return what OpenFlow actions do that load fields and then put out."""
        *loads, output = actions
        assert isinstance(output, ofproto_v1_3_parser.OFPActionOutput)
        sending = cls(output.port)
        for load in loads:
            first, bits = load.ofs_nbits >> 6, (load.ofs_nbits & 0x3F) + 1
            if load.dst == "eth_src":
                sending = sending._replace(value=load.value << first, mask=((1 << bits) - 1) << first)
            else:
                assert (load.dst, load.value, first, bits) == ("in_port_nxm", 0, 0, 16), load
                sending = sending._replace(forget=True)
        return sending

    def of(self, in_port: int, packet: Packet) -> tuple[int, Packet] | End:
        """Return the port by which a packet leaves, and the packet as it does."""
        if self.port == in_port and not self.forget:
            return End.SILENT
        mac = packet.mac & ~self.mask | self.value
        return self.port, Packet(packet.source, packet.destination, mac)


@cache
def _put_out(port: int, mark: Mark | None) -> Sending:
    return Sending.by(messages.output(port, mark))


@cache
def _put_into(bucket: Bucket) -> Sending:
    return Sending.by(messages.bucket_message(bucket).actions)


@dataclass
class FakeSwitch:
    """One switch's tables and groups, with a packet counter for each rule."""

    rules: dict[RuleKey, FlowRule] = field(default_factory=dict)
    groups: dict[int, FailoverGroup] = field(default_factory=dict)
    packets: Counter[FlowRule] = field(default_factory=Counter)
    _index: dict[str | None, list[FlowRule]] | None = None

    def change(self, changes: Changes) -> None:
        """Do what a controller tells in one round."""
        self.groups.update((group.number, group) for group in changes.new_groups)
        self.rules.update((rule.key, rule) for rule in changes.rules)
        for key in changes.gone_rules:
            self.rules.pop(key, None)
        for number in changes.gone_groups:
            del self.groups[number]
            assert all(rule.group != number for rule in self.rules.values()), "OpenFlow would delete these rules, too"
        self._index = None

    def installed(self) -> Installed:
        """Return what a controller finds here."""
        return Installed({key: rule.cookie for key, rule in self.rules.items()}, set(self.groups))

    def acting(self, in_port: int, packet: Packet) -> FlowRule:
        """Count the packet and return the rule of the main table that acts on it."""
        if self._index is None:
            self._index = {}
            for rule in self.rules.values():
                if rule.way is None:
                    exact = rule.destination if rule.destination and "/" not in rule.destination else None
                    self._index.setdefault(exact, []).append(rule)
        candidates = [*self._index.get(packet.destination, ()), *self._index.get(None, ())]
        matching = [rule for rule in candidates if _matches(rule, in_port, packet)]
        highest = max(rule.priority for rule in matching)
        acting: list[FlowRule] = [rule for rule in matching if rule.priority == highest]
        assert len(acting) == 1, f"OpenFlow does not say which of {acting} acts on {packet}"
        self.packets[acting[0]] += 1
        return acting[0]

    def ways(self, rule: FlowRule) -> Iterator[FlowRule]:
        """Yield the rules that may send a packet on: several if it is hashed."""
        if rule.hashing is None:
            yield rule
            return
        for number in range(rule.hashing.ways):
            found = [one for one in self.rules.values() if one.way == (rule.hashing.choice, rule.hashing.code(number))]
            assert len(found) == 1, f"{rule} has {len(found)} rules for way {number}"
            yield found[0]


@dataclass(frozen=True)
class Journey:
    """Where one packet went: the ports that sent it, and the NIC that got it or the switch and rule that dropped it."""

    path: tuple[Port, ...]
    delivered_to: Nic | None = None
    dropped_at: NodeId | None = None
    dropped_by: FlowRule | None = None


class FakeFabric:
    """A fabric whose switches have a plan's rules, or none yet; links may be down."""

    def __init__(self, fabric: Fabric, plan: RoutePlan | None = None) -> None:
        self.fabric = fabric
        self.switches = {switch: FakeSwitch() for switch in fabric.switches}
        self.by_dpid = {switch.dpid: fake for switch, fake in self.switches.items()}
        self.down: set[Link] = set()
        self.nic_at = {nic.port: nic for nic in fabric.nics}
        if plan is not None:
            for dpid, fake in self.by_dpid.items():
                fake.change(Changes(list(plan.groups[dpid].values()), list(plan.rules[dpid])))

    def send(self, source: Nic, destination_ip: str) -> Journey:
        """Send a packet from a NIC and follow it until it is delivered or dropped, by the first of several ways."""
        return next(self.journeys(source, destination_ip))

    def journeys(self, source: Nic, destination_ip: str) -> Iterator[Journey]:
        """Yield where a packet may go, for every way that a hash may choose. Fails if it loops."""
        yield from self._on((source.port,), Packet(source.ip, destination_ip))

    def _on(self, path: tuple[Port, ...], packet: Packet) -> Iterator[Journey]:
        assert len(path) < HOP_LIMIT, f"{packet} loops: {' '.join(map(str, path))}"
        arrived = self.fabric.peer(path[-1])
        if self.fabric.link_at[path[-1]] in self.down:
            yield Journey(path, dropped_at=path[-1].node)
        elif arrived in self.nic_at:
            yield Journey(path, delivered_to=self.nic_at[arrived])
        else:
            yield from self._through(arrived, path, packet)

    def _through(self, arrived: Port, path: tuple[Port, ...], packet: Packet) -> Iterator[Journey]:
        rule = self.switches[arrived.node].acting(arrived.number, packet)
        for way in self.switches[arrived.node].ways(rule):
            sent = self.sent(arrived, way, packet)
            if sent is None:
                yield Journey(path, dropped_at=arrived.node, dropped_by=rule)
            else:
                yield from self._on((*path, Port(arrived.node, sent[0])), sent[1])

    def sent(self, arrived: Port, rule: FlowRule, packet: Packet) -> tuple[int, Packet] | None:
        """Return the port by which a rule sends a packet on, and the packet as it leaves; None if it is dropped."""
        sent = self._executed(arrived, rule, packet)
        return None if isinstance(sent, End) else sent

    def _executed(self, arrived: Port, rule: FlowRule, packet: Packet) -> tuple[int, Packet] | End:
        if rule.group is None:
            assert len(rule.outputs) <= 1, f"{rule} copies packets"
            return _put_out(rule.outputs[0], rule.writes).of(arrived.number, packet) if rule.outputs else End.COUNTED
        group = self.switches[arrived.node].groups[rule.group]
        for bucket in group.buckets:
            if self.fabric.link_at[Port(arrived.node, bucket.port)] not in self.down:
                return _put_into(bucket).of(arrived.number, packet)
        back = Packet(packet.source, packet.destination, BOUNCED.written(packet.mac))
        return (arrived.number, back) if group.bounces else End.COUNTED

    def steps(self, port: Port, packet: Packet) -> Iterator[tuple[Port, Packet] | End]:
        """Yield what becomes of a packet that ``port`` has sent, at the next switch: several if it is hashed there."""
        arrived = self.fabric.peer(port)
        if self.fabric.link_at[port] in self.down:
            yield End.ON_A_DEAD_WIRE
        elif arrived in self.nic_at:
            ours = self.nic_at[arrived].ip == packet.destination
            yield End.DELIVERED if ours else End.MISDELIVERED
        else:
            switch = self.switches[arrived.node]
            for way in switch.ways(switch.acting(arrived.number, packet)):
                sent = self._executed(arrived, way, packet)
                yield sent if isinstance(sent, End) else (Port(arrived.node, sent[0]), sent[1])


class Fates:
    """Where packets of every source may end, each state of a packet looked at once."""

    def __init__(self, fake: FakeFabric) -> None:
        self.fake = fake
        self._ends: dict[tuple[Port, Packet], frozenset[bool]] = {}

    def of(self, source: Nic, destination: Nic) -> frozenset[bool]:
        """Return whether a packet may arrive (True) and may be lost (False). Fails if it loops."""
        ip = "10.128.0.1" if is_storage(source) else "10.0.0.1"
        return self._end(source.port, Packet(ip, destination.ip), ())

    def _end(self, port: Port, packet: Packet, before: tuple[tuple[Port, Packet], ...]) -> frozenset[bool]:
        state = port, packet
        assert state not in before, f"{packet} loops: {' '.join(str(port) for port, _ in before)} {port}"
        if state not in self._ends:
            self._ends[state] = self._ends_after(port, packet, (*before, state))
        return self._ends[state]

    def _ends_after(self, port: Port, packet: Packet, path: tuple[tuple[Port, Packet], ...]) -> frozenset[bool]:
        ends: set[bool] = set()
        for step in self.fake.steps(port, packet):
            ends |= {step is End.DELIVERED} if isinstance(step, End) else self._end(*step, path)
        return frozenset(ends)


def _matches(rule: FlowRule, in_port: int, packet: Packet) -> bool:
    return (
        rule.in_port in (None, in_port)
        and (rule.mark is None or packet.mac & rule.mark.mask == rule.mark.value)
        and (rule.destination is None or _is_in(packet.destination, rule.destination))
        and (rule.source is None or _is_in(packet.source, rule.source))
    )


@cache
def _is_in(address: str, prefix: str) -> bool:
    return IPv4Address(address) in IPv4Network(prefix)


def reachable(fabric: Fabric, down: Collection[Link], source: Nic, destination: Nic) -> bool:
    """Whether a live path that storage may take, if it is storage's, joins two NICs: by a plain search."""
    stays = is_storage(source) or is_storage(destination)
    if stays and source.zone != destination.zone:
        return False
    seen, edge = {source.port.node}, [source.port]
    while edge:
        port = edge.pop()
        if fabric.link_at[port] in down:
            continue
        arrived = fabric.peer(port)
        if arrived == destination.port:
            return True
        if not arrived.node.is_switch or arrived.node in seen or (stays and arrived.node.zone != source.zone):
            continue
        seen.add(arrived.node)
        edge += fabric.ports_of[arrived.node]
    return False


def is_storage(nic: Nic) -> bool:
    """Whether a NIC is a storage node's, by its address."""
    return int(nic.ip.split(".")[1]) >= 128
