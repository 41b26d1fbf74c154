"""What tensor, context and expert parallelism communicate around the computing of a part of a layer."""

from __future__ import annotations

from dataclasses import dataclass

from traffic.work.generators.expert_exchange import Exchange
from traffic.work.generators.orders import ALL, WEIGHTS
from traffic.work.generators.plan import ACTIVATION_BYTES, StepPlan
from traffic.work.generators.writer import RankWriter
from traffic.work.models.shapes import Part, Role
from traffic.work.models.transformer import Transformer
from traffic.work.operations import CollectiveCall, Receive, Send

CONTEXT_TAG = 1_000_000
"""Tags below it are those of pipelines."""
_OF_LAYERS = (Role.ATTENTION, Role.MLP, Role.EXPERTS)


@dataclass(frozen=True)
class PartMaker:
    """Writes the computing of parts on one rank, and what goes with it. ``of``: which gradients its backward passes
    make; those of weights need nobody else. Where a backward pass computes a layer again, it communicates again, too:
    that is a forward pass of its own then (:meth:`is_again`), which the backward pass is without."""

    plan: StepPlan
    rank: int
    writer: RankWriter
    of: str = ALL

    def part(self, part: Part, *, backward: bool, name: str) -> None:
        """Write a part's pass."""
        if part.role is Role.MODULE or self.of == WEIGHTS:
            self._compute(part, backward, name)
        elif part.role is Role.EMBEDDING:
            self._compute(part, backward, name)
            if not backward:
                self._tensor("reduce_scatter" if self._sequence else "allreduce", name)
            elif self._sequence:
                self._tensor("all_gather", name)
        elif part.role is Role.HEAD:
            if self._sequence and not backward:
                self._tensor("all_gather", name)
            self._compute(part, backward, name)
            if backward:
                self._tensor("reduce_scatter" if self._sequence else "allreduce", name)
        elif part.role is Role.EXPERTS:
            self._experts(part, backward, name)
        else:
            self._within_layer(part, backward, name)

    def is_again(self, part: Part) -> bool:
        """Whether a part's forward pass is written once more before its layer's backward pass. Those of an embedding
        and of a head, and of layers that send nothing, are only time of the backward pass."""
        layout = self.plan.layout
        is_split = layout.tensor > 1 or layout.context > 1 or layout.expert > 1
        return self.plan.costs.recompute and is_split and self.of != WEIGHTS and part.role in _OF_LAYERS

    @property
    def _sequence(self) -> bool:
        return self.plan.layout.sequence_parallel

    def _compute(self, part: Part, backward: bool, name: str, share: float = 1.0) -> None:
        times = self.plan.costs.times(backward, self.of) - (1.0 if backward and self.is_again(part) else 0.0)
        self.writer.compute(self.plan.costs.forward(part) * share * times, name)

    def _within_layer(self, part: Part, backward: bool, name: str) -> None:
        """Write attention or a feed-forward part: with sequence parallelism its input is gathered and its output
        spread, in both directions; without it, its output or its input's gradient is added up."""
        if self._sequence:
            self._tensor("all_gather", name)
        if part.role is Role.ATTENTION and self.plan.layout.context > 1:
            self._with_context(part, backward, name)
        else:
            self._compute(part, backward, name)
        self._tensor("reduce_scatter" if self._sequence else "allreduce", name)

    def _tensor(self, collective: str, name: str) -> None:
        if self.plan.layout.tensor > 1:
            self._call(collective, self.plan.activation_bytes, "tp", f"tensor {collective} {name}")

    def _call(self, collective: str, size_bytes: int, kind: str, name: str) -> None:
        group, _ = self.plan.group(kind, self.rank)
        stream = {"tp": "tensor", "cp": "context"}[kind]
        call = CollectiveCall(
            collective=collective, size_bytes=size_bytes, group=group, stream=stream, name=name, dtype="bf16"
        )
        self.writer.then(call)

    @property
    def context_bytes(self) -> int:
        """Bytes of the keys and values of a rank's tokens of a micro-batch."""
        model = self.plan.model
        assert isinstance(model, Transformer)
        split = 1 if model.attention.latent else self.plan.layout.tensor
        return ACTIVATION_BYTES * self.plan.tokens * model.attention.key_value_size // split

    def _with_context(self, part: Part, backward: bool, name: str) -> None:
        if self.plan.layout.context_exchange == "ring":
            self._ring(part, backward, name)
            return
        total = self.context_bytes * self.plan.layout.context
        self._call("all_gather", total, "cp", f"context all_gather {name}")
        self._compute(part, backward, name)
        if backward:
            self._call("reduce_scatter", total, "cp", f"context reduce_scatter {name}")

    def _ring(self, part: Part, backward: bool, name: str) -> None:
        """Write attention by turns: keys and values of one rank after the other come around a ring, while those that
        have come are worked on. In the backward pass their gradients follow them."""
        _, ranks = self.plan.named_group("cp", self.rank)
        place, count = ranks.index(self.rank), len(ranks)
        here = self.writer.settle()
        for turn in range(count):
            if turn + 1 < count:
                blocks = 2 if backward and turn else 1
                after = self.writer.chain if backward else here
                here = self._turn(ranks[(place + 1) % count], ranks[place - 1], blocks, after, f"{name}.{turn}")
            self._compute(part, backward, name, 1 / count)
            self.writer.settle()
            if turn + 1 < count:
                self.writer.wait_for(*here)
        if backward:
            last = self._turn(ranks[(place + 1) % count], ranks[place - 1], 1, self.writer.settle(), f"{name}.last")
            self.writer.wait_for(*last)

    def _turn(self, to: int, of: int, blocks: int, after: tuple[int, ...], name: str) -> tuple[int, ...]:
        """Pass keys and values on, and their gradients if ``blocks`` is 2; return what has come."""
        size = self.context_bytes * blocks
        send = Send(
            peer=to, size_bytes=size, tag=CONTEXT_TAG, after=after, stream="context out", name=f"context {name}"
        )
        self.writer.work.add(send)
        receive = Receive(peer=of, size_bytes=size, tag=CONTEXT_TAG, stream="context in", name=f"context {name}")
        return (self.writer.work.add(receive),)

    def _experts(self, part: Part, backward: bool, name: str) -> None:
        """Write experts: tokens go out and come back; in the backward pass gradients go the same ways."""
        if self.plan.layout.expert > 1:
            Exchange(self.plan, self.rank, self.writer).out(name)
            self._compute(part, backward, name)
            Exchange(self.plan, self.rank, self.writer).back(name)
        else:
            self._compute(part, backward, name)
