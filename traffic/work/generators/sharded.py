"""FSDP and ZeRO 3: each rank has a part of the parameters, which are gathered unit by unit before they are used.

A *visit* is a pass through layers of one unit. The unit of a visit is gathered while the one before is computed, but no
further ahead than ``prefetch`` visits, as FSDP limits it; gradients are spread after a unit's last backward visit. One
communicator carries both, in the order in which FSDP issues them: the gather of the next unit before the gradients of
this one (BACKWARD_PRE).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from traffic.work.generators.gradients import GRADIENT_TYPES
from traffic.work.generators.orders import Pass
from traffic.work.generators.plan import StepPlan
from traffic.work.generators.stages import NumberedLayer, own_elements
from traffic.work.generators.writer import RankWriter
from traffic.work.models.shapes import Role
from traffic.work.operations import CollectiveCall


@dataclass(frozen=True)
class Unit:
    """Layers whose parameters are gathered together. ``kept``: whether they stay after the forward pass."""

    number: int
    layers: tuple[NumberedLayer, ...]
    kept: bool


def units_of(layers: tuple[NumberedLayer, ...], strategy: str, reshard: bool) -> tuple[Unit, ...]:
    """Return the units in the order of the forward pass.

    FSDP: what is in no layer, embedding and head, is the root, which comes first and stays; of a network of modules the
    first one is. ZeRO 3: each layer is a unit, and none stays.
    """
    if strategy == "zero3":
        return tuple(Unit(number, (one,), kept=False) for number, one in enumerate(layers))
    outer = [one for one in layers if one.layer.parts[0].role in (Role.EMBEDDING, Role.HEAD)] or [layers[0]]
    inner = [one for one in layers if one not in outer]
    return (
        Unit(0, tuple(outer), kept=True),
        *(Unit(number, (one,), kept=not reshard) for number, one in enumerate(inner, 1)),
    )


@dataclass(frozen=True)
class Visit:
    """A pass through layers of one unit that follow each other. ``gathers``: whether its parameters must come;
    ``spreads``: whether gradients of the unit are whole after it."""

    one: Pass
    unit: Unit
    gathers: bool
    spreads: bool


def visits_of(units: tuple[Unit, ...], micro_batches: int, no_sync: bool) -> tuple[Visit, ...]:
    """Return all visits of a step."""
    visits: list[Visit] = []
    for micro_batch in range(micro_batches):
        spreads = not no_sync or micro_batch == micro_batches - 1
        path = [*_path(units)]
        here: set[int] = set()
        for unit in path:
            visits.append(Visit(Pass(False, 0, micro_batch), unit, unit.number not in here, spreads=False))
            here.add(unit.number)
        here = {unit.number for unit in units if unit.kept}
        for place, unit in enumerate(reversed(path)):
            last = unit not in [*reversed(path)][place + 1 :]
            visits.append(Visit(Pass(True, 0, micro_batch), unit, unit.number not in here, spreads and last))
            here.add(unit.number)
    return tuple(visits)


def _path(units: tuple[Unit, ...]) -> Iterator[Unit]:
    """Yield the units that a forward pass comes through, one as often as it comes back to it."""
    by_layer = sorted((one.number, unit.number) for unit in units for one in unit.layers)
    previous = None
    for _, number in by_layer:
        if number != previous:
            yield units[number]
        previous = number


@dataclass
class ShardedParameters:
    """Writes gathers and spread gradients around a rank's passes."""

    plan: StepPlan
    rank: int
    writer: RankWriter
    visits: tuple[Visit, ...] = field(init=False)
    unit_of: dict[int, Unit] = field(init=False)
    ends: list[tuple[int, ...]] = field(default_factory=list)
    gathered: dict[int, int] = field(default_factory=dict)
    asked: int = 0
    sent: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        options = self.plan.choices.data_parallel
        units = units_of(tuple(self.plan.own_layers(self.rank)), options.strategy, options.reshard)
        self.unit_of = {one.number: unit for unit in units for one in unit.layers}
        self.visits = visits_of(units, self.plan.micro_batches, options.no_sync)

    def before(self, one: Pass, layer: int) -> None:
        """Begin the next visit if the layer is of another unit than the one before."""
        begun = len(self.ends)
        if begun and self.visits[begun - 1].unit == self.unit_of[layer] and self.visits[begun - 1].one == one:
            return
        if begun:
            self._end()
        self.ends.append(())
        ahead = self.plan.choices.data_parallel.prefetch
        while self.asked < min(len(self.visits), begun + 1 + ahead):
            self._ask(self.asked, ahead)
            self.asked += 1
        if begun in self.gathered:
            self.writer.wait_for(self.gathered[begun])

    def behind(self, one: Pass, layer: int, part: int) -> None:
        """Gradients leave when the visit ends."""

    def finish(self) -> None:
        """End the last visit, and update."""
        self._end()
        self.writer.wait_for(*self.sent)
        self.writer.update(self.writer.chain)

    def _ask(self, number: int, ahead: int) -> None:
        """Gather what a visit needs, once the visit that may be computed while this is under way has begun."""
        visit = self.visits[number]
        if not visit.gathers:
            return
        before = number - 1 - ahead
        after = self.ends[before] if before >= 0 else ()
        options = self.plan.choices.data_parallel
        call = self._call("all_gather", visit, options.parameter_bytes, "parameters", after)
        if call:
            self.gathered[number] = self.writer.work.add(call)

    def _end(self) -> None:
        visit = self.visits[len(self.ends) - 1]
        self.ends[-1] = self.writer.settle()
        if visit.spreads:
            size = self.plan.choices.data_parallel.gradient_bytes
            call = self._call("reduce_scatter", visit, size, "gradients", self.ends[-1])
            if call:
                self.sent.append(self.writer.work.add(call))

    def _call(
        self, collective: str, visit: Visit, element: int, what: str, after: tuple[int, ...]
    ) -> CollectiveCall | None:
        group, ranks = self.plan.named_group("dp-cp", self.rank)
        if len(ranks) == 1:
            return None
        self.plan.groups[group] = ranks
        way = "backward" if visit.one.backward else "forward"
        return CollectiveCall(
            collective=collective,
            size_bytes=own_elements(visit.unit.layers, self.plan.layout) * element,
            group=group,
            stream="data",
            name=f"{what} {visit.one.micro_batch} {way} unit {visit.unit.number}",
            after=after,
            dtype=GRADIENT_TYPES[element],
        )
