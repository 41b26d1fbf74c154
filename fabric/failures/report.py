"""What an injector did to links, and what that cost at most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabric.failures.schedule import LinkState
from fabric.model.identity import NodeId
from fabric.model.network import Link, Port


@dataclass(frozen=True)
class LinkChange:
    """One event as it went; times are ``time.monotonic()``.

    ``due_s``: by the schedule; ``asked_s``: the kernel was asked; ``done_s``: it had answered, and at both ends carrier
    had gone, or was back and frames could be sent. ``waiting_packets``: what waited in both ends' queues shortly
    before.
    """

    link: Link
    state: LinkState
    due_s: float
    asked_s: float
    done_s: float
    waiting_packets: int
    causes: tuple[int, ...] = ()


@dataclass(frozen=True)
class FaultReport:
    """What an injector did and what it cost at most.

    ``in_switches`` and ``on_wires`` (by sending port): how many packets cuts may have lost there, at most: what waited,
    was on the way, or arrived while a port was down. ``refused``: packets counted, by the kernel or in front of it, as
    sent into ports of switches that were down. ``by_loss``: frames that random loss took at each port, exactly.
    """

    changes: tuple[LinkChange, ...] = ()
    in_switches: dict[NodeId, int] = field(default_factory=dict)
    on_wires: dict[Port, int] = field(default_factory=dict)
    by_loss: dict[Port, int] = field(default_factory=dict)
    refused: int = 0
