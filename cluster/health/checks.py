"""Results of checks: which node, which check, what was measured, what the limit is, and whether it passed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Check(str, Enum):
    """A check of the validator.

    - ``answer``: its agent answers, in time;
    - ``link``: each NIC has carrier, at both ends of its link;
    - ``speed``: each NIC's port has the rate that it should have, as the host's kernel says;
    - ``counters``: frames that the host saw dropped since the last look;
    - ``gpu``: errors of GPUs (Xid) since the last repair that ask for one;
    - ``memory``: of these, errors of memory;
    - ``allreduce``: its GPUs add up vectors, all together and neighbour by neighbour, with right sums and as fast as
      the links between them allow;
    - ``storage``: the node writes a file to the storage, and reads the same bytes back;
    - ``bandwidth``: each NIC sends and receives at its rate, measured with packets to two other nodes.
    """

    ANSWER = "answer"
    LINK = "link"
    SPEED = "speed"
    COUNTERS = "counters"
    GPU = "gpu"
    MEMORY = "memory"
    ALLREDUCE = "allreduce"
    STORAGE = "storage"
    BANDWIDTH = "bandwidth"


class Verdict(str, Enum):
    """What a check says of a node."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be measured, or which of two nodes is to blame could not be told."""


class Occasion(str, Enum):
    """Why a node was validated."""

    BEFORE_JOB = "before_job"
    WEEKLY = "weekly"
    """In turn, each once in the time that the config says."""
    REPAIR = "repair"
    DEMAND = "demand"
    """A user asked for it."""
    STALL = "stall"
    """A job on it stood still, and its steps did not say which node is to blame."""


@dataclass(frozen=True)
class CheckResult:
    """Result of a check. ``measured`` and ``limit`` are in ``unit``, NaN where there is no number. ``xids``: the Xids
    of the GPU errors that ``reason`` names."""

    node: str
    check: Check
    verdict: Verdict
    measured: float = math.nan
    limit: float = math.nan
    unit: str = ""
    reason: str = ""
    xids: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The check and its reason, as nodes that are out have it."""
        return f"{self.check.value}: {self.reason}"

    def message(self) -> dict[str, Any]:
        """Return it as values of JSON, without the node."""
        row = asdict(self)
        del row["node"]
        row.update(check=self.check.value, verdict=self.verdict.value)
        row.update({name: None for name in ("measured", "limit") if math.isnan(row[name])})
        if not self.xids:
            del row["xids"]
        return row

    @classmethod
    def of_message(cls, node: str, row: Mapping[str, Any]) -> CheckResult:
        """Return what a message of :meth:`message` says of a node. Raises KeyError, TypeError, ValueError."""
        measured, limit = (math.nan if row[name] is None else float(row[name]) for name in ("measured", "limit"))
        unit, reason = str(row["unit"]), str(row["reason"])
        xids = tuple(map(int, row.get("xids", ())))  # Journals have them from 2026-11-29 on.
        return cls(node, Check(row["check"]), Verdict(row["verdict"]), measured, limit, unit, reason, xids)
