"""How fast nodes can write checkpoints, by closed form: NICs, replicas and copies from GPUs. Pure.

A write goes from its node to the head of a chain, and from each replica to the next: storage takes each byte in as
often as there are replicas, and its NICs, which send and receive at once, are shared by all writers evenly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

GIB = 1 << 30
PAPER_STORAGE_NICS, PAPER_NODES = 360, 1250
"""Of Fire-Flyer 2: 180 storage nodes with a NIC in each zone, and its GPU nodes."""


@dataclass(frozen=True)
class Setup:
    """Who writes where: ``writers`` nodes with a NIC each, ``storage_nics`` that serve them, all of ``nic_Bps`` bytes
    per second of payload; ``copy_Bps``: from a node's GPUs to its memory, before it writes (None: in no time)."""

    writers: int
    storage_nics: int
    replicas: int
    nic_Bps: float  # noqa: N815 - bytes, not bits
    copy_Bps: float | None = None  # noqa: N815 - bytes, not bits


@dataclass(frozen=True)
class Bound:
    """What a node writes per second at most, and what binds."""

    node_Bps: float  # noqa: N815 - bytes, not bits
    by: str


def write_bound(setup: Setup) -> Bound:
    """Return how fast a node writes what it has in its memory."""
    storage = setup.nic_Bps * setup.storage_nics / (setup.replicas * setup.writers)
    if storage < setup.nic_Bps:
        copies = "each byte" if setup.replicas == 1 else f"each byte {setup.replicas} times"
        return Bound(storage, f"NICs of storage, which take in {copies}")
    return Bound(setup.nic_Bps, "the writer's NIC")


def whole_bound(setup: Setup) -> Bound:
    """Return how fast a node saves, if all is copied from its GPUs first, and written then."""
    written = write_bound(setup)
    if setup.copy_Bps is None:
        return written
    return Bound(1 / (1 / written.node_Bps + 1 / setup.copy_Bps), f"{written.by}, after the copy from GPUs")


def storage_nics_for(writers: int, replicas: int, nic_Bps: float, wanted_Bps: float) -> int | None:  # noqa: N803
    """Return how many NICs of storage let each of so many nodes write ``wanted_Bps``; None: its own NIC does not."""
    if wanted_Bps > nic_Bps:
        return None
    return math.ceil(writers * replicas * wanted_Bps / nic_Bps - 1e-9)


def writers_for(storage_nics: int, replicas: int, nic_Bps: float, wanted_Bps: float) -> int:  # noqa: N803
    """Return how many nodes can write ``wanted_Bps`` each at once."""
    if wanted_Bps > nic_Bps:
        return 0
    return math.floor(storage_nics * nic_Bps / (replicas * wanted_Bps) + 1e-9)


def fire_flyer_2_takes(replicas: int, nic_Bps: float, wanted_Bps: float) -> dict[str, float | None]:  # noqa: N803
    """Return the NICs of storage that 100 writers need (``nics``, None as in :func:`storage_nics_for`), and how many
    ``nodes`` of Fire-Flyer 2 can write at once, and which ``share`` of all they are."""
    nodes = writers_for(PAPER_STORAGE_NICS, replicas, nic_Bps, wanted_Bps)
    nics = storage_nics_for(100, replicas, nic_Bps, wanted_Bps)
    return {"replicas": replicas, "nics": nics, "nodes": nodes, "share": nodes / PAPER_NODES}
