"""Both ends of each connection of a recording, found by their addresses; and what is left out, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from traffic.programs.recording import Endpoint, ProcessRecords, RecordKind

OF_A_HOST = "connections of a host with itself"
OF_A_RANK = "connections of a rank with itself"
Socket = tuple[int, int]
"""A process, by its place in the recording, and the number of a connection in it."""


@dataclass(frozen=True, slots=True)
class Side:
    """A process' end of a connection: the streams of bytes that it sends and receives, by their numbers."""

    sends: int
    receives: int


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams of bytes between ranks.

    Connection c has stream 2c, from rank ``ends[c][0]`` to ``ends[c][1]``, and 2c+1, the other way. ``sides``: those of
    each socket. ``left_out``: bytes of connections that are not played, by why.
    """

    sides: Mapping[Socket, Side]
    ends: Sequence[tuple[int, int]]
    left_out: Counter[str] = field(default_factory=Counter)

    def ranks(self, stream: int) -> tuple[int, int]:
        """Return who sends a stream, and who receives it."""
        first, second = self.ends[stream // 2]
        return (second, first) if stream % 2 else (first, second)


@dataclass
class _End:
    """One socket, which several processes may have (``fork``)."""

    local: Endpoint
    remote: Endpoint
    began_ns: int
    rank: int
    held_by: list[Socket] = field(default_factory=list)
    bytes: int = 0


def matched(processes: Sequence[ProcessRecords], ranks: Sequence[int], host_of: Mapping[str, str]) -> Streams:
    """Return the connections of which both ends were recorded and that cross the fabric.

    ``ranks``: of each process. ``host_of``: the host that has an address of the fabric.
    """
    ends = _ends(processes, ranks)
    of_addresses: dict[tuple[Endpoint, Endpoint], list[_End]] = defaultdict(list)
    for end in sorted(ends, key=lambda one: one.began_ns):
        of_addresses[end.local, end.remote].append(end)
    left_out: Counter[str] = Counter()
    sides: dict[Socket, Side] = {}
    pairs: list[tuple[int, int]] = []
    for (local, remote), found in of_addresses.items():
        others = of_addresses.get((remote, local), [])
        for place, end in enumerate(found):
            other = others[place] if place < len(others) else None
            if why := _why_not(end, other, host_of):
                left_out[why] += end.bytes
            elif other is not None and (local.address, local.port) < (remote.address, remote.port):
                stream = 2 * len(pairs)
                pairs.append((end.rank, other.rank))
                sides |= dict.fromkeys(end.held_by, Side(stream, stream + 1))
                sides |= dict.fromkeys(other.held_by, Side(stream + 1, stream))
    return Streams(sides, pairs, left_out)


def _why_not(end: _End, other: _End | None, host_of: Mapping[str, str]) -> str:
    for address in (end.local.address, end.remote.address):
        if address not in host_of:
            return f"connections with {address}, which is not an address of the fabric"
    if host_of[end.local.address] == host_of[end.remote.address]:
        return OF_A_HOST
    if other is None:
        there = host_of[end.remote.address]
        return f"connections with port {end.remote.port} of {there}, where the program was not recorded"
    if other.rank == end.rank:
        return OF_A_RANK
    return ""


def _ends(processes: Sequence[ProcessRecords], ranks: Sequence[int]) -> list[_End]:
    ends: dict[int, _End] = {}
    of_socket: dict[Socket, _End] = {}
    for place, process in enumerate(processes):
        made = process.records[process.records["kind"] == RecordKind.CONNECTED]
        for one in made:
            inode = int(one["busy_ns"])
            if inode not in ends:
                local, remote = Endpoint.unpacked(int(one["bytes"])), Endpoint.unpacked(int(one["wanted"]))
                ends[inode] = _End(local, remote, int(one["started_ns"]), ranks[place])
            socket = (place, int(one["connection"]))
            ends[inode].held_by.append(socket)
            of_socket[socket] = ends[inode]
    for place, process in enumerate(processes):
        moved = process.records[(process.records["kind"] == RecordKind.SENT)]
        for connection, size in zip(moved["connection"].tolist(), moved["bytes"].tolist(), strict=True):
            of_socket[place, connection].bytes += size
    return list(ends.values())
