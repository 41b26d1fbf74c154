"""Where the ranks of a group meet: each says in the group's store where it listens, and connects when it must."""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fabric.errors import TrafficError
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.wiring import dial_edge, heard_edge
from traffic.torch_backend.own_place import RankPlace
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    Endpoint,
    Listener,
    SilentPeerError,
    Transport,
    UnreachableError,
)

_HELLO_S = 30.0
"""How long who has connected may take to say for what."""


class Store(Protocol):
    """What ranks exchange a few words by, as ``torch.distributed.Store`` is."""

    def set(self, key: str, value: str, /) -> None:
        """Set a key."""

    def get(self, key: str, /) -> bytes:
        """Return a key's value, once it is set."""


class Meeting:
    """A rank's connections with the other ranks of its group, each made when it is first needed.

    ``silent_s``: how long a peer may be silent; ``channels``: of how many NICs an edge's channel takes its own. Ranks
    of one host meet by NVLink where both have it.
    """

    def __init__(
        self, store: Store, rank: int, place: RankPlace, transport: Transport, silent_s: float, channels: int = 1
    ) -> None:
        self._store, self._rank, self._place, self._transport = store, rank, place, transport
        self._silent_s = silent_s
        self._changed = threading.Condition()
        self._made: dict[Edge, ChunkConnection] = {}
        self._peers: dict[int, tuple[RankPlace, Sequence[Endpoint]]] = {}
        self._is_closed = False
        nics = [place.nics[channel % len(place.nics)] for channel in range(channels)]
        self._addresses = [*nics, *([place.nvlink] if place.nvlink else [])]
        self._nics = channels
        self._callers = _Callers([transport.listen(address) for address in self._addresses], self._greet)
        said = (place.host, place.nics, place.nvlink, place.nic_bps, self._callers.endpoints)
        store.set(f"fabric/{rank}", json.dumps(said))

    def place_of(self, rank: int) -> RankPlace:
        """Return where a rank is."""
        return self._peer(rank)[0]

    def connected(self, edges: Iterable[Edge], timeout_s: float) -> Mapping[Edge, ChunkConnection]:
        """Return this rank's end of each of some edges. Raises UnreachableError, naming who did not come in time."""
        wanted, deadline = list(edges), time.monotonic() + timeout_s
        for edge in wanted:
            if edge.dialer == self._rank and edge not in self._made:
                self._add(edge, self._dial(edge, max(0.01, deadline - time.monotonic())))
        with self._changed:

            def all_there() -> bool:
                return self._is_closed or all(edge in self._made for edge in wanted)

            if not self._changed.wait_for(all_there, max(0.0, deadline - time.monotonic())):
                missing = sorted({edge.dialer for edge in wanted if edge not in self._made})
                raise UnreachableError(f"rank {self._rank}: ranks {missing} did not connect within {timeout_s:g} s")
            if self._is_closed:
                raise TrafficError(f"rank {self._rank}: its group is closed")
            return {edge: self._made[edge] for edge in wanted}

    def _peer(self, rank: int) -> tuple[RankPlace, Sequence[Endpoint]]:
        if rank not in self._peers:
            host, nics, nvlink, nic_bps, ends = json.loads(self._store.get(f"fabric/{rank}"))
            place = RankPlace(host, tuple(nics), nvlink, nic_bps)
            self._peers[rank] = place, [(address, port) for address, port in ends]
        return self._peers[rank]

    def _dial(self, edge: Edge, timeout_s: float) -> Connection:
        place, ends = self._peer(edge.listener)
        inside = place.host == self._place.host and place.nvlink is not None and self._place.nvlink is not None
        number = self._nics if inside else edge.channel % self._nics
        return dial_edge(edge, ends[number], self._transport, self._addresses[number], timeout_s)

    def _add(self, edge: Edge, connection: Connection) -> None:
        name = f"rank {self._rank} with rank {edge.peer(self._rank)}"
        with self._changed:
            self._made[edge] = ChunkConnection(connection, edge.channel, name, self._silent_s)
            self._changed.notify_all()

    def _greet(self, connection: Connection) -> None:
        """Add a connection by what its dialer says; who says nothing is left alone."""
        try:
            edge = heard_edge(connection, self._rank, _HELLO_S)
        except (SilentPeerError, ConnectionEndedError):
            connection.close()
            return
        self._add(edge, connection)

    def abort(self) -> None:
        """Wake all threads that wait on connections, here and at the peers."""
        with self._changed:
            links = list(self._made.values())
        for link in links:
            link.abort()

    def close(self) -> None:
        """End all connections and take no more."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify_all()
            links = list(self._made.values())
        self._callers.close()
        for one in links:
            one.close()


class _Callers:
    """Where others connect: a thread takes their connections until this is closed."""

    def __init__(self, listeners: Sequence[Listener], greet: Callable[[Connection], None]) -> None:
        self._listeners, self._greet = listeners, greet
        self._end = os.eventfd(0)
        self._accepting = threading.Thread(target=self._accept_all, name="callers", daemon=True)
        self._accepting.start()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where each listens."""
        return [listener.endpoint for listener in self._listeners]

    def _accept_all(self) -> None:
        callers = select.poll()
        callers.register(self._end, select.POLLIN)
        by_descriptor = {one.poll_for_callers.descriptor: one for one in self._listeners}
        for descriptor in by_descriptor:
            callers.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in callers.poll()]
            if self._end in ready:
                return
            for descriptor in ready:
                if (connection := by_descriptor[descriptor].accept_at_once()) is not None:
                    self._greet(connection)

    def close(self) -> None:
        """Take no more."""
        os.eventfd_write(self._end, 1)
        self._accepting.join(_HELLO_S)
        for listener in self._listeners:
            listener.close()
        os.close(self._end)
