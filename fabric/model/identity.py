"""One small value that converts between a node's place in the fabric, its name, DPID, IP and MAC.

=============  ==========  ==========================================
role           name        example
=============  ==========  ==========================================
leaf           z<Z>l<NN>   ``z0l03``
spine          z<Z>s<NN>   ``z1s12``
core           c<NN>       ``c07`` (above the spines of all pods)
compute        z<Z>h<NNN>  ``z0h117``
storage        st<NNN>     ``st042`` (a NIC in each zone)
inter-zone     ix<N>       ``ix0``
GPU            ….g<N>      ``z0h117.g5`` (inside a compute node)
CPU            ….cpu<N>    ``z0h117.cpu0``, with its memory
NVSwitch       ….nv<N>     ``z0h117.nv0``
=============  ==========  ==========================================

No behaviour depends on how a name is spelled: code asks the role and the zone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, total_ordering

CONTROLLER_ADDRESS = "127.0.0.1"
"""The controller listens here only: a run has a network of its own, and nobody else shall program its switches."""
ANY_ADDRESS = "0.0.0.0"
"""Where it listens if several guests play a run: all of its guest's addresses, none of which is outside of the run."""
OPENFLOW_PORT = 6653
OPENFLOW_SOCKET = "openflow"
"""Where a controller listens to switches that call it by a socket in a directory."""

MAX_ZONES = 100
"""Zones are the second byte of an address: computes at 10.<zone>, storage NICs at 10.<128 + zone>."""
MAX_HOSTS_PER_GROUP = 65_000
"""Hosts of one role and zone share the last two bytes of an address."""
STORAGE_ADDRESS_OFFSET = 128
_NO_ZONE = 0xFFFF
"""The zone in the DPID of a node that belongs to no single one."""


class Role(Enum):
    """The role of a node. The value is the role's number in a DPID."""

    CORE = 0
    LEAF = 1
    SPINE = 2
    INTER_ZONE = 3
    COMPUTE = 4
    STORAGE = 5
    GPU = 6
    CPU = 7
    NVSWITCH = 8


_FORMATS = {
    Role.CORE: "c{index:02d}",
    Role.LEAF: "z{zone}l{index:02d}",
    Role.SPINE: "z{zone}s{index:02d}",
    Role.INTER_ZONE: "ix{index}",
    Role.COMPUTE: "z{zone}h{index:03d}",
    Role.STORAGE: "st{index:03d}",
    Role.GPU: "z{zone}h{index:03d}.g{place}",
    Role.CPU: "z{zone}h{index:03d}.cpu{place}",
    Role.NVSWITCH: "z{zone}h{index:03d}.nv{place}",
}
_ZONED = {"l": Role.LEAF, "s": Role.SPINE, "h": Role.COMPUTE}
_ZONED_NAME = re.compile(r"^z(\d+)([lsh])(\d+)$")
_GLOBAL = {"ix": Role.INTER_ZONE, "st": Role.STORAGE, "c": Role.CORE}
_GLOBAL_NAME = re.compile(r"^(ix|st|c)(\d+)$")
_INSIDE = {"g": Role.GPU, "cpu": Role.CPU, "nv": Role.NVSWITCH}
_INSIDE_NAME = re.compile(r"^z(\d+)h(\d+)\.(g|cpu|nv)(\d+)$")
INSIDE_ROLES = frozenset(_INSIDE.values())
"""What is inside a compute node; its zone and index are the node's."""
SWITCH_ROLES = frozenset({Role.CORE, Role.LEAF, Role.SPINE, Role.INTER_ZONE})


def node_of_port(port: str) -> str:
    """Return the name of the node of a port such as ``z0l03:7``."""
    return port.rpartition(":")[0]


def split_port(port: str) -> tuple[str, int]:
    """Return the name of the node of a port such as ``z0l03:7``, and the port's number."""
    node, _, number = port.rpartition(":")
    return node, int(number)


def ends_of_link(link: str) -> tuple[str, str]:
    """Return the ports of a link such as ``z0l03:7--z0s01:3``."""
    a, _, b = link.partition("--")
    return a, b


def node_of_part(part: str) -> str:
    """Return the name of the node of a disk, target or program such as ``st001/2``, or of a node itself."""
    return part.partition("/")[0]


@total_ordering
@dataclass(frozen=True, eq=False)
class NodeId:
    """A node's place: role, zone (None for nodes that belong to no single zone) and index among its like.

    ``dpid`` is the OpenFlow datapath id, unique over all roles, zones and indices; never 0. It is what nodes are
    compared, ordered and hashed by: plans of large fabrics look nodes up millions of times.
    """

    role: Role
    zone: int | None
    index: int
    place: int = 0
    """The number of a part inside its node."""
    dpid: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        zone = _NO_ZONE if self.zone is None else self.zone
        object.__setattr__(self, "dpid", self.place << 40 | self.role.value << 32 | zone << 16 | self.index)

    @classmethod
    @cache
    def parse(cls, name: str) -> NodeId:
        """Return the node that ``name`` means, one object for each name. Raises ValueError if no node has it."""
        if match := _ZONED_NAME.match(name):
            zone, letter, index = match.groups()
            node = cls(_ZONED[letter], int(zone), int(index))
        elif match := _GLOBAL_NAME.match(name):
            prefix, index = match.groups()
            node = cls(_GLOBAL[prefix], None, int(index))
        elif match := _INSIDE_NAME.match(name):
            zone, index, part, place = match.groups()
            node = cls(_INSIDE[part], int(zone), int(index), int(place))
        else:
            raise ValueError(f"{name!r} is not a node's name; names look like z0l03, z1s12, c07, z0h117, st042, ix0")
        if node.name != name:
            raise ValueError(f"{name!r} is not a node's name; did you mean {node.name!r}?")
        return node

    @property
    def name(self) -> str:
        """The name, e.g. ``z0l03``."""
        return _FORMATS[self.role].format(zone=self.zone, index=self.index, place=self.place)

    @property
    def is_switch(self) -> bool:
        """Whether this node forwards."""
        return self.role in SWITCH_ROLES

    @property
    def is_inside(self) -> bool:
        """Whether this is a part of a compute node."""
        return self.role in INSIDE_ROLES

    @property
    def host(self) -> NodeId:
        """The compute node that this is a part of; itself if it is none."""
        return NodeId(Role.COMPUTE, self.zone, self.index) if self.is_inside else self

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return self.dpid

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeId) and self.dpid == other.dpid

    def __lt__(self, other: NodeId) -> bool:
        return self.dpid < other.dpid


def nic_ip(node: NodeId, zone: int, block: int = 1) -> str:
    """Return the IPv4 address of ``node``'s NIC in ``zone``: 10.<zone or 128 + zone>.<index + 1 in two bytes>.

    Fabrics of one zone have the number of the NIC (the rail or plane) in the place of the zone's. ``block``: how many
    addresses each NIC has, a power of 2; the NIC's own is the first.
    """
    first = zone + (STORAGE_ADDRESS_OFFSET if node.role is Role.STORAGE else 0)
    number = (node.index + 1) * block
    return f"10.{first}.{number >> 8}.{number & 0xFF}"


def mac_of_ip(address: str) -> str:
    """Return the locally administered MAC address that belongs to an IPv4 address: 02:00 and its four bytes."""
    return "02:00:" + ":".join(f"{int(byte):02x}" for byte in address.split("."))
