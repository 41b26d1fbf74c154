"""Switches without Open vSwitch: they execute a route plan's rules on one packet at a time, hop by hop.

Written from OpenFlow's words (of the rules that match, the one with the highest priority acts), not from the plan's own
lookup, so that a mistake there is seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network

from controllers.plan import FlowRule, RoutePlan
from fabric.identity import NodeId
from fabric.model import Fabric, Nic, Port

HOP_LIMIT = 64


@dataclass(frozen=True)
class Packet:
    """The addresses of an IPv4 packet."""

    source: str
    destination: str


@dataclass
class FakeSwitch:
    """One switch's table, with a packet counter for each rule."""

    rules: Sequence[FlowRule]
    packets: Counter[FlowRule] = field(default_factory=Counter)

    def forward(self, in_port: int, packet: Packet) -> FlowRule:
        """Count the packet and return the rule that acts on it."""
        matching = [rule for rule in self.rules if _matches(rule, in_port, packet)]
        highest = max(rule.priority for rule in matching)
        acting = [rule for rule in matching if rule.priority == highest]
        assert len(acting) == 1, f"OpenFlow does not say which of {acting} acts on {packet}"
        self.packets[acting[0]] += 1
        return acting[0]


@dataclass(frozen=True)
class Journey:
    """Where one packet went: the ports that sent it, and the NIC that got it or the switch and rule that dropped it."""

    path: tuple[Port, ...]
    delivered_to: Nic | None = None
    dropped_at: NodeId | None = None
    dropped_by: FlowRule | None = None


class FakeFabric:
    """A fabric whose switches have a plan's rules."""

    def __init__(self, fabric: Fabric, plan: RoutePlan) -> None:
        self.fabric = fabric
        self.switches = {switch: FakeSwitch(plan.rules[switch.dpid]) for switch in fabric.switches}
        self.nic_at = {nic.port: nic for nic in fabric.nics}

    def send(self, source: Nic, destination_ip: str) -> Journey:
        """Send a packet from a NIC and follow it until it is delivered or dropped. Fails if it loops."""
        packet = Packet(source.ip, destination_ip)
        path = [source.port]
        while len(path) < HOP_LIMIT:
            arrived = self.fabric.peer(path[-1])
            if arrived in self.nic_at:
                return Journey(tuple(path), delivered_to=self.nic_at[arrived])
            rule = self.switches[arrived.node].forward(arrived.number, packet)
            if not rule.outputs:
                return Journey(tuple(path), dropped_at=arrived.node, dropped_by=rule)
            assert len(rule.outputs) == 1, f"{rule} copies packets"
            path.append(Port(arrived.node, rule.outputs[0]))
        raise AssertionError(f"{packet} loops: {' '.join(map(str, path))}")


def _matches(rule: FlowRule, in_port: int, packet: Packet) -> bool:
    wanted = ((rule.source, packet.source), (rule.destination, packet.destination))
    return rule.in_port in (None, in_port) and all(
        prefix is None or IPv4Address(address) in IPv4Network(prefix) for prefix, address in wanted
    )
