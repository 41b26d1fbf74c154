"""Config of the loads that have an end: a training's epochs, and a restore of a checkpoint."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, Strict, TimeS

Count = Annotated[int, Field(ge=1, le=65_536)]
Size = Annotated[SizeBytes, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class SampleOrder(str, Enum):
    """In which order an epoch has the samples of a data set.

    - ``shuffled``: at random over the whole data set, anew in each epoch, dealt to readers one by one, as PyTorch's
      ``DistributedSampler`` does. 3FS's random access is for that: no reader keeps a part of the data to shuffle it;
    - ``in_order``: as they are in the files, each reader a part of its own.
    """

    SHUFFLED = "shuffled"
    IN_ORDER = "in_order"


class EpochsConfig(Strict):
    """A training's reads: every sample once in an epoch, and computing between batches."""

    compute: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time that a batch is computed for, which takes no core."
    )
    prefetch: Annotated[int, Field(ge=0, le=4096)] = Field(
        default=2,
        description=(
            "Batches that are asked for ahead of the one that is computed (PyTorch: workers x `prefetch_factor`). 0: "
            "each when it is wanted."
        ),
    )
    order: Annotated[SampleOrder, Field(strict=False)] = Field(
        default=SampleOrder.SHUFFLED,
        description="Order of samples: `shuffled` over the whole data set, or `in_order`, each reader a part of it.",
    )
    batches: Count | None = Field(
        default=None, description="Batches of an epoch that are played. Without it, all whole ones that a reader has."
    )
    count: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="Epochs of a phase, which lasts until they are over. Without it, one follows another.",
    )


class RestoreOf(str, Enum):
    """What clients restore: each a file of its own, as of sharded state, or all the same one, as of weights that every
    copy of a model has."""

    OWN = "own"
    SAME = "same"


class RestoreBegin(str, Enum):
    """Where clients begin in a file: all at its start, or each further on than the one before, so that they are spread
    over it."""

    START = "start"
    SPREAD = "spread"


class RestoreConfig(Strict):
    """A restore of a checkpoint by many nodes at once, as after a failure. It has an end: clients read each byte
    once."""

    share: Share = Field(default=0.0, description="Fraction of the clients that restore; 0: none.")
    size: Size = Field(default=16 << 20, description="Bytes that each client reads.")
    of: Annotated[RestoreOf, Field(strict=False)] = Field(
        default=RestoreOf.OWN,
        description="What they read: each a file of its `own` (sharded state), or all the `same` one (weights).",
    )
    begin: Annotated[RestoreBegin, Field(strict=False)] = Field(
        default=RestoreBegin.START,
        description="Where in a file they begin: all at its `start`, or `spread` evenly over it, each on to its end.",
    )
    piece: Size = Field(default=4 << 20, description="Bytes asked for together; pieces follow each other in the file.")
    depth: Count = Field(default=4, description="Pieces that a client keeps asked for at once.")
