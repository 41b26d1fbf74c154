"""What happens to jobs costs so much time: given numbers, in the place of which measured ones can be put."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from cluster.faults.classes import Effect
from fabric.config import Strict, TimeS
from fabric.units import parse_time_s

ANSWER_WITHIN_S = SAVE_WITHIN_S = 5.0
"""HAI's notice: who has not answered, or not saved, by then is killed (docs/guide/schedule.md)."""
KILL_S = 0.01
"""How long a job that is killed for that has its nodes yet: it is killed in a turn of the scheduler, and the next one
sees that it is gone."""
Cost = Annotated[TimeS, Field(ge=0)]


class FaultCosts(Strict):
    """Seconds until faults are noticed, and what those cost that only slow or delay a job."""

    detect_error: Cost = Field(default=5.0, description="Detecting programs that were killed by a GPU's error.")
    detect_silent: Cost = Field(default=60.0, description="Detecting a silent node, by missing heartbeats.")
    detect_slow: Cost = Field(default=600.0, description="Detecting a slow NIC.")
    cut: Cost = Field(default=0.0, description="How long steps stand still for a link that is cut and heals.")
    slowdown: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=2.0, description="How many times longer a job's steps take with a slow NIC."
    )
    storage: Cost = Field(
        default=0.0, description="How long steps stand still for a storage node that is lost, and brought back."
    )
    spine: Cost = Field(default=0.0, description="How long steps stand still until routes avoid a spine switch.")
    spine_slowdown: Annotated[float, Field(ge=1, le=1000)] = Field(
        default=1.0, description="How many times longer a job's steps take while a spine switch is away."
    )

    def detection_s(self, effect: Effect) -> float:
        """Return how long a fault of a node is not noticed."""
        if effect is Effect.SILENT:
            return self.detect_silent
        return self.detect_slow if effect is Effect.SLOW_NIC else self.detect_error


class Costs(FaultCosts):
    """Seconds of one life of a job. A checkpoint stalls all its nodes for ``save``, and counts ``durable`` later: a
    synchronous one has all of its time in ``save``, one that is written beside the next steps nearly all in
    ``durable``. The next one begins once it counts: storage that is slower than ``interval`` lets steps wait."""

    start: Cost = Field(default=10.0, description="From getting nodes to the first step, or to reading a checkpoint.")
    restore: Cost = Field(default=10.0, description="Reading a checkpoint, of a life that goes on from one.")
    wrong: Cost = Field(
        default=0.0, description="Reading a checkpoint that is wrong until that is found, before the one before it."
    )
    interval: Annotated[float, Field(gt=0, allow_inf_nan=True), BeforeValidator(parse_time_s)] = Field(
        default=300.0, description="Steps from one checkpoint to the next, in seconds; infinite: none are written."
    )
    save: Cost = Field(default=1.0, description="How long steps stand still for a checkpoint.")
    durable: Cost = Field(
        default=5.0,
        description="From then until it is complete on storage. If that is longer than `interval`, steps stand still "
        "for the rest of it before the next checkpoint.",
    )
    answer: Cost = Field(default=1.0, description="From a notice to its answer; steps go on until then.")
    step: Cost = Field(
        default=0.0,
        description="How long a step takes: a program looks for a notice between two, so in its last one it ends "
        "instead. 0: it has no steps, and answers at any time.",
    )
    suspend_save: Cost = Field(default=3.0, description="Saving before a suspend.")
    stop: Cost = Field(default=5.0, description="From the detection of a fault until the other nodes are free.")

    @property
    def wait_s(self) -> float:
        """How long steps stand still before a checkpoint until the one before is complete."""
        return max(0.0, self.durable - self.interval)

    def restart_s(self) -> float:
        """Return what a failure costs beside the steps that are lost, if nodes are free: until steps go on."""
        return self.stop + self.start + self.restore
