"""The programs of a job, each in a host: started, ordered, waited for and ended together.

Several of a job's programs may fail for one reason: a rank that dies takes its peers' connections with it, and others
fall silent. So who waits for a group gets the first failure, not its consequences.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from fabric.config import Strict
from fabric.errors import TrafficError
from fabric.failures.injection import NotThereError
from fabric.model.identity import NodeId
from fabric.world.engines import current_engine
from fabric.world.isolation import netns
from fabric.world.programs.agents import MOST_TOGETHER, AgentHandle, Program, ProgramStart
from traffic.job import Ready, Stage

FAILURES_TIMEOUT_S = 2.0
"""How long the others of a group may take to report, once one has failed."""
ProgramsPerProcess = Annotated[int, Field(ge=1, le=MOST_TOGETHER)] | None
"""A config's choice of how many programs share an interpreter: :meth:`AgentPool.start_together`. None: the engine's, 1
in real time, where of those together only one computes at a time, and many in virtual time, where computing takes
none."""
Key = TypeVar("Key", bound=Hashable)


class RanksTogether(Strict):
    """How many ranks of a job share an interpreter."""

    ranks_per_process: ProgramsPerProcess = Field(
        default=None,
        description=(
            "Ranks that share an interpreter. Without it, as many as the engine prefers; it changes the "
            "emulator's cost, not the network."
        ),
    )


class PeerGoneError(TrafficError):
    """A connection or a thread ended because another one failed: a consequence, not a cause."""


class StalledError(TrafficError):
    """Nothing came or went for longer than a rank waits: a dead link or rank somewhere."""


@dataclass(frozen=True)
class ProgramFailed:
    """A program's report that it has failed, and why. ``is_consequence``: for another has; ``is_stall``: nothing moved
    for long, and to begin again may help."""

    text: str
    is_consequence: bool
    is_stall: bool = False


class ProgramsFailedError(TrafficError):
    """Programs of a group failed. The text is of the first failure, not of its consequences."""

    def __init__(self, cause: ProgramFailed, others: int) -> None:
        super().__init__(cause.text + (f" ({others} more of its programs ended with it)" if others else ""))
        self.is_stall = cause.is_stall


class ProgramLock:
    """Who asks the programs of a group: one thread asks all of them, or several ask one each, so that one which does
    not answer delays nobody who asks another. A thread that holds it may take it again."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._holders: dict[Hashable, int] = {}
        self._depths: Counter[Hashable] = Counter()

    def acquire(self, blocking: bool = True, of: Hashable = None) -> bool:
        """Take it: of the program with a key, or (None) of all. Return whether it was free, or is by now."""
        me = threading.get_ident()
        with self._turn:
            while any(holder != me and (of is None or key in (None, of)) for key, holder in self._holders.items()):
                if not blocking:
                    return False
                self._turn.wait()
            self._holders[of] = me
            self._depths[of] += 1
        return True

    def release(self, of: Hashable = None) -> None:
        """Give it back, as often as it was taken."""
        with self._turn:
            self._depths[of] -= 1
            if not self._depths[of]:
                del self._holders[of], self._depths[of]
                self._turn.notify_all()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @contextlib.contextmanager
    def of(self, key: Hashable) -> Iterator[None]:
        """Hold it of one program."""
        self.acquire(of=key)
        try:
            yield
        finally:
            self.release(key)


class ProgramGroup(Generic[Key]):
    """Programs by a key of the job's. Several threads may use it; ``job`` is what errors call it. ``survives``: the job
    goes on without those that :meth:`kill` has ended; one that does not fails at the next answer that it waits for."""

    def __init__(self, stage: Stage, job: str, survives: bool = True) -> None:
        self._stage = stage
        self._job = job
        self._survives = survives
        self._handles: dict[Key, AgentHandle] = {}
        self._killed: set[Key] = set()
        self._held: set[str] = set()
        """The hosts on which failures have stopped all programs."""
        self._closed = False
        self._owning = threading.Lock()
        """Held while programs are started, stopped or taken to be ended."""
        self._sending = threading.Lock()
        self.again: Callable[[str], None] | None = None
        """Starts the programs on a host again that were killed; None: they stay dead."""
        self.asking = ProgramLock()
        """Held from an order to its answers by jobs that are asked from several threads."""

    @property
    def handles(self) -> dict[Key, AgentHandle]:
        """The programs that were started, in that order, those that were killed included."""
        return dict(self._handles)

    @property
    def living(self) -> dict[Key, AgentHandle]:
        """Those that :meth:`kill` has not ended."""
        return {key: handle for key, handle in self._handles.items() if key not in self._killed}

    def start(self, key: Key, name: str, node: NodeId, program: Program, arguments: object) -> None:
        """Start a program in a host. Raises TrafficError if the group was closed."""
        self.start_all(program, {key: (name, node, arguments)})

    def start_again(self, key: Key, name: str, node: NodeId, program: Program, arguments: object) -> None:
        """Start a program in the place of one that :meth:`kill` has ended. Raises TrafficError if it lives."""
        if key not in self._killed:
            raise TrafficError(f"{name} on {node}: is alive, and is not started again; kill it first")
        self.start(key, name, node, program, arguments)
        self._killed.discard(key)

    def start_all(
        self, program: Program, hosted: Mapping[Key, tuple[str, NodeId, object]], per_process: int | None = None
    ) -> None:
        """Start a program in each of several hosts, with a name and arguments of its own, ``per_process`` of them in a
        process, by default as many as the engine has: see :meth:`AgentPool.start_together`. Raises TrafficError as
        :meth:`start`."""
        most = per_process or current_engine().programs_per_process
        started: dict[Key, AgentHandle] = {}
        for together in _batches(self._stage, hosted, most):
            with self._owning:
                if self._closed:
                    raise TrafficError(f"{self._job}: was closed while its programs were started")
                starts = [
                    ProgramStart(name, node.name, program, arguments, self._stage.namespace_of(node))
                    for name, node, arguments in (hosted[key] for key in together)
                ]
                started.update(zip(together, self._stage.pool.start_together(starts), strict=True))
                self._handles.update({key: started[key] for key in together})
                for key in together:
                    if started[key].host in self._held:
                        started[key].send_signal(signal.SIGSTOP)
        with self._owning:  # In the order asked for, whichever guests they are in.
            self._handles.update({key: self._handles.pop(key) for key in hosted if key in self._handles})

    def order(self, message: object, only: Collection[Key] | None = None) -> None:
        """Send a message to all that live, or to some. One that has gone is reported by :meth:`collect`."""
        handles = self._addressed(only)
        self._send(handles, dict.fromkeys(handles, message))

    def order_each(self, messages: Mapping[Key, object]) -> None:
        """Send each its own message. One that has gone is reported by :meth:`collect`: it may not be the cause."""
        self._send(self._handles, messages)

    def _addressed(self, only: Collection[Key] | None) -> dict[Key, AgentHandle]:
        """Return the programs that live, or some: as they are now, for another thread may end all at any time."""
        handles = self._handles
        return self.living if only is None else {key: handles[key] for key in only}

    def _send(self, handles: Mapping[Key, AgentHandle], messages: Mapping[Key, object]) -> None:
        for key, message in messages.items():
            with self._sending, contextlib.suppress(TrafficError):
                handles[key].send(message)

    def collect(self, what: str, timeout_s: float, only: Collection[Key] | None = None) -> dict[Key, Any]:
        """Return the next message of all that live, or of some, in that order.

        Raises ProgramsFailedError if one failed, or if not all have come within ``timeout_s``; TrafficError if one was
        killed without which the job does not go on.
        """
        self._require_survivors(what, only)
        deadline = time.monotonic() + timeout_s
        messages: dict[Key, Any] = {}
        failures: list[ProgramFailed] = []
        for key, handle in self._addressed(only).items():
            message = _next_message(handle, deadline, what, is_first=not failures)
            if isinstance(message, ProgramFailed):
                if self._survives and key in self._killed:
                    continue  # It was killed while it was waited for.
                deadline = min(deadline, time.monotonic() + FAILURES_TIMEOUT_S)
                failures.append(message)
            messages[key] = message
        if failures:
            cause = min(failures, key=lambda failure: failure.is_consequence)
            raise ProgramsFailedError(cause, len(failures) - 1)
        return messages

    def _require_survivors(self, what: str, only: Collection[Key] | None) -> None:
        missed = [] if self._survives else [key for key in self._killed if only is None or key in only]
        if missed:
            names = ", ".join(f"{self._handles[key].name} on {self._handles[key].host}" for key in missed)
            raise TrafficError(f"{self._job}: no {what}: {names} was killed, and the others cannot go on without it")

    def await_ready(self, what: str, timeout_s: float, only: Collection[Key] | None = None) -> None:
        """Wait until all that live, or some, report :class:`traffic.job.Ready`. Raises TrafficError as :meth:`collect`,
        and if one answers something else."""
        for key, answer in self.collect(what, timeout_s, only).items():
            if not isinstance(answer, Ready):
                handle = self._handles[key]
                raise TrafficError(f"{handle.name} on {handle.host}: answered {answer!r} instead of {what}")

    def verify(self, before: str) -> None:
        """Raise TrafficError if one has failed or ended by itself, ``before`` what it was to do. It is for programs
        that say nothing unless asked; while another thread asks, that one is told."""
        if not self.asking.acquire(blocking=False):
            return
        try:
            if failed := [key for key, handle in self.living.items() if handle.pipe.poll()]:
                self.collect(before, FAILURES_TIMEOUT_S, failed)
        finally:
            self.asking.release()

    def kill(self, key: Key) -> None:
        """End a program at once, as a crash would. Nothing is ordered from it or expected of it from now on.

        Raises TrafficError if it shares its process: the others would end with it.
        """
        handle = self._handles[key]
        self._require_own_process(handle, "die")
        self._killed.add(key)
        handle.kill()

    def _require_own_process(self, handle: AgentHandle, what: str) -> None:
        others = sum(one.process is handle.process for one in self._handles.values()) - 1
        if others:
            raise TrafficError(
                f"{handle.name} on {handle.host}: {others} more share its process and would {what} with it; "
                f"start {self._job} with one program per process"
            )

    # Failures: a group is :class:`fabric.failures.kinds.process.FailingPrograms`.

    @property
    def hosts(self) -> frozenset[str]:
        """Where programs live."""
        return frozenset(handle.host for handle in self.living.values())

    def stop_on(self, host: str) -> None:
        """Let the programs on a host run no longer, nor those that are started there meanwhile. Raises NotThereError if
        all have ended, TrafficError if one shares its process."""
        with self._owning:
            running = [handle for handle in self._living_on(host) if handle.process.is_alive()]
            if not running:
                raise NotThereError(f"{self._job}: no program of it runs on {host}")
            self._held.add(host)
            for handle in running:
                self._require_own_process(handle, "stop")
                with contextlib.suppress(TrafficError):  # It may end now.
                    handle.send_signal(signal.SIGSTOP)

    def resume_on(self, host: str) -> None:
        """Let them run again. One that has gone is reported by :meth:`collect`."""
        with self._owning:
            self._held.discard(host)
            for handle in self._living_on(host):
                with contextlib.suppress(TrafficError):
                    handle.send_signal(signal.SIGCONT)

    def kill_on(self, host: str) -> None:
        """End the programs on a host at once. Raises TrafficError as :meth:`kill`."""
        with self._owning:
            self._held.discard(host)
            for key in [key for key, handle in self.living.items() if handle.host == host]:
                self.kill(key)

    def restart_on(self, host: str) -> None:
        """Start the programs on a host again that were killed. Raises TrafficError if the job cannot."""
        if self.again is None:
            raise TrafficError(f"{self._job}: its programs on {host} were killed, and are not started again")
        self.again(host)

    def _living_on(self, host: str) -> list[AgentHandle]:
        return [handle for handle in self.living.values() if handle.host == host]

    def end_at_once(self) -> None:
        """Kill all. Whoever calls it first does it; none is left for another. More may be started."""
        ending = self.taken()
        for handle in ending:
            handle.kill()
        self._stage.pool.stop(ending)

    def close(self) -> None:
        """End all, with time to end in good order. No more are started."""
        close_all(self._stage, self)

    def close_at_once(self) -> None:
        """Kill all. No more are started."""
        self._closed = True
        self.end_at_once()

    def taken(self, closes: bool = False) -> list[AgentHandle]:
        """Return all programs for the caller to end: they are the group's no more. ``closes``: no more are started."""
        with self._owning:
            self._closed |= closes
            ending = list(self._handles.values())
            self._handles, self._killed = {}, set()
        return ending


def _batches(stage: Stage, hosted: Mapping[Key, tuple[str, NodeId, object]], most: int) -> Iterator[list[Key]]:
    """Yield the keys of programs that share a process: of one guest, ``most`` at a time; those that failures may hit
    by themselves."""
    by_guest: dict[int, list[Key]] = {}
    for key, (_, node, _) in hosted.items():
        if node.name in stage.failing_hosts:
            yield [key]
            continue
        by_guest.setdefault(netns.guest_of(stage.namespace_of(node)), []).append(key)
    for keys in by_guest.values():
        for start in range(0, len(keys), most):
            yield keys[start : start + most]


def close_all(stage: Stage, *groups: ProgramGroup[Any]) -> None:
    """End the programs of groups, all at a time, with time to end in good order. No more of them are started."""
    stage.pool.stop([handle for group in groups for handle in group.taken(closes=True)])


def _next_message(handle: AgentHandle, deadline: float, what: str, is_first: bool) -> Any:
    """Return a program's message, or ProgramFailed if none came; silence after another's failure is a consequence."""
    try:
        return handle.receive(max(0.0, deadline - time.monotonic()), what)
    except TrafficError as error:
        is_silence = time.monotonic() >= deadline
        return ProgramFailed(str(error), is_consequence=is_silence and not is_first, is_stall=is_silence)
