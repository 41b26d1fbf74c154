"""What the names in ``failures`` mean on a fabric: links, by an end or by their nodes, NICs, nodes, disks and GPUs.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Link, Nic, Port, names_like

_WORDS = {"switch": "switch", "storage": "storage node"}


def node_named(name: str, kind: str, fabric: Fabric) -> NodeId:
    """Return the node that a key of a config names. Raises ValueError if the fabric has none such."""
    fitting = {"switch": fabric.switches, "storage": fabric.storages}.get(kind, fabric.hosts)
    found = fabric.node_named(name)
    if found not in fitting:
        known = f"they run from {fitting[0]} to {fitting[-1]}" if fitting else f"{fabric.name} has none"
        raise ValueError(f"{kind}: no {_WORDS.get(kind, 'host')} {name!r}; {known}")
    assert found is not None
    return found


def links_of_node(name: str, kind: str, fabric: Fabric) -> tuple[Link, ...]:
    """Return all links of the node that a key of a config names. Raises ValueError if the fabric has none such."""
    return tuple(fabric.link_at[port] for port in fabric.ports_of[node_named(name, kind, fabric)])


def link_named(name: str, fabric: Fabric, by_port_only: bool) -> Link:
    """Return the link that a name means. Raises ValueError naming what the fabric does not have."""
    node, colon, _ = name.partition(":")
    if colon:
        port = fabric.port_named(name)
        if port is None:
            if (inner := _inner_link(name, fabric)) is not None:
                return inner
            raise ValueError(f"link: nothing is plugged into {name!r}; {_ports_of(node, fabric)}")
        return fabric.link_at[port]
    if by_port_only:
        raise ValueError(f"port: {name!r} is not a port; write it like {fabric.links[0].a}")
    ends, _, number = name.partition("#")
    a, dash, b = _parted(ends, fabric)
    if not dash or (number and not number.isdigit()):
        raise ValueError(f"link: {name!r} names no link; write it like {fabric.links[0].a} or z0l00-z0s01#2")
    return _between(a, b, int(number) if number else None, fabric)


def _inner_link(name: str, fabric: Fabric) -> Link | None:
    """Return the link inside a node of which an end is ``z0h003.g5:0`` (PCIe) or ``z0h003.g5:1`` (NVLink)."""
    part, _, number = name.partition(":")
    try:
        node = NodeId.parse(part)
    except ValueError:
        return None
    if not node.is_inside or not number.isdigit():
        return None
    found = [link for link in fabric.inner_links_of(node.host) if Port(node, int(number)) in link.ports]
    return found[0] if found else None


def _parted(ends: str, fabric: Fabric) -> tuple[str, str, str]:
    """Return the two nodes of ``a-b``, and the dash between them; names of a user's own may have dashes, too."""
    places = [place for place, letter in enumerate(ends) if letter == "-"]
    known = [place for place in places if fabric.node_named(ends[:place]) and fabric.node_named(ends[place + 1 :])]
    if len(known) == 1:
        return ends[: known[0]], "-", ends[known[0] + 1 :]
    return ends.partition("-")


def _ports_of(node: str, fabric: Fabric) -> str:
    known = fabric.node_named(node)
    ports: Sequence[Port] = fabric.ports_of[known] if known is not None else ()
    return f"{node} has ports {ports[0].number} to {ports[-1].number}" if ports else f"{fabric.name} has no {node!r}"


def _between(a: str, b: str, number: int | None, fabric: Fabric) -> Link:
    ends = [fabric.node_named(name) for name in (a, b)]
    for name, node in zip((a, b), ends, strict=True):
        if node is None:
            raise ValueError(f"link: {fabric.name} has no {name!r}; {names_like(name, fabric)}")
    found = [link for link in fabric.links if {link.a.node, link.b.node} == set(ends)]
    if not found:
        raise ValueError(f"link: no link joins {a} and {b}; {a} is joined to {_neighbours(a, fabric)}")
    if number is None and len(found) > 1:
        raise ValueError(
            f"link: {len(found)} links join {a} and {b}; choose one, from {a}-{b}#1 to {a}-{b}#{len(found)}"
        )
    if number is not None and not 1 <= number <= len(found):
        raise ValueError(f"link: {a} and {b} are joined by {len(found)} links, so #{number} does not exist")
    return found[(number or 1) - 1]


def _neighbours(name: str, fabric: Fabric) -> str:
    node = fabric.node_named(name)
    assert node is not None, "_between() has looked for it"
    peers = dict.fromkeys(fabric.shown(fabric.peer(port).node) for port in fabric.ports_of[node])
    return ", ".join(peers)


def nic_named(name: str, fabric: Fabric) -> Nic:
    """Return the NIC that ``st001:1`` means. Raises ValueError naming what the fabric does not have."""
    host, colon, number = name.rpartition(":")
    if not colon:
        raise ValueError(f"nic: {name!r} is not a NIC; write the host and the NIC's number, like {fabric.hosts[0]}:0")
    nics = fabric.nics_of[node_named(host, "nic", fabric)]
    found = next((nic for nic in nics if str(nic.port.number) == number), None)
    if found is None:
        raise ValueError(f"nic: {host} has no NIC {number!r}; its NICs are {', '.join(str(nic.port) for nic in nics)}")
    return found


def disk_named(name: str, fabric: Fabric) -> tuple[NodeId, int | None]:
    """Return the host and the number of the disk that ``st001/2`` means; None: ``st001``, each of its disks. Raises
    ValueError for a host that the fabric does not have."""
    host, slash, number = name.partition("/")
    if slash and not number.isdigit():
        raise ValueError(f"disk: {name!r} is not a disk; write the host and the disk's number, like {host}/0")
    return node_named(host, "disk", fabric), int(number) if slash else None


def gpu_named(name: str, fabric: Fabric) -> tuple[NodeId, int]:
    """Return the host and the number of the GPU that ``z0h003/2`` means; ``z0h003`` is its first. Raises ValueError for
    a host that the fabric does not have."""
    host, slash, number = name.partition("/")
    if slash and not number.isdigit():
        raise ValueError(f"gpu: {name!r} is not a GPU; write the host and the GPU's number, like {host}/0")
    return node_named(host, "gpu", fabric), int(number) if slash else 0
