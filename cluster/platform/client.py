"""A user's client: a question to the scheduler over the fabric, and to a cluster that is up on this machine.

::

    fabric cluster list ── a Unix socket ── a host of the fabric ── packets ── the scheduler on its host
     a process of the user's    of the cluster (:mod:`.gateway`)

A question is a message, and so is its answer. None leaves anything at the other end: a user who is killed while asking
is forgotten with the connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from cluster.platform.channel import BadMessageError, Channel, Message
from cluster.platform.requests import REQUESTS, Asked, Who
from cluster.platform.responses import RESPONSES, UP, AboutCluster, Failed, Refused, Response
from fabric.errors import TrafficError, UsageError
from traffic.storage.wire.event_loop import dialled
from traffic.transport.connection import Endpoint, Transport, UnreachableError

ANSWER_S = 10.0
"""How long the scheduler may take to answer over the fabric."""
WHO_S = 10.0
"""How long a cluster may take to say what it is: for that it asks nobody."""
PATIENCE_S = 300.0
"""How long a cluster may take to answer a user: a guest answers nobody while a program in it computes."""
MOST_QUESTION_BYTES = 1 << 19
PREFIX = "fabric-cluster-"
"""How the names of clusters' sockets begin; the user's number follows. They are abstract: they end with their process,
and leave no file."""
_SOCKETS = Path("/proc/net/unix")
_LOOK_S = 0.2
_MOST_AT_ONCE = 32
_SILENT = (TimeoutError, BlockingIOError)
"""What a question ends with that nobody takes: nobody answers, or too many wait to be."""
A = TypeVar("A", bound=Response)
_CREDENTIALS = struct.Struct("3i")


class UnansweredError(TrafficError):
    """A cluster is there, and its scheduler has not answered: whether it has done what it was told is not known."""


async def asked(transport: Transport, endpoint: Endpoint, source: str, question: Message) -> Message:
    """Return what the scheduler answers, over a connection of its own from the address ``source``. Raises TrafficError
    if it cannot be reached, or does not answer in time."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Message] = loop.create_future()

    def lost(why: str) -> None:
        if not answer.done():
            answer.set_exception(TrafficError(f"the scheduler at {endpoint[0]} ended the connection: {why}"))

    def come(message: Message) -> None:
        if not answer.done():
            answer.set_result(message)

    try:
        connection = await dialled(transport, endpoint, source, ANSWER_S)
    except (UnreachableError, asyncio.TimeoutError) as error:
        why = str(error) or f"no answer within {ANSWER_S:g} s"
        raise TrafficError(
            f"the scheduler at {endpoint[0]} cannot be reached from {source}: {why}; do its host, that host and the "
            "links between them work?"
        ) from error
    channel = Channel(connection, come, lost)
    try:
        channel.send(question)
        return await asyncio.wait_for(answer, ANSWER_S)
    except asyncio.TimeoutError:
        raise TrafficError(
            f"the scheduler at {endpoint[0]} took the question {question['kind']} and did not answer it within "
            f"{ANSWER_S:g} s; is its host silent?"
        ) from None
    finally:
        channel.close()


# A cluster on this machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Up:
    """A cluster that is up: its socket's name, whose it is, and what it says of itself (None: it is another user's, or
    ``is_silent``: it does not answer)."""

    name: str
    user: int
    about: AboutCluster | None
    is_silent: bool = False

    @property
    def folder(self) -> Path:
        """Its folder."""
        return Path("" if self.about is None else self.about.folder)

    def __str__(self) -> str:
        about = self.about
        return self.name if about is None else f"{about.folder} ({about.fabric}, engine {about.engine})"


def names_in(table: str) -> list[tuple[str, int]]:
    """Return the names of clusters' sockets in a text like /proc/net/unix, each with its user's number."""
    found: dict[str, int] = {}
    for line in table.splitlines():
        name = line.rpartition(" ")[2]
        if name.startswith(f"@{PREFIX}"):
            user = name.removeprefix(f"@{PREFIX}").partition("-")[0]
            if user.isdigit():
                found[name[1:]] = int(user)
    return sorted(found.items())


def clusters_up() -> list[Up]:
    """Return the clusters that are up in this machine's network namespace; root's own question is answered by all. They
    are asked at once, so that one that is stopped delays the others no longer than it may take itself."""
    named = names_in(_SOCKETS.read_text())
    if not named:
        return []
    with ThreadPoolExecutor(min(len(named), _MOST_AT_ONCE)) as threads:
        return [one for one in threads.map(_asked_who, named) if one is not None]


def _asked_who(named: tuple[str, int]) -> Up | None:
    """Return a cluster with what it says of itself, if it may be asked; None if it has gone meanwhile."""
    name, user = named
    if os.geteuid() not in (0, user):
        return Up(name, user, None)
    try:
        with Gateway(name, WHO_S) as gateway:
            return Up(name, user, gateway.ask(Who(), AboutCluster))
    except TrafficError as error:
        return Up(name, user, None, is_silent=True) if isinstance(error.__cause__, _SILENT) else None


def the_one(found: Sequence[Up], folder: Path | None) -> Up:
    """Return the cluster that is meant: that of a folder, or else the only one. Raises UsageError."""
    ours = [one for one in found if one.about is not None]
    if folder is not None:
        ours = [one for one in ours if one.folder == folder.absolute()]
    if not ours and (silent := [one for one in found if one.is_silent]):
        whose = ", ".join(sorted({_user_name(one.user) for one in silent}))
        waited = f"has not answered within {WHO_S:g} s"
        raise UsageError(f"a cluster of {whose} is up, and {waited}; is its process stopped?")
    if folder is not None and not ours:
        raise UsageError(f"--in {folder}: no cluster of this folder is up; bring it up: fabric cluster up {folder}")
    if len(ours) > 1:
        listed = "\n".join(f"  --in {one}" for one in ours)
        raise UsageError(f"{len(ours)} clusters are up; say which one:\n{listed}")
    if ours:
        return ours[0]
    if found:
        others = ", ".join(sorted({_user_name(one.user) for one in found}))
        raise UsageError(f"a cluster of {others} is up, and none of yours; ask as that user, e.g. with sudo")
    raise UsageError("no cluster is up; bring one up in another terminal: fabric cluster up")


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


class Gateway:
    """A connection to a cluster that is up on this machine, for the time of a block. Questions are answered in their
    order. Raises TrafficError if it is gone."""

    def __init__(self, name: str, patience_s: float = PATIENCE_S) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._patience_s = patience_s
        self._come = b""
        try:
            self._socket.settimeout(patience_s)
            self._socket.connect(f"\0{name}")
            if peer_of(self._socket) not in _who_may_answer(name):
                raise TrafficError(f"{name}: is not of this user, though its name says so; it is not asked")
        except OSError as error:
            self._socket.close()
            raise TrafficError(f"the cluster has gone: {error}") from error
        except TrafficError:
            self._socket.close()
            raise

    def ask(self, question: Asked, kind: type[A]) -> A:
        """Return the answer to a question, of a kind. Raises as :func:`response_of`, and TrafficError if the cluster
        has gone."""
        return response_of(self.exchange(REQUESTS.to_values(question)), kind)

    def exchange(self, question: Message) -> Message:
        """Return the answer to a message, of any kind. Raises UsageError for a message that is too long, TrafficError
        if the cluster has gone."""
        line = json.dumps(question, separators=(",", ":")).encode() + b"\n"
        if len(line) > MOST_QUESTION_BYTES:
            most = f"the most is {MOST_QUESTION_BYTES}; put what is long into a file"
            raise UsageError(f"{question['kind']}: {len(line)} bytes; {most}")
        try:
            self._socket.sendall(line)
            answer: Message = json.loads(self._line())
        except TimeoutError as error:
            raise TrafficError(
                f"the cluster did not answer {question['kind']} within {self._patience_s:g} s: does a program in its "
                "guest compute for so long? Ask again"
            ) from error
        except OSError as error:
            raise TrafficError(f"the cluster has gone before it answered {question['kind']}: {error}") from error
        return answer

    def _line(self) -> bytes:
        while b"\n" not in self._come:
            more = self._socket.recv(1 << 16)
            if not more:
                raise ConnectionResetError("it has ended the connection")
            self._come += more
        line, _, self._come = self._come.partition(b"\n")
        return line

    def until_up(self) -> None:
        """Wait until the fabric has come up. Raises TrafficError if it has not in time."""
        deadline_s = time.monotonic() + self._patience_s
        while self.ask(Who(), AboutCluster).state != UP:
            if time.monotonic() > deadline_s:
                raise TrafficError(f"the fabric has not come up within {self._patience_s:g} s; look at its terminal")
            time.sleep(_LOOK_S)

    def until_gone(self, timeout_s: float) -> None:
        """Wait until the cluster has ended. Raises TrafficError if it has not in time."""
        self._socket.settimeout(timeout_s)
        try:
            while self._socket.recv(1 << 16):
                pass
        except TimeoutError:
            raise TrafficError(f"the cluster has not ended within {timeout_s:g} s; look at its terminal") from None
        except OSError:
            pass

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def response_of(answer: Message, kind: type[A]) -> A:
    """Return an answer of a kind. Raises UsageError with the faults of a question that was refused, UnansweredError if
    the scheduler did not answer, BadMessageError for an answer of another kind."""
    found = RESPONSES.of_values(answer)
    if isinstance(found, Refused):
        raise UsageError("\n".join(found.faults))
    if isinstance(found, Failed):
        raise UnansweredError(found.why)
    if not isinstance(found, kind):
        wanted = RESPONSES.kind_of(kind)
        raise BadMessageError(f"a cluster answers {answer['kind']!r}, not {wanted!r}; is it of another version?")
    return found


def _who_may_answer(name: str) -> tuple[int, ...]:
    """Return the users at the other end of a cluster's socket who are believed: root and oneself; root also believes
    the one whom the name says, whose programs its questions start."""
    named = dict(names_in(f"@{name}")).values() if os.geteuid() == 0 else ()
    return (0, os.geteuid(), *named)


def peer_of(connection: socket.socket) -> int:
    """Return the number of the user who has the other end of a Unix socket."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])
