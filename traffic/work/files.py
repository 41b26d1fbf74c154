"""Files that a graph reads and writes: where they are in the storage of a fabric, and the services that hold them.

A job whose graph has files has a storage service of its own on every storage node, and each rank a client. Files are
there before, as large as the graph reaches in them. What is read is verified by the client library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from pydantic import Field

from fabric.config import SizeBytes, Strict
from fabric.model.identity import NodeId
from traffic.storage.chains import ChainTable, FileLayout
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob
from traffic.transport.connection import Endpoint, Transport
from traffic.work.graph import WorkGraph
from traffic.work.operations import FileRead, FileWrite
from traffic.work.words import described


class FilesConfig(Strict):
    """The storage that holds the files of a graph, if it has any; limits and timeouts are those of storage jobs."""

    chunk_size: Annotated[SizeBytes, Field(ge=4096, le=64 << 20)] = Field(
        default=512 << 10, description="Size of a chunk; writes are of whole chunks."
    )
    stripe: Annotated[int, Field(ge=1, le=4096)] = Field(default=1, description="Chains over which a file is laid.")
    replicas: Annotated[int, Field(ge=1, le=8)] = Field(default=1, description="Copies of each chunk, on other nodes.")

    def storage(self) -> StorageConfig:
        """Return the config of the service."""
        return StorageConfig(chunk_size=self.chunk_size, stripe=self.stripe, replicas=self.replicas)


@dataclass(frozen=True)
class FileAccess:
    """What a rank's client needs to know. ``host``: by which services know it, in their rows, too; ``number``: its own
    among all clients that there ever were; ``layouts``: where each file is, by its path."""

    host: str
    number: int
    source: str
    services: Mapping[NodeId, Endpoint]
    config: StorageConfig
    table: ChainTable
    layouts: Mapping[str, FileLayout]
    seed: int
    transport: Transport


def sizes_of(graph: WorkGraph) -> dict[str, int]:
    """Return how far a graph reaches in each file, by path, in order of the paths."""
    found: dict[str, int] = {}
    for _, _, one in graph.all_operations():
        if isinstance(one, FileRead | FileWrite):
            found[one.path] = max(found.get(one.path, 0), one.offset_bytes + one.size_bytes)
    return dict(sorted(found.items()))


def ranks_with_files(graph: WorkGraph) -> list[int]:
    """Return the ranks that read or write files."""
    return [
        rank
        for rank, operations in enumerate(graph.operations)
        if any(isinstance(one, FileRead | FileWrite) for one in operations)
    ]


def file_faults(graph: WorkGraph, chunk_bytes: int) -> Iterator[str]:
    """Yield which writes are not of whole chunks: a chunk is written anew as a whole."""
    sizes = sizes_of(graph)
    for rank, place, one in graph.all_operations():
        if isinstance(one, FileWrite):
            end = one.offset_bytes + one.size_bytes
            if one.offset_bytes % chunk_bytes or (end % chunk_bytes and end != sizes[one.path]):
                yield (
                    f"{described(rank, place, one)}: {one.size_bytes} B from {one.offset_bytes} on are not whole "
                    f"chunks of {chunk_bytes} B; write these, or change files.chunk_size"
                )


@dataclass
class FileServices(StorageJob):
    """Storage services without clients of their own: ``clients`` are the hosts of ranks. ``sizes``: those of the files,
    by path."""

    sizes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def layouts(self) -> dict[str, FileLayout]:
        """Where each file is, by its path."""
        return {path: self.striping.layout(number, size) for number, (path, size) in enumerate(self.sizes.items())}

    @cached_property
    def dataset(self) -> tuple[FileLayout, ...]:
        """The files, which services make before anything is played."""
        return tuple(one for one in self.layouts.values() if one.size_bytes)

    def start(self) -> None:
        """Fork the services and link them up. Raises TrafficError."""
        self._start_services()
        self._watch()

    def access(self, host: NodeId, number: int) -> FileAccess:
        """Return what a rank's client on a host needs to know."""
        services = self.services_of(host)
        first = number % len(services)  # Else all clients would connect to the same service first.
        return FileAccess(
            host=str(host),
            number=number,
            source=self.source_of(host),
            services=dict([*services.items()][first:] + [*services.items()][:first]),
            config=self.config,
            table=self.table,
            layouts=self.layouts,
            seed=self.stage.seed,
            transport=self._transport,
        )


def hosts_of(ranks: Sequence[int], places: Sequence[NodeId]) -> list[NodeId]:
    """Return the hosts of some ranks, each once."""
    return list(dict.fromkeys(places[rank].host for rank in ranks))
