"""A result of the whole fabric, 122 switches and thousands of links, of made-up samples: for how fast the page is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fabric.results import ResultWriter
from tests.rows import table_of, whole
from tests.synthetic_result import SHARES, Recipe, phase_records, write_result
from topologies.load import load_fabric

FULL = "fire_flyer_2"
SAMPLES = 24
PERIOD_S = 0.1
PHASES = (4,)
"""Of the synthetic result's phases, those that are sampled: that of lossless lanes."""
FULL_PORTS = 40
"""Ports of leaves to hosts that are the roots of congestion trees."""


def write_full_result(directory: Path) -> Path:
    """Write the result of a run on the whole fabric."""
    write_result(directory, Recipe(fabric=FULL, without=("ports", "stalls", "waits", "flows", "operations", "machine")))
    writer = ResultWriter(directory)
    for name, frame in _tables().items():
        writer.write_table(name, frame)
    return directory


def _tables() -> dict[str, pd.DataFrame]:
    fabric = load_fabric(FULL)
    found = list(fabric.directed_ports())
    ports, rates = [str(port) for port, _ in found], np.array([link.rate_bps for _, link in found])
    lanes = list(SHARES)
    waiting = _stalled_lanes(ports, [str(fabric.peer(port)) for port, _ in found])
    random = np.random.default_rng(5)
    sampled, stalls, waits = [], [], []
    for number in PHASES:
        at_s = phase_records()[number]["started_s"] + PERIOD_S * np.arange(SAMPLES)
        shape = SAMPLES, len(ports), len(lanes)
        used = random.uniform(0, 0.2, shape) * rates[None, :, None] / 8 * PERIOD_S
        columns = {
            "at_s": np.repeat(at_s, len(ports) * len(lanes)),
            "port": _repeated(ports, len(lanes), SAMPLES),
            "lane": _named(np.tile(np.arange(len(lanes)), SAMPLES * len(ports)), lanes),
        }
        sent = np.cumsum(used, axis=0).astype(np.int64).ravel()
        backlog = (random.exponential(9000, shape) * (random.uniform(size=shape) < 0.3)).astype(np.int64).ravel()
        drops = np.cumsum(random.poisson(0.01, shape), axis=0).ravel()
        sampled.append(
            whole(
                "ports",
                {
                    **columns,
                    "sent_bytes": sent,
                    "sent_packets": sent // 1500,
                    "drops_packets": drops,
                    "backlog_bytes": backlog,
                },
            )
        )
        if number == PHASES[-1]:
            stalls.append(_stalls(columns, shape, ports, lanes, waiting))
            waits.append(_waits(at_s, waiting))
    return {"ports": pd.concat(sampled), "stalls": pd.concat(stalls), "waits": pd.concat(waits)}


def _repeated(names: list[str], each: int, times: int) -> pd.Categorical:
    return _named(np.tile(np.repeat(np.arange(len(names)), each), times), names)


def _named(codes: np.ndarray[Any, Any], names: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(codes, pd.Index(names))  # type: ignore[arg-type]


def _stalled_lanes(ports: list[str], peers: list[str]) -> dict[str, str]:
    """Return, of ports that wait for some full ones, which each waits for."""
    leaf_ports = [port for port, peer in zip(ports, peers, strict=True) if "l" in port.split(":")[0] and "h" in peer]
    roots = leaf_ports[:: max(1, len(leaf_ports) // FULL_PORTS)]
    towards: dict[str, str] = {}
    for port, peer in zip(ports, peers, strict=True):
        for root in roots:
            if peer.split(":")[0] == root.split(":")[0] and "s" in port.split(":")[0] and port not in towards:
                towards[port] = root
    return towards


def _stalls(
    columns: dict[str, object], shape: tuple[int, int, int], ports: list[str], lanes: list[str], waiting: dict[str, str]
) -> pd.DataFrame:
    stalled = np.zeros(shape, np.int64)
    where = [place for place, port in enumerate(ports) if port in waiting]
    stalled[:, where, lanes.index("storage")] = (0.5e9 * PERIOD_S * np.arange(SAMPLES))[:, None]
    return whole("stalls", {**columns, "stalls": stalled.ravel() // 1000, "stalled_ns": stalled.ravel()})


def _waits(at_s: np.ndarray[Any, Any], waiting: dict[str, str]) -> pd.DataFrame:
    fabric = load_fabric(FULL)
    peer_of = {str(port): str(fabric.peer(port)) for port, _ in fabric.directed_ports()}
    rows = [(at, root, "storage", peer_of[port], "storage", 60_000) for at in at_s for port, root in waiting.items()]
    return table_of("waits", rows)
