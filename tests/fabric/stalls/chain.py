"""A chain of lossless ports in made-up tables: a and b send through two switches to x, which is full, and y, idle.

``a:0`` and ``b:0`` lead to switch s, ``s:3`` to switch t, ``t:1`` to host x, ``t:2`` to host y. All links carry
8,000 bit/s, or 1,000 bytes a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fabric.results import Phase
from fabric.stalls.congestion_trees import PortLane
from fabric.stalls.intervals import LinkDirection, Moment, StalledTime, moments, stalled_time
from fabric.tables import TABLES
from tests.rows import table_of

PHASE = Phase("p", "A phase", "lossless", 10.0, 14.0)
LANE = "lossless"
WIRES = {
    port: LinkDirection(peer, 8_000)
    for end, other in (("a:0", "s:1"), ("b:0", "s:2"), ("s:3", "t:3"), ("t:1", "x:0"), ("t:2", "y:0"))
    for port, peer in ((end, other), (other, end))
}
HOSTS = ("a", "b", "x", "y")
FULL = {"a:0": (0.5, 0.5), "b:0": (0.5, 0.5), "s:3": (0.3, 0.6), "t:1": (0.0, 0.9), "t:2": (0.0, 0.1)}
"""What part of the time each port stands still, and sends, while x is full."""
HELD = {("s:1", "s:3"): 4_000, ("s:2", "s:3"): 4_000, ("t:3", "t:1"): 3_900, ("t:3", "t:2"): 100}
"""Bytes by where they came in and where they wait."""
Waits = Mapping[tuple[str, str], int]


def lane(port: str) -> PortLane:
    return PortLane(port, LANE)


def tables(
    stretches: Sequence[Mapping[str, tuple[float, float]]], held: Sequence[Waits]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return stalls, ports and waits of samples at 10, 11, ...: what ports did in between, and what waited at each."""
    stalled_ns, sent = dict.fromkeys(WIRES, 7.0), dict.fromkeys(WIRES, 5.0)
    stall_rows, port_rows, wait_rows = [], [], []
    for number, waiting in enumerate(held):
        at_s = PHASE.started_s + number
        for port in WIRES:
            stall_rows.append((at_s, port, LANE, round(stalled_ns[port] / 1e6), round(stalled_ns[port]), 0, 0))
            port_rows.append((at_s, port, LANE, round(sent[port]), 0, 0, 0, 0))
            if number < len(stretches):
                still, busy = stretches[number].get(port, (0.0, 0.0))
                stalled_ns[port] += still * 1e9
                sent[port] += busy * 1_000
        wait_rows += [(at_s, port, LANE, entered, LANE, size) for (entered, port), size in waiting.items()]
    rows: dict[str, list[tuple[Any, ...]]] = {"stalls": stall_rows, "ports": port_rows, "waits": wait_rows}
    made = {name: table_of(name, found).astype(TABLES[name].dtypes) for name, found in rows.items()}
    return made["stalls"], made["ports"], made["waits"]


def seen(
    stretches: Sequence[Mapping[str, tuple[float, float]]], held: Sequence[Waits]
) -> tuple[StalledTime, list[Moment]]:
    """Return what is told of such tables."""
    stalls, ports, waits = tables(stretches, held)
    time = stalled_time(stalls, ports, WIRES, PHASE)
    assert time is not None
    return time, list(moments(time, waits, WIRES))
