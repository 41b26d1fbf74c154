"""What a run of ``checkpoints`` says: rates beside closed forms, restores, and what steps lose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import pandas as pd

from cluster.checkpoints.job import RESTORE, WRITE
from cluster.checkpoints.kinds import RESTORED, RESTORED_ALL, RESTORED_SLOWEST, checkpoint_numbers
from cluster.checkpoints.rates import GIB, Bound, storage_nics_for, write_bound, writers_for
from experiments.checkpoints.config import WANTED_BPS, CheckpointsRunConfig, WriteSetup, setup_on
from fabric.metrics import metrics_of
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric
from fabric.records.cells import Quantity, Row, count_of, measured, quantity
from fabric.records.summary_table import SummaryTable
from fabric.units import format_share, format_time
from runs.session import Session
from runs.true_scale import scale_words, true_rate
from traffic.metrics import payload_fraction

JOB, TRAINING, WAITING = "checkpoints", "training", "waiting"
PAPER_STORAGE_NICS, PAPER_NODES = 360, 1250
"""Of Fire-Flyer 2: 180 storage nodes with a NIC in each zone, and its GPU nodes."""


def trained(queueing: Queueing) -> str:
    """Return the name of the phase in which training is alone."""
    return f"training_{queueing.value}"


def beside(queueing: Queueing) -> str:
    """Return the name of the phase in which checkpoints are written beside it."""
    return f"beside_{queueing.value}"


@dataclass(frozen=True)
class Alone:
    """Checkpoints of a setup, and what its closed form says."""

    setup: WriteSetup
    values: Mapping[str, float]
    bound: Bound


@dataclass(frozen=True)
class Beside:
    """Steps in a queueing. ``steps``: from when to when each was played beside checkpoints; ``written``: likewise each
    checkpoint, from its begin until its index was there; times in seconds of the run."""

    queueing: Queueing
    step_s: float
    steps: Sequence[tuple[float, float]]
    written: Sequence[tuple[float, float]]
    values: Mapping[str, float]

    @property
    def met_s(self) -> list[float]:
        """How long those steps took that met a checkpoint."""
        return [end - begin for begin, end in self.steps if self._meets(begin, end)]

    def _meets(self, begin: float, end: float) -> bool:
        return any(begin < until and end > since for since, until in self.written)

    @property
    def lost_s(self) -> float:
        """What a checkpoint costs the steps that meet it, over what they take alone."""
        return sum(one - self.step_s for one in self.met_s) / max(1, len(self.written))

    @property
    def lost_fraction(self) -> float:
        """What steps lose of the time for which checkpoints are written."""
        written_s = sum(until - since for since, until in self.written)
        return max(self.lost_s, 0.0) * len(self.written) / written_s if written_s else 0.0

    @property
    def numbers(self) -> dict[str, float]:
        """Its metrics."""
        found = {"step_alone_s": self.step_s, "lost_s": self.lost_s, "met_steps": float(len(self.met_s))}
        found["lost_fraction"] = self.lost_fraction
        if self.met_s:
            found |= {"step_beside_s": mean(self.met_s), "slowdown": mean(self.met_s) / self.step_s}
        return found


@dataclass(frozen=True)
class Waiting:
    """Steps that wait for checkpoints. ``gaps_s``: for how long no step was made, around each; ``values``: of the
    checkpoints."""

    gaps_s: Sequence[float]
    values: Mapping[str, float]

    @property
    def lost_s(self) -> float:
        """What a checkpoint costs; 0 without any."""
        return mean(self.gaps_s) if self.gaps_s else 0.0

    @property
    def numbers(self) -> dict[str, float]:
        """Its metrics."""
        return {"lost_s": self.lost_s}


def gaps(steps: Sequence[tuple[float, float]], written: Sequence[tuple[float, float]]) -> list[float]:
    """Return from the end of the last step before each checkpoint to the begin of the first one after it; nothing of
    one before or behind which there is none."""
    found = []
    for since, until in written:
        before = [end for _, end in steps if end <= since]
        after = [begin for begin, _ in steps if begin >= until]
        if before and after:
            found.append(min(after) - max(before))
    return found


def summarize(session: Session, config: CheckpointsRunConfig) -> dict[str, Any]:
    """Return the tables and metrics of a run."""
    fabric, table, steps = session.live.fabric, session.table("checkpoints"), session.table("work_steps")
    alone = [_alone(fabric, config, setup, table) for setup in config.all_setups]
    found = [_beside(queueing, table, steps) for queueing in config.queueings]
    waiting = _waiting(table, steps)
    restored = table[(table["phase"] == config.main.name) & (table["operation"].astype(str) == RESTORE)]
    metrics = [
        *(one for each in alone for one in metrics_of(each.setup.name, JOB, each.values)),
        *(one for each in found for one in metrics_of(beside(each.queueing), JOB, each.values)),
        *(one for each in found for one in metrics_of(beside(each.queueing), TRAINING, each.numbers)),
        *metrics_of(WAITING, JOB, waiting.values),
        *metrics_of(WAITING, TRAINING, waiting.numbers),
    ]
    return {
        "title": "Checkpoints",
        "answer": answer(config, alone, found, restored),
        "metrics": metrics,
        "tables": [
            written_table(fabric, sorted(alone, key=_order)),
            restored_table(alone[0], restored),
            beside_table(config, found, waiting),
            needed_table(fabric),
        ],
        "checkpoints": figure_data(sorted(alone, key=_order), found),
    }


def _alone(fabric: Fabric, config: CheckpointsRunConfig, setup: WriteSetup, table: pd.DataFrame) -> Alone:
    nodes = fabric.computes[: setup.writers]
    bound = write_bound(setup_on(fabric, nodes, setup.replicas, config.checkpoints.device_to_host))
    return Alone(setup, checkpoint_numbers(table[table["phase"] == setup.name]), bound)


def spans(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return from when to when all did each step, or each checkpoint."""
    found = rows.groupby("step").agg({"started_s": "min", "ended_s": "max"})
    return [*zip(found["started_s"].tolist(), found["ended_s"].tolist(), strict=True)]


def _written(table: pd.DataFrame, phase: str) -> pd.DataFrame:
    return table[(table["phase"] == phase) & (table["operation"].astype(str) == WRITE)]


def _beside(queueing: Queueing, table: pd.DataFrame, steps: pd.DataFrame) -> Beside:
    mine = _written(table, beside(queueing))
    took_s = [end - begin for begin, end in spans(steps[steps["phase"] == trained(queueing)])]
    step_s = median(took_s) if took_s else math.nan
    return Beside(
        queueing, step_s, spans(steps[steps["phase"] == beside(queueing)]), spans(mine), checkpoint_numbers(mine)
    )


def _waiting(table: pd.DataFrame, steps: pd.DataFrame) -> Waiting:
    mine = _written(table, WAITING)
    return Waiting(gaps(spans(steps[steps["phase"] == WAITING]), spans(mine)), checkpoint_numbers(mine))


def _order(one: Alone) -> tuple[int, int]:
    return one.setup.writers, one.setup.replicas


def _gib(value_Bps: float | None) -> str:  # noqa: N803 - bytes, not bits
    return "-" if value_Bps is None else f"{value_Bps / GIB:.2f}"


def _gib_cell(value_Bps: float | None) -> Quantity:  # noqa: N803 - bytes, not bits
    return quantity(value_Bps, ".2f in GiB/s")


def answer(
    config: CheckpointsRunConfig, alone: Sequence[Alone], found: Sequence[Beside], restored: pd.DataFrame
) -> str:
    """Return the finding in words."""
    main = alone[0]
    rate = main.values.get("checkpoint.node_Bps", 0.0)
    parts = [
        f"{main.setup.writers} nodes write {_gib(rate)} GiB/s each to {main.setup.replicas} replicas; "
        f"{main.bound.by} would let them write {_gib(main.bound.node_Bps)}."
    ]
    counts = sorted({int(one) for one in restored["nodes"]})
    if counts:
        named = ", ".join(map(str, counts))
        parts.append(f"Restored by {named} nodes, every byte is equal.")
    lost = [f"{format_share(one.lost_fraction, 1)} in {one.queueing.words}" for one in found]
    parts.append(
        f"Steps that go on beside a checkpoint lose {' and '.join(lost)} of the time for which it is written; those "
        "that wait for it lose all of that."
    )
    return " ".join(parts)


def written_table(fabric: Fabric, alone: Sequence[Alone]) -> SummaryTable:
    """Return a row per setup."""
    rows: list[Row] = []
    for one in alone:
        values = one.values
        rate = values.get("checkpoint.node_Bps", 0.0)
        rows.append(
            [
                count_of(one.setup.writers),
                count_of(one.setup.replicas),
                _gib_cell(rate),
                _gib_cell(values.get("checkpoint.slowest_Bps")),
                _gib_cell(one.bound.node_Bps),
                quantity(rate / one.bound.node_Bps, ".0%"),
                one.bound.by,
                "yes" if true_rate(fabric, rate) > WANTED_BPS else "no",
                measured(values, "checkpoint.copy_s", otherwise=0.0),
                measured(values, "checkpoint.complete_s", otherwise=0.0),
                _gib_cell(values.get("checkpoint.whole_Bps")),
            ]
        )
    columns = ["nodes", "replicas", "GiB/s a node", "slowest", "by closed form", "of that", "what binds"]
    return SummaryTable(
        title="Checkpoints alone",
        columns=[*columns, "above 10 GiB/s", "copied from GPUs", "complete after", "GiB/s with all"],
        rows=rows,
        note="GiB/s a node: of what it has in its memory, until all replicas have it, the median node. complete: from "
        "the start of the copy until the index is there, for which steps wait that do not go on beside it"
        + ("" if fabric.scale == 1 else f"; above 10 GiB/s: the rate of a node{scale_words(fabric)}"),
    )


def restored_table(main: Alone, restored: pd.DataFrame) -> SummaryTable:
    """Return a row per number of nodes that restored."""
    rows: list[Row] = []
    for nodes, part in restored.groupby("nodes"):
        values = main.values
        rows.append(
            [
                count_of(main.setup.writers),
                count_of(int(str(nodes))),
                quantity(int(part["size_bytes"].sum()), "size"),
                measured(values, RESTORED_ALL.of(nodes)),
                _gib_cell(values[RESTORED.of(nodes)]),
                _gib_cell(values[RESTORED_SLOWEST.of(nodes)]),
                "yes",
            ]
        )
    return SummaryTable(
        title="Restores",
        columns=["written by", "restored by", "bytes", "all have it after", "GiB/s a node", "slowest", "equal"],
        rows=rows,
        note="each node restores its even part of every tensor, and compares it by SHA-256 with what was written; a "
        "run in which one differs fails",
    )


def beside_table(config: CheckpointsRunConfig, found: Sequence[Beside], waiting: Waiting) -> SummaryTable:
    """Return a row per queueing for steps that go on, and one for steps that wait."""
    rows: list[Row] = []
    for one in found:
        numbers = one.numbers
        rows.append(
            [
                f"go on, in {one.queueing.words}",
                quantity(one.step_s, "time"),
                measured(numbers, "step_beside_s"),
                measured(numbers, "slowdown", ".2f x") if "slowdown" in numbers else "-",
                quantity(max(one.lost_s, 0.0), "time"),
                quantity(one.lost_s / one.step_s, ".0%"),
                quantity(one.lost_fraction, ".1%"),
                quantity(one.lost_fraction * config.lasts / config.period, ".3%"),
                _gib_cell(one.values.get("checkpoint.node_Bps")),
                measured(one.values, "checkpoint.complete_s", otherwise=0.0),
            ]
        )
    step_s = found[0].step_s
    waits: Row = [
        f"wait for it, in {found[0].queueing.words}",
        quantity(step_s, "time"),
        "-",
        "-",
        quantity(waiting.lost_s, "time"),
        quantity(waiting.lost_s / step_s, ".0%"),
        quantity(1.0, ".0%"),
        quantity(config.lasts / (config.period + config.lasts), ".3%"),
        _gib_cell(waiting.values.get("checkpoint.node_Bps")),
        measured(waiting.values, "checkpoint.complete_s", otherwise=0.0),
    ]
    return SummaryTable(
        title="Training and checkpoints on the same nodes",
        columns=[
            "steps", "alone", "that meet one", "slowdown", "lost per checkpoint", "of a step", "of its time",
            f"of all, {format_time(config.lasts)} every {format_time(config.period)}", "GiB/s a node", "complete after",
        ],
        rows=[*rows, waits],
        note="lost: what steps that meet a checkpoint take longer than alone, per checkpoint; of steps that wait, from "
        "the end of the last one before it to the start of the next. of its time: for which one is written, by which "
        "what longer ones cost is reckoned",
    )  # fmt: skip


def needed_table(fabric: Fabric) -> SummaryTable:
    """Return what more than 10 GiB/s a node takes, by closed form."""
    nic_Bps = true_rate(fabric, fabric.nic_rate_bps / 8) * payload_fraction(fabric.mtu_bytes)  # noqa: N806 - a unit
    rows: list[Row] = []
    for replicas in (1, 2, 3):
        most = writers_for(PAPER_STORAGE_NICS, replicas, nic_Bps, WANTED_BPS)
        nics = storage_nics_for(100, replicas, nic_Bps, WANTED_BPS)
        rows.append(
            [
                count_of(replicas),
                "-" if nics is None else count_of(nics),
                quantity(most, ",.0f"),
                quantity(most / PAPER_NODES, ".0%"),
            ]
        )
    return SummaryTable(
        title="What 10 GiB/s a node takes, by closed form",
        columns=["replicas", "NICs of storage for 100 writers", "nodes of Fire-Flyer 2 at once", "of all"],
        rows=rows,
        note=f"Fire-Flyer 2 has {PAPER_STORAGE_NICS} NICs of storage and about {PAPER_NODES:,} nodes; NICs of this "
        "fabric's true rate. Disks are left out",
    )


def figure_data(alone: Sequence[Alone], found: Sequence[Beside]) -> dict[str, Any]:
    """Return what the figures draw."""
    return {
        "alone": [
            {
                "writers": one.setup.writers,
                "replicas": one.setup.replicas,
                "node_gibps": one.values.get("checkpoint.node_Bps", 0.0) / GIB,
                "slowest_gibps": one.values.get("checkpoint.slowest_Bps", 0.0) / GIB,
                "bound_gibps": one.bound.node_Bps / GIB,
            }
            for one in alone
        ],
        "beside": [
            {
                "title": one.queueing.words,
                "step_s": one.step_s,
                "steps": [list(span) for span in one.steps],
                "written": [list(span) for span in one.written],
            }
            for one in found
        ],
    }
