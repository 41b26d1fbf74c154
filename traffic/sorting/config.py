"""The keys of a sort."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, TimeS
from fabric.model.network import Fabric
from fabric.units import format_size
from traffic.sorting.graph import Exchange, SortShape, sort_graph
from traffic.storage.config import ClientConfig, RequestToSend, StorageConfig
from traffic.work.checks import require_playable
from traffic.work.files import FilesConfig
from traffic.work.graph import WorkGraph
from traffic.work.job import PlayConfig, work_faults

MOST_OPERATIONS = 200_000
"""Of the graph of a sort."""


class SortFilesConfig(FilesConfig):
    """The storage that a sort reads from and writes to."""

    replicas: Annotated[int, Field(ge=1, le=8)] = Field(
        default=2, description="Copies of each chunk, on other nodes; 3FS in production has three."
    )
    stripe: Annotated[int, Field(ge=1, le=4096)] = Field(default=8, description="Chains over which a file is laid.")
    disks_per_node: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Disks (targets) per storage node."
    )
    chains_per_target: Annotated[int, Field(ge=1, le=64)] = Field(
        default=6, description="Chains that each disk is part of."
    )
    request_to_send: RequestToSend = Field(
        default=None, description="Reads that may send to one client at once; `off`: all, as 3FS ships."
    )
    client: ClientConfig = Field(default=ClientConfig(), description="Limits and timeouts of each client.")

    def storage(self) -> StorageConfig:
        """Return the config of the service."""
        return StorageConfig(**{name: getattr(self, name) for name in type(self).model_fields})


class SortConfig(PlayConfig):
    """A sort of data in storage, again and again: nodes take their input apart into partitions, then sort these."""

    ranks: Annotated[int, Field(ge=2, le=4096)] = Field(description="Nodes that sort, one rank on each.")
    tasks: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=2, description="Tasks of the first phase on each node, which follow each other."
    )
    partitions: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=2, description="Partitions that each node sorts in the second phase."
    )
    part: Annotated[SizeBytes, Field(ge=4096, le=64 << 20)] = Field(
        default=512 << 10,
        description=(
            "What each task adds to each partition, in whole chunks: so a node has tasks x ranks x partitions x part."
        ),
    )
    exchange: Annotated[Exchange, Field(strict=False)] = Field(
        default=Exchange.STORAGE,
        description=(
            "How partitions reach the nodes that sort them: through files (`storage`, as smallpond), or from node to "
            "node (`nodes`)."
        ),
    )
    at_once: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=8, description="Reads of parts, and writes, that a node has under way at once."
    )
    partition_time: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time of computing of a task of the first phase."
    )
    sort_time: Annotated[TimeS, Field(ge=0)] = Field(
        default=0.0, description="Time of computing of a partition in the second phase."
    )
    files: SortFilesConfig = Field(default=SortFilesConfig(), description="The storage of input, parts and output.")

    @property
    def shape(self) -> SortShape:
        """How much is sorted, and how."""
        return SortShape(
            self.ranks,
            self.tasks,
            self.partitions,
            self.part,
            self.exchange,
            self.at_once,
            self.partition_time,
            self.sort_time,
        )

    def loaded(self) -> WorkGraph:
        """Return the graph of the sort."""
        return _loaded(self.shape)


@lru_cache(maxsize=4)
def _loaded(shape: SortShape) -> WorkGraph:
    graph = sort_graph(shape)
    require_playable(graph)
    return graph


def sort_faults(config: SortConfig, fabric: Fabric) -> Iterator[str]:
    """Yield what of a config cannot be played on a fabric."""
    if (operations := config.ranks**2 * config.partitions * (config.tasks + 1)) > MOST_OPERATIONS:
        yield (
            f"ranks x ranks x partitions x (tasks + 1): {operations:,} reads and writes; at most {MOST_OPERATIONS:,}, "
            "so lower one of them"
        )
        return
    if config.part % config.files.chunk_size:
        yield (
            f"part: {format_size(config.part)} is not a multiple of files.chunk_size, "
            f"{format_size(config.files.chunk_size)}: chunks are written whole; change one of them"
        )
        return
    yield from work_faults(config, fabric)
