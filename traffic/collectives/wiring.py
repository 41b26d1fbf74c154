"""The connections between the ranks of a collective: who listens where, and who dials whom."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import replace

from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.orders import RankArguments, RankListening, Wiring
from traffic.transport.carrier import has_carrier
from traffic.transport.connection import (
    Connection,
    ConnectionEndedError,
    Endpoint,
    Listener,
    SilentPeerError,
    UnreachableError,
)

START_TIMEOUT_S = 60.0
_HELLO = struct.Struct("!II")

Connections = dict[Edge, ChunkConnection]


def connected(agent: Agent, arguments: RankArguments) -> tuple[RankArguments, Connections]:
    """Return what the run made of the arguments once every rank listened, and the rank's connections."""
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(contextlib.closing(arguments.transport.listen(address)))
            for address in arguments.addresses
        ]
        up = tuple(has_carrier(address) for address in arguments.addresses)
        agent.report(RankListening(tuple(listener.endpoint for listener in listeners), up))
        wiring: Wiring = agent.receive(START_TIMEOUT_S)
        addresses = tuple(arguments.addresses[place] for place in wiring.places)
        arguments = replace(arguments, schedule=wiring.schedule, addresses=addresses)
        listeners = [listeners[place] for place in wiring.places]
        rank = arguments.rank
        edges = arguments.schedule.edges
        dialled = [edge for edge in edges if edge.dialer == rank]
        links = {edge: _dial(edge, wiring.endpoints[edge.listener], arguments) for edge in dialled}
        expected = {edge for edge in edges if edge.listener == rank}
        for place, listener in enumerate(listeners):
            here = {edge for edge in expected if edge.channel % len(listeners) == place}
            while here - links.keys():
                links |= _accepted(listener, arguments)
    return arguments, {edge: _link(edge, connection, arguments) for edge, connection in links.items()}


def _accepted(listener: Listener, arguments: RankArguments) -> dict[Edge, Connection]:
    """Return the next connection by its edge; nothing if its dialer closed it and tries again."""
    connection = listener.accept(START_TIMEOUT_S)
    connection.set_timeouts(send_s=START_TIMEOUT_S, silent_s=START_TIMEOUT_S)
    hello = bytearray(_HELLO.size)
    try:
        connection.receive([hello])
    except SilentPeerError as error:
        address, _ = connection.peer
        raise UnreachableError(f"{address}: connected and said nothing within {START_TIMEOUT_S:g} s") from error
    except ConnectionEndedError:
        connection.close()
        return {}
    channel, dialer = _HELLO.unpack(hello)
    return {Edge(channel, dialer, arguments.rank): connection}


def _dial(edge: Edge, endpoints: Sequence[Endpoint], arguments: RankArguments) -> Connection:
    """Connect a channel's own two addresses."""
    endpoint = endpoints[edge.channel % len(endpoints)]
    source = arguments.addresses[edge.channel % len(arguments.addresses)]
    connection = arguments.transport.connect(endpoint, START_TIMEOUT_S, source)
    connection.set_timeouts(send_s=START_TIMEOUT_S, silent_s=START_TIMEOUT_S)
    if connection.send([_HELLO.pack(edge.channel, edge.dialer)]) != _HELLO.size:
        raise UnreachableError("{}:{}: took no greeting within {:g} s".format(*endpoint, START_TIMEOUT_S))
    return connection


def _link(edge: Edge, connection: Connection, arguments: RankArguments) -> ChunkConnection:
    name = f"{arguments.name(arguments.rank)} with {arguments.name(edge.peer(arguments.rank))}"
    return ChunkConnection(connection, edge.channel, name, arguments.stall_s)
