"""A fabric as JSON and back, for processes that need all of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from fabric.errors import ConfigError
from fabric.model.identity import NodeId, split_port
from fabric.model.inside import Inside, NvLink, RootPort
from fabric.model.network import Fabric, Link, Port, Tier
from fabric.model.oversubscription import oversubscription_by_tier


def fabric_to_json(fabric: Fabric) -> dict[str, Any]:
    """Return a fabric as plain JSON values, from which :func:`fabric_from_json` makes an equal one."""
    values = {field.name: getattr(fabric, field.name) for field in dataclasses.fields(fabric)}
    return values | {
        "nodes": [node.name for node in fabric.nodes],
        "links": [[str(link.a), str(link.b), link.rate_bps, link.tier.value, link.delay_ns] for link in fabric.links],
        "addresses": {str(port): address for port, address in fabric.addresses},
        "inside": None if fabric.inside is None else dataclasses.asdict(fabric.inside),
        "names": {node.name: name for node, name in fabric.names},
    }


def fabric_from_json(data: Any, source: str) -> Fabric:
    """Return the fabric that :func:`fabric_to_json` gave. Raises ConfigError, naming ``source``, if it is none."""
    try:
        links = tuple(_link(*values) for values in data["links"])
        nodes = tuple(NodeId.parse(name) for name in data["nodes"])
        addresses = tuple((port_named(name), address) for name, address in data["addresses"].items())
        inside = None if data["inside"] is None else _inside(data["inside"])
        names = tuple((NodeId.parse(node), name) for node, name in data["names"].items())
        own = {"nodes": nodes, "links": links, "addresses": addresses, "inside": inside, "names": names}
        return Fabric(**{**data, **own})
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fault = f"holds no fabric ({type(error).__name__}: {error}); write it again with fabric_to_json"
        raise ConfigError(source, [fault]) from error


def port_named(name: str) -> Port:
    """Return the port that ``z0l03:7`` means. Raises ValueError if it is not a port's name."""
    node, number = split_port(name)
    return Port(NodeId.parse(node), number)


def _inside(data: Any) -> Inside:
    nvlink = data["nvlink"]
    return Inside(
        **{
            **data,
            "nic_of_gpu": tuple(data["nic_of_gpu"]),
            "root_ports": tuple(RootPort(tuple(one["gpus"]), one["rate_Bps"]) for one in data["root_ports"]),
            "nvlink": nvlink and NvLink(tuple(map(tuple, nvlink["groups"])), nvlink["rate_bps"]),
        }
    )


def _link(a: str, b: str, rate_bps: int, tier: str, delay_ns: int) -> Link:
    return Link(port_named(a), port_named(b), rate_bps, Tier(tier), delay_ns)


def fabric_as_json(fabric: Fabric) -> dict[str, Any]:
    """Return the part of a fabric that figures and reports need: its nodes, with users' own names as ``shown``, its
    links, and its oversubscription by tier."""
    own = fabric.own_names
    return {
        "name": fabric.name,
        "zones": fabric.zones,
        "mtu_bytes": fabric.mtu_bytes,
        "nic_rate_bps": fabric.nic_rate_bps,
        "reference_nic_rate_bps": fabric.reference_nic_rate_bps,
        "oversubscription": oversubscription_by_tier(fabric),
        "nodes": [
            {"name": node.name, "role": node.role.name.lower(), "zone": node.zone, "index": node.index}
            | ({"shown": own[node]} if node in own else {})
            for node in fabric.nodes
        ],
        "links": [
            {
                "a": str(link.a),
                "b": str(link.b),
                "rate_bps": link.rate_bps,
                "tier": link.tier.value,
                "delay_ns": link.delay_ns,
            }
            for link in fabric.links
        ],
    }
