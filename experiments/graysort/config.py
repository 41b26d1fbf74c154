"""What ``graysort`` plays: its config, the published run, and its cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from pydantic import Field

from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from runs.cases import Case, axis
from runs.config import Choices, QueueingConfig, storage_faults
from runs.phase_lengths import PhaseLengths
from traffic.sorting.config import SortConfig, sort_faults
from traffic.sorting.graph import Exchange

PAPER_BYTES = 110.5 * 2**40
PAPER_S = 30 * 60 + 14.0
PAPER_NODES = 50
"""GraySort by smallpond on 3FS: 110.5 TiB in 30 minutes and 14 seconds, by 50 compute nodes (3FS's README)."""


class Computing(str, Enum):
    """How long computing takes: no time, so that the network is all there is; or as long as the published run took for
    as much data on a node, half of it in each phase."""

    NONE = "none"
    PAPER = "paper"

    @property
    def words(self) -> str:
        """It in words."""
        return "no computing" if self is Computing.NONE else "the paper's time"


class GraySortConfig(QueueingConfig):
    """A sort on all of its nodes, with each exchange and with each time of computing."""

    queueing: Annotated[Queueing, Field(strict=False)] = Field(
        default=Queueing.LOSSLESS_LANES, description="Queueing in which all is played."
    )
    exchanges: Choices[Exchange] = Field(
        default_factory=lambda: list(Exchange),
        description=(
            "How partitions reach the nodes that sort them: through files (`storage`, as smallpond), from node to "
            "node (`nodes`)."
        ),
    )
    computing: Choices[Computing] = Field(
        default_factory=lambda: list(Computing),
        description="Times of computing: `none`, or as long as the published run took for as much data (`paper`).",
    )
    sort: SortConfig = Field(description="The sort; its exchange and times of computing are those of the variants.")

    @property
    def phase_lengths(self) -> PhaseLengths:
        """As long as a sort takes."""
        return PhaseLengths(until="all data are sorted")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from storage_faults(fabric, "data that is sorted is in files")
        if self.sort.ranks > len(fabric.computes):
            yield f"sort.ranks: {self.sort.ranks}, and {fabric.name} has {len(fabric.computes)} compute nodes; lower it"
        for case in Sort.grid(self):
            yield from (f"sort.{fault}" for fault in sort_faults(case.sort(self.sort), fabric))


@dataclass(frozen=True)
class Sort(Case, name="{exchange}_{computing}", title="{exchange_words}, {computing}"):
    """How partitions are exchanged, and how long computing takes."""

    exchange: Exchange = axis("exchanges")
    computing: Computing = axis("computing")

    @property
    def exchange_words(self) -> str:
        """How partitions are exchanged, in words."""
        return "through storage" if self.exchange is Exchange.STORAGE else "from node to node"

    def sort(self, config: SortConfig) -> SortConfig:
        """Return the job's config."""
        phase_s = paper_s(config.shape.node_bytes) / 2 if self.computing is Computing.PAPER else 0.0
        return config.model_copy(
            update={
                "exchange": self.exchange,
                "partition_time": phase_s / config.tasks,
                "sort_time": phase_s / config.partitions,
                "recorded_steps": 1,
            }
        )


def paper_s(node_bytes: float) -> float:
    """Return how long the published run took for so much data on a node."""
    return PAPER_S * node_bytes / (PAPER_BYTES / PAPER_NODES)
