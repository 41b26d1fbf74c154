"""What the first guest of a run asks of the others: calls of functions, programs in their hosts, sockets there.

It dials a connection (TCP, over a link that is not a link of the fabric) for each of these; a guest serves each in a
thread of its own. A call names a function of a module, and carries its arguments and its result pickled.
"""

from __future__ import annotations

import itertools
import pickle
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fabric.errors import EmulationError, FabricError
from fabric.world.kernel_api import netlink
from fabric.world.programs import relayed
from fabric.world.virtual.guest import CONTROL
from fabric.world.virtual.joining import Together, address_of

_PORT = 7000
_DIAL_TIMEOUT_S = 60.0
_DIAL_POLL_S = 0.01
_CALL_TIMEOUT_S = 600.0
_BACKLOG = 4096
_DELAYS = 2
"""Within how many delays of the links between guests a short message is there; it takes one."""


@dataclass(frozen=True)
class _Failure:
    """Why a call failed: an error of the project's, or what Python says of another."""

    error: FabricError | None
    text: str


@dataclass
class Pending:
    """A call that was made and whose result is not fetched yet."""

    _guest: OtherGuest
    _function: str
    _connection: Connection

    def fileno(self) -> int:
        """Return a descriptor that can be read once the call has ended."""
        return self._connection.fileno()

    def result(self) -> Any:
        """Return what the function returned. Raises the project's error that it raised, or EmulationError."""
        where = f"guest {self._guest.number} of the run"
        if not self._connection.poll(_CALL_TIMEOUT_S):
            raise EmulationError(f"{where}: {self._function} has not ended after {_CALL_TIMEOUT_S:g} s")
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise EmulationError(f"{where}: has ended while it was to do {self._function}") from error
        self._guest.give_back(self._connection)
        if isinstance(answer, _Failure):
            raise answer.error or EmulationError(f"{where}: {self._function} failed: {answer.text}")
        return answer


@dataclass
class OtherGuest:
    """Another guest of the run, as the first one has it. Each call that is under way has a connection to itself."""

    number: int
    _free: list[Connection] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of a module returns there. Raises the project's error that it raises."""
        return self.begin(function, *arguments).result()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> Pending:
        """Have a function called there; several guests work at the same time."""
        with self._lock:
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = dial(self.number)
            connection.send(("calls", None))
        connection.send((function, arguments))
        return Pending(self, function.__name__, connection)

    def give_back(self, connection: Connection) -> None:
        """Let another call have a connection."""
        with self._lock:
            self._free.append(connection)


_others: list[OtherGuest] = []


def others() -> Sequence[OtherGuest]:
    """Return the other guests of this run; none if it has only one, or outside of guests."""
    together = Together.read(CONTROL)
    if together is not None and not _others and together.number == 0:
        _others.extend(OtherGuest(number) for number in range(1, together.guests))
    return _others


def everywhere(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call a function in this guest and all others of the run, at the same time; return results by guest."""
    pending = [other.begin(function, *arguments) for other in others()]
    return [function(*arguments), *(one.result() for one in pending)]


def hand_out(*files: Path) -> None:
    """Let programs in other guests of the run find copies of files where they are in this one."""
    contents = {file: file.read_bytes() for file in files} if others() else {}
    for other in others():
        other.call(_write_files, contents)


def _write_files(contents: Mapping[Path, bytes]) -> None:
    for file, content in contents.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def own_number() -> int:
    """Return which guest of its run this is; 0 for the first, the only one, or outside of guests."""
    together = Together.read(CONTROL)
    return 0 if together is None else together.number


def orders_arrived_at(least_s: float) -> float:
    """Return a moment (``time.monotonic()``) by which short orders to programs, sent now, have reached all of them,
    in other guests of the run, too: ``least_s`` from now, or later if those are further away."""
    together = Together.read(CONTROL)
    delay_s = 0.0 if together is None else together.order_delay_ns * 1e-9
    return time.monotonic() + max(least_s, _DELAYS * delay_s)


def dial(guest: int) -> Connection:
    """Return a new connection to a guest. Raises EmulationError if it does not answer."""
    deadline = time.monotonic() + _DIAL_TIMEOUT_S
    while True:
        try:
            return _connection(socket.create_connection((address_of(guest), _PORT), _DIAL_TIMEOUT_S))
        except OSError as error:
            if time.monotonic() > deadline:
                raise EmulationError(f"guest {guest}: no connection within {_DIAL_TIMEOUT_S:g} s: {error}") from error
            time.sleep(_DIAL_POLL_S)  # It is not there yet.


def _connection(sock: socket.socket) -> Connection:
    """Make a socket a pipe, whose messages do not wait for the acknowledgement of those before."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(sock.detach())


# In the other guests -------------------------------------------------------------------------------------------------

_pipes: dict[int, Connection] = {}
_tokens = itertools.count()


def next_tokens(count: int) -> list[int]:
    """Return numbers that no other pipe of the run has."""
    return list(itertools.islice(_tokens, count))


def taken_pipe(token: int) -> Connection:
    """Return, in another guest, the pipe that the first one dialled for a program, which is the caller's then."""
    deadline = time.monotonic() + _DIAL_TIMEOUT_S
    while token not in _pipes:
        if time.monotonic() > deadline:
            raise EmulationError(f"pipe {token} to a program was not dialled within {_DIAL_TIMEOUT_S:g} s")
        time.sleep(_DIAL_POLL_S)
    return _pipes.pop(token)


def serve() -> None:
    """Do what the first guest asks, until it ends, and this guest with it."""
    number = own_number()
    with socket.create_server((address_of(number), _PORT), backlog=_BACKLOG) as listener:
        while True:
            connection = _connection(listener.accept()[0])
            threading.Thread(target=_serve, args=(connection,), daemon=True).start()


def _serve(connection: Connection) -> None:
    with suppress(EOFError, ConnectionError):
        kind, about = connection.recv()
        if kind == "pipe":
            _pipes[about] = connection
        elif kind == "netlink":
            _serve_socket(connection, about)
        else:
            _serve_calls(connection)


def _serve_calls(connection: Connection) -> None:
    while True:
        function, arguments = connection.recv()
        try:
            answer = function(*arguments)
        except FabricError as error:
            answer = _Failure(_pickled(error), str(error))
        except Exception as error:
            answer = _Failure(None, f"{type(error).__name__}: {error}")
        connection.send(answer)


def _pickled(error: FabricError) -> FabricError:
    """Return an error if it comes through whole, or else one with its words."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EmulationError(str(error))
    return error


def _serve_socket(connection: Connection, namespace: Path | None) -> None:
    with netlink.open_socket(namespace) as sock:
        while True:
            request = connection.recv_bytes()
            answer: bytes | int = b""
            try:
                if request[:1] == relayed.SEND:
                    sock.send(request[1:])
                else:
                    answer = sock.recv(netlink.RECEIVED_BYTES)
            except OSError as error:
                answer = error.errno or 0
            connection.send(answer)


relayed.dial_by(dial)
