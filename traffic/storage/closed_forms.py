"""Closed forms of storage: what NICs deliver, and how long an epoch takes if all share them evenly. Pure."""

from __future__ import annotations

from fabric.model.network import Fabric
from traffic.metrics import payload_fraction


def payload_Bps(fabric: Fabric) -> float:  # noqa: N802 - bytes, not bits
    """Return what a NIC carries of payload, in bytes per second."""
    return fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)


def storage_nics(fabric: Fabric) -> int:
    """Return how many NICs all storage nodes have."""
    return sum(len(fabric.nics_of[node]) for node in fabric.storages)


def storage_nics_Bps(fabric: Fabric) -> float:  # noqa: N802
    """Return what these carry, headers included, in bytes per second."""
    return storage_nics(fabric) * fabric.nic_rate_bps / 8


def most_read_Bps(fabric: Fabric) -> float:  # noqa: N802
    """Return what all compute nodes can read at most, in bytes per second: what the NICs of the storage nodes carry as
    payload, or those of the compute nodes if they are fewer."""
    nics = min(storage_nics(fabric), len(fabric.computes))
    return nics * fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)


def even_batch_s(fabric: Fabric, readers: int, batch_bytes: float) -> float:
    """Return how long a batch takes to read if all readers read at once, and share the storage nodes' NICs evenly, or
    are held by their own."""
    payload = payload_Bps(fabric)
    return batch_bytes / min(payload, storage_nics(fabric) * payload / readers)


def ideal_epoch_s(batches: float, batch_s: float, compute_s: float, is_ahead: bool) -> float:
    """Return how long an epoch of so many batches takes if each takes ``batch_s`` to read.

    Without asking ahead a batch is read, then computed. Else the first one is read, and each one behind it takes the
    longer of both; the last one is computed.
    """
    if not is_ahead:
        return batches * (batch_s + compute_s)
    return batch_s + (batches - 1) * max(batch_s, compute_s) + compute_s
