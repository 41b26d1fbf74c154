"""htsim's topology files as topologies of this program: fat-trees of two or three tiers. Pure.

Keys as in htsim's reader (github.com/Broadcom/csg-htsim, sim/datacenter/fat_tree_topology.cpp): tier 0 are leaves, tier
1 spines, tier 2 cores; radices are links of a switch down and up, ``Podsize`` is the hosts of a pod, ``Bundle`` the
links between each two switches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.replay.connection_matrix import MOST_COUNT
from fabric.config import read_text
from fabric.errors import ConfigError

_MTU = 4200
_MOST_DIGITS = 20
_SHOWN = 80
_NEEDED = {
    0: ("Downlink_speed_Gbps", "Radix_Down", "Radix_Up", "Downlink_Latency_ns"),
    1: ("Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns"),
    2: ("Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns"),
}
_KEYS = frozenset({*_NEEDED[0], "Switch_Latency_ns", "Oversubscribed", "Bundle"})
_HEADER = ("Nodes", "Tiers", "Podsize")
_Found = dict[str, int]


def read_topology_file(path: Path) -> dict[str, Any]:
    """Return a topology, as its YAML file would have it. Raises ConfigError with every line that cannot be had."""
    return topology_of(read_text(path, "an htsim topology file"), str(path))


def topology_of(text: str, source: str) -> dict[str, Any]:
    """Return the topology that a file describes; see :func:`read_topology_file`."""
    header: _Found = {}
    tiers: dict[int, _Found] = {}
    faults: list[str] = []
    current = header
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        shown = f"line {number}: {line.strip()[:_SHOWN]!r}"
        known = _KEYS if current is not header else frozenset({*_HEADER, "Tier"})
        if len(words) != 2 or not _is_whole(words[1]) or words[0] not in {*known, "Tier"}:
            keys = ", ".join(sorted(known))
            faults.append(f"{shown}: must be one of {keys}, and a number up to {MOST_COUNT:,}")
        elif words[0] == "Tier":
            if int(words[1]) in tiers:
                faults.append(f"{shown}: is there twice; keep one of them")
            current = tiers.setdefault(int(words[1]), {})
        elif words[0] in current:
            faults.append(f"{shown}: {words[0]} is there twice; keep one of them")
        else:
            current[words[0]] = int(words[1])
    faults = faults or [*_missing(header, tiers)] or [*_unplayable(header, tiers)]
    if faults:
        raise ConfigError(source, faults)
    return _topology(header, tiers, Path(source).stem)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) <= MOST_COUNT


def _missing(header: _Found, tiers: dict[int, _Found]) -> Iterator[str]:
    for name in ("Nodes", "Tiers"):
        if name not in header:
            yield f"{name}: is missing; add it"
    for name in ("Nodes", "Podsize"):
        if header.get(name) == 0:
            yield f"{name} 0: must be 1 or more"
    if header.get("Tiers") not in (2, 3):
        yield f"Tiers {header.get('Tiers')}: fat-trees of 2 or 3 tiers can be had"
        return
    if beyond := sorted(tier for tier in tiers if tier >= header["Tiers"]):
        yield f"Tier {beyond[0]}: Tiers {header['Tiers']} are 0 to {header['Tiers'] - 1}; remove it, or raise Tiers"
    for tier, found in tiers.items():
        if found.get("Bundle") == 0:
            yield f"Tier {tier}: Bundle 0: must be 1 or more"
    for tier in range(header["Tiers"]):
        for name in (*_NEEDED[tier], *(["Radix_Up"] if tier == 1 and header["Tiers"] == 3 else [])):
            if not tiers.get(tier, {}).get(name):
                yield f"Tier {tier}: {name}: is missing or 0; add it"


def _unplayable(header: _Found, tiers: dict[int, _Found]) -> Iterator[str]:
    """Yield what a topology of this program cannot have, or what does not come out even."""
    if any(tier.get("Switch_Latency_ns") for tier in tiers.values()):
        yield "Switch_Latency_ns: switches have no delay of their own here; add it to Downlink_Latency_ns"
    if len({tier["Downlink_Latency_ns"] for tier in tiers.values()}) > 1:
        yield "Downlink_Latency_ns: differs between tiers; all links have one delay here"
    if len({tier["Downlink_speed_Gbps"] for number, tier in tiers.items() if number}) > 1:
        yield "Downlink_speed_Gbps: differs between tiers 1 and 2; links between switches have one rate here"
    if tiers[0].get("Bundle", 1) > 1 or tiers.get(2, {}).get("Bundle", 1) > 1:
        yield "Bundle: can be had between leaves and spines (tier 1) only"
    down, up = (tiers[0]["Radix_Down"] * tiers[0]["Downlink_speed_Gbps"], tiers[0]["Radix_Up"])
    wanted = down / (up * tiers[1]["Downlink_speed_Gbps"])
    if tiers[0].get("Oversubscribed", wanted) != wanted:
        yield f"Tier 0: Oversubscribed {tiers[0]['Oversubscribed']}: by its radices and rates it is {wanted:g}"
    for what, count, of in _divisions(header, tiers):
        if count % of:
            yield f"{what}: {count} are not a multiple of {of}"


def _divisions(header: _Found, tiers: dict[int, _Found]) -> Iterator[tuple[str, int, int]]:
    """Yield what must come out even: its name, how many, and of how many each part is."""
    pod = header.get("Podsize", header["Nodes"])
    yield "Nodes in pods", header["Nodes"], pod
    yield "hosts of a pod at leaves", pod, tiers[0]["Radix_Down"]
    yield (
        "uplinks of a pod's leaves to spines",
        pod // tiers[0]["Radix_Down"] * tiers[0]["Radix_Up"],
        tiers[1]["Radix_Down"],
    )
    if header["Tiers"] == 3:
        yield "uplinks of spines to cores", _spines(header, tiers) * tiers[1]["Radix_Up"], tiers[2]["Radix_Down"]


def _spines(header: _Found, tiers: dict[int, _Found]) -> int:
    leaves = header["Nodes"] // tiers[0]["Radix_Down"]
    return leaves * tiers[0]["Radix_Up"] // tiers[1]["Radix_Down"]


def _topology(header: _Found, tiers: dict[int, _Found], name: str) -> dict[str, Any]:
    pods = header["Nodes"] // header.get("Podsize", header["Nodes"])
    leaves, spines = header["Nodes"] // tiers[0]["Radix_Down"], _spines(header, tiers)
    ports = [tiers[0]["Radix_Down"] + tiers[0]["Radix_Up"], tiers[1]["Radix_Down"] + tiers[1].get("Radix_Up", 0)]
    found: dict[str, Any] = {
        "name": name,
        "builder": "fat_tree",
        "pods": pods,
        "leaves_per_pod": leaves // pods,
        "spines_per_pod": spines // pods,
        "uplinks_per_spine": tiers[1].get("Bundle", 1),
        "compute": header["Nodes"],
        "nic_rate": f"{tiers[0]['Downlink_speed_Gbps']} Gbit/s",
        "uplink_rate": f"{tiers[1]['Downlink_speed_Gbps']} Gbit/s",
        "link_delay": tiers[0]["Downlink_Latency_ns"] * 1e-9,
        "mtu": _MTU,
        "reference_nic_rate": f"{tiers[0]['Downlink_speed_Gbps']} Gbit/s",
    }
    if header["Tiers"] == 3:
        cores = spines * tiers[1]["Radix_Up"] // tiers[2]["Radix_Down"]
        groups = max(1, spines // pods)
        found["cores"] = {"switches": cores, "groups": groups, "links_per_spine": tiers[1]["Radix_Up"]}
        ports.append(tiers[2]["Radix_Down"])
    return {**found, "switch_ports": max(ports)}
