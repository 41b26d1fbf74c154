"""One rank of a graph of work: the program in its host, its connections, and the rows of what it did."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple

from fabric.world.inside import precise_timers
from fabric.world.programs.agents import Agent
from traffic.collectives.chunk_connection import ChunkConnection, Edge
from traffic.collectives.node_allreduce import BETWEEN_CPUS
from traffic.collectives.operations.all_to_all_v import Counts
from traffic.collectives.wiring import connections, listening
from traffic.job import Records
from traffic.stepped_job import START_TIMEOUT_S, StepOrder
from traffic.stepped_rank import carry_out_orders, failures_reported
from traffic.storage.client.workloads import operation_row
from traffic.transport.connection import Connection
from traffic.transport.sampling import FlowSampler
from traffic.work.operations import CollectiveCall, Operation, Receive, Send
from traffic.work.player.communicator import CHANNEL_BITS, Communicator, GroupPlace, Inside, edges_of
from traffic.work.player.file_client import FileClient
from traffic.work.player.links import Events, Incoming, Mail, Outgoing
from traffic.work.player.loop import Connected, Messages, Player, Times
from traffic.work.player.orders import PlayDone, WorkArguments, WorkWiring
from traffic.work.player.payload import Payload
from traffic.work.words import kind_of, size_of

MESSAGES = 0
"""The channel of messages, or the first of those of their tags; those of groups are above."""


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
    if work.holds_back:
        ways = message_channels(operations)
        found = {Edge(channel, rank, peer) for (peer, _), channel in ways.sent.items() if peer != rank}
        found |= {Edge(channel, peer, rank) for (peer, _), channel in ways.received.items() if peer != rank}
    else:
        found = {Edge(MESSAGES, rank, one.peer) for one in operations if isinstance(one, Send) and one.peer != rank}
        found |= {Edge(MESSAGES, sender, rank) for sender in work.senders if sender != rank}
    for group, calls in _calls(operations).items():
        number, members = work.groups[group]
        found |= edges_of(rank, number, members, calls, arguments.choice)
    return sorted(found)


class MessageChannels(NamedTuple):
    """The channel of messages with a tag to a peer, and from it, by (peer, tag)."""

    sent: Mapping[tuple[int, int], int]
    received: Mapping[tuple[int, int], int]


def message_channels(operations: Sequence[Operation]) -> MessageChannels:
    """Return the channels of messages if those of each tag have a connection of their own: numbered by their tags, so
    that both ends know them."""
    sent = {(one.peer, one.tag) for one in operations if isinstance(one, Send)}
    received = {(one.peer, one.tag) for one in operations if isinstance(one, Receive)}
    return MessageChannels(_numbered(sent), _numbered(received))


def _numbered(messages: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return the channel of each (peer, tag): the number of the tag among those of its peer."""
    found: dict[tuple[int, int], int] = {}
    numbers = Counter[int]()
    for peer, tag in sorted(messages):
        found[peer, tag] = MESSAGES + numbers[peer]
        numbers[peer] += 1
    return found


def _calls(operations: tuple[Operation, ...]) -> dict[str, list[CollectiveCall]]:
    """Return the calls of each group, of those that are alike one."""
    found: dict[str, dict[tuple[object, ...], CollectiveCall]] = {}
    for one in operations:
        if isinstance(one, CollectiveCall):
            alike = (one.collective, one.size_bytes, one.root, one.algorithm, one.dtype)
            found.setdefault(one.group, {}).setdefault(alike, one)
    return {group: list(calls.values()) for group, calls in found.items()}


class _AddressChoice:
    """By which addresses connections go: between ranks of one node by that for these, if there is one, between CPUs by
    theirs, and from a neighbour's to a rank that a rank's own does not reach."""

    def __init__(self, arguments: WorkArguments) -> None:
        self._nodes = [host.partition(".")[0] for host in arguments.hosts]
        self._addresses, self._relays = arguments.reach.addresses, arguments.reach.relays
        self._inner = len(self._addresses) - (1 if arguments.reach.node is None else 2)

    def place_of(self, edge: Edge) -> int:
        """Return the number of the address at either end."""
        if _is_between_cpus(edge):
            return len(self._addresses) - 1
        return self._inner if self._nodes[edge.dialer] == self._nodes[edge.listener] else 0

    def source_of(self, edge: Edge) -> str:
        """Return the address to dial from."""
        own = self._addresses[self.place_of(edge)]
        return own if _is_between_cpus(edge) else self._relays.get(edge.listener, own)


def _is_between_cpus(edge: Edge) -> bool:
    return edge.channel >> CHANNEL_BITS > 0 and edge.channel % (1 << CHANNEL_BITS) >= BETWEEN_CPUS


class _Stepper:
    """Plays a rank's steps and keeps rows of some."""

    def __init__(self, arguments: WorkArguments, ways: Mapping[Edge, Connection]) -> None:
        self._arguments = arguments
        parts = (arguments.work.operations, arguments.work.warm_up)
        events: Events = SimpleQueue()
        mails = [Mail(operations, events, arguments.work.holds_back) for operations in parts]
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

    def step(self, order: StepOrder) -> PlayDone:
        """Play a step, or several in a row, of the work or to warm up."""
        times = self._players[order.warms_up].play(order.step)
        steps = 1 if order.warms_up else self._arguments.work.steps
        if not order.warms_up and self._steps_left:
            kept = min(steps, self._steps_left)
            self._steps_left -= kept
            self._rows += self._rows_of(order.step * steps, kept, times)
        spans = tuple(_spans(times, steps))
        return PlayDone(order.step, times.began, spans[-1][1], spans)

    def _rows_of(self, first_step: int, steps: int, times: Times) -> list[dict[str, Any]]:
        """Return a row for each operation of the first ``steps`` that were played in a row."""
        rank, work = self._arguments.rank, self._arguments.work
        common = {"phase": self._phase, "host": self._arguments.hosts[rank], "rank": rank}
        count = len(work.operations) // work.steps
        return [
            {
                **common,
                "step": first_step + place // count,
                "operation": place % count,
                "name": one.name,
                "kind": kind_of(one),
                "stream": one.stream,
                "partner": _partner(one),
                "size_bytes": size_of(one),
                "ready_s": times.ready_s[place],
                "started_s": times.started_s[place],
                "ended_s": times.ended_s[place],
            }
            for place, one in enumerate(work.operations[: steps * count])
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
            found.add(
                "operations", [operation_row(one, self._phase, access.transport.options.level, host) for one in taken]
            )
        return found

    def close(self) -> None:
        """End all connections and the threads that wait on them."""
        for communicator in self._connected.communicators.values():
            communicator.close()
        if self._connected.files is not None:
            self._connected.files.close()
        self._connected.messages.close()


def _spans(times: Times, steps: int) -> Iterator[tuple[float, float]]:
    """Yield when each of the steps in a row started, which is when the one before ended, and ended."""
    count, began = len(times.ended_s) // steps, times.began
    for step in range(steps):
        ended = max(times.ended_s[step * count : (step + 1) * count], default=began)
        yield began, ended
        began = ended


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
    operations = (*arguments.work.operations, *arguments.work.warm_up)
    channels = message_channels(operations).sent if arguments.work.holds_back else {}
    outgoing: dict[tuple[int, int], Outgoing] = {}
    incoming: list[Incoming] = []
    of_groups: dict[int, dict[Edge, ChunkConnection]] = {}
    for edge, connection in ways.items():
        peer = edge.peer(rank)
        name = f"{arguments.name(rank)} with {arguments.name(peer)}"
        if edge.channel >> CHANNEL_BITS:
            link = ChunkConnection(connection, edge.channel, name, stall_s)
            of_groups.setdefault(edge.channel >> CHANNEL_BITS, {})[edge] = link
        elif edge.dialer == rank:
            outgoing[peer, edge.channel] = Outgoing(connection, name, payload, events, stall_s)
        else:
            incoming.append(Incoming(connection, name, peer, payload, mails, events))
    node = arguments.reach.node
    inside = None if node is None else Inside(node, arguments.transport)
    communicators = {}
    for group, (number, members) in arguments.work.groups.items():
        name = f"{arguments.name(rank)}, group {group}"
        timeout_s = arguments.patience.step_s
        place = GroupPlace(name, rank, number, members, arguments.choice, arguments.data, timeout_s, inside)
        communicators[group] = Communicator(place, of_groups.get(number, {}), events)
    name, access = arguments.name(rank), arguments.files
    files = None if access is None else FileClient(name, access, events)
    by_tag = {(peer, tag): outgoing[peer, channel] for (peer, tag), channel in channels.items() if peer != rank}
    by_peer = {peer: one for (peer, _), one in outgoing.items()}
    messages = Messages(by_peer, by_tag, incoming)
    return Connected(name, rank, events, messages, communicators, files, arguments.patience)
