"""What makers of a step know: the model, the layout, and all that was chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from traffic.work.generators.buckets import DataKind
from traffic.work.generators.costs import Costs
from traffic.work.generators.layout import Layout
from traffic.work.generators.options import DataParallel, Experts, Pipeline
from traffic.work.generators.routing import Routed
from traffic.work.generators.stages import NumberedLayer, Stage
from traffic.work.models.listing import Model
from traffic.work.models.transformer import Transformer

ACTIVATION_BYTES = 2
"""BF16."""
Group = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Choices:
    """Keys of a training job that makers of a step look at."""

    pipeline: Pipeline
    data_parallel: DataParallel
    experts: Experts


@dataclass(frozen=True)
class StepPlan:
    """``stages``: layers by virtual stage, of which a rank has every ``layout.pipeline``-th; of dualpipe, one as seen
    from either end. ``micro_batches``: those that are played, each of ``samples`` samples."""

    name: str
    model: Model
    layout: Layout
    choices: Choices
    costs: Costs
    stages: tuple[Stage, ...]
    micro_batches: int
    samples: int
    routed: Routed | None = None
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @cached_property
    def _group_of(self) -> dict[tuple[str, int], Group]:
        kinds = ("tp", "cp", "dp-cp", "pp", "ep", "edp")
        return {
            (kind, rank): (f"{kind}.{number}", group)
            for kind in kinds
            for number, group in enumerate(self.layout.groups(kind))
            for rank in group
        }

    @cached_property
    def _groups_of_stages(self) -> dict[tuple[DataKind, int], Group]:
        return _groups_of_stages(self.layout, self._group_of)

    @property
    def has_tied_copy(self) -> bool:
        """Whether the first and the last rank of a pipeline each have the matrix of a tied embedding. Either end of
        dualpipe has both stages, and one matrix."""
        return bool(getattr(self.model, "tied", False)) and self.layout.pipeline > 1 and not self.is_dual

    @property
    def is_dual(self) -> bool:
        """Whether micro-batches come from both ends of a pipeline."""
        return self.choices.pipeline.schedule == "dualpipe"

    def virtual_stages(self, rank: int) -> tuple[int, ...]:
        """Return the virtual stages that a rank has, chunk by chunk."""
        place, stages = self.place("pp", rank), self.layout.pipeline
        if self.is_dual:
            return place, stages - 1 - place
        return tuple(range(place, len(self.stages), stages))

    def last_micro_batch(self, chunk: int) -> int:
        """Return the last micro-batch that goes through a chunk: of two directions, each has a half."""
        return self.micro_batches // 2 - 1 if self.is_dual and chunk == 0 else self.micro_batches - 1

    def data_kind(self, kind: str, rank: int, chunk: int) -> DataKind:
        """Return the kind of the groups whose ranks have the same parameters as a chunk of a rank, of those of a kind
        (``dp-cp`` or ``edp``): of dualpipe each stage has its own, as two ranks of a pipeline have it."""
        return DataKind(kind, self.virtual_stages(rank)[chunk] if self.is_dual else None)

    def data_group(self, group: DataKind, rank: int) -> Group:
        """Return the name and the ranks of a rank's group that adds up gradients."""
        return self._group_of[group.kind, rank] if group.stage is None else self._groups_of_stages[group, rank]

    def group(self, kind: str, rank: int) -> Group:
        """Return the name and the ranks of a rank's group, which the graph then has."""
        name, ranks = self._group_of[kind, rank]
        self.groups[name] = ranks
        return name, ranks

    def named_group(self, kind: str, rank: int) -> Group:
        """Return the name and the ranks of a rank's group, which the graph need not have."""
        return self._group_of[kind, rank]

    def place(self, kind: str, rank: int) -> int:
        """Return a rank's place in its group."""
        return self._group_of[kind, rank][1].index(rank)

    def pipeline(self, rank: int) -> tuple[int, ...]:
        """Return the ranks of a rank's pipeline, stage by stage."""
        return self._group_of["pp", rank][1]

    def chunks(self, rank: int) -> tuple[Stage, ...]:
        """Return the layers of each of a rank's chunks."""
        return tuple(self.stages[virtual] for virtual in self.virtual_stages(rank))

    def own_layers(self, rank: int) -> Iterator[NumberedLayer]:
        """Yield all layers of a rank in the order of the model."""
        for chunk in self.chunks(rank):
            yield from chunk

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on one rank, before sequence parallelism."""
        assert isinstance(self.model, Transformer)
        return self.samples * self.model.sequence // self.layout.context

    @property
    def activation_bytes(self) -> int:
        """Bytes of all vectors between two layers of a micro-batch on the ranks of a tensor-parallel group."""
        assert isinstance(self.model, Transformer)
        return ACTIVATION_BYTES * self.tokens * self.model.hidden

    @property
    def boundary_bytes(self) -> int:
        """Bytes that a rank sends to the next stage for a micro-batch."""
        return self.activation_bytes // (self.layout.tensor if self.layout.sequence_parallel else 1)


def _groups_of_stages(layout: Layout, groups: dict[tuple[str, int], Group]) -> dict[tuple[DataKind, int], Group]:
    """Return, by kind and rank, the groups of the ranks that have a stage of dualpipe: those at its place of the
    pipelines, then those at the same place from the end."""
    found: dict[tuple[DataKind, int], Group] = {}
    for pipeline in layout.groups("pp"):
        for place, rank in enumerate(pipeline):
            other = pipeline[-1 - place]
            for kind in ("dp-cp", "edp"):
                name, here = groups[kind, rank]
                both = (*here, *groups[kind, other][1])
                found |= {(DataKind(kind, place), one): (f"{name}.stage{place}", both) for one in (rank, other)}
    return found
