"""What injectors did, and what that cost at most. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from fabric.failures.schedule import LinkState, State
from fabric.model.identity import NodeId
from fabric.model.network import Link, Port


@dataclass(frozen=True)
class Change:
    """One event as it went; times are ``time.monotonic()``.

    ``due_s``: by the schedule; ``asked_s``: whoever carries it out was asked; ``done_s``: it was done. ``detail``: what
    there is to say of it, such as which chunks have wrong data. ``jobs``: those whose programs or disks it hit.
    """

    target: Hashable
    state: State
    due_s: float
    asked_s: float
    done_s: float
    causes: tuple[int, ...] = ()
    detail: str = ""
    jobs: tuple[str, ...] = ()


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
    """

    changes: tuple[Change, ...] = ()
    in_switches: dict[NodeId, int] = field(default_factory=dict)
    on_wires: dict[Port, int] = field(default_factory=dict)
    by_loss: dict[Port, int] = field(default_factory=dict)
    refused: int = 0

    @property
    def link_changes(self) -> tuple[LinkChange, ...]:
        """What was done to links."""
        return tuple(change for change in self.changes if isinstance(change, LinkChange))

    def with_changes(self, others: Iterable[Change]) -> FaultReport:
        """Return the same with what was done to other targets than links."""
        return FaultReport((*self.changes, *others), self.in_switches, self.on_wires, self.by_loss, self.refused)
