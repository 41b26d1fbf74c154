"""What the numbers of a run of ``training_scaling`` mean."""

from __future__ import annotations

from fabric.measures import Better, Measure

MEASURES = (
    Measure(
        "step_s",
        "time of a step on paper, of pieces that were played, with collectives at the rates of ours",
        Better.LESS,
    ),
    Measure("step_with_nccl_s", "time of a step on paper with NCCL's collectives", Better.LESS),
    Measure(
        "step_at_once_s", "time of a step on paper if gradients are reduced only once all are computed", Better.LESS
    ),
    Measure("compute_s", "time that a rank computes in a step"),
    Measure("gradients_s", "time that the gradients of the first stage take", Better.LESS),
    Measure("played_step_s", "time of a step that was played in packets", Better.LESS),
    Measure(
        "played_step_at_once_s",
        "time of a step that was played in packets, with gradients reduced only at its end",
        Better.LESS,
    ),
    Measure("played_again_step_s", "time of a step by a shorter one that was played in packets", Better.LESS),
    Measure("published_step_s", "time of a step as it was published"),
    Measure("error_fraction", "difference of the step's time from the published one, over that"),
)
