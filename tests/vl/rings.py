"""Three switches in a ring with routes that go around it, in a guest: a deadlock."""

from __future__ import annotations

import time

from fabric.model.lanes import PortLane
from fabric.stalls import waits
from fabric.stalls.waits import PortView
from tests.vl import lab as labs
from tests.vl.lab import Lab

RATE_BPS = 10_000_000_000


def ring() -> Lab:
    """Return hosts h1 to h3 at switches r1 to r3; from each host to the one before it the way is around the ring."""
    lab = Lab()
    port = labs.one_lane(RATE_BPS, credit_bytes=8 * labs.FRAME_BYTES, delay_ns=100, return_ns=100)
    for i in (1, 2, 3):
        lab.add_host(f"h{i}")
        lab.link(f"h{i}", f"r{i}", port)
    for i in (1, 2, 3):
        lab.link(f"r{i}", f"r{i % 3 + 1}", port)
    lab.give_addresses()
    rules: dict[str, list[str]] = {f"r{i}": [] for i in (1, 2, 3)}
    for i in (1, 2, 3):
        for j in (1, 2, 3):
            way = f"{{r{i}-h{i}}}" if i == j else f"{{r{i}-r{i % 3 + 1}}}"
            rules[f"r{i}"].append(f"ip,nw_dst={lab.ip(f'h{j}')},actions=output:{way}")
    lab.switch(rules)
    return lab


def views(lab: Lab) -> dict[str, PortView]:
    """Return all ports as they are now."""
    return {
        name: PortView(lab.interfaces[name].node, "-".join(reversed(name.split("-"))), stats)
        for name, stats in lab.stats().items()
    }


def flooded(hosts: int) -> dict[str, object]:
    """Flood from ``hosts`` of the hosts to the one before each; return the deadlocks found and what went on."""
    lab = ring()
    sinks = [lab.udp(f"h{i}") for i in (1, 2, 3)]
    for i in range(1, hosts + 1):
        labs.flood(lab, f"h{i}", f"h{(i + 1) % 3 + 1}", 10**9)
    found: list[tuple[PortLane, ...]] = []
    for _ in range(20):
        time.sleep(0.0005)
        found = waits.deadlocks(views(lab))
        if found:
            break
    before = sum(stats.lanes[0].sent_packets for stats in lab.stats().values())
    time.sleep(0.002)
    after = lab.stats()
    for sink in sinks:
        sink.close()
    return {
        "cycles": [[str(lane) for lane in cycle] for cycle in found],
        "words": [waits.describe(cycle) for cycle in found],
        "sent_since": sum(stats.lanes[0].sent_packets for stats in after.values()) - before,
        "dropped_bytes": sum(stats.dropped_bytes() for stats in after.values()),
        "stalled": sorted(name for name, stats in after.items() if stats.lanes[0].stalled_since_ns),
    }
