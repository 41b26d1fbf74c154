"""containerlab's files of labs (``NAME.clab.yml``) as free forms: which nodes there are, and how they are linked. Pure.

A node is a host or a switch by its kind (:data:`HOST_KINDS`, :data:`SWITCH_KINDS`), or as its label ``fabric`` says:
``host``, ``storage`` or ``switch``. Kinds and labels may be those of its group, of its kind, or the lab's defaults.
What a fabric has no place for is left out and listed (:func:`left_out`): images, addresses, links that leave the lab.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric.errors import ConfigError
from topologies.own_names import HOST, KINDS, SWITCH

SUFFIXES = (".clab.yml", ".clab.yaml")
LABEL = "fabric"
"""Of a node: what it is here."""
HOST_KINDS = frozenset(
    {
        *("linux", "host", "ext-container", "k8s-kind", "generic_vm", "freebsd", "openbsd", "border0", "mysocketio"),
        *("keysight_ixia-c-one", "ostinato"),
    }
)
SWITCH_KINDS = frozenset(
    {
        *("bridge", "ovs-bridge", "srl", "nokia_srlinux", "nokia_sros", "nokia_srsim", "sros", "ceos", "arista_ceos"),
        *("veos", "arista_veos", "crpd", "juniper_crpd", "juniper_vmx", "juniper_vqfx", "juniper_vsrx", "vmx", "vqfx"),
        *("juniper_vjunosrouter", "juniper_vjunosswitch", "juniper_vjunosevolved", "juniper_cjunosevolved", "xrd"),
        *("cisco_xrd", "cisco_xrv", "cisco_xrv9k", "cisco_csr1000v", "cisco_csr", "cisco_n9kv", "cisco_nxos"),
        *("cisco_iol", "cisco_c8000", "cisco_c8000v", "cisco_cat9kv", "cisco_vios", "cisco_asav", "cisco_ftdv"),
        *("cisco_sdwan", "xrv", "xrv9k", "csr", "nxos", "n9kv", "ros", "pan", "ftosv"),
        *("sonic-vs", "sonic-vm", "dell_sonic", "dell_ftosv", "cvx", "cumulus_cvx", "aruba_aoscx", "mikrotik_ros"),
        *("huawei_vrp", "ipinfusion_ocnos", "arrcus_arcos", "vyosnetworks_vyos", "6wind_vsr", "rare", "openwrt"),
        *("fdio_vpp", "checkpoint_cloudguard", "fortinet_fortigate", "paloalto_panos", "f5_bigip-ve"),
    }
)
"""Kinds that forward packets, firewalls among them; all may have ``vr-`` before them."""
_OF_VM = "vr-"
_OUTSIDE = ("host", "mgmt-net", "macvlan", "vxlan", "vxlan-stitch", "dummy")
"""Types of links that leave the lab; the short format has them in place of a node."""
_NODE_KEYS, _LINK_KEYS = {"kind", "group", "labels"}, {"type", "endpoints"}
_LAB_KEYS, _TOPOLOGY_KEYS = {"name", "topology"}, {"nodes", "links", "kinds", "groups", "defaults"}
_RATE = "1 Gbit/s"
_KEYS = {"nic_rate": _RATE, "uplink_rate": _RATE, "mtu": 4200, "reference_nic_rate": _RATE}
"""What containerlab's files do not say."""


def is_lab(data: Mapping[str, Any], path: Path) -> bool:
    """Whether a YAML file is a lab: by its name, or by its nodes where topologies of ours have a builder."""
    topology = data.get("topology")
    has_nodes = isinstance(topology, Mapping) and "nodes" in topology
    return "builder" not in data and (has_nodes or path.name.endswith(SUFFIXES))


def topology_of(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the topology that a lab describes, as its YAML file would have it. Raises ConfigError with every fault."""
    return _Lab.read(data, source).topology(source)


def left_out(data: Mapping[str, Any], source: str) -> list[str]:
    """Return what a lab has that its topology has not, a line for each kind of thing. Raises ConfigError."""
    lab = _Lab.read(data, source)
    linked = {end for pair in lab.links for end in pair}
    alone = [name for name in lab.kinds if name not in linked]
    notes = [f"keys of the lab: {', '.join(sorted(lab.ignored))}"] if lab.ignored else []
    notes += [f"nodes without a link: {', '.join(alone)}"] if alone else []
    return notes + [f"{text}, which leaves the lab" for text in lab.outside]


@dataclass
class _Lab:
    """What of a lab counts here: what each node is, the links, those that leave it, and the names of keys ignored."""

    kinds: dict[str, str] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    ignored: set[str] = field(default_factory=set)
    name: str = ""

    @classmethod
    def read(cls, data: Mapping[str, Any], source: str) -> _Lab:
        """Read a lab. Raises ConfigError with every fault."""
        lab, faults = cls(name=str(data.get("name") or "")), list[str]()
        topology = _mapping(data.get("topology"))
        lab.ignored |= {str(key) for key in data if key not in _LAB_KEYS}
        lab.ignored |= {f"topology.{key}" for key in topology if key not in _TOPOLOGY_KEYS}
        nodes, links = topology.get("nodes"), topology.get("links") or []
        if not isinstance(nodes, Mapping) or not isinstance(links, list):
            raise ConfigError(source, ["topology: needs nodes, a mapping, and links, a list, as containerlab has them"])
        for name, node in nodes.items():
            try:
                lab.kinds[str(name)] = lab._kind_of(node or {}, topology)
            except ValueError as error:
                faults.append(f"topology.nodes.{name}: {error}")
        for number, link in enumerate(links):
            try:
                lab._take(link, list(map(str, nodes)))
            except ValueError as error:
                faults.append(f"topology.links.{number}: {error}")
        faults = faults or [*lab._unplayable()]
        if faults:
            raise ConfigError(source, faults)
        return lab

    def topology(self, source: str) -> dict[str, Any]:
        """Return it as a free form."""
        stem = next((Path(source).name[: -len(end)] for end in SUFFIXES if source.endswith(end)), Path(source).stem)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.name or stem) or "lab"
        linked = {end for pair in self.links for end in pair}
        nodes = {name: kind for name, kind in self.kinds.items() if name in linked}
        links = [{"a": a, "b": b} for a, b in self.links]
        return {"name": name, "builder": "free_form", "links": links, "nodes": nodes, **_KEYS}

    def _kind_of(self, node: object, topology: Mapping[str, Any]) -> str:
        """Return what a node is here. Raises ValueError if nothing says it."""
        own = _mapping(node)
        self.ignored |= {f"nodes.{key}" for key in own if key not in _NODE_KEYS}
        defaults = _mapping(topology.get("defaults"))
        group = _mapping(_mapping(topology.get("groups")).get(own.get("group")))
        kind = own.get("kind") or group.get("kind") or defaults.get("kind")
        of_kind = _mapping(_mapping(topology.get("kinds")).get(kind))
        for level, keys in (("defaults", defaults), ("groups", group), ("kinds", of_kind)):
            self.ignored |= {f"{level}.{key}" for key in keys if key not in _NODE_KEYS}
        labels = [_mapping(level.get("labels")) for level in (own, group, of_kind, defaults)]
        said = next((found[LABEL] for found in labels if LABEL in found), None)
        if said is not None:
            if said not in KINDS:
                raise ValueError(f"label {LABEL}: {said!r} is not one of {', '.join(KINDS)}")
            return str(said)
        bare = str(kind).removeprefix(_OF_VM)
        if bare in HOST_KINDS:
            return HOST
        if bare in SWITCH_KINDS:
            return SWITCH
        what = "has no kind" if kind is None else f"kind {kind!r} is not known to be a host or a switch"
        raise ValueError(f"{what}; say it by a label, e.g. labels: {{{LABEL}: {SWITCH}}}")

    def _take(self, link: object, nodes: Sequence[str]) -> None:
        """Add a link. Raises ValueError for one that is none of containerlab's."""
        keys = _mapping(link)
        kind = str(keys.get("type", "veth"))
        if kind in _OUTSIDE:
            self.outside.append(f"a link of type {kind}")
            return
        if kind != "veth":
            raise ValueError(f"type {kind!r} is not known; veth, or {', '.join(_OUTSIDE)}, which are left out")
        self.ignored |= {f"links.{key}" for key in keys if key not in _LINK_KEYS}
        found = keys.get("endpoints")
        if not isinstance(found, list) or len(found) != 2:
            raise ValueError(f"endpoints: {found!r} are not two ends, such as [client1:eth1, leaf1:e1-1]")
        ends = [_node_of(end) for end in found]
        if any(end in _OUTSIDE and end not in nodes for end in ends):
            self.outside.append(f"a link between {' and '.join(ends)}")
            return
        for end in ends:
            if end not in nodes:
                near = difflib.get_close_matches(end, nodes, n=1)
                raise ValueError(f"no node {end!r}; " + (f"did you mean {near[0]!r}?" if near else "add it to nodes"))
        self.links.append((ends[0], ends[1]))

    def _unplayable(self) -> Iterator[str]:
        """Yield links between hosts, and that no host is linked."""
        say = f"labels: {{{LABEL}: {SWITCH}}}"
        for number, (a, b) in enumerate(self.links):
            if a != b and SWITCH not in (self.kinds[a], self.kinds[b]):
                yield f"topology.links.{number}: {a} and {b} are both hosts by their kinds; if one forwards, say {say}"
        if not any(self.kinds[end] != SWITCH for pair in self.links for end in pair):
            say = f"labels: {{{LABEL}: {HOST}}}"
            yield f"topology.links: none has a host, and traffic is between hosts; add a node of kind linux, or {say}"


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _node_of(end: object) -> str:
    """Return the node of an end of a link, short (``leaf1:e1-1``) or long (``{node: leaf1, interface: e1-1}``)."""
    if isinstance(end, Mapping):
        if "node" not in end:
            raise ValueError(f"endpoints: {dict(end)!r} has no node")
        return str(end["node"])
    return str(end).partition(":")[0]
