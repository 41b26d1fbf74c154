"""GPUs that fail: an error that their driver tells by its Xid, or wrong values of which nothing tells.

A job that looks at GPUs says so by having what :class:`HasGpus` asks for. Nothing here knows any kind of job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field

from fabric.failures.injection import Effects, Part, ThreadInjector
from fabric.failures.kind import FailureKind
from fabric.failures.line import FailureConfig, Stretch
from fabric.failures.names import gpu_named
from fabric.failures.schedule import State
from fabric.model.network import Fabric


@dataclass(frozen=True)
class GpuTarget:
    """A GPU of a node, by its number."""

    host: str
    number: int = 0

    def __str__(self) -> str:
        return f"GPU {self.number} of {self.host}"


@dataclass(frozen=True)
class GpuState(State):
    """Which errors a GPU has had, by their Xid: they stay in its node's log, and what is done about them is the
    platform's business. ``wrong``: how often it has begun to compute wrong values, of which no log tells."""

    xids: tuple[int, ...] = ()
    wrong: int = 0

    @classmethod
    def composed(cls, states: Sequence[GpuState]) -> GpuState:
        """Return all of them."""
        return GpuState(tuple(xid for state in states for xid in state.xids), sum(state.wrong for state in states))

    def __str__(self) -> str:
        parts = [f"Xid {xid}" for xid in self.xids] + (["computes wrong values"] if self.wrong else [])
        return ", ".join(parts) or "whole"


@runtime_checkable
class HasGpus(Protocol):
    """A job that looks at errors of its nodes' GPUs."""

    name: str

    def gpus_on(self, host: str) -> int:
        """Return how many GPUs a host has whose errors it sees; 0 where it sees none."""

    def gpu_error(self, host: str, number: int, xid: int) -> None:
        """Let a GPU have an error, as its driver tells of one."""

    def gpu_computes_wrong(self, host: str, number: int) -> None:
        """Let a GPU compute wrong values from now on, until its node is repaired."""


class GpuFailureConfig(FailureConfig):
    """An error of a GPU: told by its ``xid``, or wrong values."""

    targets: ClassVar[tuple[str, ...]] = ("gpu",)

    gpu: str = Field(
        description="The GPU that has an error, such as `z0h003/2`, or a node's first (`z0h003`). See `xid`, `effect`."
    )
    xid: Annotated[int, Field(ge=1, le=999)] | None = Field(
        default=None,
        description="Which error of a GPU, by NVIDIA's number: its node's kernel logs it, and a platform with `health` "
        "sees it.",
    )
    effect: Literal["wrong"] | None = Field(
        default=None, description="`wrong`: it computes wrong values, and no log tells; in place of `xid`."
    )

    @classmethod
    def effects(cls) -> str:
        """Return what ``effect`` may be, and what there is beside it."""
        return f"{super().effects()}, or an xid"

    @property
    def endless(self) -> str:
        """Errors stay in a log."""
        return "gpu: an error is reported once, and has no end"

    def own_faults(self) -> Iterator[str]:
        """Yield that which error it has is missing, or said twice."""
        if self.xid is None and self.effect is None:
            yield "xid is missing: which error a gpu has; give it, such as 79 (fallen off the bus), or effect: wrong"
        elif self.xid is not None and self.effect is not None:
            yield "xid and effect: an error that is reported, or wrong values that nothing reports; give one of them"

    def stretches(self, fabric: Fabric, began_s: float, ended_s: float) -> Iterator[Stretch]:
        """Yield the GPU. Raises ValueError for a host that the fabric does not have."""
        node, number = gpu_named(self.gpu, fabric)
        state = GpuState(wrong=1) if self.xid is None else GpuState((self.xid,))
        yield GpuTarget(node.name, number), began_s, ended_s, state


class GpuEffects(Effects):
    """Lets GPUs of jobs' nodes have errors."""

    def __init__(self, jobs: Iterable[object]) -> None:
        super().__init__()
        self._jobs = {job.name: job for job in jobs if isinstance(job, HasGpus)}

    def parts(self, target: GpuTarget) -> Iterator[Part]:
        """Yield the GPU as each job sees it."""
        yield from (Part(target, name) for name, job in self._jobs.items() if target.number < job.gpus_on(target.host))

    def bring(self, part: Part, before: GpuState, state: GpuState) -> str:
        """Let a GPU have the errors of a state that it has not had yet: states have them in order of time."""
        gpu, job = part.target, self._jobs[part.job]
        assert isinstance(gpu, GpuTarget), "parts are of GPUs"
        for xid in state.xids[len(before.xids) :]:
            job.gpu_error(gpu.host, gpu.number, xid)
        if state.wrong > before.wrong:
            job.gpu_computes_wrong(gpu.host, gpu.number)
        return ""

    def mended(self, state: GpuState) -> State | None:
        """Return that errors stay as they are told."""
        return None


KIND = FailureKind("gpu", GpuTarget, lambda scene: ThreadInjector(GpuEffects(scene.jobs), scene.hit))
