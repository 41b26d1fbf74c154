"""What became of the packets of a phase."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Conservation:
    """What happened between two censuses, and what of it no counter explains.

    ``sent`` is what hosts sent, ``switched`` what switches received. ``unaccounted`` names each wire or switch with its
    missing (or, negative, extra) packets. Bytes are exact on wires; one missing in a switch counts as a full frame.
    ``lost_in_cuts`` names each wire or switch that a cut took packets from: they are missing where a port was down, and
    no more than it can have held or been sent. ``lost_by_faults`` are the frames that injected random loss has counted.
    ``dropped_at_senders``: what queues of hosts' own NICs dropped, by port, but for links that failures changed.
    What hosts' sockets counted is told in :class:`fabric.measure.census.HostCount`, and of some by host (``..._at``);
    ``tcp_pruned`` is what connections dropped for want of room of their own. ``timeouts`` and ``spurious_timeouts``
    are not judged: deep queues cause them, too.
    """

    sent_packets: int
    sent_bytes: int
    switched_bytes: int
    dropped_by_queues: int
    dropped_by_rules: int
    waiting_packets: int
    unaccounted: dict[str, int]
    unaccounted_bytes: int
    retransmissions: int = 0
    lost_in_cuts: dict[str, int] = field(default_factory=dict)
    lost_by_faults: int = 0
    tcp_short_of_memory: int = 0
    dropped_by_cause: dict[str, int] = field(default_factory=dict)
    switched_packets: int = 0
    timeouts: int = 0
    spurious_timeouts: int = 0
    tcp_pruned: int = 0
    udp_dropped: int = 0
    connections_dropped: int = 0
    discarded: int = 0
    not_counted: tuple[str, ...] = ()
    dropped_at_senders: dict[str, int] = field(default_factory=dict)
    udp_dropped_at: dict[str, int] = field(default_factory=dict)
    connections_dropped_at: dict[str, int] = field(default_factory=dict)
    sent_twice: int = 0
    overtook: int = 0
    naks: int = 0
    cnps: int = 0

    @property
    def lost_in_cuts_packets(self) -> int:
        """Packets that went with the carrier of a link."""
        return sum(self.lost_in_cuts.values())

    @property
    def unaccounted_packets(self) -> int:
        """Packets lost in, or invented by, the emulator."""
        return sum(abs(packets) for packets in self.unaccounted.values())
