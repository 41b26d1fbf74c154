"""Programs inside hosts: forked (not started) into a host's network namespace, controlled over a pipe, never over the
measured network.

A program is a module-level function ``program(agent, arguments)``. It reports to the run and receives orders through
its :class:`Agent`; it ends by returning. All clocks are ``time.monotonic()``, which all processes of a run share.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from fabric.errors import TrafficError
from fabric.world.isolation import netns
from fabric.world.programs import guest_calls
from fabric.world.programs.packages import KnownPackages

Program = Callable[["Agent", Any], None]
MOST_TOGETHER = 200
"""Programs of one process: multiprocessing hands over at most 256 descriptors at a time."""
PRELOAD = ("numpy", "fabric.world.programs.agents")
_PRELOADED_LAST = "fabric.world.programs.forked"
_Message = TypeVar("_Message")
_STARTING = threading.Lock()
"""Jobs that begin again start programs from threads of their own."""
_SHOWN_CHARACTERS = 200
"""How much of an unexpected message an error shows."""


class StopRequested(Exception):  # noqa: N818 - not an error: how a program is asked to end
    """Raised in a program by :meth:`Agent.receive` when the run is over or has gone."""


@dataclass(frozen=True)
class ProgramFailure:
    """What a program that raised left behind."""

    text: str


@dataclass(frozen=True)
class Agent:
    """A program's end: the host it runs in and its pipe to the run."""

    host: str
    pipe: Connection

    def report(self, message: object) -> None:
        """Send a picklable message to the run."""
        self.pipe.send(message)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Return the run's next message. Raises StopRequested at the run's end, TimeoutError after the wait."""
        try:
            if not self.pipe.poll(timeout_s):
                raise TimeoutError(f"{self.host}: no order from the run within {timeout_s} s")
            message = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise StopRequested from error
        if message is None:
            raise StopRequested
        return message

    def expect(self, order: str, timeout_s: float | None = None) -> None:
        """Wait for the one order that may come now. Raises TrafficError if another comes, else as :meth:`receive`."""
        found = self.receive(timeout_s)
        if found != order:
            raise TrafficError(f"{self.host}: expected the order {order!r}, got {_shortened(found)}")

    def receive_a(self, kind: type[_Message], timeout_s: float | None = None) -> _Message:
        """Return the run's next message, which must be of a kind. Raises TrafficError, else as :meth:`receive`."""
        return _of_kind(kind, self.receive(timeout_s), self.host)


@dataclass(frozen=True)
class ProgramStart:
    """What to start: ``program(agent, arguments)`` in a host's network namespace (None: the caller's own)."""

    name: str
    host: str
    program: Program
    arguments: object
    namespace: Path | None


@dataclass
class AgentHandle:
    """The run's end of one program in one host. ``process`` may have other programs, which a signal concerns, too."""

    name: str
    host: str
    process: Any
    pipe: Connection
    _failure: str = ""
    """What the program said when it failed; kept, since several may ask."""

    def send(self, message: object) -> None:
        """Send a picklable message to the program. Raises TrafficError, with its last words, if it has gone."""
        try:
            self.pipe.send(message)
        except (BrokenPipeError, ConnectionError) as error:
            self.process.join(1)
            gone = f"{self.name} on {self.host}: has gone (exit code {self.process.exitcode})"
            raise TrafficError(gone + self._last_words()) from error

    def receive(self, timeout_s: float, what: str) -> Any:
        """Return the program's next message. Raises TrafficError naming ``what`` if none comes in time."""
        try:
            if not self.pipe.poll(timeout_s):
                raise TrafficError(f"{self.name} on {self.host}: no {what} within {timeout_s:g} s")
            message = self.pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join(1)
            code = self.process.exitcode
            ended = "ended" if code is None else f"ended with {code}"  # Others of its process go on.
            raise TrafficError(f"{self.name} on {self.host}: {ended} before {what}{self._failure}") from error
        if isinstance(message, ProgramFailure):
            self._failure = f":\n{message.text}"
            raise TrafficError(f"{self.name} on {self.host}: failed before {what}:\n{message.text}")
        return message

    def receive_a(self, kind: type[_Message], timeout_s: float, what: str) -> _Message:
        """Return the program's next message, which must be of a kind. Raises TrafficError as :meth:`receive`."""
        return _of_kind(kind, self.receive(timeout_s, what), f"{self.name} on {self.host}")

    def _last_words(self) -> str:
        try:
            while self.pipe.poll():
                message = self.pipe.recv()
                if isinstance(message, ProgramFailure):
                    self._failure = f":\n{message.text}"
        except (EOFError, ConnectionError):
            pass  # It has said all.
        return self._failure

    def stop(self) -> None:
        """Ask the program to end; it sees StopRequested at its next receive."""
        try:
            self.pipe.send(None)
        except OSError:
            return  # It ended by itself.

    def kill(self) -> None:
        """End the program at once, as a crash would; one that has ended, or ends meanwhile, is not a fault."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)

    def send_signal(self, number: signal.Signals) -> None:
        """Send the program a signal, such as SIGSTOP. Raises TrafficError, with its last words, if it has gone."""
        try:
            if isinstance(self.process, RemoteProcess):
                self.process.send_signal(number)
            else:
                os.kill(self.process.pid, number)
        except ProcessLookupError as error:
            self.process.join(1)
            gone = f"{self.name} on {self.host}: has gone (exit code {self.process.exitcode}) before {number.name}"
            raise TrafficError(gone + self._last_words()) from error

    def wait(self, timeout_s: float) -> None:
        """Wait for the program to end; kill it if it does not within ``timeout_s``."""
        self.process.join(timeout_s)
        self.kill()
        self.pipe.close()


def fork_server(preload: Iterable[str] = ()) -> None:
    """Start the fork server of this process's pools as a copy of this process, which need not import all anew.

    ``preload``: as of :class:`AgentPool`. Call it before there are threads, which a copy would lack. Files that are
    open by then stay this process's own.
    """
    _context(preload)
    with _without_main_module():
        _start_server(_forking_what_is_spawned())


def _context(preload: Iterable[str]) -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, *preload, _PRELOADED_LAST])
    return context


@contextmanager
def _forking_what_is_spawned() -> Iterator[None]:
    """Let multiprocessing, where it would start an interpreter with a line of Python, run that in a copy of this."""
    spawn = util.spawnv_passfds
    util.spawnv_passfds = _forked  # type: ignore[assignment]
    try:
        yield
    finally:
        util.spawnv_passfds = spawn


def _forked(_: bytes, arguments: Sequence[Any], passed: Sequence[int]) -> int:
    """Return the process that runs the Python at the end of an interpreter's arguments, with these descriptors."""
    if threading.active_count() > 1:
        raise RuntimeError(
            f"the fork server is to be a copy of this process, which has threads: {threading.enumerate()}"
        )
    if process := os.fork():
        return process
    try:
        _forget_resource_tracker()
        _close_all_but({0, 1, 2, *passed})
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        forkserver._forkserver._lock = threading.Lock()  # type: ignore[attr-defined] # It was taken to come here.
        exec(arguments[-1], {})
    except SystemExit:
        pass  # How the server ends when the run has.
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _forget_resource_tracker() -> None:
    """Know of none, as an interpreter that has just started: from Python 3.13 on, a process waits at its end for its
    tracker, which waits for all that hold its pipe."""
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None


def _close_all_but(kept: Container[int | None]) -> None:
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor not in kept:
            with suppress(OSError):  # That of the listing itself has been closed.
                os.close(descriptor)


def _start_server(manner: AbstractContextManager[None]) -> None:
    """Start the fork server, if it is not there, with SIGINT blocked: so it is then in programs, from their birth.

    Ctrl-C goes to all processes of a terminal, and is the run's to handle; it stops its programs. ``manner``: entered
    while the server starts, and nothing else.
    """
    resource_tracker.ensure_running()  # Or the fork server would start it, and it unblocks SIGINT.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with manner:
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class AgentPool:
    """Starts programs in hosts and ends them all.

    ``preload`` names modules that the fork server imports once, so that a program starts in milliseconds. The server
    starts with the first program, unless :func:`fork_server` has started it.
    """

    def __init__(self, preload: Iterable[str] = ()) -> None:
        self._context = _context(preload)
        self.handles: list[AgentHandle] = []

    def start(self, name: str, host: str, program: Program, arguments: object, namespace: Path | None) -> AgentHandle:
        """Start ``program(agent, arguments)`` in a host's network namespace (None: the caller's own)."""
        (handle,) = self.start_together([ProgramStart(name, host, program, arguments, namespace)])
        return handle

    def start_together(self, starts: Sequence[ProgramStart]) -> list[AgentHandle]:
        """Start programs in one process, each in a thread of its own, and return their handles in the same order.

        They share an interpreter and what it takes in memory, and its lock: only one computes at a time. Whatever ends
        the process ends all of them. Raises TrafficError for more than MOST_TOGETHER.
        """
        if len(starts) > MOST_TOGETHER:
            raise TrafficError(f"{len(starts)} programs in one process; at most {MOST_TOGETHER}, use more processes")
        guests = {netns.guest_of(start.namespace) for start in starts}
        if len(guests) > 1:
            raise TrafficError(f"programs of one process in guests {sorted(guests)} of the run; use a process for each")
        (guest,) = guests
        process, pipes = self._started(starts) if guest == 0 else _started_in(guest, starts)
        handles = [AgentHandle(one.name, one.host, process, ours) for one, ours in zip(starts, pipes, strict=True)]
        self.handles += handles
        return handles

    def _started(self, starts: Sequence[ProgramStart]) -> tuple[Any, list[Connection]]:
        """Start programs in one process; return it, and this end of the pipe of each."""
        pipes = [self._context.Pipe() for _ in starts]
        first = starts[0]
        # What packages there are comes first: the program may be of one of them.
        arguments = (KnownPackages(), list(starts), [theirs for _, theirs in pipes], _Place())
        process = _started_process(self._context, _run, arguments, f"{first.name}@{first.host}")
        for _, theirs in pipes:
            theirs.close()
        return process, [ours for ours, _ in pipes]

    def stop(self, handles: Sequence[AgentHandle] | None = None, timeout_s: float = 5.0) -> None:
        """Ask programs (all by default) to end, wait, and kill those that do not within ``timeout_s`` altogether.

        Those that were stopped before are left alone.
        """
        ending = [handle for handle in (self.handles if handles is None else handles) if handle in self.handles]
        for handle in ending:
            handle.stop()
        deadline = time.monotonic() + timeout_s
        for handle in ending:
            handle.wait(max(0.0, deadline - time.monotonic()))
            self.handles.remove(handle)


def _started_process(context: ForkServerContext, target: Callable[..., None], arguments: object, name: str) -> Any:
    process = context.Process(target=target, args=arguments, daemon=True, name=name)  # type: ignore[arg-type]
    with _STARTING, _without_main_module():
        _start_server(nullcontext())
        process.start()
    return process


# In other guests of the run ------------------------------------------------------------------------------------------


def _started_in(guest: int, starts: Sequence[ProgramStart]) -> tuple[RemoteProcess, list[Connection]]:
    """Start programs in one process of another guest; return it, and this end of the pipe of each."""
    there = [replace(start, namespace=netns.as_seen_there(start.namespace)) for start in starts]
    payload = pickle.dumps((KnownPackages(), there))
    tokens = guest_calls.next_tokens(len(starts))
    pipes = []
    for token in tokens:
        pipes.append(guest_calls.dial(guest))
        pipes[-1].send(("pipe", token))
    other = guest_calls.others()[guest - 1]
    return RemoteProcess(other, other.call(_start_here, payload, tokens, f"{starts[0].name}@{starts[0].host}")), pipes


@dataclass
class _StartedHere:
    """A process that the first guest has had started here. Only one thread waits for it: its exit code can be read
    once."""

    process: Any
    has_ended: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.process.join()
        self.has_ended.set()


_processes: dict[int, _StartedHere] = {}
"""In another guest than the first: the processes that were started here, by their numbers."""


def _start_here(payload: bytes, tokens: Sequence[int], name: str) -> int:
    pipes = [guest_calls.taken_pipe(token) for token in tokens]
    process = _started_process(_context(()), _run_payload, (payload, pipes), name)
    for pipe in pipes:
        pipe.close()
    started = _processes[process.pid] = _StartedHere(process)
    threading.Thread(target=started.wait, daemon=True).start()
    return int(process.pid)


def _run_payload(payload: bytes, pipes: Sequence[Connection]) -> None:
    known, starts = pickle.loads(payload)
    _run(known, starts, pipes)


def _ended_here(pid: int, timeout_s: float | None) -> int | None:
    started = _processes[pid]
    code: int | None = started.process.exitcode if started.has_ended.wait(timeout_s) else None
    return code


def _signal_here(pid: int, number: int) -> None:
    if not _processes[pid].has_ended.is_set():
        os.kill(pid, number)


@dataclass
class RemoteProcess:
    """A process of another guest, with what :class:`AgentHandle` uses of multiprocessing's."""

    guest: guest_calls.OtherGuest
    pid: int
    exitcode: int | None = None

    @cached_property
    def _end(self) -> guest_calls.Pending:
        return self.guest.begin(_ended_here, self.pid, None)

    @property
    def sentinel(self) -> int:
        """What :func:`multiprocessing.connection.wait` waits for: it can be read once the process has ended."""
        return self._end.fileno()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for its end."""
        if self.exitcode is None:
            self.exitcode = self.guest.call(_ended_here, self.pid, timeout_s)

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        self.join(0)
        return self.exitcode is None

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal. Raises ProcessLookupError if it has ended."""
        self.join(0)
        if self.exitcode is not None:
            raise ProcessLookupError
        self.guest.call(_signal_here, self.pid, int(number))


def _of_kind(kind: type[_Message], message: object, who: str) -> _Message:
    if not isinstance(message, kind):
        raise TrafficError(f"{who}: expected {kind.__name__}, got {_shortened(message)}")
    return message


def _shortened(message: object) -> str:
    words = repr(message)
    return words if len(words) <= _SHOWN_CHARACTERS else f"{words[:_SHOWN_CHARACTERS]}..."


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep multiprocessing from running the caller's script again in every child: programs are importable functions."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@dataclass(frozen=True)
class _Place:
    """Where a process is, and its environment: those of the fork server may be of before its run was known."""

    directory: str = field(default_factory=os.getcwd)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def enter(self) -> None:
        """Take them over."""
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)


def _run(
    _: KnownPackages | None, starts: Sequence[ProgramStart], pipes: Sequence[Connection], place: _Place | None = None
) -> None:
    """Be the child process: carry out its programs; exit with 1 if one failed."""
    if place is not None:
        place.enter()
    is_alone = len(starts) == 1
    failed = [_carry_out(starts[0], pipes[0])] if is_alone else _carried_out_side_by_side(starts, pipes)
    if any(failed):
        raise SystemExit(1)


def _carried_out_side_by_side(starts: Sequence[ProgramStart], pipes: Sequence[Connection]) -> list[bool]:
    """Carry out each program in a thread of its own, which ends its pipe; return which have failed."""
    failed: list[bool] = []

    def carry_out(start: ProgramStart, pipe: Connection) -> None:
        with closing(pipe):
            failed.append(_carry_out(start, pipe))

    ends = zip(starts, pipes, strict=True)
    threads = [threading.Thread(target=carry_out, args=one, name=one[0].name) for one in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def _carry_out(start: ProgramStart, pipe: Connection) -> bool:
    """Enter the host, run the program, tell the run of a failure; return whether it failed."""
    try:
        if start.namespace is not None:
            netns.become(start.namespace)
        start.program(Agent(start.host, pipe), start.arguments)
    except StopRequested:
        return False
    except BaseException:
        with suppress(OSError):
            pipe.send(ProgramFailure(traceback.format_exc()))
        return True
    return False
