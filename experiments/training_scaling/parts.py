"""What is a step put together of, and what does a rank wait for?"""

from __future__ import annotations

from typing import Any

from experiments.training_scaling.config import TrainingScalingConfig
from experiments.training_scaling.scaling import Run
from fabric.records.cells import Cell, joined, quantity
from runs.case_tables import CaseTable, Column
from runs.study import Found, Outcome, Question
from traffic.work.composition import Line


def _aside(_: object, one: Outcome[Run]) -> dict[str, float]:
    point, again = one.case.played.point, one.case.case.played_again
    steady = point.training.steady
    counts: dict[str, float] = {"part": steady.played, "micro_batches": steady.micro_batches, "nodes": point.nodes}
    if "played_again_step_s" not in one.values or again is None:
        return counts
    return {**counts, "again": again, "again_fraction": one["played_again_step_s"] / one["played_step_s"] - 1}


def _waits(one: Outcome[Run]) -> Cell:
    exposed_s = one.case.played.paper.exposed_s
    return joined((f"{kind} ", quantity(seconds, ".3f in s")) for kind, seconds in exposed_s.items()) or "nothing"


def _pieces(found: Found[Run, TrainingScalingConfig]) -> list[dict[str, Any]]:
    pieces = found.outcomes[0].case.played.pieces
    lines: list[tuple[str, int, Line]] = [(what, nodes, line) for (what, nodes), line in pieces.collectives.items()]
    lines += [("message, alone", 2, pieces.message), ("message, all GPUs at once", 2, pieces.burst)]
    return [
        {"what": what, "nodes": nodes, "line_Bps": line.bytes_per_s, "base_s": line.base_s}
        for what, nodes, line in lines
    ]


PARTS = Question[Run, TrainingScalingConfig](
    aside=_aside,
    tables=(
        CaseTable(
            "Time of a step in packets by more micro-batches, s",
            (
                "case {case}, GPUs {gpus}",
                Column("by micro-batches", "{part|.0f}: {played_step_s|.4f in s}"),
                Column("by more", "{again|.0f}: {played_again_step_s|.4f in s}"),
                "difference {again_fraction|+.3%}",
            ),
            having="played_again_step_s",
        ),
        CaseTable(
            "What a rank of the last stage does, s",
            (
                "case {case}, GPUs {gpus}",
                Column("micro-batches played", "{part|.0f} of {micro_batches|.0f}"),
                "computes {compute_s|.3f in s}, idle / computing {bubble_fraction}",
                Column("waits for", _waits),
                "gradients {gradients_s|.3f in s}, over nodes {nodes}",
            ),
            "waits for: in the micro-batches that are played; pipeline: the other stages' computing in it",
        ),
        CaseTable(
            "Pieces that were played",
            "what {what}, nodes {nodes}, GB/s {line_Bps|.3g in GB/s}, and us {base_s|.0f in us}",
            lambda of: f"points over other numbers of nodes take the nearest of {', '.join(map(str, of.config.nodes))}",
            rows=_pieces,
        ),
    ),
)
