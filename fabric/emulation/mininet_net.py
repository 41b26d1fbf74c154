"""Mininet's network over a fabric: what its prompt and scripts ask of ``net``, by the NICs that reach each other."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fabric.emulation import iperf
from fabric.emulation.host_routes import near_address
from fabric.emulation.mininet_nodes import BuiltLink, FabricHost, FabricSwitch
from fabric.emulation.mininet_parts import Mininet, error, output
from fabric.errors import EmulationError, UsageError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Port
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Netlink

_NO_WAY = "1 packets transmitted, 0 received"
_SENDING_TIMEOUT_S, _LOOK_S = 10.0, 0.01


class FabricNet(Mininet):  # type: ignore[misc]
    """The nodes and links of a fabric that is up."""

    def __init__(self, fabric: Fabric) -> None:
        Mininet.inited = True  # Or it would write sysctls of the whole machine.
        super().__init__(build=False, autoSetMacs=False, autoStaticArp=False)
        self.fabric = fabric
        self.nodes_named = {node.name: node for node in (*fabric.hosts, *fabric.switches)}
        self._add_nodes()
        self.built = True

    def _add_nodes(self) -> None:
        fabric = self.fabric
        nodes = {}
        for host in fabric.hosts:
            nodes[host] = self.addHost(host.name, cls=FabricHost, ip=None)
        for switch in fabric.switches:
            nodes[switch] = self.addSwitch(switch.name, cls=FabricSwitch, dpid=f"{switch.dpid:016x}", inNamespace=False)
        for link in fabric.links:
            self.links.append(BuiltLink(nodes[link.a.node], nodes[link.b.node], link))
        for nic in fabric.nics:
            interface = nodes[nic.node].nameToIntf[nic.port.interface]
            interface.ip, interface.mac, interface.prefixLen = nic.ip, nic.mac, 32
        for node in nodes.values():
            node.is_built = True
        self.nameToNode.update({name: nodes[node] for node, name in fabric.names})  # The prompt takes either name.

    def address(self, source: Any, destination: Any) -> str | None:
        """Return the address by which one Mininet host reaches another; None if it is a switch, or none does."""
        nodes = [self.nodes_named[one.name] for one in (source, destination)]
        return None if any(node.is_switch for node in nodes) else near_address(self.fabric, *nodes)

    def ping(self, hosts: Sequence[Any] | None = None, timeout: str | None = None) -> float:
        """Ping between all of some hosts, print who answers, and return how much was lost, in percent."""
        if not hosts:
            output("*** Ping: testing ping reachability\n")
        packets = lost = 0
        for said in self._pings(hosts or self.hosts, timeout):
            sent, received = self._parsePing(said)
            packets, lost = packets + sent, lost + sent - received
        if not packets:
            output("*** Warning: No packets sent\n")
            return 0.0
        loss = 100.0 * lost / packets
        output(f"*** Results: {int(loss)}% dropped ({packets - lost}/{packets} received)\n")
        return loss

    def pingFull(self, hosts: Sequence[Any] | None = None, timeout: str | None = None) -> list[Any]:  # noqa: N802
        """Ping as :meth:`ping` does, and print and return all that was measured, as Mininet's ``pingFull`` does."""
        if not hosts:
            output("*** Ping: testing ping reachability\n")
        nodes = hosts or self.hosts
        pairs = [(node, other) for node in nodes for other in nodes if node != other]
        said = self._pings(nodes, timeout)
        results = [(*pair, self._parsePingFull(text)) for pair, text in zip(pairs, said, strict=True)]
        output("*** Results: \n")
        for node, other, (sent, received, *times) in results:
            shown = "/".join(f"{time:.3f}" for time in times)
            output(f" {node}->{other}: {sent}/{received}, rtt min/avg/max/mdev {shown} ms\n")
        return results

    def _pings(self, hosts: Sequence[Any], timeout: str | None) -> Iterator[str]:
        """Yield what each ping between two hosts says, printing who is pinged and answers."""
        options = f"-W {timeout}" if timeout else ""
        for node in hosts:
            output(f"{node.name} -> ")
            for other in (one for one in hosts if one != node):
                address = self.address(node, other)
                said = _NO_WAY if address is None else node.cmd(f"ping -c1 {options} {address}")
                output(f"{other.name} " if self._parsePing(said)[1] else "X ")
                yield said
            output("\n")

    def iperf(
        self,
        hosts: Sequence[Any] | None = None,
        l4Type: str = "TCP",  # noqa: N803 - Mininet's names
        udpBw: str = "10M",  # noqa: N803
        seconds: float = 5,
    ) -> list[str]:
        """Print and return what a server received and a client sent, by iperf3; nothing if it cannot be measured."""
        client, server = hosts or (self.hosts[0], self.hosts[-1])
        output("*** Iperf: testing", l4Type, "bandwidth between", client, "and", server, "\n")
        udp_rate = udpBw if l4Type == "UDP" else None
        try:
            measured = self._measure(client, server, seconds, udp_rate)
        except UsageError as fault:
            error(f"*** {fault}\n")
            return []
        except EmulationError as fault:
            beside = f"--background {server}='iperf3 -s' {client} -- iperf3 -c {server}"
            error(f"*** {fault}; or leave the prompt and try: fabric exec {self.fabric.name} {beside}\n")
            return []
        results = [*([] if udp_rate is None else [udp_rate]), *map(iperf.written, measured)]
        output(f"*** Results: {results}\n")
        return results

    def _measure(self, client: Any, server: Any, seconds: float, udp_rate: str | None) -> tuple[float, float]:
        address = self.address(client, server)
        if address is None or client == server:
            raise UsageError(f"iperf is for two hosts that reach each other, not for {client} and {server}")
        nodes = [self.nodes_named[node.name] for node in (client, server)]
        links = [self.fabric.link_at[port] for node in nodes for port in self.fabric.ports_of[node]]
        slowest_bps = min([link.rate_bps for link in links])
        rate_bps = slowest_bps if udp_rate is None else min(slowest_bps, iperf.bits_per_second(udp_rate))
        size_bytes = iperf.amount_bytes(rate_bps, self.fabric.frame_bytes, seconds)
        return iperf.measure(iperf.Ends(client.prefix(), server.prefix(), address), size_bytes, rate_bps, udp_rate)

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:  # noqa: N802
        """Cut the links between two nodes, or join them again, by their ends at switches: a NIC that is set down would
        lose its routes."""
        if unknown := [name for name in (src, dst) if name not in self.nameToNode]:
            error(f"*** no node {unknown[0]!r}; nodes lists them\n")
            return
        ends = {self.fabric.node_named(name) for name in (src, dst)}
        cut = [link for link in self.fabric.links if {port.node for port in link.ports} == ends]
        if not cut:
            error(f"*** no link between {src} and {dst}; net lists them\n")
            return
        self.set_ends(ports=[port for link in cut for port in link.ports], is_up=status == "up")

    def set_ends(self, ports: Sequence[Port], is_up: bool) -> None:
        """Set those of some ports up or down that are a switch's; return, if up, once all of the ports send."""
        indices = {name: index for index, name in socket.if_nameindex()}
        at_switches = [port.interface for port in ports if port.interface in indices]
        with Netlink() as link:
            link.send([netlink.link_state(indices[name], name, up=is_up) for name in at_switches])
        if is_up:
            self._wait_until_sending(ports)

    def _wait_until_sending(self, ports: Sequence[Port]) -> None:
        """Wait for the kernel's link watch: what an end is given before that has run is lost."""
        hosts = {port.node for port in ports if not port.node.is_switch}
        deadline_s = time.monotonic() + _SENDING_TIMEOUT_S
        while silent := {port.interface for port in ports} - self._running_ends(hosts):
            if time.monotonic() > deadline_s:
                names = ", ".join(sorted(silent))
                error(f"*** {names}: no carrier {_SENDING_TIMEOUT_S:g} s after the switch's end was set up\n")
                return
            time.sleep(_LOOK_S)

    def set_switch(self, name: str, is_up: bool) -> None:
        """Cut all links of a switch, or join them again, as a failure of the switch does."""
        node = self.fabric.node_named(name)
        if node is None or not node.is_switch:
            error(f"*** no switch {name!r}; nodes lists them\n")
            return
        ports = self.fabric.ports_of[node]
        self.set_ends([end for port in ports for end in self.fabric.link_at[port].ports], is_up)

    def running_ends(self) -> set[str]:
        """Return the interfaces, which all have different names, that are up and have a carrier."""
        return self._running_ends(self.fabric.hosts)

    def _running_ends(self, hosts: Iterable[NodeId]) -> set[str]:
        """Return those of the switches and of some hosts."""
        found: set[str] = set()
        for path in (None, *(netns.netns_path(host.name) for host in hosts)):
            with Netlink(path) as link:
                found |= {name for name, counters in link.link_counters().items() if counters.running}
        return found
