"""What happened to each node, and what follows: when it may be repaired, and whether it is a lemon. Pure.

Signals are those by which RSC finds lemons (arXiv 2410.21680, IV-A): times that a node was out, tickets, different
Xids, jobs of several nodes and of one that it stopped. ``excl_jobid_count``, jobs whose users exclude a node, has
nothing to count here. Their paper counts over 28 days.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from cluster.health.config import Lemons

DAY_S = 86_400.0
LEAST_SINGLE_JOBS = 5
"""Below so many jobs of one node a rate of failures says nothing."""


class Standing(str, Enum):
    """Whether a node may be used."""

    IN = "in"
    OUT = "out"
    LEMON = "lemon"


@dataclass
class NodeHistory:
    """What happened to a node, each with its time in seconds."""

    outs: list[float] = field(default_factory=list)
    tickets: list[float] = field(default_factory=list)
    xids: list[tuple[float, int]] = field(default_factory=list)
    multi_node_fails: list[float] = field(default_factory=list)
    single_node_fails: list[float] = field(default_factory=list)
    single_node_jobs: list[float] = field(default_factory=list)
    standing: Standing = Standing.IN
    out_s: float = 0.0
    due_s: float = 0.0
    """When it was taken out, and when it may be validated again, while it is out."""

    def discarded(self) -> None:
        """It is out for good."""
        self.standing = Standing.LEMON

    def out(self, at_s: float, repair_s: float, xids: Sequence[int] = ()) -> None:
        """It was taken out, or is still out after a repair, for errors of GPUs with these Xids or for something else:
        ``repair_s`` is how long the next one takes, 0 for none."""
        if self.standing is Standing.LEMON:
            return
        if self.standing is Standing.IN:
            self.outs.append(at_s)
            self.out_s = at_s
        if repair_s > 0:
            self.tickets.append(at_s)
        self.xids += [(at_s, xid) for xid in xids]
        self.standing, self.due_s = Standing.OUT, at_s + repair_s

    def back(self) -> None:
        """It may be used again. A lemon comes back only by the word of a person, who has had it repaired."""
        self.standing = Standing.IN

    def began(self, at_s: float, nodes: int) -> None:
        """A job of so many nodes began on it."""
        if nodes == 1:
            self.single_node_jobs.append(at_s)

    def stopped(self, at_s: float, nodes: int) -> None:
        """It stopped a job of so many nodes."""
        (self.single_node_fails if nodes == 1 else self.multi_node_fails).append(at_s)

    def lemon(self, now_s: float, limits: Lemons) -> str:
        """Return why it is a lemon, every signal that has reached its limit; empty if it is none."""
        return ", ".join(self._signals(now_s, limits))

    def _signals(self, now_s: float, limits: Lemons) -> Iterator[str]:
        since_s = now_s - limits.window_days * DAY_S

        def within(times: list[float]) -> int:
            return sum(at_s > since_s for at_s in times)

        xids = len({xid for at_s, xid in self.xids if at_s > since_s})
        single = within(self.single_node_fails)
        counted = (
            (within(self.outs), limits.outs, "times out"),
            (within(self.tickets), limits.tickets, "repairs"),
            (xids, limits.xids, "different Xids"),
            (within(self.multi_node_fails), limits.multi_node_fails, "jobs of several nodes stopped"),
            (single, limits.single_node_fails, "jobs of one node stopped"),
        )
        for count, limit, words in counted:
            if limit is not None and count >= limit:
                yield f"{count} {words} in {limits.window_days:g} d (limit {limit})"
        jobs, rate = within(self.single_node_jobs), limits.single_node_fail_rate
        if rate is not None and jobs >= LEAST_SINGLE_JOBS and single / jobs >= rate:
            yield f"{single} of {jobs} jobs of one node stopped (limit {rate:.0%})"
