"""What injectors did, and what that cost at most. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from fabric.failures.schedule import LinkState, State
from fabric.model.identity import NodeId
from fabric.model.network import Link, Port


@dataclass(frozen=True)
class Change:
    """One event as it went; times are ``time.monotonic()``.

    ``due_s``: by the schedule; ``asked_s``: whoever carries it out was asked; ``done_s``: the target was so.
    ``due_end_s``: it was to be otherwise; the schedule's end if not before. ``detail``: what there is to say of it,
    such as which chunks have wrong data. ``jobs``: those whose programs or disks it hit. ``missed``: why it was never
    done, with a ``done_s`` of NaN.
    """

    target: Hashable
    state: State
    due_s: float
    asked_s: float
    done_s: float
    causes: tuple[int, ...] = ()
    detail: str = ""
    jobs: tuple[str, ...] = ()
    due_end_s: float = math.inf
    missed: str = ""

    def until(self, ended_s: float) -> Change:
        """Return the same of a schedule that has ended."""
        return replace(self, due_end_s=min(self.due_end_s, ended_s))


@dataclass(frozen=True)
class LinkChange(Change):
    """A change of a link. ``done_s``: the kernel had answered, and at both ends carrier had gone, or was back and
    frames could be sent. ``waiting_packets``: what waited in both ends' queues shortly before."""

    target: Link
    state: LinkState
    waiting_packets: int = 0

    @property
    def link(self) -> Link:
        """The link."""
        return self.target


@dataclass(frozen=True)
class FaultReport:
    """What injectors did and what it cost at most.

    ``in_switches`` and ``on_wires`` (by sending port): how many packets cuts may have lost there, at most: what waited,
    was on the way, or arrived while a port was down. ``refused``: packets counted, by the kernel or in front of it, as
    sent into ports of switches that were down. ``by_loss``: frames that random loss took at each port, exactly.
    ``missed``: what was due and never done.
    """

    changes: tuple[Change, ...] = ()
    in_switches: dict[NodeId, int] = field(default_factory=dict)
    on_wires: dict[Port, int] = field(default_factory=dict)
    by_loss: dict[Port, int] = field(default_factory=dict)
    refused: int = 0
    missed: tuple[Change, ...] = ()

    @property
    def link_changes(self) -> tuple[LinkChange, ...]:
        """What was done to links."""
        return tuple(change for change in self.changes if isinstance(change, LinkChange))

    def with_others(self, others: Iterable[FaultReport]) -> FaultReport:
        """Return the same with what was done, and missed, of other targets than links."""
        found = [self, *others]
        changes = tuple(change for one in found for change in one.changes)
        return replace(self, changes=changes, missed=tuple(change for one in found for change in one.missed))
