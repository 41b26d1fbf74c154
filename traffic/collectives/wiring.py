"""The connections between the ranks of a collective: who listens where, and who dials whom."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.orders import RankArguments, RankListening, Wiring
from traffic.stepped_job import START_TIMEOUT_S
from traffic.transport.carrier import has_carrier
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    Endpoint,
    Listener,
    SilentPeerError,
    Transport,
    UnreachableError,
)
from traffic.transport.rails import nics_of

_HELLO = struct.Struct("!II")
"""What a dialer says first: the channel of its edge, and its rank."""

Connections = dict[Edge, ChunkConnection]
PlaceOf = Callable[[Edge], int]
"""Says by which of its addresses, by number, an end of a connection goes."""


class Wired(Protocol):
    """A rank that is connected to others: its number, its addresses, and what carries its data."""

    @property
    def rank(self) -> int:
        """Its number."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those of its NICs."""

    @property
    def transport(self) -> Transport:
        """What carries its data."""


def connected(agent: Agent, arguments: RankArguments) -> tuple[RankArguments, Connections]:
    """Return what the run made of the arguments once every rank listened, and the rank's connections."""
    with contextlib.ExitStack() as stack:
        listeners = listening(agent, arguments, stack)
        wiring: Wiring = agent.receive(START_TIMEOUT_S)
        addresses = tuple(arguments.addresses[place] for place in wiring.places)
        arguments = replace(arguments, schedule=wiring.schedule, addresses=addresses)
        listeners = [listeners[place] for place in wiring.places]
        place_of = partial(_place_by_channel, len(listeners))
        links = connections(arguments, arguments.schedule.edges, listeners, wiring.endpoints, place_of)
    return arguments, {edge: _link(edge, connection, arguments) for edge, connection in links.items()}


def _place_by_channel(places: int, edge: Edge) -> int:
    return edge.channel % places


def listening(agent: Agent, wired: Wired, stack: contextlib.ExitStack) -> list[Listener]:
    """Listen on every address of a rank, until the stack is left, and report where."""
    listeners = [
        stack.enter_context(contextlib.closing(wired.transport.listen(address))) for address in wired.addresses
    ]
    up = tuple(all(map(has_carrier, nics_of(address))) for address in wired.addresses)
    agent.report(RankListening(tuple(listener.endpoint for listener in listeners), up))
    return listeners


def connections(
    wired: Wired,
    edges: Iterable[Edge],
    listeners: Sequence[Listener],
    endpoints: Sequence[Sequence[Endpoint]],
    place_of: PlaceOf,
    source_of: Callable[[Edge], str] | None = None,
) -> dict[Edge, Connection]:
    """Return a rank's end of each of the edges that it has, all made. ``endpoints``: where each rank listens, by its
    addresses; ``source_of``: the address from which an edge is dialled, by default the one at its place. Raises
    UnreachableError naming what was waited for."""
    rank = wired.rank
    edges = list(edges)
    links = {}
    for edge in (edge for edge in edges if edge.dialer == rank):
        place = place_of(edge)
        source = wired.addresses[place] if source_of is None else source_of(edge)
        links[edge] = dial_edge(edge, endpoints[edge.listener][place], wired.transport, source, START_TIMEOUT_S)
    expected = {edge for edge in edges if edge.listener == rank}
    for place, listener in enumerate(listeners):
        here = {edge for edge in expected if place_of(edge) == place}
        while here - links.keys():
            links |= _accepted(listener, wired)
    return links


def _accepted(listener: Listener, wired: Wired) -> dict[Edge, Connection]:
    """Return the next connection by its edge; nothing if its dialer closed it and tries again."""
    connection = listener.accept(START_TIMEOUT_S)
    try:
        return {heard_edge(connection, wired.rank, START_TIMEOUT_S): connection}
    except SilentPeerError as error:
        address, _ = connection.peer
        raise UnreachableError(f"{address}: connected and said nothing within {START_TIMEOUT_S:g} s") from error
    except ConnectionEndedError:
        connection.close()
        return {}


def dial_edge(edge: Edge, endpoint: Endpoint, transport: Transport, source: str, timeout_s: float) -> Connection:
    """Return an edge's connection to its listener, which has been told the edge. Raises UnreachableError."""
    connection = transport.connect(endpoint, timeout_s, source)
    connection.set_timeouts(send_s=timeout_s, silent_s=timeout_s)
    if connection.send([_HELLO.pack(edge.channel, edge.dialer)]) != _HELLO.size:
        raise UnreachableError("{}:{}: took no greeting within {:g} s".format(*endpoint, timeout_s))
    return connection


def heard_edge(connection: Connection, listener: int, timeout_s: float) -> Edge:
    """Return the edge that a connection to rank ``listener`` is. Raises SilentPeerError, ConnectionEndedError."""
    connection.set_timeouts(send_s=timeout_s, silent_s=timeout_s)
    hello = bytearray(_HELLO.size)
    connection.receive([hello])
    channel, dialer = _HELLO.unpack(hello)
    return Edge(channel, dialer, listener)


def _link(edge: Edge, connection: Connection, arguments: RankArguments) -> ChunkConnection:
    name = f"{arguments.name(arguments.rank)} with {arguments.name(edge.peer(arguments.rank))}"
    return ChunkConnection(connection, edge.channel, name, arguments.stall_s)
