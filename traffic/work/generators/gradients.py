"""DDP and ZeRO 1 and 2: gradients leave in buckets as they become ready."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

from traffic.work.generators.buckets import Bucket, DataKind, Gradient, buckets_of
from traffic.work.generators.orders import INPUTS, Pass
from traffic.work.generators.plan import StepPlan
from traffic.work.generators.stages import own_tensors
from traffic.work.generators.writer import RankWriter
from traffic.work.operations import CollectiveCall

GRADIENT_TYPES = {4: "fp32", 2: "bf16", 1: "fp8"}


class Strategy(Protocol):
    """What data-parallel ranks do around the computing of a step."""

    def before(self, one: Pass, layer: int) -> None:
        """Write what a layer's pass needs."""

    def behind(self, one: Pass, layer: int, part: int) -> None:
        """Write what a part's pass has made possible."""

    def finish(self) -> None:
        """Write what comes after all passes, the optimizer included."""


@dataclass
class BucketedGradients:
    """Gradients in buckets: added up (DDP), or added up and spread (ZeRO 1 and 2), whose optimizer's results are then
    gathered. ZeRO 2 keeps no whole gradients, so that they leave in each micro-batch."""

    plan: StepPlan
    rank: int
    writer: RankWriter
    sent: list[int] = field(default_factory=list)
    buckets: tuple[Bucket, ...] = field(init=False)

    def __post_init__(self) -> None:
        options = self.plan.choices.data_parallel
        self.buckets = buckets_of(gradients_of(self.plan, self.rank), int(options.first_bucket), int(options.bucket))

    def before(self, one: Pass, layer: int) -> None:
        """Parameters are all here."""

    def behind(self, one: Pass, layer: int, part: int) -> None:
        """Send the buckets that are full now."""
        options = self.plan.choices.data_parallel
        last = one.micro_batch == self.plan.last_micro_batch(one.chunk) or options.strategy == "zero2"
        if one.backward and one.of != INPUTS and last and options.overlap:
            self._send((layer, part), one.micro_batch)

    def _send(self, ready: tuple[int, int] | None, micro_batch: int) -> None:
        for number, bucket in enumerate(self.buckets):
            if ready in (None, bucket.ready):
                self._send_bucket(number, bucket, micro_batch)

    def _send_bucket(self, number: int, bucket: Bucket, micro_batch: int) -> None:
        options = self.plan.choices.data_parallel
        group, ranks = self.plan.data_group(bucket.group, self.rank)
        if len(ranks) == 1:
            return
        self.plan.groups[group] = ranks
        adds_up = options.strategy == "ddp"
        call = CollectiveCall(
            collective="allreduce" if adds_up else "reduce_scatter",
            size_bytes=bucket.size_bytes,
            group=group,
            stream=_stream(bucket.group),
            name=f"gradients {micro_batch} bucket {number}",
            algorithm=options.algorithm if adds_up else None,
            dtype=GRADIENT_TYPES[options.gradient_bytes],
        )
        self.sent.append(self.writer.beside(call))

    def finish(self) -> None:
        """Send what has not been sent, and update."""
        options = self.plan.choices.data_parallel
        if not options.overlap:
            batches = range(self.plan.micro_batches) if options.strategy == "zero2" else [self.plan.micro_batches - 1]
            for micro_batch in batches:
                self._send(None, micro_batch)
        self.sent += self._tied_embedding()
        self.writer.wait_for(*self.sent)
        updated = self.writer.update(self.writer.chain)
        if options.strategy != "ddp":
            self._gather(updated)

    def _tied_embedding(self) -> list[int]:
        """Add up what the copies of a tied embedding of the first and the last stage have each added up over data."""
        model, layout = self.plan.model, self.plan.layout
        ranks = self.plan.pipeline(self.rank)
        if not self.plan.has_tied_copy or self.rank not in (ranks[0], ranks[-1]):
            return []
        name, _ = self.plan.named_group("pp", self.rank)
        self.plan.groups[f"{name}.embedding"] = (ranks[0], ranks[-1])
        elements = model.vocabulary * model.hidden // layout.tensor  # type: ignore[union-attr]  # Only decoders are tied.
        call = CollectiveCall(
            collective="allreduce",
            size_bytes=elements * self.plan.choices.data_parallel.gradient_bytes,
            group=f"{name}.embedding",
            stream="data",
            name="gradients tied embedding",
            dtype=GRADIENT_TYPES[self.plan.choices.data_parallel.gradient_bytes],
        )
        return [self.writer.work.add(replace(call, after=(*self.writer.settle(), *self.sent)))]

    def _gather(self, updated: int) -> None:
        options = self.plan.choices.data_parallel
        for number, bucket in enumerate(self.buckets):
            group, ranks = self.plan.data_group(bucket.group, self.rank)
            if len(ranks) > 1:
                call = CollectiveCall(
                    collective="all_gather",
                    size_bytes=bucket.size_bytes // options.gradient_bytes * options.parameter_bytes,
                    group=group,
                    stream=_stream(bucket.group),
                    name=f"parameters bucket {number}",
                    after=(updated,),
                    dtype=GRADIENT_TYPES[options.parameter_bytes],
                )
                self.writer.work.add(call)


def gradients_of(plan: StepPlan, rank: int) -> list[Gradient]:
    """Return a rank's gradients in the order of its parameters."""
    size = plan.choices.data_parallel.gradient_bytes
    return [
        Gradient((one.number, number), own.elements * size, plan.data_kind(own.group, rank, chunk))
        for chunk, stage in enumerate(plan.chunks(rank))
        for one in stage
        for number, part in enumerate(one.layer.parts)
        for own in own_tensors(part, plan.layout)
    ]


def _stream(group: DataKind) -> str:
    """Return the stream of a kind of group's collectives."""
    of = "" if group.stage is None else f" of stage {group.stage}"
    return f"{'data' if group.kind == 'dp-cp' else 'expert data'}{of}"
