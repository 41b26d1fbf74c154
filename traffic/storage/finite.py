"""The storage job whose clients have a fixed amount to do: epochs that are counted, a restore."""

from __future__ import annotations

from collections.abc import Sequence

from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from traffic.job import Stage
from traffic.storage.client.data_loader import sample_shape
from traffic.storage.client.samples import batches_in_epoch, sample_table
from traffic.storage.config import StorageConfig
from traffic.storage.job import StorageJob
from traffic.storage.orders import Finish

_BASE_TIMEOUT_S = 60.0
"""What a load may take beyond its share of the network: retransmission timeouts, links that are made anew."""
_IDEAL_TIMES = 50
"""How many times as long a load may take as one client alone would: others share its ports, or its lane."""


class FiniteStorageJob(StorageJob):
    """A :class:`traffic.job.FiniteJob`: its phase lasts until the load of all clients is over. Make it where
    ``config.has_end``."""

    def finish(self) -> None:
        """Return once all clients have done what they had to. Raises TrafficError, if they have not in 60 s and 50
        times the time that the load takes at the NICs of the clients and services, if nothing else slowed it."""
        self._clients.order(Finish())
        self._clients.await_ready("report that its load is over", self.patience_s)

    @property
    def patience_s(self) -> float:
        """How long :meth:`finish` waits."""
        fabric = self.stage.fabric
        read = [self._read_bytes(client) for client in self.clients]
        nic_Bps = fabric.nic_rate_bps / 8  # noqa: N806 - bytes, not bits
        ideal_s = max(max(read, default=0.0), sum(read) / len(self._servers)) / nic_Bps + self._computed_s()
        return _BASE_TIMEOUT_S + self.config.client.operation_timeout + _IDEAL_TIMES * ideal_s

    def _read_bytes(self, client: NodeId) -> float:
        """Return what a client reads in a phase, about."""
        part, config = self.parts[client], self.config
        restored = config.restore.size if part.restored is not None else 0
        if part.reader is None:
            return restored
        return restored + self._batches() * config.dataloader.batch * sample_shape(config.dataloader).mean_bytes

    def _batches(self) -> int:
        """Return how many batches each reader has in a phase."""
        config = self.config.dataloader
        readers = [part for part in self.parts.values() if part.reader is not None]
        if config.epochs is None or not readers:
            return 0
        samples = sample_table(sample_shape(config), self.stage.seed).count
        own = batches_in_epoch(samples, config.batch, len(readers))
        return (config.epochs.count or 0) * min(own, config.epochs.batches or own)

    def _computed_s(self) -> float:
        """Return how long a reader computes in a phase."""
        epochs = self.config.dataloader.epochs
        return 0.0 if epochs is None else self._batches() * epochs.compute


def storage_job(
    stage: Stage, config: StorageConfig, clients: Sequence[NodeId], *, level: ServiceLevel, name: str
) -> StorageJob:
    """Return a storage job, of the kind whose phase lasts until its load is over if that has an end."""
    kind = FiniteStorageJob if config.has_end else StorageJob
    return kind(stage, config, clients, level=level, name=name)
