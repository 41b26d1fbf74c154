"""Gradients in buckets, as PyTorch's DDP has them (``compute_bucket_assignment_by_size`` in ``reducer.cpp``).

Gradients come in the reverse order of the parameters. One is put into the bucket, and if that has reached its limit
then, it is closed: so buckets overshoot. The first limit is small, so that communication begins early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class DataKind(NamedTuple):
    """A kind of groups that add up gradients: ``dp-cp`` or ``edp``, and of dualpipe the stage that each is of."""

    kind: str
    stage: int | None = None


@dataclass(frozen=True)
class Gradient:
    """A gradient of a rank. ``key``: the part of the model that it becomes ready with; ``group``: the kind of group
    that adds it up."""

    key: tuple[int, int]
    size_bytes: int
    group: DataKind


@dataclass(frozen=True)
class Bucket:
    """Gradients that are sent together. ``ready``: the part after whose backward pass they all are there."""

    size_bytes: int
    ready: tuple[int, int]
    group: DataKind


def buckets_of(gradients: Sequence[Gradient], first_bytes: int, limit_bytes: int) -> tuple[Bucket, ...]:
    """Return the buckets in the order in which they become ready. ``gradients``: in the order of parameters. Those of
    one kind of group have buckets of their own."""
    closed: list[Bucket] = []
    filled: dict[DataKind, int] = {}
    last: dict[DataKind, tuple[int, int]] = {}
    opened: dict[DataKind, int] = {}
    for one in reversed(gradients):
        filled[one.group] = filled.get(one.group, 0) + one.size_bytes
        last[one.group] = one.key
        limit = limit_bytes if opened.get(one.group) else first_bytes
        if filled[one.group] >= limit:
            closed.append(Bucket(filled.pop(one.group), one.key, one.group))
            opened[one.group] = opened.get(one.group, 0) + 1
    return (*closed, *(Bucket(size, last[group], group) for group, size in filled.items()))
