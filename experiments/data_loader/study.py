"""How long does computing wait for a data loader's reads?

Every compute node reads its part of a data set, each sample once, in batches, and computes between them; each case is a
phase, which lasts until all have done their epochs. 3FS gives random access to samples, so that loaders need neither
keep nor shuffle data (3FS design notes); how far ahead they must ask, and what that depends on, is the question.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.data_loader.config import DataLoaderConfig
from fabric.model.lanes import Queueing
from fabric.records.figure_forms import Bars, Number
from fabric.records.palette import GREY
from fabric.units import exact_in, format_time
from runs.case_tables import Answer, CaseTable, Column
from runs.cases import Case, axis
from runs.study import Jobs, Played, Study, of_job
from traffic.storage.closed_forms import even_batch_s, ideal_epoch_s
from traffic.storage.finite import FiniteStorageJob
from traffic.storage.job import chosen
from traffic.storage.load_config import SampleOrder
from traffic.storage.load_measures import IDEAL_EPOCH, loader_numbers

GROUP = "{compute_s} a batch, {order}, {queueing}"
"""What cases share that only differ in how far ahead they ask."""


@dataclass(frozen=True)
class Epochs(Case, name="{queueing}_{compute_s}_{order}_ahead_{prefetch}", title=f"{GROUP}, {{ahead}}"):
    """How long a batch is computed for, in which order samples come, and how many batches are asked for ahead."""

    queueing: Queueing = axis("queueings")
    compute_s: float = axis(
        "computes", lambda s: f"{exact_in(s, 1_000_000)}us", format_time, sets="storage.dataloader.epochs.compute"
    )
    order: SampleOrder = axis("orders", sets="storage.dataloader.epochs.order")
    prefetch: int = axis("prefetches", sets="storage.dataloader.epochs.prefetch")

    @property
    def ahead(self) -> str:
        """How many batches are asked for ahead, in words."""
        return f"{self.prefetch} ahead" if self.prefetch else "each when wanted"


def _measure(played: Played[Epochs, DataLoaderConfig]) -> dict[str, float]:
    case, batches = played.case, played.rows("loader_batches")
    found = {**loader_numbers(batches, [played.phase.load_s]), **played.operations("read"), **played.packets()}
    if found.get("loader.epochs"):
        readers = len(chosen(played.fabric.computes, played.config.storage.dataloader.share))
        each = found["loader.batches"] / found["loader.epochs"] / readers
        batch_s = even_batch_s(played.fabric, readers, float(batches["size_bytes"].mean()))
        found[IDEAL_EPOCH.name] = ideal_epoch_s(each, batch_s, case.compute_s, case.prefetch > 0)
    return found


STUDY = Study[Epochs, DataLoaderConfig](
    title="Epochs of data loaders",
    cases=Epochs.grid,
    play=Jobs(lambda session, own, _: [FiniteStorageJob(session.stage, own.storage, session.live.fabric.computes)]),
    measure=of_job("storage", _measure),
    measures=(IDEAL_EPOCH,),
    answer=Answer(
        "Computing waits for data, of a reader's time: {}.",
        each="{loader.waiting_fraction|.0%} {ahead}",
        by=GROUP,
        having="loader.ideal_epoch_s",
        otherwise="No epoch was whole.",
    ),
    tables=(
        CaseTable(
            "An epoch of each reader",
            (
                Column("a batch", GROUP),
                "ahead {prefetch}, epoch {loader.epoch_s}, at an even rate {loader.ideal_epoch_s}, "
                "computes {loader.computing_s}, waits {loader.waiting_s}, of that first {loader.first_wait_s}, "
                "waits, of its time {loader.waiting_fraction}, a node {loader.node_Bps}, read p99 {read.p99_s}, "
                "dropped {drops_packets}",
            ),
            "epoch: until the last reader has computed; what one computes and waits is the mean over readers. at an "
            "even rate: if all read at once and each batch took its share of the storage nodes' NICs. first: an "
            "epoch's first batch",
        ),
    ),
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
            labels=("number of batches ahead", "time of a reader's epoch (ms)"),
            stacked=True,
        ),
    ),
)
