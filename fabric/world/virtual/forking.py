"""Guests that have booted and are forked for each run that needs one of their kind, so that it costs neither boot nor
imports; and such forks that have laid a groundwork, such as a fabric that is up, and are forked again.

::

    who plays several runs -- a thread -- linux (waits) -- linux (has a groundwork, waits) -- linux (of a run)
            |                                                                                  : looks, waits, ends
            +-- a run's own process -----------------------------------------------------------+

Those that wait end with who plays the runs, whatever ends that; a guest of a run ends with its run, or with the guest
that it was forked of. What a run computes in it is the same to the last digit as in one that boots (``forking.h``).
"""

from __future__ import annotations

import array
import hashlib
import json
import os
import select
import signal
import socket
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from fabric.errors import FabricError
from fabric.free_memory import available_bytes
from fabric.world import cache
from fabric.world.engine import Groundwork
from fabric.world.isolation.priority import set_session_niceness
from fabric.world.isolation.temporary import removed_directory
from fabric.world.virtual import bytecode
from fabric.world.virtual.dialogue import Dialogue
from fabric.world.virtual.guest import WAITING, Boot, GuestProcess, place_for_memory, start_kernel
from fabric.world.virtual.kernel import KernelPaths

_KEEPER, _IMPORTS, _SOURCES = "keeper", "imports", "sources"
_WARM = "warm-guests"
"""In the account's cache, the directory of guests that wait for commands which others of the account start."""
_MOST = 10
"""Guests that wait: each takes 200 MB of memory or more, one with a large fabric some GB."""
_LEAST_FREE = 0.3
"""What part of the machine's memory those that wait leave free for runs."""
_NO_MORE = b"no more"
"""What one is told that is to end once its runs have. ``forking.h`` knows these words, too."""
_FEWEST = 2
"""What one run needs: a guest that has booted, and one with a groundwork."""
_STARTS_IN_S, _ANSWERS_IN_S = 900.0, 30.0
_LONGEST_BYTES = 1 << 20
_LOOKS_EVERY_S = 1.0


def start(boot: Boot, control: Path, processor: int | None, dialogue: Dialogue | None) -> GuestProcess:
    """Start a guest of a run: a fork of one that waits, if somebody keeps such guests, else one that boots."""
    directory = None if dialogue is not None or boot.parameters else _directory()
    if directory is not None:
        place_for_memory(boot)
        for kind in dict.fromkeys((boot, _without_groundwork(boot))):
            with suppress(OSError):  # None of this kind can be had.
                return _forked(kind, directory, control, processor)
    return start_kernel(boot, control, processor, dialogue)


def _directory() -> Path | None:
    """Return where guests wait that this process may have forked: where the environment says (nowhere, if that is
    empty), or the account's own (:func:`warm`), if they have imported our modules as they are now."""
    named = os.environ.get(WAITING)
    if named is not None:
        return Path(named) if named else None
    place = cache.own() / _WARM
    try:
        return place if (place / _SOURCES).read_text() == bytecode.fingerprint() else None
    except OSError:
        return None


class _Forked:
    """A guest that was forked for a run. Its parent tells how it ends, and ends it when nobody listens any more."""

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
                    self._code = -signal.SIGKILL  # Its parent has gone, and it with that.
        return self._code


def _forked(boot: Boot, directory: Path, control: Path, processor: int | None) -> GuestProcess:
    """Return a fork of a guest that waits. Raises OSError if there is none."""
    with _connected(directory / _KEEPER, _ANSWERS_IN_S) as keeper:
        keeper.send(_encoded(boot))
        if not keeper.recv(1):
            raise ConnectionRefusedError("no such guest waits")
    with ExitStack() as on_failure:
        connection = on_failure.enter_context(_connected(directory / _name(boot), _STARTS_IN_S))
        _ask(connection, control, processor)
        forked = _Forked(connection)
        on_failure.pop_all()
    connection.settimeout(None)
    set_session_niceness(forked.pid, os.getpriority(os.PRIO_PROCESS, 0))
    return forked


def _ask(connection: socket.socket, control: Path, processor: int | None, *passed: int) -> None:
    """Ask a guest that waits for a fork with a control directory; ``passed``: where that is to listen itself."""
    words = f"{-1 if processor is None else processor} {os.getpid()} {os.getpriority(os.PRIO_PROCESS, 0)}"
    opened = os.open(control, os.O_RDONLY | os.O_DIRECTORY)
    try:
        descriptors = array.array("i", [opened, *passed])
        connection.sendmsg([words.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    finally:
        os.close(opened)


def _without_groundwork(boot: Boot) -> Boot:
    return replace(boot, groundwork=None)


@contextmanager
def _address(place: Path) -> Iterator[str]:
    """Yield the address of a socket's place: that itself may be longer than the 107 bytes of an address."""
    directory = os.open(place.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{place.name}"
    finally:
        os.close(directory)


def _connected(place: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(timeout_s)
    try:
        with _address(place) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _listen(listener: socket.socket, place: Path) -> None:
    with _address(place) as address:
        listener.bind(address)
    listener.listen()


def _encoded(boot: Boot) -> bytes:
    values = {
        "kernel": str(boot.kernel.directory),
        "memory_bytes": boot.memory_bytes,
        "seed": boot.seed,
        "job": b64encode(boot.job).decode(),
        "bytecode": str(boot.bytecode or ""),
        "groundwork": None if boot.groundwork is None else asdict(boot.groundwork),
    }
    return json.dumps(values).encode()


def _decoded(text: bytes) -> Boot:
    values = json.loads(text)
    kernel, bytecode = KernelPaths(Path(values["kernel"])), Path(values["bytecode"]) if values["bytecode"] else None
    groundwork = None if values["groundwork"] is None else Groundwork(**values["groundwork"])
    return Boot(kernel, values["memory_bytes"], values["seed"], b64decode(values["job"]), bytecode, (), groundwork)


def _name(boot: Boot) -> str:
    return hashlib.sha256(_encoded(boot)).hexdigest()[:16]


def imports_of_all() -> tuple[str, ...]:
    """The modules that every guest imports which waits to be forked here; none if no such guests are kept, or each
    imports what its run needs."""
    directory = _directory()
    try:
        return () if directory is None else tuple((directory / _IMPORTS).read_text().split())
    except FileNotFoundError:
        return ()


@contextmanager
def waiting(imports: Sequence[str] = ()) -> Iterator[None]:
    """Keep guests that wait to be forked, for the runs that this process and those below it play during a block.

    ``imports``: modules that all of them import, whatever they will run: the same guest then serves several commands.
    By default each imports what its own run names.
    """
    if _directory() is not None:
        yield
        return
    with _kept(imports) as keeping:
        os.environ[WAITING] = str(keeping.directory)
        try:
            yield
        finally:
            del os.environ[WAITING]


def warm(imports: Sequence[str], idle_s: float, tell: Callable[[str], None]) -> None:
    """Keep guests that wait to be forked, for all commands of this account, until none has come for ``idle_s`` or
    Ctrl-C; then wait for the runs that play. Raises EmulationError if another process keeps some."""
    place = cache.own() / _WARM
    with cache.locked(place.with_suffix(".lock"), "keeping guests warm", 0.0), _kept(imports) as keeping:
        (keeping.directory / _SOURCES).write_text(bytecode.fingerprint())
        place.unlink(missing_ok=True)
        place.symlink_to(keeping.directory)
        with suppress(KeyboardInterrupt):
            tell(f"guests wait for the commands of this account, until none has come for {idle_s:g} s, or Ctrl-C")
            while (left_s := keeping.asked_s + idle_s - time.monotonic()) > 0:
                time.sleep(min(left_s, _LOOKS_EVERY_S))
        place.unlink()
        tell("no more commands have their guests from here; waiting for those that run (Ctrl-C ends them)")
        keeping.lets_end = True


@contextmanager
def _kept(imports: Sequence[str]) -> Iterator[_Keeping]:
    """Keep guests that wait during a block. Those that they were forked for end with it, unless they are let end."""
    with (
        removed_directory("fabric-waiting-") as directory,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        if imports:
            (directory / _IMPORTS).write_text("\n".join(imports))
        _listen(listener, directory / _KEEPER)
        keeping = _Keeping(listener, directory)
        thread = threading.Thread(target=keeping.serve, daemon=True)
        thread.start()
        try:
            yield keeping
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


class _Keeping:
    """Starts a guest that waits for each kind that is asked for. They end with the thread that serves, which must last.

    ``asked_s``: when one was last asked for (``time.monotonic()``). ``lets_end``: at the end, runs that play may end.
    """

    def __init__(self, listener: socket.socket, directory: Path) -> None:
        self.directory, self.asked_s, self.lets_end = directory, time.monotonic(), False
        self._listener = listener
        self._kept: dict[str, int | None] = {}
        """What :func:`_waits` yields of each guest that waits; who was asked for last is last."""

    def serve(self) -> None:
        """Answer until the listener is shut down."""
        with ExitStack() as stack:
            while True:
                try:
                    connection = self._listener.accept()[0]
                except OSError:
                    break
                self.asked_s = time.monotonic()
                with connection, suppress(OSError, FabricError):
                    connection.settimeout(_ANSWERS_IN_S)
                    self._keep(_decoded(connection.recv(_LONGEST_BYTES)), stack)
                    connection.send(b"y")
            if self.lets_end:
                for ended in [self._dismiss(name) for name in [*self._kept]]:
                    if ended is not None:
                        select.select([ended], [], [])

    def _keep(self, boot: Boot, stack: ExitStack) -> None:
        for kind in dict.fromkeys((_without_groundwork(boot), boot)):
            name = _name(kind)
            if name in self._kept:
                self._kept[name] = self._kept.pop(name)
            else:
                self._kept[name] = stack.enter_context(_waits(kind, self.directory / name))
        while len(self._kept) > _MOST or (len(self._kept) > _FEWEST and _free_part() < _LEAST_FREE):
            self._dismiss(next(iter(self._kept)))

    def _dismiss(self, name: str) -> int | None:
        """Let a guest that waits end once the runs have that were forked of it."""
        place = self.directory / name
        with suppress(OSError), _connected(place, _ANSWERS_IN_S) as connection:
            connection.send(_NO_MORE)
        place.unlink()
        return self._kept.pop(name)


def _free_part() -> float:
    """Return the part of the machine's memory that is free."""
    return available_bytes() / (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@contextmanager
def _waits(boot: Boot, place: Path) -> Iterator[int | None]:
    """Keep a guest that waits for the time of a block: one that boots, or, if it is to have a groundwork, is forked of
    one that has booted. Who is forked of it waits until it is there. Yields a descriptor that is readable once one that
    booted has ended, as it does after all that were forked of it."""
    control = Path(tempfile.mkdtemp(prefix="control-", dir=place.parent))
    with ExitStack() as at_end:
        boot.furnish(control)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
            _listen(requests, place)
            if boot.groundwork is None:
                process = start_kernel(boot, control, None, requests=requests.fileno())
                at_end.callback(process.wait)
                at_end.callback(process.kill)
                ended = process.fileno()
            else:
                booted = place.with_name(_name(_without_groundwork(boot)))
                connection = at_end.enter_context(_connected(booted, _ANSWERS_IN_S))
                at_end.callback(_ended, connection)
                _ask(connection, control, None, requests.fileno())
                ended = None
        yield ended


def _ended(connection: socket.socket) -> None:
    """Let a guest that was asked for end, and wait for that: also one that has not begun."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(64):
            pass
