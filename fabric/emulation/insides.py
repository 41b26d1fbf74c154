"""Nodes with an inside as they are made: a namespace whose parts have links of their own, and a bridge.

All parts of a node (its CPU and its GPUs) are interfaces of the node's namespace, with an address each. The kernel
would deliver what one of them sends to another at once; so the table of local addresses applies only to what came in by
an interface, and what a part sends leaves by the part's own interface, whichever the destination. All have the same
MAC address and need not resolve any.

The bridge of a node has fixed rules: to a part by its address, else to the NIC in whose block the source is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fabric.emulation import openvswitch
from fabric.emulation.host_routes import routes_by_destination
from fabric.emulation.openvswitch import Bridge, OpenVSwitch
from fabric.errors import EmulationError, UsageError
from fabric.model.identity import NodeId, Role
from fabric.model.inside import budget_name, cpu_of, gpu_of, nvswitch_of, to_cpu, to_gpu
from fabric.model.lanes import Queueing
from fabric.model.network import ADDRESSES, Fabric, Port
from fabric.queueing import budgets
from fabric.queueing.vl import DrawOptions
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Request

HOST_SYSCTLS = {"net/ipv4/conf/all/accept_local": "1", "net/ipv4/conf/default/accept_local": "1"}
"""A part hears what another of its node sends; without it the kernel takes its own addresses for forged."""
_TO_PART, _TO_NIC = 200, 100
_RULES_TIMEOUT_S = 60
_FIRST_GPU_TABLE, _CPU_TABLE = 1, 200
_LOOPBACK = "127.0.0.0", 8


def faults(fabric: Fabric, queueings: Sequence[Queueing]) -> Iterator[str]:
    """Yield the queueings in which nodes with an inside cannot run."""
    if fabric.inside is None:
        return
    for queueing in queueings:
        if not queueing.is_of_vl:
            limits = f"the limits of its nodes ({fabric.inside.name}) are budgets, which only ports of vl draw on"
            yield f"topology.node: queueing {queueing.value} cannot have it: {limits}; use lossless or lossless_lanes"


def require(fabric: Fabric, queueing: Queueing) -> None:
    """Raise UsageError if nodes with an inside cannot run in a queueing."""
    if found := list(faults(fabric, [queueing])):
        raise UsageError("; ".join(found))


def bridge_ports(fabric: Fabric, host: NodeId) -> tuple[Port, ...]:
    """Return the ports of a node that has an inside: its NICs, then those that lead to its parts."""
    return (*fabric.ports_of[host], *fabric.inner_ports_of(host))


def part_ports(fabric: Fabric, host: NodeId) -> tuple[Port, ...]:
    """Return the ports of a node's CPU and GPUs, which are interfaces of its namespace."""
    links = fabric.inner_links_of(host)
    return tuple(port for link in links for port in link.ports if port.node.role in (Role.CPU, Role.GPU))


def switch_ports(fabric: Fabric, host: NodeId) -> tuple[Port, ...]:
    """Return the ports of a node's NVSwitch; none if it has none."""
    return tuple(port for link in fabric.inner_links_of(host) for port in link.ports if port.node == nvswitch_of(host))


# Budgets -------------------------------------------------------------------------------------------------------------


def draws_by_port(fabric: Fabric, indices: Mapping[Port, int]) -> dict[Port, tuple[DrawOptions, ...]]:
    """Return what every port inside a node, and every NIC of one, draws on."""
    found: dict[Port, list[DrawOptions]] = {}
    for host in fabric.hosts_with_inside:
        for draw in fabric.draws_of(host):
            number = budgets.number_of(budget_name(host, *draw.budget))
            index = 0 if draw.of_input is None else indices[Port(*draw.of_input)]
            options = budgets.draw(number, draw.rate_Bps, draw.weight, index)
            found.setdefault(Port(*draw.port), []).append(options)
    return {port: tuple(options) for port, options in found.items()}


# The bridge ----------------------------------------------------------------------------------------------------------


def add_bridges(switches: OpenVSwitch, fabric: Fabric, hosts: Iterable[NodeId]) -> None:
    """Make the bridges of those hosts that have an inside, with their ports, numbered one above the fabric's, and give
    them their rules."""
    bridges = []
    rules = {}
    with_inside = frozenset(fabric.hosts_with_inside)
    for host in hosts:
        if host not in with_inside:
            continue
        bridges.append(_bridge(host.name, bridge_ports(fabric, host), fabric.mtu_bytes))
        rules[host.name] = [*_rules(fabric, host)]
        if ports := switch_ports(fabric, host):
            name = nvswitch_of(host).name
            bridges.append(_bridge(name, ports, fabric.mtu_bytes))
            rules[name] = [*_nvlink_rules(fabric, host)]
    if bridges:
        switches.add_bridges(bridges)
    for name, lines in rules.items():
        _set_rules(name, lines)


def _bridge(name: str, ports: Sequence[Port], mtu_bytes: int) -> Bridge:
    return Bridge(name, {port.interface: _number(port) for port in ports}, mtu_bytes)


def _number(port: Port) -> int:
    """Return a port's number in OpenFlow, which has no port 0."""
    return port.number + 1


def _rules(fabric: Fabric, host: NodeId) -> Iterator[str]:
    nics = fabric.nics_of[host]
    addresses = {nic.ip: to_cpu(host) for nic in nics}
    assert fabric.inside is not None, "only such hosts have bridges"
    addresses |= {fabric.address_inside(gpu_of(host, n)): to_gpu(host, n) for n in range(fabric.inside.gpus)}
    for address, spot in addresses.items():
        yield f"priority={_TO_PART},ip,nw_dst={address},actions=output:{_number(Port(*spot))}"
    for nic in nics:
        yield f"priority={_TO_NIC},ip,nw_src={fabric.block_of(nic)},actions=output:{_number(nic.port)}"


def _nvlink_rules(fabric: Fabric, host: NodeId) -> Iterator[str]:
    for port in switch_ports(fabric, host):
        gpu = fabric.inner_link_at[port].other(port).node
        yield f"ip,nw_dst={fabric.address_inside(gpu, nvlink=True)},actions=output:{_number(port)}"


def _set_rules(bridge: str, lines: Sequence[str]) -> None:
    command = [openvswitch.tool("ovs-ofctl"), "replace-flows", bridge, "-"]
    text = "".join(line + "\n" for line in lines)
    done = subprocess.run(command, input=text, text=True, capture_output=True, timeout=_RULES_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise EmulationError(f"{bridge}: Open vSwitch refuses the rules of its inside: {done.stderr.strip()}")


# The namespace -------------------------------------------------------------------------------------------------------


def namespace_requests(fabric: Fabric, host: NodeId, indices: Mapping[Port, int]) -> Iterator[Request]:
    """Yield what gives a node's parts their addresses and routes in its namespace."""
    cpu = Port(cpu_of(host), 0)
    for port in part_ports(fabric, host):
        yield netlink.without_arp(indices[port], port.interface)
        for address in addresses_of(fabric, port):
            yield netlink.address(indices[port], port.interface, address, 32)
        yield netlink.link_state(indices[port], port.interface, up=True)
    for network, nic in routes_by_destination(fabric, host):
        yield netlink.route(indices[cpu], cpu.interface, network, nic.ip)
    yield netlink.rule_for_arrivals()
    yield netlink.rule_to_local(*_LOOPBACK, priority=2)
    for nic in fabric.nics_of[host]:  # What a CPU sends to itself stays; what GPUs send to it was decided before.
        yield netlink.rule_to_local(nic.ip, 32, netlink.SOURCE_RULES + _CPU_TABLE - 1)
    for table, port in enumerate(port for port in part_ports(fabric, host) if port != cpu):
        yield from _by_source(fabric, port, indices, _FIRST_GPU_TABLE + table)
    yield from _by_source(fabric, cpu, indices, _CPU_TABLE)
    yield netlink.delete_rule_for_local()


def _by_source(fabric: Fabric, port: Port, indices: Mapping[Port, int], table: int) -> Iterator[Request]:
    """Let what a part sends leave by its port."""
    addresses = addresses_of(fabric, port)
    yield netlink.route(indices[port], port.interface, str(ADDRESSES), addresses[0], table)
    for address in addresses:
        yield netlink.rule_from(address, table)


def addresses_of(fabric: Fabric, port: Port) -> list[str]:
    """Return the addresses of a part's port: a CPU has those of all NICs of its node."""
    if port.node.role is Role.CPU:
        return [nic.ip for nic in fabric.nics_of[port.node.host]]
    return [fabric.address_inside(port.node, nvlink=port.number > 0)]
