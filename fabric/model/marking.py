"""ECN marking at switch ports, as DCQCN has it: by what waits in a lane at the moment."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from fabric.config import SizeBytes, Strict


class Marking(Strict):
    """When a switch marks a frame (CE), by how many bytes wait in its lane at that moment, no average of them.

    Only frames of connections that have agreed on ECN are marked; the others pass as they are.
    """

    kmin: Annotated[SizeBytes, Field(ge=0, lt=2**31)] = Field(
        description="Backlog up to which no frame is marked. Lower keeps queues shorter, at the risk of idle links."
    )
    kmax: Annotated[SizeBytes, Field(gt=0, lt=2**31)] = Field(description="Backlog above which every frame is marked.")
    pmax: Annotated[float, Field(gt=0, le=1)] = Field(
        description="Probability of a mark at `kmax`; from `kmin` on it rises linearly from 0."
    )

    @model_validator(mode="after")
    def _verify_order(self) -> Marking:
        if self.kmin > self.kmax:
            raise ValueError(f"kmin {self.kmin} B is above kmax {self.kmax} B; lower it")
        return self

    def probability(self, waiting_bytes: float) -> float:
        """Return how probable a mark is while so many bytes wait."""
        if waiting_bytes <= self.kmin:
            return 0.0
        if waiting_bytes > self.kmax:
            return 1.0
        return self.pmax * (waiting_bytes - self.kmin) / (self.kmax - self.kmin)

    def scaled(self, factor: float, frame_bytes: int) -> Marking:
        """Return the same with thresholds so many times as high; ``kmin`` is two frames at least, below which a queue
        is none, and ``kmax`` a frame more."""
        kmin = max(round(self.kmin * factor), 2 * frame_bytes)
        return Marking(kmin=kmin, kmax=max(round(self.kmax * factor), kmin + frame_bytes), pmax=self.pmax)
