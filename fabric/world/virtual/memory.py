"""How much memory a guest needs for a fabric."""

from __future__ import annotations

from fabric.model.network import Fabric

MIB = 1 << 20
OWN_BYTES = 512 * MIB
"""Of the kernel, Open vSwitch, the controller and the run without a fabric."""
HOST_BYTES = 4 * MIB
LINK_BYTES = 1 * MIB


def needed_bytes(fabric: Fabric) -> int:
    """Return how much memory a guest needs to bring a fabric up with its rules and run a program or two a host."""
    return OWN_BYTES + HOST_BYTES * len(fabric.hosts) + LINK_BYTES * (len(fabric.links) + len(fabric.inner_links))


def described(fabric: Fabric) -> str:
    """Return what of a fabric decides how much memory it needs."""
    return f"{fabric.name} ({len(fabric.hosts)} hosts, {len(fabric.links)} links)"
