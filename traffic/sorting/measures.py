"""What a sort comes to: how long its phases take, and what it moves, beside what NICs carry."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from fabric.measures import Better, Measure
from fabric.model.network import Fabric
from traffic.metrics import payload_fraction
from traffic.sorting.graph import EXCHANGE, MEET, Exchange, SortShape
from traffic.work.operation_names import word_of

SORTS = (
    Measure("all_s", "time of the sort", Better.LESS),
    Measure("apart_s", "time of its first phase, until all partitions are where they can be sorted", Better.LESS),
    Measure("sort_s", "time of its second phase, which sorts the partitions", Better.LESS),
    Measure("node_Bps", "data of a node over the time of the sort", Better.MORE),
    Measure("least_s", "time that the bytes of the sort take at least on the NICs of the fabric"),
    Measure(
        "compute_nic_fraction", "payload over what a compute node's NICs carry in the time of the sort", Better.MORE
    ),
    Measure(
        "storage_nic_fraction", "payload over what all storage nodes' NICs carry in the time of the sort", Better.MORE
    ),
)


@dataclass(frozen=True)
class Nics:
    """What NICs carry, in bytes per second each way: those of a compute node, and of all storage nodes together."""

    node_Bps: float  # noqa: N815 - bytes, not bits
    storage_Bps: float  # noqa: N815

    @classmethod
    def of(cls, fabric: Fabric) -> Nics:
        """Return those of a fabric, of which a compute node uses one."""
        nic_Bps = fabric.nic_rate_bps / 8  # noqa: N806
        return cls(nic_Bps, nic_Bps * sum(len(fabric.nics_of[node]) for node in fabric.storages))


@dataclass(frozen=True)
class Moved:
    """What a sort moves, in bytes: into and out of a compute node, and out of and into all storage nodes together."""

    node_in: float
    node_out: float
    storage_out: float
    storage_in: float

    @classmethod
    def of(cls, shape: SortShape, replicas: int) -> Moved:
        """Return what a sort moves: a write passes from replica to replica."""
        own = shape.node_bytes
        exchanged = own * (shape.ranks - 1) / shape.ranks if shape.exchange is Exchange.NODES else 0.0
        passed = shape.passes * own
        whole = passed * shape.ranks
        return cls(passed + exchanged, passed + exchanged, whole * replicas, whole * replicas)

    def shares(self, nics: Nics, seconds: float) -> dict[str, float]:
        """Return what part of NICs this took in a time, of payload alone."""
        return {
            "compute_nic_fraction": max(self.node_in, self.node_out) / nics.node_Bps / seconds,
            "storage_nic_fraction": max(self.storage_in, self.storage_out) / nics.storage_Bps / seconds,
        }

    def least_s(self, nics: Nics, payload: float) -> float:
        """Return how long it takes at least, if NICs carry so much of their rate as payload."""
        return max(self.shares(nics, 1.0).values()) / payload


def sort_numbers(fabric: Fabric, shape: SortShape, replicas: int, operations: pd.DataFrame) -> dict[str, float]:
    """Return the numbers of a sort by the rows of its operations, whose files have so many replicas."""
    times, nics, moved = phase_times(operations), Nics.of(fabric), Moved.of(shape, replicas)
    return {
        **times,
        "node_Bps": shape.node_bytes / times["all_s"],
        "least_s": moved.least_s(nics, payload_fraction(fabric.mtu_bytes)),
        **moved.shares(nics, times["all_s"]),
    }


def phase_times(operations: pd.DataFrame) -> dict[str, float]:
    """Return how long a sort and its two phases took, by the rows of its operations: the first phase ends when all
    partitions are where they can be sorted."""
    began, ended = float(operations["started_s"].min()), float(operations["ended_s"].max())
    kinds = operations["name"].astype(str).map(word_of)
    met = float(operations[kinds.isin([MEET, EXCHANGE])]["ended_s"].max())
    return {"all_s": ended - began, "apart_s": met - began, "sort_s": ended - met}
