"""Classes of faults with their counts, and the table that they are from.

::

    source: arXiv 2407.21783, Table 5
    nodes: 2048
    days: 54
    classes:
      - {name: gpu, events: 148, effect: gpu_error, cause: faulty GPU}
      - {name: network, events: 35, effect: link_cut, for: 10 s, cause: switch or cable}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from fabric.config import Strict, TimeS, checked, read_yaml

DAY_S = 86_400.0


class Unit(str, Enum):
    """What a fault happens to."""

    NODE = "node"
    LINK = "link"
    STORAGE = "storage"
    SWITCH = "switch"


class Effect(str, Enum):
    """What a fault does to a run."""

    GPU_ERROR = "gpu_error"
    """The node's programs are killed; peers see their connections end."""
    SILENT = "silent"
    """The node is cut off and its programs stop: no peer is told."""
    CORRUPTION = "corruption"
    """The node computes wrong, and once that is noticed its programs are killed: the job's last checkpoint is wrong,
    too, and it goes back to the one before."""
    SLOW_NIC = "slow_nic"
    LINK_CUT = "link_cut"
    STORAGE_DOWN = "storage_down"
    WRONG_DATA = "wrong_data"
    """A chunk of a disk of a storage node gets a wrong bit."""
    SWITCH_DOWN = "switch_down"

    @property
    def unit(self) -> Unit:
        """What it happens to."""
        return _UNITS[self]

    @property
    def stops_a_job(self) -> bool:
        """Whether the job on the node ends by it and must be restarted."""
        return self in (Effect.GPU_ERROR, Effect.SILENT, Effect.CORRUPTION)


_UNITS = {
    Effect.GPU_ERROR: Unit.NODE,
    Effect.SILENT: Unit.NODE,
    Effect.CORRUPTION: Unit.NODE,
    Effect.SLOW_NIC: Unit.NODE,
    Effect.LINK_CUT: Unit.LINK,
    Effect.STORAGE_DOWN: Unit.STORAGE,
    Effect.WRONG_DATA: Unit.STORAGE,
    Effect.SWITCH_DOWN: Unit.SWITCH,
}


class FaultClass(Strict):
    """One class: how many of it there were, what it does, for how long."""

    name: str = Field(min_length=1, description="What the class is called in tables.")
    events: Annotated[float, Field(gt=0, le=1e9)] = Field(
        description="How many there were in the table's days on its nodes, and on all that joins these."
    )
    effect: Effect = Field(strict=False, description="What it does: see the list of effects.")
    cause: str = Field(default="", description="Why, such as `Xid 79: GPU has fallen off the bus`.")
    xid: Annotated[int, Field(ge=1, le=999)] | None = Field(
        default=None,
        description="The Xid that reports a GPU's error. Without it that of its cause, if that names one.",
    )
    duration: Annotated[TimeS, Field(gt=0)] | None = Field(
        default=None, alias="for", description="How long it lasts. Without it, until what failed has been repaired."
    )
    repair: Annotated[TimeS, Field(ge=0)] = Field(
        default=DAY_S, description="How long what failed is out, to be repaired; tables do not say it."
    )
    rate: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.5, description="Fraction of its rate that a slow NIC keeps."
    )

    @model_validator(mode="after")
    def _verify(self) -> FaultClass:
        if self.rate != type(self).model_fields["rate"].default and self.effect is not Effect.SLOW_NIC:
            raise ValueError(f"rate: not of {self.effect.value}; it is for slow_nic")
        if self.xid is not None and self.effect is not Effect.GPU_ERROR:
            raise ValueError(f"xid: not of {self.effect.value}; it is for gpu_error")
        return self

    @property
    def known_xid(self) -> int | None:
        """The Xid of a GPU's error; None if none is known, as of software."""
        named = re.search(r"\bXid (\d+)", self.cause) if self.effect is Effect.GPU_ERROR else None
        return int(named.group(1)) if self.xid is None and named else self.xid


class FaultTable(Strict):
    """Counts of faults on a machine over a time, from which rates follow."""

    source: str = Field(min_length=1, description="Where the counts are from.")
    nodes: Annotated[int, Field(ge=1, le=10**7)] = Field(description="Compute nodes of the machine that was counted.")
    days: Annotated[float, Field(gt=0, le=1e6)] = Field(description="Over how many days it was counted.")
    links: Annotated[int, Field(ge=1, le=10**8)] | None = Field(
        default=None, description="Its links. Without it, faults of links are in proportion to its nodes."
    )
    storage_nodes: Annotated[int, Field(ge=1, le=10**7)] | None = Field(
        default=None, description="Its storage nodes. Without it, their faults are in proportion to its nodes."
    )
    switches: Annotated[int, Field(ge=1, le=10**7)] | None = Field(
        default=None, description="Its switches. Without it, their faults are in proportion to its nodes."
    )
    published: str = Field(default="", description="What is published of the machine's goodput, to stand beside ours.")
    classes: tuple[FaultClass, ...] = Field(
        min_length=1, max_length=1000, strict=False, description="The classes that were counted."
    )

    @field_validator("classes")
    @classmethod
    def _differ(cls, classes: tuple[FaultClass, ...]) -> tuple[FaultClass, ...]:
        names = [one.name for one in classes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{', '.join(twice)}: more than one class has this name; give each its own")
        return classes

    def per_node_day(self, only_stopping: bool = False) -> float:
        """Return the faults per compute node and day, of all classes or of those that end a job."""
        events = sum(one.events for one in self.classes if one.effect.stops_a_job or not only_stopping)
        return events / (self.nodes * self.days)

    def mtbf_s(self, nodes: int, only_stopping: bool = False) -> float:
        """Return the mean time between faults that hit one of ``nodes`` nodes, or what belongs to them, in seconds:
        faults of many nodes are many independent ones, so that it is in inverse proportion to their number."""
        return DAY_S / (self.per_node_day(only_stopping) * nodes)

    def expected(self, one: FaultClass, counts: Mapping[Unit, int], days: float) -> float:
        """Return how many faults of a class a machine with other counts of units has in some days, on average."""
        unit = one.effect.unit
        mine = {Unit.NODE: self.nodes, Unit.LINK: self.links, Unit.STORAGE: self.storage_nodes}.get(unit, self.switches)
        scale = counts[unit] / mine if mine else counts[Unit.NODE] / self.nodes
        return one.events * scale * days / self.days


def read_fault_table(path: Path) -> FaultTable:
    """Return the table of a YAML file. Raises ConfigError naming every fault."""
    return fault_table(read_yaml(path), str(path))


def fault_table(data: Mapping[str, Any], source: str) -> FaultTable:
    """Return a table from the values of a file. Raises ConfigError naming every fault."""
    return checked(FaultTable, data, source)
