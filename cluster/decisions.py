"""What a scheduler decides about a task, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from cluster.nodes import Nodes


class Action(str, Enum):
    """What is done with a task."""

    START = "start"
    KEEP = "keep"
    SUSPEND = "suspend"
    """It gets notice, may save, and waits as a new life."""
    STOP = "stop"
    """What is left of it is stopped without notice; it waits as a new life that goes on from its last checkpoint."""
    WAIT = "wait"


class Reason(str, Enum):
    """Why; the value is the sentence, in which {other} is the other task, {nodes} are nodes."""

    FREE = "enough nodes are free"
    BACKFILLED = "it ends before task {other} could start, or leaves enough nodes for it"
    LENT = "task {other} waits, and takes the nodes back once it can start"
    RUNS = "it runs, and nothing that comes first needs its nodes"
    YIELDS = "task {other} comes first, and needs its nodes"
    OVER_QUOTA = "tasks of its user, priority and group that come first use the quota"
    NODE_LOST = "{nodes}: not ready any more"
    LEAVES = "it has to leave, and has not left yet"
    NODES_LEAVING = "it gets nodes that other tasks are leaving"
    NO_ROOM = "it comes first, but too few nodes are free or may be taken from others"
    ZONES = "it comes first, but no zone has enough nodes, and task {other} crosses zones already"
    BEHIND = "task {other} comes first, and waits"
    WOULD_DELAY = "it would delay task {other}, or too few nodes are free"
    TOO_LARGE = "its group has fewer nodes that are ready, used or not"
    QUOTA_TOO_SMALL = "it asks for more nodes than its quota has"
    NO_GROUP = "there is no such group of nodes"


@dataclass(frozen=True)
class Because:
    """The reason of a decision with what it names: the other task, and the nodes that are lost (``on``)."""

    reason: Reason
    other: int | None = None
    on: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.reason.value.format(other=self.other, nodes=", ".join(self.on))


class Decision(NamedTuple):
    """One per task and tick. ``nodes``: those that it gets, in the order of ranks, or those that were lost."""

    task: int
    action: Action
    reason: Reason
    nodes: tuple[int, ...] = ()
    other: int | None = None

    def because(self, nodes: Nodes) -> Because:
        """Return the reason with the names of what it is about."""
        lost = self.nodes if self.reason is Reason.NODE_LOST else ()
        return Because(self.reason, self.other, tuple(nodes.names[place] for place in lost))
