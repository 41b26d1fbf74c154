"""Keys of a training job besides its model and layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from fabric.config import SizeBytes, Strict, TimeS
from traffic.work.accuracy import StepsToAccuracy, steps_to_accuracy
from traffic.work.generators.orders import Schedule
from traffic.work.operations import MOST_FLOPS_PER_S

MiB = 2**20
MOST_MICRO_BATCHES = 1_000_000
OfPart = Annotated[float, Field(ge=0, le=1000)]


class Compute(Strict):
    """How long computing takes. Give ``flops_per_s`` or ``forward``; without both a graph has FLOPs only."""

    flops_per_s: float | None = Field(
        None, gt=0, le=MOST_FLOPS_PER_S, description="FLOP/s that a GPU reaches in training."
    )
    forward: TimeS | None = Field(
        None,
        description=(
            "Time of a micro-batch's forward pass through all layers, one stage after the other, on the ranks that "
            "share it; layers have the parts of it that their FLOPs are."
        ),
    )
    peak_flops_per_s: float | None = Field(
        None, gt=0, le=MOST_FLOPS_PER_S, description="FLOP/s of a GPU by its data sheet, whose share MFU is."
    )
    backward_ratio: float = Field(2.0, ge=0, le=1000, description="Backward pass / forward pass.")
    weights_ratio: float = Field(
        1.0,
        ge=0,
        le=1000,
        description=(
            "Time of a backward pass in which gradients of weights are made / forward pass; zb1p and dualpipe put it "
            "off. No more than backward_ratio."
        ),
    )
    recompute: bool = Field(False, description="Whether a backward pass computes the forward pass again first.")
    update: TimeS = Field(0.0, description="Time of the optimizer at the end of a step.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Compute:
        if self.flops_per_s is not None and self.forward is not None:
            raise ValueError("flops_per_s and forward both say how long computing takes; keep one of them")
        if self.weights_ratio > self.backward_ratio and "weights_ratio" in self.model_fields_set:
            raise ValueError(
                f"weights_ratio: {self.weights_ratio:g} is a part of backward_ratio, {self.backward_ratio:g}; lower it"
            )
        return self

    @property
    def weights(self) -> float:
        """What of a backward pass makes gradients of weights / forward pass."""
        return min(self.weights_ratio, self.backward_ratio)

    @property
    def backward(self) -> float:
        """Backward pass / forward pass, with what is computed again."""
        return self.backward_ratio + (1.0 if self.recompute else 0.0)


class Pipeline(Strict):
    """The schedule of a pipeline."""

    schedule: Schedule = Field(
        "1f1b",
        description=(
            "1f1b: one forward, one backward pass; interleaved: each rank has several chunks of layers; zb1p: 1f1b "
            "with gradients of weights put off; dualpipe: micro-batches from both ends, and each rank has two stages."
        ),
    )
    chunks: int = Field(1, gt=0, le=1000, description="Chunks of layers that a rank has; interleaved needs 2 or more.")
    stage_layers: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] | None = Field(
        None,
        strict=False,
        max_length=100_000,
        description="Layers of each stage, of all ranks' first chunks, then their second ones; None: equal.",
    )
    overlap: bool = Field(True, description="Whether computing goes on while a message is sent.")
    stagger: bool = Field(
        False,
        description=(
            "Whether copies of a stage that share a node begin one after the other, evenly over the time of a micro-"
            "batch, so that they do not send at once."
        ),
    )

    @model_validator(mode="after")
    def _verify(self) -> Pipeline:
        if (self.schedule == "interleaved") != (self.chunks > 1):
            raise ValueError(
                f"schedule: {self.schedule} with {self.chunks} chunks; interleaved needs 2 or more, others have 1"
            )
        return self


class DataParallel(Strict):
    """What data-parallel ranks do with parameters and gradients."""

    strategy: Literal["ddp", "zero1", "zero2", "zero3", "fsdp"] = Field(
        "ddp",
        description=(
            "ddp: gradients are added up by allreduce; zero1, zero2: reduce-scatter, then all-gather of parameters "
            "(zero2 in each micro-batch); zero3, fsdp: parameters are spread, too, and gathered for each pass."
        ),
    )
    overlap: bool = Field(True, description="Whether gradients are sent while the backward pass goes on.")
    first_bucket: SizeBytes = Field(
        MiB, gt=0, description="A bucket of gradients, the first, is full from this size on."
    )
    bucket: SizeBytes = Field(25 * MiB, gt=0, description="The others are full from this size on; they overshoot.")
    gradient_bytes: Literal[2, 4] = Field(4, description="Bytes of a gradient: 4 for FP32, 2 for BF16.")
    parameter_bytes: Literal[1, 2, 4] = Field(2, description="Bytes of a parameter that is gathered.")
    prefetch: int = Field(1, ge=0, le=1000, description="Units that are gathered ahead of the one that is computed.")
    reshard: bool = Field(
        True, description="Of fsdp: whether parameters are freed after the forward pass (full shard)."
    )
    no_sync: bool = Field(False, description="Of fsdp: whether gradients wait for the last micro-batch.")
    algorithm: str | None = Field(
        None, max_length=40, description="Algorithm of allreduces of gradients; None: the default."
    )


class Experts(Strict):
    """How tokens get to experts."""

    dispatch: Literal["per_node", "per_copy"] = Field(
        "per_node",
        description=(
            "Per_node: a token goes once to each node, and in there to each GPU that has one of its experts; "
            "per_copy: it goes to each of its experts."
        ),
    )
    out: Literal["fp8", "bf16"] = Field("fp8", description="Type of tokens on their way to experts.")
    groups: int | None = Field(None, gt=0, le=10_000, description="Groups of experts; None: the model's.")
    top_groups: int | None = Field(
        None, gt=0, le=10_000, description="Groups that a token takes experts of; None: the model's."
    )
    score: Literal["top_two", "top_one"] = Field(
        "top_two",
        description="Score of a group: the sum of its two highest (DeepSeek-V3), or its highest (DeepEP's test).",
    )
    seed: int = Field(0, ge=0, le=2**32 - 1, description="Of the random choice of experts.")
    skew: float = Field(
        0.0,
        ge=0,
        le=100,
        description=(
            "How unequal experts are liked: standard deviation of what is added to all scores of an expert, as a "
            "multiple of that of a score; 0: all alike."
        ),
    )


class ParameterServer(Strict):
    """Servers that add gradients up and give parameters out, in place of a collective."""

    servers: int = Field(gt=0, le=10_000, description="Machines that only serve; with share: colocated, spare ones.")
    share: Literal["equal", "colocated"] = Field(
        "equal",
        description=(
            "equal: servers have equal parts; colocated: workers serve, too, with the parts by which all NICs are "
            "equally busy (BytePS)."
        ),
    )
    delay: int | None = Field(
        0,
        ge=0,
        le=1_000_000,
        description=(
            "A worker begins step t once all have ended step t - 1 - delay; 0: synchronous; null: asynchronous."
        ),
    )
    steps: int = Field(1, gt=0, le=100_000, description="Steps of the graph.")
    part: SizeBytes = Field(4 * MiB, ge=4, description="Gradients are pushed in parts of at most this size.")
    slow_workers: dict[int, OfPart] = Field(
        default_factory=dict, max_length=10_000, description="Workers whose computing takes this many times as long."
    )


class Goal(Strict):
    """What training is to come to, of which a step is a part."""

    samples: int | None = Field(
        None, gt=0, le=10**15, description="Sequences or images to train on: the end-to-end time follows."
    )
    steps: Annotated[float, Field(gt=0, le=1e12)] | Annotated[str, Field(max_length=1000)] | None = Field(
        None,
        description=(
            "Steps to an accuracy, which you know: a number, an expression of batch, tokens, ranks and staleness, or "
            "the path of a table (.csv); the time to accuracy follows."
        ),
    )

    @field_validator("steps")
    @classmethod
    def _verify_steps(cls, said: float | str | None) -> float | str | None:
        if said is None:
            return None
        found = str(Path(said).absolute()) if isinstance(said, str) and said.endswith(".csv") else said
        steps_to_accuracy(found)
        return found

    @property
    def steps_function(self) -> StepsToAccuracy | None:
        """Steps to an accuracy as a function; None if they are not known."""
        return None if self.steps is None else steps_to_accuracy(self.steps)
