"""Faults of a time, drawn from a table by a seed.

Faults of a class come at random and independently (Poisson), each to a unit drawn evenly: tables give counts, not
when and where. Real link cuts come in bursts; ``flash_cut_year`` replays those day by day. With ``Lemons`` some nodes
fail more often than others, while a class has as many faults as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cluster.faults.classes import DAY_S, Effect, FaultClass, FaultTable, Unit
from fabric.model.network import Fabric


@dataclass(frozen=True)
class Units:
    """The names of what may fail: nodes, links (by a port such as ``z0l00:3``), storage nodes, switches; a slow NIC is
    the first of its node."""

    nodes: tuple[str, ...]
    links: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()

    @classmethod
    def of(cls, fabric: Fabric) -> Units:
        """Return those of a fabric."""
        return cls(
            nodes=tuple(node.name for node in fabric.computes),
            links=tuple(str(link.a) for link in fabric.links),
            storages=tuple(node.name for node in fabric.storages),
            switches=tuple(node.name for node in fabric.switches),
        )

    @classmethod
    def numbered(cls, counts: Mapping[Unit, int]) -> Units:
        """Return as many of each unit, with numbers as names, for a machine that nobody has wired."""
        columns = (tuple(f"{unit.value}{number}" for number in range(counts.get(unit, 0))) for unit in Unit)
        return cls(*columns)

    def names(self, unit: Unit) -> tuple[str, ...]:
        """Return the names of a unit."""
        return {
            Unit.NODE: self.nodes,
            Unit.LINK: self.links,
            Unit.STORAGE: self.storages,
            Unit.SWITCH: self.switches,
        }[unit]

    @property
    def counts(self) -> dict[Unit, int]:
        """How many of each unit there are."""
        return {unit: len(self.names(unit)) for unit in Unit}


@dataclass(frozen=True)
class Lemons:
    """Nodes that fail more often: ``share`` of all, ``factor`` times as often as the others."""

    share: float
    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1 or self.factor <= 0:
            raise ValueError(f"lemons: share {self.share} and factor {self.factor}; 0 < share < 1 and factor > 0")


@dataclass(frozen=True, order=True)
class Fault:
    """One fault: when, to which unit, of which class."""

    at_s: float
    target: str
    name: str
    kind: FaultClass = field(compare=False)

    @property
    def effect(self) -> Effect:
        """What it does."""
        return self.kind.effect

    @property
    def cause(self) -> str:
        """Why, in words."""
        return self.kind.cause or self.name


def draw_faults(
    table: FaultTable, units: Units, days: float, seed: int, lemons: Lemons | None = None
) -> tuple[Fault, ...]:
    """Return the faults of ``days`` days in order of time. The same arguments give the same faults; each class draws by
    itself. A class whose unit ``units`` has none of has none."""
    found: list[Fault] = []
    for number, one in enumerate(table.classes):
        rng = np.random.default_rng([seed, number])
        names = units.names(one.effect.unit)
        if not names:
            continue
        count = int(rng.poisson(table.expected(one, units.counts, days)))
        times = rng.uniform(0.0, days * DAY_S, count)
        weights = _weights(len(names), lemons, seed) if lemons and one.effect.unit is Unit.NODE else None
        places = rng.choice(len(names), count, p=weights)
        found += [Fault(at_s, names[place], one.name, one) for at_s, place in zip(times.tolist(), places, strict=True)]
    return tuple(sorted(found))


def lemon_nodes(count: int, lemons: Lemons, seed: int) -> tuple[int, ...]:
    """Return which of ``count`` nodes are lemons, the same ones for all classes."""
    rng = np.random.default_rng([seed, 1_000_003])
    chosen: list[int] = rng.choice(count, max(1, round(lemons.share * count)), replace=False).tolist()
    return tuple(sorted(chosen))


def _weights(count: int, lemons: Lemons, seed: int) -> npt.NDArray[np.float64]:
    weights = np.ones(count)
    weights[list(lemon_nodes(count, lemons, seed))] = lemons.factor
    found: npt.NDArray[np.float64] = weights / weights.sum()
    return found
