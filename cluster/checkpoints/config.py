"""The keys of a job that writes and restores checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from cluster.checkpoints.generations import Keeping
from cluster.checkpoints.manager import DEVICE_TO_HOST_BPS
from fabric.config import SizeBytes, TimeS
from traffic.storage.config import Count, OptionalRate
from traffic.storage.metadata.job_config import FileSystemConfig


def _each_once(value: list[int]) -> list[int]:
    if len(set(value)) < len(value):
        raise ValueError(f"{value}: names a number twice; name each once")
    return value


Nodes = Annotated[int, Field(ge=1, le=65_536)]


class CheckpointsConfig(FileSystemConfig):
    """A file system, to which nodes write checkpoints and from which they restore them. State is sharded: each node has
    an even part of each tensor."""

    size: Annotated[SizeBytes, Field(ge=1024, le=1 << 36)] = Field(
        default=16 << 20, description="Bytes of a checkpoint that each node writes."
    )
    tensors: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=16, description="Tensors that the state has, all of a size."
    )
    writers: Nodes | None = Field(
        default=None, description="How many of the job's nodes write, the first ones. Without it, all."
    )
    every: Annotated[TimeS, Field(gt=0)] = Field(
        default=300.0, description="From the start of one checkpoint to that of the next, if that has become complete."
    )
    count: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="Checkpoints of a phase, which lasts until they, and restores, are over. Without it, they go on.",
    )
    restored_by: Annotated[list[Nodes], Field(max_length=32), AfterValidator(_each_once)] = Field(
        default=[],
        description="After `count` checkpoints, by how many of the nodes the last one is restored, one after another.",
    )
    in_flight: Count = Field(default=32, description="Chunks that a node writes, or reads, at once.")
    device_to_host: OptionalRate = Field(
        default=int(DEVICE_TO_HOST_BPS * 8),
        description=(
            "How fast a node's part comes from its GPUs before it is written (27 GB/s by arXiv 2408.14158, IV-D); "
            "`off`: at once."
        ),
    )
    keep: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=2, description="How many complete checkpoints are kept; older ones are removed."
    )

    @property
    def has_end(self) -> bool:
        """Whether a phase lasts until all is written and restored."""
        return self.count is not None

    @property
    def keeping(self) -> Keeping:
        """Which checkpoints are kept."""
        return Keeping(last=self.keep)

    def writing(self, nodes: int) -> int:
        """Return how many of so many nodes write."""
        return nodes if self.writers is None else self.writers

    def node_faults(self, nodes: int) -> Iterator[str]:
        """Yield what asks for more nodes than a job has."""
        for key, wanted in [("writers", self.writing(nodes)), *(("restored_by", one) for one in self.restored_by)]:
            if wanted > nodes:
                yield f"{key}: {wanted}, but the job has {nodes} nodes; lower it or raise nodes"

    def _faults(self) -> Iterator[str]:
        if self.restored_by and self.count is None:
            yield "restored_by: is played once `count` checkpoints are written; set count"
        if self.size < 2 * self.tensors:
            yield f"size: {self.size} B are fewer than a value for each of {self.tensors} tensors; raise it"
        yield from super()._faults()
