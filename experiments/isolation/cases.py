"""What plays in a phase: a program alone, or all at once."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from experiments.isolation.config import IsolationConfig, Load
from fabric.metrics import first_part
from fabric.model.lanes import DATA_LEVELS, Queueing, ServiceLevel
from runs.cases import Case, axis
from runs.study import Found

AnyFound = Found[Any, IsolationConfig]
COLLECTIVES = (ServiceLevel.HFREDUCE, ServiceLevel.NCCL)
OPERATIONS = {"read": ServiceLevel.STORAGE, "write": ServiceLevel.STORAGE, "flow": ServiceLevel.OTHER}
ALONE = {
    part: f"{level.label}_alone" for part, level in ({level.label: level for level in COLLECTIVES} | OPERATIONS).items()
}
"""The phase in which each of what is measured plays alone."""


@dataclass(frozen=True)
class Alone(Case, name="{level}_alone", title="{level} alone", alone=ALONE):
    """A program plays alone, in the first queueing."""

    queueing: Queueing = axis(lambda config: config.queueings[:1])
    level: ServiceLevel = axis(lambda _: DATA_LEVELS, name=attrgetter("label"), words=attrgetter("label"))


@dataclass(frozen=True)
class Mix(Case, name="{queueing}{load}", title="all in {words}", alone=ALONE):
    """All play at once: how ports queue, and what other traffic offers."""

    queueing: Queueing = axis("queueings")
    load: Load = axis("loads", name=lambda load: "_heavy" if load.is_heavy else "")

    @property
    def words(self) -> str:
        """Its queueing in words, and a load that is not the moderate one."""
        return self.format("{queueing}, others at {load}" if self.load.is_heavy else "{queueing}")

    def alone(self, number: str = "") -> str:
        """Return where a part plays alone. There flows of others offer the moderate load: what they take at a heavy one
        has nothing to be compared with."""
        return "" if self.load.is_heavy and first_part(number) == "flow" else super().alone(number)
