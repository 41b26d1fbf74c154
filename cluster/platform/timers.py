"""How long the scheduler and its agents wait for each other."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import Strict, TimeS

Time = Annotated[TimeS, Field(gt=0)]


class Timers(Strict):
    """Times of the platform; the notice is HAI's, heartbeats are 3FS's."""

    tick: Time = Field(default=1.0, description="From one decision of the scheduler to the next.")
    beat: Time = Field(default=10.0, description="From one heartbeat of an agent to the next.")
    failed_after: Time = Field(default=60.0, description="A node that is not heard for this long is taken out.")
    ready: Time = Field(
        default=5.0,
        description=(
            "How long nodes may take to say that they are there and take a job, before any of its ranks starts. Those "
            "that do not are taken out, and the job waits where it was."
        ),
    )
    answer: Time = Field(default=5.0, description="How long a program may take to answer a suspend command.")
    save: Time = Field(default=5.0, description="How long it may then take to save, before it is killed.")
    gang: Time = Field(default=5.0, description="How long other ranks may go on once one has failed.")
    fence: Time | None = Field(
        default=None,
        description=(
            "An agent that the scheduler has not answered for this long kills its ranks, before others take their "
            "place. Without it they go on: a scheduler that is away disturbs nobody, but a node that is only cut off "
            "may write checkpoints beside its successor."
        ),
    )
    redial: Time = Field(default=1.0, description="How long an agent waits before it dials the scheduler again.")
    dial: Time = Field(default=10.0, description="How long it waits for an answer when it dials.")

    @model_validator(mode="after")
    def _verify(self) -> Timers:
        if self.failed_after <= 3 * self.beat:
            raise ValueError(
                f"failed_after: {self.failed_after:g} s are no more than three heartbeats of {self.beat:g} s: a late "
                "one would take a node out; raise failed_after or lower beat"
            )
        if self.fence is not None and self.fence + 2 * self.beat > self.failed_after:
            raise ValueError(
                f"fence: {self.fence:g} s and two heartbeats of {self.beat:g} s are more than failed_after, "
                f"{self.failed_after:g} s: others would have begun by then; lower fence or beat"
            )
        return self
