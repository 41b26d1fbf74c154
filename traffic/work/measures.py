"""What numbers of graphs of work mean, and those of training."""

from __future__ import annotations

from fabric.measures import Better, Measure

EXPOSED = Measure(
    "exposed.<kind>_s", "of it, the time in which it waits for operations of one kind, median over steps", Better.LESS
)
_BUBBLE = Measure("bubble_fraction", "time in which ranks compute nothing over that in which they do", Better.LESS)
_EXPOSED_OF_ALL = Measure(
    "exposed_s", "time of a step for which the rank that waits most waits to compute, median over steps", Better.LESS
)
OF_WORK = (
    Measure(
        "step_s",
        "time of a step of the graph, until its last rank ended, median over steps",
        Better.LESS,
        is_of_many=True,
    ),
    Measure("steps", "steps that ended", Better.MORE),
    Measure("sent_Bps", "bytes that all ranks sent in a step, over its time, median over steps", Better.MORE),
    _BUBBLE,
    _EXPOSED_OF_ALL,
    EXPOSED,
)
OF_TRAINING = (
    Measure("whole_step_s", "time of a step of training with all its micro-batches", Better.LESS, "step"),
    Measure("samples_per_s", "samples that the job trains on per second", Better.MORE, "samples per s"),
    Measure("tokens_per_s", "tokens that the job trains on per second", Better.MORE, "tokens per s"),
    Measure("mfu_fraction", "FLOP of the model in a step over what the GPUs can do in its time", Better.MORE, "MFU"),
    _BUBBLE._replace(head="idle / computing"),
    _EXPOSED_OF_ALL._replace(head="computing waits"),
    *OF_WORK,
    Measure("end_to_end_s", "time that training on all samples of its goal takes", Better.LESS, "end to end"),
    Measure("steps_to_accuracy", "steps to the accuracy of its goal", Better.LESS, "steps to accuracy"),
    Measure("time_to_accuracy_s", "time to the accuracy of its goal", Better.LESS, "time to accuracy"),
)
