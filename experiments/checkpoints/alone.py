"""How fast do nodes write checkpoints, and what binds?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from cluster.checkpoints.kinds import checkpoint_numbers
from cluster.checkpoints.rates import GIB, PAPER_NODES, PAPER_STORAGE_NICS, Bound, fire_flyer_2_takes, write_bound
from experiments.checkpoints.config import WANTED_BPS, CheckpointsRunConfig, WriteSetup, setup_on
from fabric.metrics import metric_path, metrics_of
from fabric.model.network import Fabric
from fabric.records.figure_forms import Bars, Level, Number
from fabric.records.palette import GREY, INK
from runs.case_tables import CaseTable
from runs.cases import Case, axis
from runs.study import Found, Outcome, Point, Question
from runs.true_scale import scale_words, true_rate
from traffic.metrics import payload_fraction

JOB = "checkpoints"
RATE, SLOWEST = metric_path(JOB, "checkpoint.node_Bps"), metric_path(JOB, "checkpoint.slowest_Bps")


@dataclass(frozen=True)
class Alone(Case, name="{setup}", title="{setup}"):
    """Checkpoints alone."""

    setup: WriteSetup = axis("all_setups", attrgetter("name"))


AnyFound = Found[Alone, CheckpointsRunConfig]


def _bound(found: AnyFound, setup: WriteSetup) -> Bound:
    """Return the bound on a setup's bandwidth, from its closed form."""
    nodes, copy_bps = found.fabric.computes[: setup.writers], found.config.checkpoints.device_to_host
    return write_bound(setup_on(found.fabric, nodes, setup.replicas, copy_bps))


def _aside(found: AnyFound, one: Outcome[Alone]) -> dict[str, float]:
    setup, bound_Bps = one.case.setup, _bound(found, one.case.setup).node_Bps  # noqa: N806 - bytes, not bits
    numbers = {"nodes": setup.writers, "replicas": setup.replicas, "of_bound": one[RATE] / bound_Bps}
    return {**numbers, "bound_Bps": bound_Bps, "wanted_Bps": WANTED_BPS / found.fabric.scale}


def _words(found: AnyFound, one: Outcome[Alone]) -> Iterator[Point]:
    yield Point({"binds": _bound(found, one.case.setup).by, "above": "yes" if one[RATE] > one["wanted_Bps"] else "no"})


def _answer(found: AnyFound) -> str:
    setup, bound = found.config.main, _bound(found, found.config.main)
    rate_Bps = found.of(Alone(setup).name).values.get(RATE, 0.0)  # noqa: N806 - bytes, not bits
    return (
        f"{setup.writers} nodes write {rate_Bps / GIB:.2f} GiB/s each to {setup.replicas} replicas; {bound.by} would "
        f"let them write {bound.node_Bps / GIB:.2f}."
    )


def _note(found: AnyFound) -> str:
    return (
        "GiB/s a node: of what it has in its memory, until all replicas have it, the median node. complete: from the "
        "start of the copy until the index is there, for which steps wait that do not go on beside it"
        + ("" if found.fabric.scale == 1 else f"; above 10 GiB/s: the rate of a node{scale_words(found.fabric)}")
    )


def needed(fabric: Fabric) -> list[dict[str, float | None]]:
    """The network load of 10 GiB/s per node, by number of replicas, with NICs at the fabric's true rate."""
    nic_Bps = true_rate(fabric, fabric.nic_rate_bps / 8) * payload_fraction(fabric.mtu_bytes)  # noqa: N806 - bytes
    return [fire_flyer_2_takes(replicas, nic_Bps, WANTED_BPS) for replicas in (1, 2, 3)]


ALONE = Question[Alone, CheckpointsRunConfig](
    kinds=Alone,
    measure=lambda played: metrics_of(played.case.name, JOB, checkpoint_numbers(played.rows("checkpoints"))),
    aside=_aside,
    answer=_answer,
    tables=(
        CaseTable(
            "Checkpoints alone",
            "nodes {nodes}, replicas {replicas}, GiB/s a node {checkpoints.checkpoint.node_Bps|.2f in GiB/s}, "
            "slowest {checkpoints.checkpoint.slowest_Bps|.2f in GiB/s}, by closed form {bound_Bps|.2f in GiB/s}, "
            "of that {of_bound|.0%}, what binds {binds}, above 10 GiB/s {above}, "
            "copied from GPUs {checkpoints.checkpoint.copy_s}, complete after {checkpoints.checkpoint.complete_s}, "
            "GiB/s with all {checkpoints.checkpoint.whole_Bps|.2f in GiB/s}",
            _note,
            parts=_words,
        ),
        CaseTable(
            "What 10 GiB/s a node takes, by closed form",
            "replicas {replicas}, NICs of storage for 100 writers {nics}, nodes of Fire-Flyer 2 at once {nodes}, "
            "of all {share|.0%}",
            f"Fire-Flyer 2 has {PAPER_STORAGE_NICS} NICs of storage and about {PAPER_NODES:,} nodes; NICs of this "
            "fabric's true rate. Disks are left out",
            rows=lambda found: needed(found.fabric),
        ),
    ),
    figures=(
        Bars(
            "checkpoint_rates",
            "What a node writes per second while all do, until all replicas have it: the median node and the slowest, "
            "by how many nodes write and to how many replicas; diamonds: what NICs allow by closed form.",
            "Checkpoints alone: what a node writes",
            numbers=(Number(RATE, "the median node", 1 / GIB),),
            x="{setup}",
            labels=("", "written per node (GiB/s)"),
            marks=(
                Number(SLOWEST, "the slowest", 1 / GIB, size=22),
                Number("bound_Bps", "by closed form", 1 / GIB, marker="D", colour=INK, size=6),
            ),
            levels=(
                Level(Number("wanted_Bps", "the paper's least: 10 GiB/s at the true rate", 1 / GIB, colour=GREY), "--"),
            ),
        ),
    ),
)
