"""A synthetic result of known numbers: what a run on the small fabric would have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fabric.metrics import metrics_frame
from fabric.model.encoding import fabric_as_json
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Port, Tier
from fabric.results import FORMAT_VERSION, ResultWriter
from fabric.tables import Table
from tests.rows import table_of
from topologies.load import load_fabric

PERIOD_S = 0.5
SHARES = {"hfreduce": 0.40, "nccl": 0.15, "storage": 0.35, "other": 0.05, "control": 0.05}
PHASES = [
    # name, title, queueing, the fraction of the NIC that each service level delivers
    ("hfreduce_alone", "Allreduce alone", "lanes", {"hfreduce": 0.90}),
    ("storage_alone", "Storage reads alone", "lanes", {"storage": 0.80}),
    ("mixed_shared", "Allreduce beside storage, one queue", "shared", {"hfreduce": 0.25, "storage": 0.70}),
    ("mixed_lanes", "Allreduce beside storage, a lane each", "lanes", {"hfreduce": 0.50, "storage": 0.45}),
    (
        "incast",
        "Storage incast without request-to-send",
        "lossless_lanes",
        {"hfreduce": 0.50, "storage": 0.40, "other": 0.05},
    ),
]
CHECKS = [
    {
        "name": name,
        "status": "faithful",
        "value": value,
        "faithful_up_to": faithful,
        "invalid_beyond": invalid,
        "text": f"{name} is {value}",
    }
    for name, value, faithful, invalid in (
        ("cpu_busy_fraction", 0.58, 0.95, 0.99),
        ("switch_cpu_fraction", 0.47, 0.90, 0.97),
        ("lateness_p99_s", 0.0018, 0.005, 0.025),
    )
]
PHASE_S = 10.0
GAP_S = 1.0


@dataclass
class Recipe:
    """What to write differently from the usual result. ``summary`` and ``own`` are of an experiment itself: keys of its
    summary, and rows of its ``own_tables``; ``config`` are keys that it was set."""

    fabric: str = "fire_flyer_2_small"
    experiment: str = "storage_interference"
    experiment_folder: str | None = None
    seed: int = 7
    engine: str = "namespace"
    verdict: dict[str, Any] = field(default_factory=lambda: {"status": "faithful", "reasons": []})
    metrics: dict[str, float] | None = None
    without: tuple[str, ...] = ()
    format_version: int = FORMAT_VERSION
    summary: Mapping[str, Any] = field(default_factory=dict)
    own_tables: Mapping[str, Table] = field(default_factory=dict)
    own: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def phase_records() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "title": title,
            "queueing": queueing,
            "started_s": number * (PHASE_S + GAP_S),
            "ended_s": number * (PHASE_S + GAP_S) + PHASE_S,
        }
        for number, (name, title, queueing, _) in enumerate(PHASES)
    ]


def _samples() -> list[float]:
    return [number * PERIOD_S for number in range(int(PHASE_S / PERIOD_S) + 1)]


def _ports_table(fabric: Fabric) -> pd.DataFrame:
    return table_of("ports", _port_rows(fabric))


def _port_rows(fabric: Fabric) -> Iterator[tuple[Any, ...]]:
    """Every NIC and every leaf's port to a host carries its phase's load; other ports half of it."""
    random = np.random.default_rng(1)
    sent: dict[tuple[str, str], float] = {}
    for phase, (_, _, queueing, load) in zip(phase_records(), PHASES, strict=True):
        lanes = {lane: load.get(lane, 0.0) for lane in SHARES}
        if queueing == "shared":
            lanes = {"shared": sum(load.values())}
        for port, link in fabric.directed_ports():
            part = {Tier.ACCESS: 1.0, Tier.UPLINK: 0.5, Tier.INTER_ZONE: 0.05}[link.tier]
            queued = 40_000 if link.tier is Tier.ACCESS and port.node.is_switch else 3_000
            for lane, share in lanes.items():
                start = sent.get((str(port), lane), 0.0)
                for after in _samples():
                    total = start + after * share * part * link.rate_bps / 8
                    backlog = int(queued * share * random.exponential()) if share and after else 0
                    yield phase["started_s"] + after, str(port), lane, round(total), round(total / 1500), 0, backlog, 0
                sent[str(port), lane] = total


def congested_ports(fabric: Fabric) -> dict[Port, tuple[Port, float]]:
    """What stands still in the last phase: for what part of the time, and which port holds what each waits for.

    A leaf's first port to a host is full; what is in the spine before it waits, and so do uplinks of the zone's other
    leaves to that spine, and the hosts behind them.
    """

    def facing(switch: NodeId, role: Role) -> list[Port]:
        sending = (fabric.peer(port) for port in fabric.ports_of[switch])
        return [port for port in sending if port.node.role is role]

    full = facing(fabric.computes[0], Role.LEAF)[0]
    down = facing(full.node, Role.SPINE)[0]
    ups = [port for port in facing(down.node, Role.LEAF) if port.node != full.node]
    found = {down: (full, 0.5), **dict.fromkeys(ups, (down, 0.7))}
    return found | {nic: (up, 0.3) for up in ups for nic in facing(up.node, Role.COMPUTE)}


def _stalls_table(fabric: Fabric) -> pd.DataFrame:
    phase, still = phase_records()[-1], congested_ports(fabric)
    rows = [
        (phase["started_s"] + after, str(port), lane, round(1_000 * spent), round(1e9 * spent), 0, 0)
        for port, _ in fabric.directed_ports()
        for lane in SHARES
        for after in _samples()
        for spent in [after * still[port][1] if port in still and lane == "storage" else 0.0]
    ]
    return table_of("stalls", rows)


def _waits_table(fabric: Fabric) -> pd.DataFrame:
    phase = phase_records()[-1]
    rows = [
        (phase["started_s"] + after, str(holder), "storage", str(fabric.peer(port)), "storage", 60_000)
        for port, (holder, _) in congested_ports(fabric).items()
        for after in _samples()
    ]
    return table_of("waits", rows)


def _flows_table(fabric: Fabric) -> pd.DataFrame:
    hosts = [host.name for host in fabric.computes]
    rows = []
    for phase, (_, _, _, load) in zip(phase_records(), PHASES, strict=True):
        for number, host in enumerate(hosts):
            for level, share in load.items():
                for after in _samples():
                    acked = round(after * share * fabric.nic_rate_bps / 8)
                    at = phase["started_s"] + after
                    rows.append((at, phase["name"], level, host, hosts[number - 1], 0.004, 0, acked))
    return table_of("flows", rows)


def _steps_table() -> pd.DataFrame:
    random = np.random.default_rng(2)
    rows = []
    for phase, (name, _, _, load) in zip(phase_records(), PHASES, strict=True):
        at = phase["started_s"]
        for step in range(20 if "hfreduce" in load else 0):
            took = 0.2 / load["hfreduce"] * random.uniform(0.9, 1.2)
            rows.append((name, "hfreduce", step, 12, 200_000, at, at + took))
            at += took
    return table_of("steps", rows)


def _rank_steps_table(fabric: Fabric) -> pd.DataFrame:
    """Each rank begins and ends within the step, the first and the last as it does."""
    hosts, rows = fabric.computes[:12], []
    for step in _steps_table().to_dict("records"):
        share = (step["ended_s"] - step["started_s"]) / 100
        for place, host in enumerate(hosts):
            began, ended = step["started_s"] + place * share, step["ended_s"] - (11 - place) * share
            rows.append((step["phase"], "hfreduce", step["step"], host.name, began, ended))
    return table_of("rank_steps", rows)


def _operations_table(fabric: Fabric) -> pd.DataFrame:
    random = np.random.default_rng(3)
    rows = []
    for phase, (name, _, queueing, load) in zip(phase_records(), PHASES, strict=True):
        for number in range(300 if "storage" in load else 0):
            operation = "write" if number % 3 == 0 else "read"
            typical = 0.02 if queueing == "lanes" else 0.09
            took = typical * random.lognormal(0, 0.6) * (2 if operation == "write" else 1)
            at = phase["started_s"] + number / 40
            host = fabric.storages[number % len(fabric.storages)].name
            peer = fabric.computes[number % len(fabric.computes)].name
            rows.append((name, "storage", operation, host, peer, 65536, at, at + took, 0))
    return table_of("operations", rows)


def _jobs_table() -> pd.DataFrame:
    """In the phase ``mixed_lanes`` storage plays twice, while HFReduce plays to a little after its end."""
    began = next(phase["started_s"] for phase in phase_records() if phase["name"] == "mixed_lanes")
    windows = [("hfreduce", 0.0, PHASE_S), ("storage", 2.0, 6.0), ("storage", 7.0, 9.0)]
    rows = [("mixed_lanes", job, job, began + start, began + end - 0.1, began + end, "") for job, start, end in windows]
    return table_of("jobs", rows)


def _machine_table() -> pd.DataFrame:
    random = np.random.default_rng(4)
    at = np.arange(0, len(PHASES) * (PHASE_S + GAP_S), PERIOD_S)
    return pd.DataFrame(
        {
            "at_s": at,
            "cpu_busy_fraction": random.uniform(0.3, 0.6, len(at)),
            "switch_cpu_fraction": random.uniform(0.2, 0.5, len(at)),
            "lateness_s": random.exponential(0.0004, len(at)),
            "host_lateness_s": random.exponential(0.002, len(at)),
            "input_queue_bytes": random.integers(0, 9000, len(at)),
            "input_wait_s": np.zeros(len(at)),
            "softnet_drops": np.zeros(len(at), dtype=int),
            "softnet_backlog": np.zeros(len(at), dtype=int),
            "softnet_squeezed": np.zeros(len(at), dtype=int),
            "clock_offset_s": np.full(len(at), 1.8e9),
            "stolen_s": np.zeros(len(at)),
        }
    )


def _manifest(recipe: Recipe) -> dict[str, Any]:
    return {
        "format_version": recipe.format_version,
        "experiment": recipe.experiment,
        "experiment_folder": recipe.experiment_folder,
        "engine": recipe.engine,
        "seed": recipe.seed,
        "verdict": {**recipe.verdict, "checks": CHECKS},
        "phases": phase_records(),
        "versions": {"python": "3.11.2", "openvswitch": "3.1.0", "kernel": "6.1.0"},
        "machine": {"cpu": "2 cores", "memory_bytes": 8 * 2**30},
    }


def _summary(recipe: Recipe) -> dict[str, Any]:
    return {
        "title": "Do lanes keep storage from slowing allreduce?",
        "answer": "With one queue, storage takes 72 % of allreduce's bandwidth; with lanes, 44 %.",
        "lane_shares": SHARES,
        "ideal_algbw_Bps": {"hfreduce": 1_250_000.0},
        "timeline": ["mixed_lanes"],
        "side_by_side": {
            "unit": "times alone",
            "queueings": ["shared", "lossless_lanes"],
            "panels": [{"title": "allreduce", "values": [0.5, 0.25], "theory": [0.5, 0.3]}],
            "drops_packets": [2125, 0],
        },
        "metrics": recipe.metrics or {"lanes.hfreduce.algbw_Bps": 500_000.0, "shared.hfreduce.algbw_Bps": 250_000.0},
        "tables": [
            {
                "title": "Median algbw of allreduce",
                "columns": ["queueing", "alone", "beside storage", "kept"],
                "rows": [["shared", "0.9 MB/s", "0.25 MB/s", 0.28], ["lanes", "0.9 MB/s", "0.5 MB/s", None]],
                "note": "Paper: lanes keep kinds of traffic apart (VI-A1) <b>not bold</b>.",
            }
        ],
        **recipe.summary,
    }


def write_result(directory: Path, recipe: Recipe) -> Path:
    fabric = load_fabric(recipe.fabric)
    writer = ResultWriter(directory, recipe.own_tables)
    writer.write_json("manifest.json", _manifest(recipe))
    writer.write_json("fabric.json", fabric_as_json(fabric))
    writer.write_json("summary.json", _summary(recipe))
    config = {"experiment": recipe.experiment, "topology": recipe.fabric, "phase": "10 s", **recipe.config}
    writer.write_yaml("config.yaml", config)
    if recipe.format_version > 1:
        writer.write_table("metrics", metrics_frame(_summary(recipe)["metrics"]))
    for name in _MAKERS:
        if name not in recipe.without:
            writer.write_table(name, _table(name, recipe.fabric))
    for name, frame in recipe.own.items():
        writer.write_table(name, frame)
    return directory


_MAKERS: dict[str, Callable[[Fabric], pd.DataFrame]] = {
    "ports": _ports_table,
    "stalls": _stalls_table,
    "waits": _waits_table,
    "machine": lambda fabric: _machine_table(),
    "flows": _flows_table,
    "steps": lambda fabric: _steps_table(),
    "rank_steps": _rank_steps_table,
    "operations": _operations_table,
    "jobs": lambda fabric: _jobs_table(),
}


@cache
def _table(name: str, fabric: str) -> pd.DataFrame:
    """Return a table of a run on a fabric; to make it takes longer than to write it."""
    return _MAKERS[name](load_fabric(fabric))
