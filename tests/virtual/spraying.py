"""Packets of one flow over a leaf's uplinks in a guest, by each policy that sprays: with all links, as one has just
failed, and once switches have new routes. ``spraying.py REPORT``."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controllers.planning.policies import ENTROPY, ROUND_ROBIN, SPRAY
from controllers.routing import Repair, Routing
from fabric.measure.census import lane_counters
from fabric.model.identity import Role
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric, Nic, Port
from fabric.world import inside
from fabric.world.isolation import netns
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Netlink
from runs.live import LiveFabric, bring_up
from topologies.load import load_fabric

_PACKETS = 4000
_BYTES = 200
_APART_S = 20e-6
_REST_S = 0.05
_PATIENCE_S = 30.0
_PORT = 9
_ROUTINGS = (
    Routing(policy=SPRAY, repair=Repair.FAST_FAILOVER),
    Routing(policy=ROUND_ROBIN, repair=Repair.REROUTE),
    Routing(policy=ENTROPY, repair=Repair.WAIT),
)


def _ends(fabric: Fabric) -> tuple[Nic, Nic, tuple[Port, ...]]:
    """Return two NICs of one zone on two leaves, and the uplinks of the first's."""
    leaf = fabric.with_role(Role.LEAF)[0]
    source = next(nic for nic in fabric.nics if fabric.leaf_of(nic) == leaf)
    sink = next(
        nic for nic in fabric.nics if nic.zone == source.zone and nic.node.role == source.node.role
        and fabric.leaf_of(nic) != leaf
    )  # fmt: skip
    return source, sink, fabric.uplinks_of(leaf)


def _sent(live: LiveFabric, ports: tuple[Port, ...], work: Callable[[], object]) -> list[int]:
    """Return how many packets each port sends meanwhile."""
    before = lane_counters(live.emulation)
    work()
    time.sleep(_REST_S)
    after = lane_counters(live.emulation)
    lanes = [lane.name for lane in live.emulation.lane_plan.lanes]
    return [sum(after[port, lane] - before[port, lane] for lane in lanes) for port in ports]


def _send(live: LiveFabric, source: Nic, sink: Nic) -> int:
    """Send packets of one flow, and return how many arrive."""
    with netns.inside(netns.netns_path(sink.node.name)):
        receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiving.setsockopt(socket.SOL_SOCKET, 33, 1 << 25)  # SO_RCVBUFFORCE
        receiving.bind((sink.ip, _PORT))
        receiving.setblocking(False)
    with netns.inside(netns.netns_path(source.node.name)):
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sending.bind((source.ip, 0))
    for _ in range(_PACKETS):
        sending.sendto(bytes(_BYTES), (sink.ip, _PORT))
        time.sleep(_APART_S)
    time.sleep(_REST_S)
    arrived = 0
    try:
        while receiving.recv(_BYTES):
            arrived += 1
    except BlockingIOError:
        pass
    sending.close()
    receiving.close()
    return arrived


def _set(live: LiveFabric, port: Port, up: bool) -> None:
    with Netlink() as link:
        index = live.emulation.indices[port]
        link.send([netlink.link_state(index, port.interface, up=up)])


def _wait_for_links_down(live: LiveFabric, count: int) -> None:
    """Wait until the controller's routes are for so many links less."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        state = live.controller.state()
        if state.ready and len(state.links_down) == count:
            return
        time.sleep(0.01)
    raise AssertionError(f"switches had no routes for {count} links less within {_PATIENCE_S} s")


def _played(live: LiveFabric) -> dict[str, Any]:
    """Return what the uplinks send, and what arrives, with all links, with one that has just failed, and after that."""
    source, sink, uplinks = _ends(live.fabric)
    arrived: dict[str, int] = {}

    def work(what: str) -> Callable[[], object]:
        return lambda: arrived.update({what: _send(live, source, sink)})

    found: dict[str, Any] = {"whole": _sent(live, uplinks, work("whole"))}
    if live.routing.repair is not Repair.WAIT:
        _set(live, uplinks[0], up=False)
        found["failing"] = _sent(live, uplinks, work("failing"))
        _wait_for_links_down(live, 1)
        found["failed"] = _sent(live, uplinks, work("failed"))
        _set(live, uplinks[0], up=True)
        _wait_for_links_down(live, 0)
    return {**found, "arrived": arrived}


def main() -> None:
    inside.set_up()
    logs = inside.RUN_DIR / "logs"
    logs.mkdir()
    fabric = load_fabric("fire_flyer_2_small", ["nic_rate=1 Gbit/s", "uplink_rate=1 Gbit/s"])
    report = {}
    with bring_up(fabric, plan_lanes(QueueConfig(), Queueing.SHARED), logs, lambda _: None, _ROUTINGS[0]) as live:
        for routing in _ROUTINGS:
            live.use_routing(routing)
            report[routing.policy.name] = _played(live)
    Path(sys.argv[1]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
