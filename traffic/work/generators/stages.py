"""Which layers a pipeline stage has, and what of their tensors is a rank's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from traffic.work.generators.layout import Layout
from traffic.work.models.shapes import Layer, Part, Role, Share, Tensor


@dataclass(frozen=True)
class NumberedLayer:
    """A layer with its number in the model."""

    number: int
    layer: Layer


Stage = tuple[NumberedLayer, ...]


def inner_layers(layers: tuple[Layer, ...]) -> int:
    """Return how many layers are spread over stages: all but an embedding and a head."""
    return sum(layer.parts[0].role not in (Role.EMBEDDING, Role.HEAD) for layer in layers)


def stages_of(layers: tuple[Layer, ...], counts: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return the layers of each stage. ``counts``: how many each has; the first has the embedding, too, and the last
    the head."""
    numbered = [NumberedLayer(number, layer) for number, layer in enumerate(layers)]
    inner = [one for one in numbered if one.layer.parts[0].role not in (Role.EMBEDDING, Role.HEAD)]
    stages: list[list[NumberedLayer]] = []
    taken = 0
    for count in counts:
        stages.append(inner[taken : taken + count])
        taken += count
    for one in numbered:
        if one.layer.parts[0].role is Role.EMBEDDING:
            stages[0].insert(0, one)
        if one.layer.parts[0].role is Role.HEAD:
            stages[-1].append(one)
    return tuple(tuple(stage) for stage in stages)


def parts_of(stage: Stage) -> Iterator[Part]:
    """Yield the parts of a stage's layers."""
    for one in stage:
        yield from one.layer.parts


def with_tied_copy(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return stages of a pipeline in which the last one's head has a copy of the embedding's matrix, with a gradient of
    its own, as Megatron-LM has it."""
    shared = stages[0][0].layer.parts[0].tensors[0]
    last = stages[-1][-1]
    head = last.layer.parts[0]
    copied = replace(head, tensors=(*head.tensors, replace(shared, name="head.weight")))
    return (*stages[:-1], (*stages[-1][:-1], replace(last, layer=replace(last.layer, parts=(copied,)))))


@dataclass(frozen=True)
class OwnTensor:
    """What a rank has of a tensor. ``group``: the kind of group whose ranks have the same."""

    tensor: Tensor
    elements: int
    group: str


def own_tensors(part: Part, layout: Layout) -> Iterator[OwnTensor]:
    """Yield what a rank has of a part's tensors. Of the experts it has the same number as each other."""
    experts = [tensor for tensor in part.tensors if tensor.share is Share.EXPERT]
    own = set(experts[: len(experts) // layout.expert])
    for tensor in part.tensors:
        if tensor.share is Share.EXPERT:
            if tensor in own:
                yield OwnTensor(tensor, tensor.elements, "edp")
        elif tensor.share is Share.TENSOR:
            yield OwnTensor(tensor, tensor.elements // layout.tensor, "dp-cp")
        else:
            yield OwnTensor(tensor, tensor.elements, "dp-cp")


def own_elements(stage: Stage, layout: Layout) -> int:
    """Return how many numbers of a stage's tensors a rank has."""
    return sum(own.elements for one in stage for part in one.layer.parts for own in own_tensors(part, layout))
