"""The machines of one run: how those that join are given their guests, and what ends the run on all of them.

::

    first machine ── control (pickled messages) ── each other machine
         └── carrier ── frames and clocks (carrier.c) ── carrier ──┘   between every two

Guests of a machine share its memory; the carrier copies to it what guests of other machines say. Any machine, guest or
carrier that is lost ends the run everywhere. All of a machine's processes end with the one that joined.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fabric.errors import EmulationError, UsageError
from fabric.world.programs.preload import cached_program
from fabric.world.virtual.meeting import JOIN_S, Meeting, accepted, dialled
from fabric.world.virtual.together import RunState, Share

_ALIVE_EVERY_S = 2.0
SILENT_S = 30.0
"""How long a machine may say nothing until it counts as lost."""
_ENDS_IN_S = 60.0
_NAMES_IN_S = 5.0
"""How long a lost connection of the carrier waits for a better reason."""
_FIRST_LOST = 10  # carrier.c
_SOURCES = Path(__file__).parent
_MEETS = "carries frames to other machines"


@dataclass(frozen=True)
class Newcomer:
    """What a machine says as it joins. ``facts``: what must be the same on all machines, by name; ``port``: where it
    listens for machines that joined later."""

    name: str
    facts: Mapping[str, str]
    port: int


@dataclass(frozen=True)
class Place:
    """A machine of a run: its name, where the others reach it, and its guests."""

    name: str
    address: str
    port: int
    guests: tuple[int, ...]

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.guests))
        return f"machine {self.name} (guest{'s' if len(self.guests) > 1 else ''} {numbers})"

    @property
    def mask(self) -> int:
        """A bit for each of its guests."""
        return sum(1 << guest for guest in self.guests)


@dataclass(frozen=True)
class Assignment:
    """What a machine is given to do: its number among all, how far guests may drift apart, and the work, pickled."""

    number: int
    places: tuple[Place, ...]
    lookahead_ns: int
    work: bytes

    @property
    def own(self) -> Place:
        """The machine itself."""
        return self.places[self.number]

    @property
    def share(self) -> Share:
        """Its guests, among all."""
        return Share(sum(len(place.guests) for place in self.places), self.own.guests, self.lookahead_ns)


@dataclass(frozen=True)
class Refused:
    """Why a machine cannot join."""

    reason: str


@dataclass(frozen=True)
class Said:
    """A line for the user."""

    text: str


@dataclass(frozen=True)
class Failed:
    """Why the run cannot go on."""

    reason: str


@dataclass(frozen=True)
class Alive:
    """Nothing new."""


@dataclass(frozen=True)
class Over:
    """To a machine: the run has ended; from one: so have its guests."""


def spread(guests: int, machines: int) -> list[tuple[int, ...]]:
    """Return the guests of each machine: neighbours together, as many on each. Raises UsageError if some get none."""
    if guests < machines:
        raise UsageError(
            f"--machines {machines}: with --guests {guests} some would have none; give --guests {machines}"
        )
    return [tuple(range(n * guests // machines, (n + 1) * guests // machines)) for n in range(machines)]


class Control:
    """A connection between the first machine and another one: messages, and signs of life in between."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._stay_alive, daemon=True).start()

    def _stay_alive(self) -> None:
        while not self._ended.wait(_ALIVE_EVERY_S):
            self.say(Alive())

    def say(self, message: object) -> None:
        """Send a message. A lost connection shows in :meth:`heard`."""
        with suppress(OSError, ValueError), self._lock:
            self._connection.send(message)

    def heard(self) -> Iterator[Any]:
        """Yield messages. Raises EOFError, with the reason, once the other end has gone, or is silent for long."""
        while True:
            try:
                if not self._connection.poll(SILENT_S):
                    raise EOFError(f"nothing was heard of it for {SILENT_S:g} s")
                message = self._connection.recv()
            except EOFError as error:
                raise EOFError(str(error) or "its process has ended") from error
            except OSError as error:
                raise EOFError(f"its connection was lost: {error.strerror or error}") from error
            if not isinstance(message, Alive):
                yield message

    def close(self) -> None:
        """End it."""
        self._ended.set()
        self._connection.close()


# The first machine --------------------------------------------------------------------------------------------------


@dataclass
class Others:
    """The other machines of a run, as the first one has them once they have joined."""

    assignment: Assignment
    _controls: Sequence[Control]
    _links: Mapping[int, Connection]
    _gone: list[threading.Event] = field(default_factory=list)

    @contextmanager
    def taking_part(self, memory: Path, state: RunState, tell: Callable[[str], None]) -> Iterator[None]:
        """Let them play for the time of a block, after which the run has ended there, too."""
        places = self.assignment.places[1:]
        with carried(self.assignment, self._links, memory, state) as carrier:
            for place, control in zip(places, self._controls, strict=True):
                self._gone.append(threading.Event())
                attend = (place, control, state, tell, self._gone[-1])
                threading.Thread(target=_attend, args=attend, daemon=True).start()
            try:
                yield
            finally:
                state.is_over.set()
                for control in self._controls:
                    control.say(Over())
                deadline = time.monotonic() + _ENDS_IN_S
                for gone in self._gone:
                    gone.wait(max(0.0, deadline - time.monotonic()))
                carrier.end()
                for control in self._controls:
                    control.close()


def _attend(
    place: Place, control: Control, state: RunState, tell: Callable[[str], None], gone: threading.Event
) -> None:
    """Hear a machine to its end; the run fails if that comes too early."""
    try:
        for message in control.heard():
            if isinstance(message, Said):
                tell(f"{place.name}: {message.text}")
            elif isinstance(message, Failed):
                state.fail(EmulationError(f"{place}: {message.reason}"))
            elif isinstance(message, Over):
                return
    except EOFError as error:
        if not state.is_over.is_set():
            state.fail(EmulationError(f"{place} of the run was lost: {error}"))
    finally:
        gone.set()


def gathered(
    meeting: Meeting, guests: int, lookahead_ns: int, work: object, facts: Mapping[str, str], name: str
) -> Others:
    """Wait for the other machines of a meeting and give each its guests. Raises EmulationError naming one that cannot
    join, or how many did not."""
    shares = spread(guests, meeting.machines)
    with meeting.listener() as listener, ExitStack() as on_failure:
        joined: list[tuple[Connection, Newcomer]] = []
        while len(joined) < meeting.machines - 1:
            what = f"{meeting.machines - 1 - len(joined)} of {meeting.machines - 1} other machines to join the run"
            connection = accepted(listener, meeting.key, JOIN_S, what)
            on_failure.callback(connection.close)
            newcomer = _received(connection, (Newcomer, Failed), "a machine's name")
            if isinstance(newcomer, Failed):
                raise EmulationError(newcomer.reason)
            _require_same(connection, newcomer, facts, name)
            joined.append((connection, newcomer))
        address, port = listener.getsockname()[:2]
        places = [Place(name, address, port, shares[0])]
        for number, (connection, newcomer) in enumerate(joined, start=1):
            places.append(Place(newcomer.name, _peer_of(connection), newcomer.port, shares[number]))
        pickled = pickle.dumps(work)
        for number, (connection, _) in enumerate(joined, start=1):
            connection.send(Assignment(number, tuple(places), lookahead_ns, pickled))
        assignment = Assignment(0, tuple(places), lookahead_ns, pickled)
        links = _accepted_links(listener, meeting.key, assignment)
        on_failure.pop_all()
    return Others(assignment, [Control(connection) for connection, _ in joined], links)


def _require_same(connection: Connection, newcomer: Newcomer, facts: Mapping[str, str], name: str) -> None:
    for what, value in facts.items():
        if newcomer.facts.get(what) != value:
            reason = f"machine {newcomer.name} has another {what} than {name}: {newcomer.facts.get(what)}, not {value}"
            connection.send(Refused(reason))
            raise EmulationError(f"{reason}; a run needs the same on all of its machines")


def _peer_of(connection: Connection) -> str:
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        return str(same.getpeername()[0])


def _received(connection: Connection, kinds: tuple[type, ...], what: str) -> Any:
    if not connection.poll(JOIN_S):
        raise EmulationError(f"waited {JOIN_S:g} s for {what}")
    try:
        message = connection.recv()
    except (EOFError, OSError) as error:
        raise EmulationError(f"a machine of the run went before {what} came") from error
    if not isinstance(message, kinds):
        raise EmulationError(f"expected {what}, got {type(message).__name__}")
    return message


# Other machines -----------------------------------------------------------------------------------------------------


@dataclass
class Joined:
    """A run, as a machine has it that has joined."""

    assignment: Assignment
    control: Control
    links: Mapping[int, Connection]


def joined(address: str, port: int, key: str, facts: Mapping[str, str], name: str) -> Joined:
    """Join a run whose first machine listens there. Raises EmulationError."""
    connection = dialled(address, port, key)
    with socket.socket(fileno=os.dup(connection.fileno())) as same, socket.socket() as listener:
        listener.bind((same.getsockname()[0], 0))
        listener.listen()
        connection.send(Newcomer(name, facts, listener.getsockname()[1]))
        assignment = _received(connection, (Assignment, Refused), "this machine's part of the run")
        if isinstance(assignment, Refused):
            raise EmulationError(assignment.reason)
        links: dict[int, Connection] = {}
        for number, place in enumerate(assignment.places[: assignment.number]):
            links[number] = dialled(place.address, place.port, key)
            links[number].send(assignment.number)
        links |= _accepted_links(listener, key, assignment)
    return Joined(assignment, Control(connection), links)


def _accepted_links(listener: socket.socket, key: str, assignment: Assignment) -> dict[int, Connection]:
    """Return the connections of the carriers of machines that joined later, by their numbers."""
    links: dict[int, Connection] = {}
    for _ in assignment.places[assignment.number + 1 :]:
        connection = accepted(listener, key, JOIN_S, "connections between the machines of the run")
        links[_received(connection, (int,), "a machine's number")] = connection
    return links


# What carries frames and clocks between two of them ------------------------------------------------------------------


class Carrier:
    """The process that carries what guests here say to other machines, and what those say here."""

    def __init__(self, assignment: Assignment, links: Mapping[int, Connection], memory: Path) -> None:
        self._others = [assignment.places[number] for number in sorted(links)]
        self.is_ended = False
        program = cached_program("guest_carrier", [_SOURCES / "carrier.c"], _MEETS, [_SOURCES / "peers.h.inc"])
        shared = os.open(memory, os.O_RDWR)
        try:
            words = [shared, assignment.share.guests, assignment.lookahead_ns, assignment.own.mask, os.getpid()]
            for number in sorted(links):
                words += [links[number].fileno(), assignment.places[number].mask]
            self.process = subprocess.Popen(
                [program, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(shared, *(link.fileno() for link in links.values())),
                start_new_session=True,
            )
        finally:
            os.close(shared)
        for link in links.values():
            link.close()

    def attend(self, state: RunState) -> None:
        """Wait for its end; the run fails if that comes too early."""
        assert self.process.stderr is not None
        words = self.process.stderr.read().decode(errors="replace").strip()
        code = self.process.wait()
        if self.is_ended or state.is_over.wait(_NAMES_IN_S):
            return
        lost = code - _FIRST_LOST
        if 0 <= lost < len(self._others):
            state.fail(EmulationError(f"{self._others[lost]} of the run was lost: {words}"))
        else:
            state.fail(EmulationError(f"what {_MEETS} ended with {code}: {words or 'without a word'}"))

    def end(self) -> None:
        """End it."""
        self.is_ended = True
        self.process.kill()
        self.process.wait()


@contextmanager
def carried(
    assignment: Assignment, links: Mapping[int, Connection], memory: Path, state: RunState
) -> Iterator[Carrier]:
    """Carry between this machine and the others during a block."""
    carrier = Carrier(assignment, links, memory)
    threading.Thread(target=carrier.attend, args=(state,), daemon=True).start()
    try:
        yield carrier
    finally:
        carrier.end()
