"""A rank's step: its passes in the order of the pipeline's schedule, and what is communicated between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from traffic.work.generators.gradients import BucketedGradients, Strategy
from traffic.work.generators.orders import WEIGHTS, Pass, passes_of
from traffic.work.generators.parallel_parts import PartMaker
from traffic.work.generators.plan import StepPlan
from traffic.work.generators.sharded import ShardedParameters
from traffic.work.generators.stages import parts_of
from traffic.work.generators.writer import RankWriter
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.operations import Receive, Send


def step_graph(plan: StepPlan) -> WorkGraph:
    """Return the graph of a step."""
    works = [RankStep(plan, rank).written() for rank in range(plan.layout.ranks)]
    return graph_of(plan.name, works, dict(sorted(plan.groups.items())))


@dataclass
class RankStep:
    """Writes one rank's step."""

    plan: StepPlan
    rank: int
    writer: RankWriter = field(init=False)
    strategy: Strategy = field(init=False)

    def __post_init__(self) -> None:
        self.writer = RankWriter(self.plan.costs)
        sharded = self.plan.choices.data_parallel.strategy in ("fsdp", "zero3")
        make: type[ShardedParameters] | type[BucketedGradients] = ShardedParameters if sharded else BucketedGradients
        self.strategy = make(self.plan, self.rank, self.writer)

    def written(self) -> RankWork:
        """Return all operations of the step."""
        stage, layout = self.plan.place("pp", self.rank), self.plan.layout
        if self.plan.choices.pipeline.stagger and stage == 0:
            self.writer.pause(self._stagger_flops(), "stagger")
        options = self.plan.choices.pipeline
        together: list[Pass] = []
        for one in passes_of(stage, layout.pipeline, options.chunks, self.plan.micro_batches, options.schedule):
            together.append(one)
            if not one.beside_next:
                self._passes(together)
                together = []
        self.strategy.finish()
        return self.writer.work

    def _passes(self, together: Sequence[Pass]) -> None:
        """Write a pass, or two side by side: both begin when what either needs has come, and send when both end."""
        for one in together:
            if (source := self._neighbour(one, before=True)) is not None:
                self._receive(source, one)
        for one in together:
            self._compute(one)
        for one in together:
            if (target := self._neighbour(one, before=False)) is not None:
                self._send(target, one)

    def _neighbour(self, one: Pass, *, before: bool) -> int | None:
        """Return the virtual stage from which a pass comes, or to which it goes on; None if there is none."""
        step = -1 if before != one.backward else 1
        found = self._virtual(one.chunk) + step
        return found if one.of != WEIGHTS and 0 <= found < len(self.plan.stages) else None

    def _compute(self, one: Pass) -> None:
        layers = self.plan.stages[self._virtual(one.chunk)]
        parts = PartMaker(self.plan, self.rank, self.writer, one.of)
        for numbered in reversed(layers) if one.backward else layers:
            self.strategy.before(one, numbered.number)
            if one.backward:
                for part in filter(parts.is_again, numbered.layer.parts):
                    parts.part(part, backward=False, name=one.name_again)
            places = range(len(numbered.layer.parts))
            for place in reversed(places) if one.backward else places:
                parts.part(numbered.layer.parts[place], backward=one.backward, name=one.name)
                self.strategy.behind(one, numbered.number, place)

    def _virtual(self, chunk: int) -> int:
        return self.plan.virtual_stages(self.rank)[chunk]

    def _rank_of(self, virtual: int, chunk: int) -> int:
        """Return the rank of the pipeline that has a virtual stage; of two directions, in that of a chunk."""
        stages = self.plan.layout.pipeline
        is_backwards = self.plan.is_dual and chunk == 1
        return self.plan.pipeline(self.rank)[stages - 1 - virtual if is_backwards else virtual % stages]

    def _stream(self, what: str, one: Pass) -> str:
        """Return the stream of messages: each direction of a pipeline has its own."""
        way = f"{what} {'backward' if one.backward else 'forward'}"
        return f"{way} {one.chunk}" if self.plan.is_dual else way

    def _receive(self, source: int, one: Pass) -> None:
        receive = Receive(
            peer=self._rank_of(source, one.chunk),
            size_bytes=self.plan.boundary_bytes,
            tag=_tag(self._virtual(one.chunk), one.backward),
            stream=self._stream("receive", one),
            name=f"pipeline receive {one.name}",
        )
        self.writer.settle()
        self.writer.wait_for(self.writer.work.add(receive))

    def _send(self, target: int, one: Pass) -> None:
        send = Send(
            peer=self._rank_of(target, one.chunk),
            size_bytes=self.plan.boundary_bytes,
            tag=_tag(target, one.backward),
            stream=self._stream("send", one),
            name=f"pipeline send {one.name}",
        )
        if self.plan.choices.pipeline.overlap:
            self.writer.beside(send)
        else:
            self.writer.then(send)

    def _stagger_flops(self) -> float:
        """Return for how much computing this rank waits at first: of the copies of a stage on its node, the k-th of n
        waits for k/n of a micro-batch."""
        layout, costs = self.plan.layout, self.plan.costs
        stage = {self.plan.pipeline(rank)[0] for rank in range(layout.ranks)}
        beside = [rank for rank in sorted(stage) if layout.node_of(rank) == layout.node_of(self.rank)]
        longest = max(
            sum(costs.forward(part) for stage in self.plan.chunks(rank) for part in parts_of(stage))
            for rank in self.plan.pipeline(self.rank)
        )
        return longest * (1 + costs.backward) * beside.index(self.rank) / len(beside)


def _tag(virtual: int, backward: bool) -> int:
    """Return the tag of messages to a virtual stage."""
    return 2 * virtual + backward
