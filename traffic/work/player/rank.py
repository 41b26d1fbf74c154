"""One rank of a graph of work: the program in its host, its connections, and the rows of what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

from fabric.world.inside import precise_timers
from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.operations.all_to_all_v import Counts
from traffic.collectives.wiring import connections, listening
from traffic.job import Records
from traffic.stepped_job import START_TIMEOUT_S, StepDone, StepOrder
from traffic.stepped_rank import carry_out_orders, failures_reported
from traffic.storage.workloads import operation_row
from traffic.transport.connection import Connection
from traffic.transport.sampling import FlowSampler
from traffic.work.operations import CollectiveCall, Operation, Receive, Send
from traffic.work.player.communicator import CHANNEL_BITS, Communicator, GroupPlace, edges_of
from traffic.work.player.file_client import FileClient
from traffic.work.player.links import Events, Incoming, Mail, Outgoing
from traffic.work.player.loop import Connected, Player, Times
from traffic.work.player.orders import WorkArguments, WorkWiring
from traffic.work.player.payload import Payload
from traffic.work.words import kind_of, size_of

MESSAGES = 0
"""The channel of messages; those of groups are above."""


def run_work_rank(agent: Agent, arguments: WorkArguments) -> None:
    """Play a rank's work until the run stops it (a program of :mod:`fabric.world.programs.agents`)."""
    precise_timers()  # Of this thread, which waits for the ends of computing.
    with failures_reported(agent), contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as open_listeners:
            listeners = listening(agent, arguments, open_listeners)
            wiring: WorkWiring = agent.receive(START_TIMEOUT_S)
            choice = _AddressChoice(arguments)
            edges = _edges(arguments)
            ways = connections(arguments, edges, listeners, wiring.endpoints, choice.place_of, choice.source_of)
        for connection in ways.values():
            stack.callback(connection.close)
        stepper = stack.enter_context(contextlib.closing(_Stepper(arguments, ways)))
        sampler = FlowSampler()
        for edge, connection in ways.items():
            if edge.dialer == arguments.rank:
                sampler.track(connection, arguments.hosts[edge.listener])
        carry_out_orders(agent, stepper, sampler, arguments.transport.options.level)


def _edges(arguments: WorkArguments) -> list[Edge]:
    """Return the connections that the rank has: data goes from the dialer to the listener."""
    work, rank = arguments.work, arguments.rank
    operations = (*work.operations, *work.warm_up)
    found = {Edge(MESSAGES, rank, one.peer) for one in operations if isinstance(one, Send) and one.peer != rank}
    found |= {Edge(MESSAGES, sender, rank) for sender in work.senders if sender != rank}
    for group, calls in _calls(operations).items():
        number, members = work.groups[group]
        found |= edges_of(rank, number, members, calls, arguments.choice)
    return sorted(found)


def _calls(operations: tuple[Operation, ...]) -> dict[str, list[CollectiveCall]]:
    """Return the calls of each group, of those that are alike one."""
    found: dict[str, dict[tuple[object, ...], CollectiveCall]] = {}
    for one in operations:
        if isinstance(one, CollectiveCall):
            alike = (one.collective, one.size_bytes, one.root, one.algorithm, one.dtype)
            found.setdefault(one.group, {}).setdefault(alike, one)
    return {group: list(calls.values()) for group, calls in found.items()}


class _AddressChoice:
    """By which addresses connections go: the last between ranks of one node, if there is one for these, and from a
    neighbour's to a rank that a rank's own does not reach."""

    def __init__(self, arguments: WorkArguments) -> None:
        self._nodes = [host.partition(".")[0] for host in arguments.hosts]
        self._addresses, self._relays = arguments.addresses, arguments.relays

    def place_of(self, edge: Edge) -> int:
        """Return the number of the address at either end."""
        is_inside = self._nodes[edge.dialer] == self._nodes[edge.listener]
        return len(self._addresses) - 1 if is_inside else 0

    def source_of(self, edge: Edge) -> str:
        """Return the address to dial from."""
        return self._relays.get(edge.listener, self._addresses[self.place_of(edge)])


class _Stepper:
    """Plays a rank's steps and keeps rows of some."""

    def __init__(self, arguments: WorkArguments, ways: Mapping[Edge, Connection]) -> None:
        self._arguments = arguments
        parts = (arguments.work.operations, arguments.work.warm_up)
        events: Events = SimpleQueue()
        mails = [Mail(operations, events) for operations in parts]
        self._connected = _connected(arguments, ways, mails, events)
        counts: tuple[Mapping[int, Counts], ...] = (arguments.work.counts, {})
        self._players = [
            Player(part, operations, mails[part], self._connected, counts[part])
            for part, operations in enumerate(parts)
        ]
        self._phase = ""
        self._steps_left = 0
        self._rows: list[dict[str, Any]] = []

    def begin(self, phase: str) -> None:
        """Begin a phase."""
        self._phase, self._rows = phase, []
        self._steps_left = self._arguments.recording.steps

    def step(self, order: StepOrder) -> StepDone:
        """Play a step, of the work or to warm up."""
        times = self._players[order.warms_up].play(order.step)
        if not order.warms_up and self._steps_left:
            self._steps_left -= 1
            self._rows += self._rows_of(order.step, times)
        return StepDone(order.step, times.began, max(times.ended_s, default=times.began))

    def _rows_of(self, step: int, times: Times) -> list[dict[str, Any]]:
        """Return a row for each operation of a step."""
        rank = self._arguments.rank
        common = {"phase": self._phase, "host": self._arguments.hosts[rank], "rank": rank, "step": step}
        return [
            {
                **common,
                "operation": place,
                "name": one.name,
                "kind": kind_of(one),
                "stream": one.stream,
                "partner": _partner(one),
                "size_bytes": size_of(one),
                "ready_s": times.ready_s[place],
                "started_s": times.started_s[place],
                "ended_s": times.ended_s[place],
            }
            for place, one in enumerate(self._arguments.work.operations)
        ]

    def rows(self) -> Records:
        """Return the rows of the phase's operations."""
        found = Records()
        found.add("work_operations", self._rows)
        self._rows = []
        files, access = self._connected.files, self._arguments.files
        if files is not None and access is not None:
            host = self._arguments.hosts[self._arguments.rank]
            taken = files.taken_operations()
            found.add("operations", [operation_row(one, self._phase, access.options.level, host) for one in taken])
        return found

    def close(self) -> None:
        """End all connections and the threads that wait on them."""
        for communicator in self._connected.communicators.values():
            communicator.close()
        if self._connected.files is not None:
            self._connected.files.close()
        for outgoing in self._connected.outgoing.values():
            outgoing.close()
        for incoming in self._connected.incoming:
            incoming.close()


def _partner(operation: Operation) -> str:
    match operation:
        case CollectiveCall():
            return operation.group
        case Send() | Receive():
            return f"rank {operation.peer}" if operation.peer >= 0 else "any"
    return ""


def _connected(
    arguments: WorkArguments, ways: Mapping[Edge, Connection], mails: list[Mail], events: Events
) -> Connected:
    rank, stall_s = arguments.rank, arguments.patience.stall_s
    payload = Payload(arguments.choice.piece_bytes)
    outgoing: dict[int, Outgoing] = {}
    incoming: list[Incoming] = []
    of_groups: dict[int, dict[Edge, ChunkConnection]] = {}
    for edge, connection in ways.items():
        peer = edge.peer(rank)
        name = f"{arguments.name(rank)} with {arguments.name(peer)}"
        if edge.channel != MESSAGES:
            link = ChunkConnection(connection, edge.channel, name, stall_s)
            of_groups.setdefault(edge.channel >> CHANNEL_BITS, {})[edge] = link
        elif edge.dialer == rank:
            outgoing[peer] = Outgoing(connection, name, payload, events, stall_s)
        else:
            incoming.append(Incoming(connection, name, peer, payload, mails, events))
    communicators = {}
    for group, (number, members) in arguments.work.groups.items():
        name = f"{arguments.name(rank)}, group {group}"
        timeout_s = arguments.patience.step_s
        place = GroupPlace(name, rank, number, members, arguments.choice, arguments.data, timeout_s)
        communicators[group] = Communicator(place, of_groups.get(number, {}), events)
    name, access = arguments.name(rank), arguments.files
    files = None if access is None else FileClient(name, access, events)
    return Connected(name, rank, events, outgoing, incoming, communicators, files, arguments.patience)
