"""Run by test_real_failures.py in private namespaces: a small fabric on real Open vSwitch, whose links are cut."""

from __future__ import annotations

import json
import random
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from controllers.planning.paths import planned_path
from controllers.routing import Repair, Routing
from fabric.emulation.openvswitch import tool
from fabric.model.encoding import fabric_from_json
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric, Link, Nic, Port, Tier
from fabric.world import inside
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Netlink
from runs.live import LiveFabric, bring_up
from tests.fakes import reachable
from tests.waiting import until

EVENTS, CUTS = 4, 6
SETTLE_TIMEOUT_S = 60.0
UDP_PORT = 4791
QUIET_S, ATTEMPTS = 0.7, 20
_UNDER_WAY_S = 3.0
"""So long after the last packet was sent one may still arrive, if a program on its way has to wait for a core."""
PACKET_INTERVAL_S = 0.0005
_SO_RCVBUFFORCE = 33  # asm-generic/socket.h


def main(what: str, policy: str, repair: str, report: Path) -> None:
    fabric = fabric_from_json(json.loads((report.parent / "fabric.json").read_text()), "test")
    inside.set_up()
    logs = report.parent / "logs"
    logs.mkdir()
    routing = Routing.model_validate({"policy": policy, "repair": repair})
    with bring_up(fabric, plan_lanes(QueueConfig(), Queueing.SHARED), logs, print, routing) as live:
        play: Callable[[LiveFabric], Any] = {"sequence": sequence, "cuts": cuts, "crash": crash}[what]
        report.write_text(json.dumps(play(live)))


def set_link(live: LiveFabric, link: Link, up: bool) -> float:
    """Set a switch's end of a link down or up, and return when."""
    port = link.a if link.a.node.is_switch else link.b
    with Netlink() as kernel:
        at_s = time.monotonic()
        kernel.send([netlink.link_state(live.emulation.indices[port], port.interface, up)])
    return at_s


def settle(live: LiveFabric, down: set[Link]) -> None:
    """Wait until the controller knows which links are down, and has switches at its plan for that."""
    wanted = tuple(sorted(str(link) for link in down))
    deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
    while (state := live.controller.state()).links_down != wanted or not state.ready:
        assert time.monotonic() < deadline_s, f"not settled with {wanted}: {state}"
        time.sleep(0.01)


def sequence(live: LiveFabric) -> list[dict[str, Any]]:
    """Let random links fail and return; say what packets do, and if a controller from nothing installs the same."""
    draw = random.Random(7)
    links = [link for link in live.fabric.links if link.tier is not Tier.ACCESS]
    down: set[Link] = set()
    seen = []
    for event in range(EVENTS):
        changed = draw.sample(links, 2) if event < EVENTS - 1 else list(down)
        for link in changed:
            set_link(live, link, up=link in down)
            down ^= {link}
        settle(live, down)
        arrived = probe_all(live, down)
        installed = dump(live)
        live.controller.kill()
        wipe(live)
        live.controller.restart()
        live.controller.wait_ready(SETTLE_TIMEOUT_S)
        settle(live, down)
        fresh = dump(live)
        stale = [line for name in installed for line in set(installed[name]) ^ set(fresh[name])]
        lines = sum(map(len, installed.values()))
        seen.append({"down": sorted(map(str, down)), "stale": stale, "lines": lines, "arrived": sorted(arrived)})
    return seen


def pairs(fabric: Fabric) -> list[tuple[Nic, Nic]]:
    return [(a, b) for a in fabric.nics for b in fabric.nics if a.node != b.node]


@contextmanager
def listening(live: LiveFabric, nic: Nic) -> Iterator[socket.socket]:
    """A socket that takes what arrives for a NIC."""
    with netns.inside(netns.netns_path(nic.node.name)):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((nic.ip, UDP_PORT))
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)  # A slow machine's receiver may be late.
    with sock:
        yield sock


def probe_all(live: LiveFabric, down: set[Link]) -> set[tuple[str, str]]:
    """Send packets between every two NICs, out of the source's, and return the addresses between which one arrived.

    If something has not arrived that links still join, all that has not is sent again: a busy switch may pass packets
    on by what it knew before its rules changed.
    """
    arrived: set[tuple[str, str]] = set()
    joined = {(a.ip, b.ip) for a, b in pairs(live.fabric) if reachable(live.fabric, down, a, b)}
    with ExitStack() as stack:
        ends = {nic: stack.enter_context(listening(live, nic)) for nic in live.fabric.nics}
        for a, sock in ends.items():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, a.port.interface.encode())
        for _ in range(ATTEMPTS):
            for a, b in pairs(live.fabric):
                if (a.ip, b.ip) not in arrived:
                    with suppress(OSError):  # No route by this NIC.
                        ends[a].sendto(a.ip.encode(), (b.ip, UDP_PORT))
            arrived.update(take_all(list(ends.values())))
            if joined <= arrived:
                break
    return arrived


def take_all(socks: list[socket.socket]) -> Iterator[tuple[str, str]]:
    """Yield between which addresses packets arrive, until none does."""
    while ready := select.select(socks, [], [], QUIET_S)[0]:
        for sock in ready:
            _, (address, _) = sock.recvfrom(100)
            yield address, sock.getsockname()[0]


def ofctl(*arguments: str) -> str:
    command = [tool("ovs-ofctl"), "-O", "OpenFlow13", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def dump(live: LiveFabric) -> dict[str, list[str]]:
    """Return every rule and group of every switch, as Open vSwitch says them."""
    return {
        switch.name: sorted(
            " ".join(line.split())
            for what in (["dump-flows", "--no-stats"], ["dump-groups"])
            for line in ofctl(*what, switch.name).splitlines()
            if "_reply" not in line and "reply (" not in line
        )
        for switch in live.fabric.switches
    }


def wipe(live: LiveFabric) -> None:
    for switch in live.fabric.switches:
        ofctl("del-flows", switch.name)
        ofctl("del-groups", switch.name)
        ofctl("del-meters", switch.name)


class Stream:
    """Packets at a steady rate between two hosts, and when each arrived."""

    def __init__(self, live: LiveFabric, source: Nic, destination: Nic) -> None:
        self.live, self.source, self.destination = live, source, destination
        self.sent = 0
        self.arrived_s: list[float] = []
        self._ended = False
        self._sending = threading.Thread()

    @contextmanager
    def running(self) -> Iterator[None]:
        with listening(self.live, self.source) as out, listening(self.live, self.destination) as into:
            into.settimeout(0.1)
            self._sending = threading.Thread(target=self._send, args=(out,))
            taking = threading.Thread(target=self._take, args=(into,))
            for thread in (self._sending, taking):
                thread.start()
            yield
            self._ended = True
            for thread in (self._sending, taking):
                thread.join(60)

    def _send(self, out: socket.socket) -> None:
        next_s = time.monotonic()
        while not self._ended:
            out.sendto(b"x", (self.destination.ip, UDP_PORT))
            self.sent += 1
            next_s = max(next_s + PACKET_INTERVAL_S, time.monotonic() - 0.01)
            time.sleep(max(0.0, next_s - time.monotonic()))

    def _take(self, into: socket.socket) -> None:
        last_s = time.monotonic()
        while not self._is_over(last_s):
            with suppress(TimeoutError):
                into.recv(100)
                last_s = time.monotonic()
                self.arrived_s.append(last_s)

    def _is_over(self, last_s: float) -> bool:
        """Whether nothing is sent any more, and all of it has arrived or nothing has for a while."""
        if not self._ended or self._sending.is_alive():
            return False
        return len(self.arrived_s) == self.sent or time.monotonic() - last_s > _UNDER_WAY_S

    def gap_s(self, at_s: float) -> float:
        """Return the longest time without a packet around a moment."""
        near = [moment for moment in self.arrived_s if at_s - 0.02 < moment < at_s + 1.5]
        return max((b - a for a, b in pairwise(near)), default=9.9)


def cuts(live: LiveFabric) -> dict[str, Any]:
    """Cut the links of a path, one after the other, under a stream of packets: how long does nothing arrive?

    Where switches repair by themselves, the controller is dead meanwhile.
    """
    alone = live.routing.repair is Repair.FAST_FAILOVER
    if alone:
        live.controller.kill()
    source, destination = live.fabric.nic_at_ip["10.0.0.1"], live.fabric.nic_at_ip["10.0.0.2"]
    path = planned_path(live.plan, live.fabric, source, destination)
    links = [live.fabric.link_at[port] for port in path[1:-1]]
    gaps: dict[str, list[float]] = {str(link): [] for link in links}
    parts: list[dict[str, float]] = []
    for _ in range(CUTS // 2):
        for link in links:
            stream = Stream(live, source, destination)
            with stream.running():
                until(lambda: len(stream.arrived_s) > 100, "packets before the cut")  # noqa: B023
                at_s = set_link(live, link, up=False)
                if not alone:
                    settle(live, {link})
                    parts.append(times_after(live, at_s))
                time.sleep(1.0)
                until(lambda: stream.arrived_s[-1] > at_s + 0.5, "packets after the cut")  # noqa: B023
            gaps[str(link)].append(stream.gap_s(at_s))
            set_link(live, link, up=True)
            time.sleep(0.5)
            if not alone:
                settle(live, set())
    medians = {key: statistics.median(part[key] for part in parts) for key in (parts[0] if parts else ())}
    return {"gaps_s": gaps, "controller_s": medians}


def times_after(live: LiveFabric, at_s: float) -> dict[str, float]:
    """Return how long after a cut the controller heard of it, planned, and had the rules in place."""
    events = [event for event in live.controller.events() if event.at_s > at_s]
    first = {kind: next(event.at_s - at_s for event in events if event.kind == kind) for kind in ("port", "planned")}
    return {**first, "installed": max(event.at_s for event in events if event.kind == "installed") - at_s}


def crash(live: LiveFabric) -> dict[str, Any]:
    """Kill the controller under a stream, cut and mend a link it does not see, start it again: what was disturbed?"""
    source, destination = live.fabric.nic_at_ip["10.0.0.1"], live.fabric.nic_at_ip["10.0.0.2"]
    used = {live.fabric.link_at[port] for port in planned_path(live.plan, live.fabric, source, destination)}
    unused = next(link for link in live.fabric.links if link.tier is Tier.UPLINK and link not in used)
    before = dump(live)
    stream = Stream(live, source, destination)
    with stream.running():
        until(lambda: len(stream.arrived_s) > 100, "packets before the crash")
        live.controller.kill()
        set_link(live, unused, up=False)
        time.sleep(0.5)
        live.controller.restart()
        settle_after_restart = time.monotonic()
        live.controller.wait_ready(SETTLE_TIMEOUT_S)
        settle(live, {unused})
        ready_s = time.monotonic() - settle_after_restart
        events = live.controller.events()
        time.sleep(0.5)
    set_link(live, unused, up=True)
    settle(live, set())
    live.emulation.switches.settle_counters()
    counted = [
        rule.packets for rule in live.controller.rules()
        if rule.switch == live.fabric.leaf_of(source).name and rule.destination == destination.ip
    ]  # fmt: skip
    seen = {
        "sent": stream.sent,
        "arrived": len(stream.arrived_s),
        "counted": max(counted),
        "ready_s": ready_s,
        "read": sum(event.details["rules"] for event in events if event.kind == "read"),
        "messages": sum(event.details["messages"] for event in events if event.kind == "round"),
        "rules": live.plan.rule_count,
        "same_after": dump(live) == before,
        "flows_kept": live.emulation.switches._control("upcall/show"),
        "port": str(Port(unused.a.node, unused.a.number)),
    }
    return {**seen, "outage": outage(live, source, destination)}


def outage(live: LiveFabric, source: Nic, destination: Nic) -> dict[str, int]:
    """Cut a host off, and let its link return while a stream is sent to it: where did each packet go?"""
    link = live.fabric.link_at[destination.port]
    set_link(live, link, up=False)
    settle(live, {link})

    def dropped() -> int:
        return sum(found.unreachable_packets for found in live.controller.counters().values())

    before = dropped()
    stream = Stream(live, source, destination)
    with stream.running():
        until(lambda: dropped() - before > 100, "packets that switches drop")
        set_link(live, link, up=True)
        settle(live, set())
        until(lambda: len(stream.arrived_s) > 100, "packets after the link has returned")
    return {"sent": stream.sent, "arrived": len(stream.arrived_s), "dropped": dropped() - before}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
