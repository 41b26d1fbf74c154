"""htsim's topology files as topologies of this program: fat-trees of two or three tiers. Pure.

Keys as in htsim's reader (github.com/Broadcom/csg-htsim, sim/datacenter/fat_tree_topology.cpp), in upper or lower case:
tier 0 are leaves, tier 1 spines, tier 2 cores; radices are links of a switch down and up, ``Podsize`` is the hosts of a
pod, ``Bundle`` the links between each two switches. Spine *s* of a pod has its links to the cores of group *s*.

What the builder ``fat_tree`` can make is one of its topologies. Rates and delays of each tier, bundles of links to
cores and delays of switches make a free form. A switch's delay is in its links, half in each of the two that a packet
takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric.config import note_file, read_text
from fabric.errors import ConfigError
from fabric.model.identity import MAX_HOSTS_PER_GROUP, NodeId, Role
from topologies.keys import size_faults

SUFFIX = ".topo"
_MTU = 4200
_MOST, _MOST_DIGITS = 10**9, 20
_SHOWN = 80
_NEEDED = {
    0: ("Downlink_speed_Gbps", "Radix_Down", "Radix_Up", "Downlink_Latency_ns"),
    1: ("Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns"),
    2: ("Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns"),
}
_QUEUES = ("Queue_Up", "Queue_Down")
_KEYS = {key.lower(): key for key in (*_NEEDED[0], "Switch_Latency_ns", "Oversubscribed", "Bundle", *_QUEUES)}
_HEADER = {key.lower(): key for key in ("Nodes", "Tiers", "Podsize")}
_Found = dict[str, int]


def read_topology_file(path: Path) -> dict[str, Any]:
    """Return a topology, as its YAML file would have it. Raises ConfigError with every line that cannot be had."""
    note_file(path)
    return topology_of(read_text(path, "an htsim topology file"), str(path))


def topology_of(text: str, source: str) -> dict[str, Any]:
    """Return the topology that a file describes; see :func:`read_topology_file`."""
    header, tiers, faults = _lines(text)
    faults = faults or [*_missing(header, tiers)]
    if not faults:
        shape = _Shape.of(header, tiers)
        faults = [*_unplayable(header, tiers), *_uneven(shape, header, tiers), *_too_large(shape, tiers)]
    if faults:
        raise ConfigError(source, faults)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", Path(source).stem) or "htsim"
    made = _free_form(shape, tiers) if _needs_free_form(tiers) else _fat_tree(shape, tiers)
    return {"name": name, **made, **_rates(tiers)}


def _lines(text: str) -> tuple[_Found, dict[int, _Found], list[str]]:
    """Return what a file says before its tiers and of each, and the lines that cannot be read."""
    header: _Found = {}
    tiers: dict[int, _Found] = {}
    faults: list[str] = []
    current = header
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if words[0].lower() == "topology":  # As forks begin their files of other shapes.
            return {}, {}, [f"line {number}: {line.strip()!r}: only fat-trees can be read; write others as free_form"]
        known = {"tier": "Tier"} | (_HEADER if current is header else _KEYS)
        key = known.get(words[0].lower())
        if key is None or len(words) != 2 or not _is_whole(words[1]):
            choice = ", ".join(sorted(known.values()))
            shown = line.strip()[:_SHOWN]
            faults.append(f"line {number}: {shown!r}: must be one of {choice}, and a number up to {_MOST:,}")
        elif key == "Tier":
            if int(words[1]) in tiers:
                faults.append(f"line {number}: {line.strip()!r}: is there twice; put both together")
            current = tiers.setdefault(int(words[1]), {})
        elif key in current:
            faults.append(f"line {number}: {line.strip()!r}: {key} is {current[key]} above; remove one")
        else:
            current[key] = int(words[1])
    return header, tiers, faults


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text) <= _MOST


def _missing(header: _Found, tiers: dict[int, _Found]) -> Iterator[str]:
    for name in ("Nodes", "Tiers"):
        if name not in header:
            yield f"{name}: is missing; add it"
    for name in ("Nodes", "Podsize"):
        if header.get(name) == 0:
            yield f"{name} 0: must be at least 1"
    if header.get("Nodes", 0) > MAX_HOSTS_PER_GROUP:
        yield f"Nodes {header['Nodes']}: exceeds {MAX_HOSTS_PER_GROUP}, the most that addresses allow; use fewer"
    if header.get("Tiers") not in (2, 3):
        yield f"Tiers {header.get('Tiers')}: fat-trees of 2 or 3 tiers can be had"
        return
    for tier in range(header["Tiers"]):
        for name in (*_NEEDED[tier], *(["Radix_Up"] if tier == 1 and header["Tiers"] == 3 else [])):
            if not tiers.get(tier, {}).get(name):
                yield f"Tier {tier}: {name}: is missing or 0; add it"
    for tier in sorted(set(tiers) - set(range(header["Tiers"]))):
        yield f"Tier {tier}: Tiers is {header['Tiers']}, counted from 0; remove it, or raise Tiers"


def _unplayable(header: _Found, tiers: dict[int, _Found]) -> Iterator[str]:
    """Yield what a topology of this program cannot have, or htsim neither."""
    top = header["Tiers"] - 1
    if "Radix_Up" in tiers[top]:
        yield f"Tier {top}: Radix_Up: the highest tier has no links up; remove it"
    for number, tier in tiers.items():
        for key in (key for key in _QUEUES if key in tier):
            yield f"Tier {number}: {key}: sizes of queues are keys of a run, such as queues.shared_limit; remove it"
        if tier.get("Bundle") == 0:
            yield f"Tier {number}: Bundle 0: must be at least 1"
    if tiers[0].get("Bundle", 1) > 1:
        yield "Tier 0: Bundle: a host has one link to its leaf, as in htsim; remove it"
    if header["Tiers"] == 2 and header.get("Podsize", header["Nodes"]) != header["Nodes"]:
        yield f"Podsize {header['Podsize']}: two tiers are one pod of all {header['Nodes']} nodes; set it to that"
    for number in range(top):
        yield from _oversubscription_fault(number, tiers[number], tiers[number + 1])


def _oversubscription_fault(number: int, tier: _Found, above: _Found) -> Iterator[str]:
    """Yield that a tier's oversubscription is neither that of its radices, which htsim's readers compare it with, nor
    that of its rates, which counts where those of two tiers differ."""
    by_radices = tier["Radix_Down"] / tier["Radix_Up"]
    by_rates = by_radices * tier["Downlink_speed_Gbps"] / above["Downlink_speed_Gbps"]
    asked = tier.get("Oversubscribed", by_rates)
    if asked in (by_radices, by_rates, tier["Radix_Down"] // tier["Radix_Up"]):
        return
    found = f"{by_rates:g}" if by_radices == by_rates else f"{by_rates:g} ({by_radices:g} by radices alone)"
    yield f"Tier {number}: Oversubscribed {asked}: by its radices and rates it is {found}; set it to that"


@dataclass(frozen=True)
class _Shape:
    """The counts of a fat-tree, as far as radices come out even. Without cores, ``cores`` is 0 and ``to_core`` 1."""

    nodes: int
    pods: int
    leaves: int
    spines: int
    cores: int
    to_spine: int
    to_core: int

    @classmethod
    def of(cls, header: _Found, tiers: dict[int, _Found]) -> _Shape:
        """Return the counts, by the formulae of htsim's reader."""
        nodes = header["Nodes"]
        leaves = nodes // tiers[0]["Radix_Down"]
        spines = leaves * tiers[0]["Radix_Up"] // tiers[1]["Radix_Down"]
        top = tiers[2] if header["Tiers"] == 3 else None
        cores = spines * tiers[1].get("Radix_Up", 0) // top["Radix_Down"] if top else 0
        pods = nodes // header.get("Podsize", nodes)
        return cls(nodes, pods, leaves, spines, cores, tiers[1].get("Bundle", 1), (top or {}).get("Bundle", 1))


def _uneven(shape: _Shape, header: _Found, tiers: dict[int, _Found]) -> Iterator[str]:
    """Yield what does not come out even, or is not what other lines come to."""
    faults = [
        f"{what}: {count} are not a multiple of {of}"
        for what, count, of in _divisions(shape, header, tiers)
        if count % of
    ]
    yield from faults
    if faults or shape.pods == 0:
        return
    of_pod = shape.spines // shape.pods
    yield from _bundle_fault(1, tiers[0]["Radix_Up"], of_pod, "spines of its pod", shape.to_spine)
    if shape.cores and not shape.cores % of_pod:
        of_spine = shape.cores // of_pod
        yield from _bundle_fault(2, tiers[1]["Radix_Up"], of_spine, "cores that each spine reaches", shape.to_core)


def _too_large(shape: _Shape, tiers: dict[int, _Found]) -> Iterator[str]:
    up = shape.leaves * tiers[0]["Radix_Up"] + shape.spines * tiers[1].get("Radix_Up", 0)
    switches = {"Tier 0": shape.leaves, "Tier 1": shape.spines, "Tier 2": shape.cores}
    yield from size_faults(switches, shape.nodes + up)


def _bundle_fault(tier: int, radix_up: int, switches: int, what: str, bundle: int) -> Iterator[str]:
    if bundle * switches == radix_up:
        return
    found = f"Tier {tier}: Bundle {bundle}: Radix_Up {radix_up} of tier {tier - 1} leads to {switches} {what}"
    right = f"set it to {radix_up // switches}" if switches and radix_up % switches == 0 else "change a radix"
    yield f"{found}; {right}"


def _divisions(shape: _Shape, header: _Found, tiers: dict[int, _Found]) -> Iterator[tuple[str, int, int]]:
    """Yield what must come out even: its name, how many, and of how many each part is."""
    pod = header.get("Podsize", header["Nodes"])
    yield "Nodes in pods", header["Nodes"], pod
    yield "hosts of a pod at leaves", pod, tiers[0]["Radix_Down"]
    up = pod // tiers[0]["Radix_Down"] * tiers[0]["Radix_Up"]
    yield "uplinks of a pod's leaves to spines", up, tiers[1]["Radix_Down"]
    if header["Tiers"] == 3:
        yield "uplinks of spines to cores", shape.spines * tiers[1]["Radix_Up"], tiers[2]["Radix_Down"]
        if of_pod := up // tiers[1]["Radix_Down"]:
            yield "cores at the spines of a pod", shape.cores, of_pod


def _rates(tiers: dict[int, _Found]) -> dict[str, Any]:
    nic_rate = f"{tiers[0]['Downlink_speed_Gbps']} Gbit/s"
    return {
        "nic_rate": nic_rate,
        "uplink_rate": f"{tiers[1]['Downlink_speed_Gbps']} Gbit/s",
        "link_delay": _delay(tiers, 0),
        "mtu": _MTU,
        "reference_nic_rate": nic_rate,
    }


def _delay(tiers: dict[int, _Found], tier: int) -> str:
    """Return the delay of a tier's links down: the link's own, and half of those of the switches at its ends."""
    below = tiers[tier - 1].get("Switch_Latency_ns", 0) if tier else 0
    switches_ns = tiers[tier].get("Switch_Latency_ns", 0) + below
    return f"{(tiers[tier]['Downlink_Latency_ns'] + switches_ns / 2) / 1000:.10g} us"


def _needs_free_form(tiers: dict[int, _Found]) -> bool:
    """Whether links between switches differ in more than their number at a leaf."""
    delays = {_delay(tiers, tier) for tier in tiers}
    rates = {tiers[tier]["Downlink_speed_Gbps"] for tier in tiers if tier}
    return len(delays) > 1 or len(rates) > 1 or tiers.get(2, {}).get("Bundle", 1) > 1


def _fat_tree(shape: _Shape, tiers: dict[int, _Found]) -> dict[str, Any]:
    ports = [tiers[0]["Radix_Down"] + tiers[0]["Radix_Up"], tiers[1]["Radix_Down"] + tiers[1].get("Radix_Up", 0)]
    found: dict[str, Any] = {
        "builder": "fat_tree",
        "pods": shape.pods,
        "leaves_per_pod": shape.leaves // shape.pods,
        "spines_per_pod": shape.spines // shape.pods,
        "uplinks_per_spine": shape.to_spine,
        "compute": shape.nodes,
    }
    if shape.cores:
        groups = max(1, shape.spines // shape.pods)
        found["cores"] = {"switches": shape.cores, "groups": groups, "links_per_spine": tiers[1]["Radix_Up"]}
        ports.append(tiers[2]["Radix_Down"])
    return {**found, "switch_ports": max(ports)}


def _free_form(shape: _Shape, tiers: dict[int, _Found]) -> dict[str, Any]:
    links: list[Any] = [
        f"{NodeId(Role.COMPUTE, 0, host)}-{_leaf(host // tiers[0]['Radix_Down'])}" for host in range(shape.nodes)
    ]
    of_pod = shape.leaves // shape.pods, shape.spines // shape.pods
    to_spine = {"count": shape.to_spine, "delay": _delay(tiers, 1)}
    for leaf in range(shape.leaves):
        first = leaf // of_pod[0] * of_pod[1]
        links += [{"a": _leaf(leaf), "b": _spine(spine), **to_spine} for spine in range(first, first + of_pod[1])]
    if shape.cores:
        rate = f"{tiers[2]['Downlink_speed_Gbps']} Gbit/s"
        to_core = {"count": shape.to_core, "delay": _delay(tiers, 2), "rate": rate}
        of_group = shape.cores // of_pod[1]
        for spine in range(shape.spines):
            first = spine % of_pod[1] * of_group
            links += [{"a": _spine(spine), "b": _core(core), **to_core} for core in range(first, first + of_group)]
    return {"builder": "free_form", "links": links}


def _leaf(index: int) -> str:
    return NodeId(Role.LEAF, 0, index).name


def _spine(index: int) -> str:
    return NodeId(Role.SPINE, 0, index).name


def _core(index: int) -> str:
    return NodeId(Role.CORE, None, index).name
