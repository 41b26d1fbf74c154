"""How much memory a guest needs for a fabric, and whether its memory is enough."""

from __future__ import annotations

from fabric.errors import UsageError
from fabric.model import Fabric
from fabric.virtual.guest import DEFAULT_MEMORY_BYTES, GIB

MIB = 1 << 20
OWN_BYTES = 512 * MIB
"""Of the kernel, Open vSwitch, the controller and the run without a fabric."""
HOST_BYTES = 4 * MIB
LINK_BYTES = 1 * MIB


def needed_bytes(fabric: Fabric) -> int:
    """Return how much memory a guest needs to bring a fabric up with its rules and run a program or two a host."""
    return OWN_BYTES + HOST_BYTES * len(fabric.hosts) + LINK_BYTES * len(fabric.links)


def choose_bytes(fabric: Fabric, wanted_bytes: int | None) -> int:
    """Return what a guest gets: what is asked for, or DEFAULT_MEMORY_BYTES.

    Raises UsageError if that is less than the fabric needs. It is the user who says how much: what of it is used is
    taken from the host, and figures may depend on it.
    """
    given_bytes = DEFAULT_MEMORY_BYTES if wanted_bytes is None else wanted_bytes
    needed = needed_bytes(fabric)
    if given_bytes < needed:
        suggested_gib = -(-needed // GIB)
        raise UsageError(
            f"{fabric.name} ({len(fabric.hosts)} hosts, {len(fabric.links)} links) needs some {needed / GIB:.1f} GiB "
            f"of memory in the virtual engine, and would have {given_bytes / GIB:.1f} GiB; give it more: "
            f"--memory {suggested_gib}GiB"
        )
    return given_bytes
