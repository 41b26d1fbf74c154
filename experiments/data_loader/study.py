"""How long does computing wait for a data loader's reads?

Every compute node reads its part of a data set, each sample once, in batches, and computes between them; each case is a
phase, which lasts until all have done their epochs. 3FS gives random access to samples, so that loaders need neither
keep nor shuffle data (3FS design notes); how far ahead they must ask, and what that depends on, is the question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.data_loader.config import DataLoaderConfig
from fabric.measures import Measure
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.records.figure_forms import Bars, Number
from fabric.records.palette import GREY
from fabric.records.summary_table import SummaryTable
from fabric.units import exact_in, format_share, format_time
from runs.case_tables import Column, case_table
from runs.cases import Case, axis
from runs.counted_operations import operation_metrics
from runs.session import Session
from runs.study import Found, Played, Study, play_case
from traffic.metrics import payload_fraction
from traffic.storage.config import StorageConfig
from traffic.storage.finite import FiniteStorageJob
from traffic.storage.job import chosen
from traffic.storage.load_config import EpochsConfig, SampleOrder
from traffic.storage.load_measures import loader_numbers

GROUP = "{compute_s} a batch, {order}, {queueing}"
"""What cases share that only differ in how far ahead they ask."""


@dataclass(frozen=True)
class Epochs(Case, name="{queueing}_{compute_s}_{order}_ahead_{prefetch}", title=f"{GROUP}, {{ahead}}"):
    """How long a batch is computed for, in which order samples come, and how many batches are asked for ahead."""

    queueing: Queueing = axis("queueings")
    compute_s: float = axis("computes", lambda s: f"{exact_in(s, 1_000_000)}us", format_time)
    order: SampleOrder = axis("orders")
    prefetch: int = axis("prefetches")

    @property
    def ahead(self) -> str:
        """How many batches are asked for ahead, in words."""
        return f"{self.prefetch} ahead" if self.prefetch else "each when wanted"

    def storage(self, config: StorageConfig) -> StorageConfig:
        """Return the storage job's config."""
        given = config.dataloader.epochs or EpochsConfig()
        changed = {"compute": self.compute_s, "order": self.order, "prefetch": self.prefetch}
        epochs = given.model_copy(update=changed)
        return config.model_copy(update={"dataloader": config.dataloader.model_copy(update={"epochs": epochs})})


def ideal_epoch_s(batches: float, batch_s: float, compute_s: float, is_ahead: bool) -> float:
    """Return how long an epoch of so many batches takes if each takes ``batch_s`` to read.

    Without asking ahead a batch is read, then computed. Else the first one is read, and each one behind it takes the
    longer of both; the last one is computed.
    """
    if not is_ahead:
        return batches * (batch_s + compute_s)
    return batch_s + (batches - 1) * max(batch_s, compute_s) + compute_s


def even_batch_s(fabric: Fabric, readers: int, batch_bytes: float) -> float:
    """Return how long a batch takes to read if all readers read at once, and share the storage nodes' NICs evenly, or
    are held by their own."""
    payload_Bps = fabric.nic_rate_bps / 8 * payload_fraction(fabric.mtu_bytes)  # noqa: N806 - bytes, not bits
    nics = sum(len(fabric.nics_of[node]) for node in fabric.storages)
    return batch_bytes / min(payload_Bps, nics * payload_Bps / readers)


def _play(session: Session, config: DataLoaderConfig, case: Epochs) -> None:
    session.use_queueing(case.queueing)
    play_case(
        session, case, [FiniteStorageJob(session.stage, case.storage(config.storage), session.live.fabric.computes)]
    )


def _measure(played: Played[Epochs, DataLoaderConfig]) -> list[Metric]:
    case, batches = played.case, played.rows("loader_batches")
    found = loader_numbers(batches, [played.phase.load_s])
    found = {**found, **operation_metrics(played.rows("operations"), "read", played.phase.load_s)}
    if found.get("loader.epochs"):
        readers = len(chosen(played.fabric.computes, played.config.storage.dataloader.share))
        each = found["loader.batches"] / found["loader.epochs"] / readers
        batch_s = even_batch_s(played.fabric, readers, float(batches["size_bytes"].mean()))
        found["loader.ideal_epoch_s"] = ideal_epoch_s(each, batch_s, case.compute_s, case.prefetch > 0)
    return metrics_of(case.name, "storage", {**found, **played.packets()}, is_named_by_job=False)


def _answer(found: Found[Epochs, DataLoaderConfig]) -> str:
    groups: dict[str, list[str]] = {}
    for one in found.outcomes:
        if "loader.ideal_epoch_s" in one.values:
            told = f"{format_share(one['loader.waiting_fraction'])} {one.case.ahead}"
            groups.setdefault(one.case.format(GROUP), []).append(told)
    if not groups:
        return "No epoch was whole."
    parts = (f"{group}: {', '.join(told)}" for group, told in groups.items())
    return f"Computing waits for data, of a reader's time: {'; '.join(parts)}."


def _tables(found: Found[Epochs, DataLoaderConfig]) -> Iterator[SummaryTable]:
    yield case_table(
        "An epoch of each reader",
        found.outcomes,
        (
            Column("a batch", lambda one: one.case.format(GROUP)),
            Column("ahead", "prefetch"),
            Column("epoch", "loader.epoch_s"),
            Column("at an even rate", "loader.ideal_epoch_s"),
            Column("computes", "loader.computing_s"),
            Column("waits", "loader.waiting_s"),
            Column("of that first", "loader.first_wait_s"),
            Column("waits, of its time", "loader.waiting_fraction", ".1%"),
            Column("a node", "loader.node_Bps"),
            Column("read p99", "read.p99_s"),
            Column("dropped", "drops_packets"),
        ),
        "epoch: until the last reader has computed; what one computes and waits is the mean over readers. at an even "
        "rate: if all read at once and each batch took its share of the storage nodes' NICs. first: an epoch's first "
        "batch",
    )


STUDY = Study(
    title="Epochs of data loaders",
    cases=Epochs.grid,
    play=_play,
    measure=_measure,
    measures=(
        Measure(
            "loader.ideal_epoch_s", "time of an epoch if all clients read at once and each batch came at an even rate"
        ),
    ),
    answer=_answer,
    tables=_tables,
    figures=(
        Bars(
            "epochs",
            "What a reader's epoch is made of, the mean over readers: computing, waiting for the first batch, waiting "
            "for later ones; by how many batches are asked for ahead. Lines: an epoch if batches came at an even rate.",
            "Epochs: computing and waiting for data",
            numbers=(
                Number("loader.computing_s", "computing", 1e3),
                Number("loader.first_wait_s", "waiting for the first batch", 1e3),
                Number(lambda of: of["loader.waiting_s"] - of["loader.first_wait_s"], "waiting for later ones", 1e3),
            ),
            marks=(Number("loader.ideal_epoch_s", "at an even rate", 1e3, colour=GREY, size=26),),
            x="{prefetch}",
            panels=GROUP,
            labels=("number of batches asked for ahead", "time of a reader's epoch (ms)"),
            stacked=True,
        ),
    ),
)
