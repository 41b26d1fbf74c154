"""The connections between the ranks of a collective: who listens where, and who dials whom."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace

from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.orders import RankArguments, RankListening, Wiring
from traffic.transport import Endpoint, UnreachableError, accept, connect, has_carrier, listen

START_TIMEOUT_S = 60.0
_HELLO = struct.Struct("!II")

Connections = dict[Edge, tuple[ChunkConnection, socket.socket]]


def connected(agent: Agent, arguments: RankArguments) -> tuple[RankArguments, Connections]:
    """Return what the run made of the arguments once every rank listened, and the rank's connections."""
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(contextlib.closing(listen(address, 0, arguments.options)))
            for address in arguments.addresses
        ]
        up = tuple(has_carrier(address) for address in arguments.addresses)
        agent.report(RankListening(tuple(listener.getsockname()[:2] for listener in listeners), up))
        wiring: Wiring = agent.receive(START_TIMEOUT_S)
        addresses = tuple(arguments.addresses[place] for place in wiring.places)
        arguments = replace(arguments, schedule=wiring.schedule, addresses=addresses)
        listeners = [listeners[place] for place in wiring.places]
        rank = arguments.rank
        edges = arguments.schedule.edges
        dialled = [edge for edge in edges if edge.dialer == rank]
        sockets = {edge: _dial(edge, wiring.endpoints[edge.listener], arguments) for edge in dialled}
        expected = {edge for edge in edges if edge.listener == rank}
        for place, listener in enumerate(listeners):
            here = {edge for edge in expected if edge.channel % len(listeners) == place}
            while here - sockets.keys():
                sockets |= _accepted(listener, arguments)
    return arguments, {edge: (_link(edge, sock, arguments), sock) for edge, sock in sockets.items()}


def _accepted(listener: socket.socket, arguments: RankArguments) -> dict[Edge, socket.socket]:
    """Return the next connection by its edge; nothing if its dialer closed it and tries again."""
    sock, address = accept(listener, arguments.options, START_TIMEOUT_S)
    sock.settimeout(START_TIMEOUT_S)
    try:
        hello = sock.recv(_HELLO.size, socket.MSG_WAITALL)
    except TimeoutError as error:
        raise UnreachableError(f"{address}: connected and said nothing within {START_TIMEOUT_S:g} s") from error
    except OSError:
        hello = b""
    if len(hello) < _HELLO.size:
        sock.close()
        return {}
    sock.settimeout(None)
    channel, dialer = _HELLO.unpack(hello)
    return {Edge(channel, dialer, arguments.rank): sock}


def _dial(edge: Edge, endpoints: Sequence[Endpoint], arguments: RankArguments) -> socket.socket:
    """Connect a channel's own two addresses."""
    endpoint = endpoints[edge.channel % len(endpoints)]
    source = arguments.addresses[edge.channel % len(arguments.addresses)]
    sock = connect(*endpoint, arguments.options, START_TIMEOUT_S, source=source)
    sock.sendall(_HELLO.pack(edge.channel, edge.dialer))
    return sock


def _link(edge: Edge, sock: socket.socket, arguments: RankArguments) -> ChunkConnection:
    name = f"{arguments.name(arguments.rank)} with {arguments.name(edge.peer(arguments.rank))}"
    return ChunkConnection(sock, edge.channel, name, arguments.stall_s)
