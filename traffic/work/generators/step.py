"""A rank's step: its passes in the order of the pipeline's schedule, and what is communicated between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from traffic.work.generators.gradients import BucketedGradients, Strategy
from traffic.work.generators.orders import Pass, passes_of
from traffic.work.generators.parallel_parts import PartMaker
from traffic.work.generators.plan import StepPlan
from traffic.work.generators.sharded import ShardedParameters
from traffic.work.generators.stages import Stage
from traffic.work.generators.writer import RankWriter
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.models.shapes import Part
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
        for one in passes_of(stage, layout.pipeline, self.plan.choices.pipeline.chunks, self.plan.micro_batches):
            self._pass(one)
        self.strategy.finish()
        return self.writer.work

    def _pass(self, one: Pass) -> None:
        here = self._virtual(one.chunk)
        source, target = (here + 1, here - 1) if one.backward else (here - 1, here + 1)
        name = f"{'backward' if one.backward else 'forward'} {one.micro_batch}.{one.chunk}"
        if 0 <= source < len(self.plan.stages):
            self._receive(source, one, name)
        layers = self.plan.stages[here]
        parts = PartMaker(self.plan, self.rank, self.writer)
        for numbered in reversed(layers) if one.backward else layers:
            self.strategy.before(one, numbered.number)
            places = range(len(numbered.layer.parts))
            for place in reversed(places) if one.backward else places:
                parts.part(numbered.layer.parts[place], backward=one.backward, name=name)
                self.strategy.behind(one, numbered.number, place)
        if 0 <= target < len(self.plan.stages):
            self._send(target, one, name)

    def _virtual(self, chunk: int) -> int:
        return chunk * self.plan.layout.pipeline + self.plan.place("pp", self.rank)

    def _rank_of(self, virtual: int) -> int:
        return self.plan.pipeline(self.rank)[virtual % self.plan.layout.pipeline]

    def _receive(self, source: int, one: Pass, name: str) -> None:
        receive = Receive(
            peer=self._rank_of(source),
            size_bytes=self.plan.boundary_bytes,
            tag=_tag(self._virtual(one.chunk), one.backward),
            stream=f"receive {'backward' if one.backward else 'forward'}",
            name=f"pipeline receive {name}",
        )
        self.writer.settle()
        self.writer.wait_for(self.writer.work.add(receive))

    def _send(self, target: int, one: Pass, name: str) -> None:
        send = Send(
            peer=self._rank_of(target),
            size_bytes=self.plan.boundary_bytes,
            tag=_tag(target, one.backward),
            stream=f"send {'backward' if one.backward else 'forward'}",
            name=f"pipeline send {name}",
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
            sum(costs.forward(part) for stage in self.plan.stages[place :: layout.pipeline] for part in _parts(stage))
            for place in range(layout.pipeline)
        )
        return longest * (1 + costs.backward) * beside.index(self.rank) / len(beside)


def _tag(virtual: int, backward: bool) -> int:
    """Return the tag of messages to a virtual stage."""
    return 2 * virtual + backward


def _parts(stage: Stage) -> Iterator[Part]:
    for one in stage:
        yield from one.layer.parts
