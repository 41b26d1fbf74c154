"""A layout: how many ranks there are in each dimension of parallelism, and which ranks form a group.

Ranks are numbered as Megatron-LM does (``megatron/core/parallel_state.py``, ``RankGenerator``): ``order`` names
dimensions, the fastest first. Experts are spread over ranks of the tensor, context and data dimensions; an expert is
never split (Megatron-LM's ``expert_tensor_parallel_size`` is 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal

from pydantic import Field, model_validator

from fabric.config import Strict

DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")
DEFAULT_ORDER = "-".join(DIMENSIONS)
MOST_RANKS = 65_536


class Layout(Strict):
    """Ranks of a training job by dimension of parallelism."""

    data: int = Field(1, gt=0, le=MOST_RANKS, description="Data-parallel ranks: copies of the model.")
    tensor: int = Field(1, gt=0, le=MOST_RANKS, description="Tensor-parallel ranks: parts of each matrix.")
    pipeline: int = Field(1, gt=0, le=MOST_RANKS, description="Pipeline stages: ranks that have different layers.")
    context: int = Field(1, gt=0, le=MOST_RANKS, description="Context-parallel ranks: parts of each sequence.")
    expert: int = Field(
        1,
        gt=0,
        le=MOST_RANKS,
        description="Ranks over which experts are spread, of tensor x context x data; divides their product.",
    )
    order: str = Field(
        DEFAULT_ORDER,
        max_length=20,
        description="How ranks are numbered, the fastest dimension first: ranks on one node differ in the first ones.",
    )
    sequence_parallel: bool = Field(
        False, description="Whether tensor-parallel ranks have parts of sequences between layers (Megatron-LM)."
    )
    context_exchange: Literal["ring", "all_gather"] = Field(
        "ring", description="How context-parallel ranks come by the others' keys and values."
    )
    gpus_per_node: int = Field(8, gt=0, le=1024, description="Ranks of a node; ranks of a node follow each other.")

    @model_validator(mode="after")
    def _verify(self) -> Layout:
        if sorted(self.order.split("-")) != sorted(DIMENSIONS):
            raise ValueError(
                f"order: {self.order!r} is not an order of {', '.join(DIMENSIONS)}; "
                f"write each once, such as {DEFAULT_ORDER}"
            )
        if self.ranks > MOST_RANKS:
            raise ValueError(f"has {self.ranks:,} ranks, and {MOST_RANKS:,} is the most; lower data")
        if self.sequence_parallel and self.tensor == 1:
            raise ValueError("sequence_parallel: is for tensor-parallel ranks, and tensor is 1; leave it out")
        inside = self.tensor * self.context * self.data
        if inside % self.expert:
            raise ValueError(
                f"expert: {self.expert} does not divide tensor x context x data = {inside}; "
                "use a divisor of that, or change data"
            )
        if self.groups("pp") != self._expert_groups("pp"):
            raise ValueError(
                f"order: {self.order!r} gives experts other pipelines than the rest; put pp last, or expert to 1"
            )
        return self

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def expert_data(self) -> int:
        """Ranks that have the same experts."""
        return self.tensor * self.context * self.data // self.expert

    def groups(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the groups of a kind: ``tp``, ``cp``, ``dp``, ``pp``, ``dp-cp`` (ranks that have the same weights),
        ``ep`` and ``edp`` (ranks that have the same experts)."""
        if kind in ("ep", "edp"):
            return self._expert_groups("dp" if kind == "edp" else kind)
        return _groups(self.order, self._sizes(), kind.split("-"))

    def group_of(self, kind: str, rank: int) -> tuple[str, tuple[int, ...]]:
        """Return the name and the ranks of a rank's group of a kind."""
        for number, group in enumerate(self.groups(kind)):
            if rank in group:
                return f"{kind}.{number}", group
        raise ValueError(f"unknown rank {rank}; there are {self.ranks}")

    def place(self, kind: str, rank: int) -> int:
        """Return a rank's place in its group of a kind."""
        return self.group_of(kind, rank)[1].index(rank)

    def node_of(self, rank: int) -> int:
        """Return which node a rank is on."""
        return rank // self.gpus_per_node

    def _sizes(self) -> dict[str, int]:
        return {"tp": self.tensor, "cp": self.context, "ep": 1, "dp": self.data, "pp": self.pipeline}

    def _expert_groups(self, kind: str) -> tuple[tuple[int, ...], ...]:
        sizes = {"tp": 1, "cp": 1, "ep": self.expert, "dp": self.expert_data, "pp": self.pipeline}
        return _groups(self.order, sizes, [kind])


def _groups(order: str, sizes: dict[str, int], inside: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return ranks that differ only in the dimensions ``inside``, in the order of their numbers."""
    dimensions = order.split("-")
    strides = {name: prod(sizes[one] for one in dimensions[:place]) for place, name in enumerate(dimensions)}
    outside = [name for name in dimensions if name not in inside]
    within = [name for name in dimensions if name in inside]
    offsets = tuple(_sums([(sizes[name], strides[name]) for name in within]))
    starts = _sums([(sizes[name], strides[name]) for name in outside])
    return tuple(tuple(start + offset for offset in offsets) for start in starts)


def _sums(steps: Sequence[tuple[int, int]]) -> Iterator[int]:
    """Yield all sums of multiples, the first of ``steps`` changing fastest; each is (how many, of what)."""
    if not steps:
        yield 0
        return
    *slower_last, (count, stride) = steps
    for step in range(count):
        for inner in _sums(slower_last):
            yield step * stride + inner
