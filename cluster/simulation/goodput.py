"""Where the time of all nodes went: goodput in Google's split (arXiv 2502.06982), and the causes of the rest.

Goodput is scheduling x runtime x program: of all nodes' time the part that tasks have nodes; of that the part of steps
that were kept; of these the part of the peak at which they compute. The last is a program's own matter, and is not
simulated: it counts as 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Cause(str, Enum):
    """What nodes' time went to."""

    KEPT = "steps kept"
    LOST = "steps lost"
    START = "start"
    RESTORE = "restore"
    SAVE = "save"
    SUSPENDED = "suspend"
    DETECTION = "detection and stop"
    STRAGGLING = "straggling"
    CUT = "links cut"
    STORAGE = "storage nodes lost"
    CAPACITY = "spine switches lost"
    VALIDATION = "validation"
    OUT = "out for repair"
    QUEUED = "idle while tasks wait"
    IDLE = "idle"


WITHOUT_TASK = (Cause.OUT, Cause.QUEUED, Cause.IDLE)
"""Time in which no task has the node."""


@dataclass(frozen=True)
class Goodput:
    """Node-seconds by cause. Their sum is ``nodes`` times ``length_s``."""

    nodes: int
    length_s: float
    node_s: Mapping[Cause, float]

    @property
    def whole_node_s(self) -> float:
        """All nodes' time."""
        return self.nodes * self.length_s

    @property
    def scheduling(self) -> float:
        """The part of all nodes' time in which a task has the node."""
        held = self.whole_node_s - sum(self.node_s.get(cause, 0.0) for cause in WITHOUT_TASK)
        return held / self.whole_node_s

    @property
    def runtime(self) -> float:
        """The part of tasks' time that went to steps that were kept; also called effective training time ratio."""
        held = sum(seconds for cause, seconds in self.node_s.items() if cause not in WITHOUT_TASK)
        return self.node_s.get(Cause.KEPT, 0.0) / held if held else 0.0

    @property
    def total(self) -> float:
        """The part of all nodes' time that went to steps that were kept."""
        return self.node_s.get(Cause.KEPT, 0.0) / self.whole_node_s

    def share(self, cause: Cause) -> float:
        """The part of all nodes' time that went to a cause."""
        return self.node_s.get(cause, 0.0) / self.whole_node_s
