"""Records of programs, made by hand: times in us."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from traffic.programs.recording import RECORD, ProcessRecords, RecordFlag, RecordKind
from traffic.work.checks import graph_faults
from traffic.work.graph import WorkGraph
from traffic.work.operations import Compute, Receive, Send
from traffic.work.recording.maker import Recording, recording_of

ADDRESSES = {f"10.0.0.{host + 1}": f"h{host}" for host in range(4)}
ASYNC = RecordFlag.DOES_NOT_BLOCK


def packed(address: str, port: int) -> int:
    return int(ipaddress.IPv4Address(address)) << 16 | port


@dataclass
class Made:
    """The records of one process on host ``h0`` to ``h3``, in the order in which they are added."""

    host: int
    environment: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    local_bytes: int = 0
    datagram_bytes: int = 0
    lost: int = 0

    def connects(self, to: Made, port: int, connection: int = 0, at_us: float = 0, address: str = "") -> None:
        """Have a connection from ``port`` here to port 5000 of ``to``, which has it too, by the same number."""
        here, there = packed(f"10.0.0.{self.host + 1}", port), packed(address or f"10.0.0.{to.host + 1}", 5000)
        for made, local, remote in ((self, here, there), (to, there, here)):
            inode = port * 10 + made.host
            made._add(RecordKind.CONNECTED, at_us, at_us, local, remote, inode=inode, connection=connection)

    def sends(self, at_us: float, size: int, **others: float) -> None:
        self._add(RecordKind.SENT, at_us, others.pop("until", at_us), size, others.pop("wanted", size), **others)

    def receives(self, at_us: float, size: int, **others: float) -> None:
        self._add(RecordKind.RECEIVED, at_us, others.pop("until", at_us), size, size, **others)

    def wakes(self, from_us: float, to_us: float, by: int = 0, by_busy_us: float = 0, **others: float) -> None:
        """Wait for another thread: for ``by``, which signals at the end, having computed since its last record."""
        flags = RecordFlag.IS_SIGNALLED if by else 0
        at_ns = int(to_us * 1000) if by else 0
        self._add(RecordKind.WOKEN, from_us, to_us, at_ns, by_busy_us * 1000, other=by, flags=flags, **others)

    def _add(
        self,
        kind: RecordKind,
        from_us: float,
        to_us: float,
        size: float,
        wanted: float,
        *,
        inode: float = 0,
        busy: float = 0,
        then: float = 0,
        connection: float = 0,
        thread: float = 1,
        flags: float = 0,
        other: float = 0,
    ) -> None:
        busy_ns = inode or busy * 1000
        row = (from_us * 1000, to_us * 1000, size, wanted, busy_ns, then * 1000, connection, thread, kind, flags, other)
        self.rows.append(tuple(map(int, row)))

    def records(self) -> ProcessRecords:
        return ProcessRecords(
            process=100 + self.host,
            host=f"h{self.host}",
            command="job",
            environment=self.environment,
            records=np.array(self.rows, RECORD),
            lost=self.lost,
            datagram_bytes=self.datagram_bytes,
            local_bytes=self.local_bytes,
        )


def told(host: int) -> Made:
    """Return a process that ``fabric exec`` has told its rank."""
    return Made(host, {"FABRIC_HOST": f"h{host}", "RANK": str(host)})


def recording(*processes: Made, hosts: Sequence[str] = ("h0", "h1", "h2")) -> Recording:
    return recording_of("job", [one.records() for one in processes], ADDRESSES, hosts)


def lines(graph: WorkGraph, rank: int) -> list[str]:
    """Return a rank's operations in words, with the places that each waits for: computing in us."""
    words = []
    for one in graph.operations[rank]:
        if isinstance(one, Compute):
            text = f"compute {(one.duration_s or 0) * 1e6:g}"
        else:
            assert isinstance(one, Send | Receive)
            text = f"{'send' if isinstance(one, Send) else 'receive'} {one.size_bytes} {one.peer}"
        words.append(f"{text} after {','.join(map(str, one.after))}" if one.after else text)
    return words


def assert_matched(graph: WorkGraph) -> None:
    """Assert that the k-th message of each rank pair and tag is as long for both, that nothing waits for what comes
    later in its rank's list, and that the graph can be played."""
    faults = list(graph_faults(graph))
    assert faults == [], faults[0]
    sent: dict[tuple[int, int, int], list[int]] = {}
    received: dict[tuple[int, int, int], list[int]] = {}
    for rank, place, one in graph.all_operations():
        assert all(other < place for other in one.after)
        if isinstance(one, Send):
            sent.setdefault((rank, one.peer, one.tag), []).append(one.size_bytes)
        elif isinstance(one, Receive):
            received.setdefault((one.peer, rank, one.tag), []).append(one.size_bytes)
    assert sent == received
