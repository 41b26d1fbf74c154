"""A KV cache as a job: clients that play requests, and a storage service of its own that holds the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from fabric.errors import ConfigError
from fabric.model.identity import NodeId
from fabric.world.programs.agents import Program
from traffic.job import Stage
from traffic.storage.chains import FileLayout
from traffic.storage.job import StorageJob
from traffic.storage.kv_cache.arrivals import Window, window_of
from traffic.storage.kv_cache.config import KvCacheConfig
from traffic.storage.kv_cache.player import KvClientArguments, first_file_of, run_kv_client
from traffic.storage.orders import Finish, ManagedClientArguments

_MOST_CHUNKS = 1_000_000


class KvCacheJob(StorageJob):
    """A :class:`traffic.job.Job` of the storage service, whose clients each play the requests of ``config``.

    ``more``: what else :class:`StorageJob` takes. Blocks that are there at the begin are on the disks before it plays.
    """

    def __init__(self, stage: Stage, config: KvCacheConfig, clients: Sequence[NodeId], **more: Any) -> None:
        self.kv = config
        super().__init__(stage, config.storage, clients, **more)

    @cached_property
    def window(self) -> Window:
        """What each client plays. Raises ConfigError."""
        return window_of(self.kv.requests, self.kv.blocks, self.stage.seed)

    @cached_property
    def dataset(self) -> tuple[FileLayout, ...]:
        """The files that are there at the begin, of all clients. Raises ConfigError if they are too many."""
        size, here = self.kv.serving.block_bytes, len(self.window.present)
        chunks = len(self.clients) * here * -(-size // self.config.chunk_size)
        if chunks > _MOST_CHUNKS:
            words = f"{here:,} blocks of {len(self.clients)} clients at the start are {chunks:,} chunks"
            raise ConfigError("kv_cache", [f"requests: {words}, more than {_MOST_CHUNKS:,}; take a smaller window"])
        return tuple(
            self.striping.layout(first_file_of(number) + place, size)
            for number in range(len(self.clients))
            for place in range(here)
        )

    @property
    def client_program(self) -> Program:
        """What runs in a client's host."""
        return run_kv_client

    def told(self, arguments: ManagedClientArguments) -> object:
        """Return what a client is told."""
        return KvClientArguments(arguments, self.kv, self.window)


class FiniteKvCacheJob(KvCacheJob):
    """The same as a :class:`traffic.job.FiniteJob`: its phase is over once all requests are answered and written.
    ``patience_s``: how long that may take after they have come, at most."""

    def __init__(
        self, stage: Stage, config: KvCacheConfig, clients: Sequence[NodeId], patience_s: float, **more: Any
    ) -> None:
        super().__init__(stage, config, clients, **more)
        if config.requests.cycle:
            raise ConfigError("kv_cache", ["requests.cycle: its requests never end; set it to false"])
        self._patience_s = self.window.arrivals[-1].after_s + patience_s

    def finish(self) -> None:
        """Return once all is done. Raises TrafficError if it is not in time."""
        self._clients.order(Finish())
        self._clients.await_ready("report that all requests are answered and written", self._patience_s)
