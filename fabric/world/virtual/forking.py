"""Guests that have booted and are forked for each run that needs one of their kind, so that it costs neither boot nor
imports.

::

    who plays several runs ── a thread ── linux (a guest that waits) ── linux (a guest of a run)
            │                                                                  ┊ looks, waits, ends
            └── a run's own process ───────────────────────────────────────────┘

Those that wait end with who plays the runs, whatever ends that; a guest of a run with its run, or with the guest that it
was forked of. What a run computes in it is the same to the last digit as in one that boots (``forking.h``).
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import socket
import tempfile
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fabric.errors import FabricError
from fabric.world.isolation.priority import set_session_niceness
from fabric.world.isolation.temporary import removed_directory
from fabric.world.virtual.dialogue import Dialogue
from fabric.world.virtual.guest import WAITING, Boot, GuestProcess, start_kernel
from fabric.world.virtual.kernel import KernelPaths

_KEEPER = "keeper"
_MOST = 6
_TIMEOUT_S = 120.0
_LONGEST_BYTES = 1 << 20


def start(boot: Boot, control: Path, processor: int | None, dialogue: Dialogue | None) -> GuestProcess:
    """Start a guest of a run: a fork of one that waits, if somebody keeps such guests, else one that boots."""
    directory = os.environ.get(WAITING)
    if directory is not None and dialogue is None and not boot.parameters:
        with suppress(OSError):
            return _forked(boot, Path(directory), control, processor)
    return start_kernel(boot, control, processor, dialogue)


class _Forked:
    """A guest that was forked for a run. Its parent tells how it ends, and ends it when nobody listens."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(self._told())
        self._code: int | None = None

    def _told(self) -> bytes:
        if not (words := self._connection.recv(64)):
            raise ConnectionError("the guest that was to be forked has ended")
        return words

    def fileno(self) -> int:
        return self._connection.fileno()

    def kill(self) -> None:
        if self._code is None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        if self._code is None:
            with self._connection:
                try:
                    self._code = os.waitstatus_to_exitcode(int(self._told()))
                except OSError:
                    self._code = -9  # Its parent has gone, and it with that.
        return self._code


def _forked(boot: Boot, directory: Path, control: Path, processor: int | None) -> GuestProcess:
    """Return a fork of a guest that waits. Raises OSError if there is none."""
    name = _name(boot)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
        keeper.settimeout(_TIMEOUT_S)
        keeper.connect(str(directory / _KEEPER))
        keeper.send(_encoded(boot))
        if not keeper.recv(1):
            raise ConnectionRefusedError("no guest waits")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(directory / name))
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        words = f"{-1 if processor is None else processor} {os.getpid()} {niceness}"
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [opened]))]
        connection.sendmsg([words.encode()], passed)
        forked = _Forked(connection)
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(opened)
    connection.settimeout(None)
    set_session_niceness(forked.pid, niceness)
    return forked


def _encoded(boot: Boot) -> bytes:
    values = {
        "kernel": str(boot.kernel.directory),
        "memory_bytes": boot.memory_bytes,
        "seed": boot.seed,
        "job": b64encode(boot.job).decode(),
        "bytecode": str(boot.bytecode or ""),
    }
    return json.dumps(values).encode()


def _decoded(text: bytes) -> Boot:
    values = json.loads(text)
    bytecode = Path(values["bytecode"]) if values["bytecode"] else None
    job = b64decode(values["job"])
    return Boot(KernelPaths(Path(values["kernel"])), values["memory_bytes"], values["seed"], job, bytecode, ())


def _name(boot: Boot) -> str:
    return hashlib.sha256(_encoded(boot)).hexdigest()[:16]


@contextmanager
def waiting() -> Iterator[None]:
    """Keep guests that wait to be forked, for the runs that this process and those below it play during a block."""
    if WAITING in os.environ:
        yield
        return
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fabric-guests-")))
        keeper = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        keeper.bind(str(directory / _KEEPER))
        keeper.listen()
        thread = threading.Thread(target=_keep, args=(keeper, directory), daemon=True)
        thread.start()
        os.environ[WAITING] = str(directory)
        try:
            yield
        finally:
            del os.environ[WAITING]
            keeper.shutdown(socket.SHUT_RDWR)
            thread.join()


def _keep(keeper: socket.socket, directory: Path) -> None:
    """Start a guest that waits for each kind that is asked for. The thread must last: they end with it."""
    with ExitStack() as stack:
        kept: dict[str, GuestProcess] = {}
        while True:
            try:
                connection = keeper.accept()[0]
            except OSError:
                return
            with connection, suppress(OSError, FabricError):
                connection.settimeout(_TIMEOUT_S)
                boot = _decoded(connection.recv(_LONGEST_BYTES))
                name = _name(boot)
                if name not in kept and len(kept) < _MOST:
                    kept[name] = stack.enter_context(_waits(boot, directory / name))
                if name in kept:
                    connection.send(b"y")


@contextmanager
def _waits(boot: Boot, place: Path) -> Iterator[GuestProcess]:
    """Boot a guest that waits, for the time of a block."""
    with removed_directory("fabric-guest-") as control:
        boot.furnish(control)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
            requests.bind(str(place))
            requests.listen()
            process = start_kernel(boot, control, None, requests=requests.fileno())
        try:
            yield process
        finally:
            process.kill()
            process.wait()
