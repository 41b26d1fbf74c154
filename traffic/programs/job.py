"""A user's program as a job: a process per host, which plays from the begin of each window until it ends or is ended.

Rows of the ``operations`` table: ``program`` for a process that ended by itself, ``program_stopped`` for one that was
ended with its window, ``program_killed`` for one that a failure ended; ``size_bytes`` is what its host's NICs sent
meanwhile. What it prints is in ``logs/programs``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fabric.config import Strict
from fabric.errors import TrafficError
from fabric.failures.injection import NotThereError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world import inside
from fabric.world.engines import current_engine
from fabric.world.isolation import limits
from fabric.world.programs import hosts
from fabric.world.programs.agents import Agent
from traffic.job import Halt, Play, Ready, Records, Stage
from traffic.program_group import ProgramFailed, ProgramGroup
from traffic.programs.environment import lane_environment, own_environment, programs_environment

ENDED, STOPPED, KILLED = "program", "program_stopped", "program_killed"
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0
"""How long a program may take to end once it is told to (SIGTERM), before it is killed."""
_LAST_BYTES = 2000


def _one_command(text: str) -> str:
    if not shlex.split(text):
        raise ValueError("names no program; write it as in a shell, such as 'iperf3 -s'")
    return text


class ProgramConfig(Strict):
    """A program of the user's.

    It finds the job's hosts in ``FABRIC_HOSTS`` and ``FABRIC_ADDRESSES``, its own number in ``FABRIC_RANK``, its
    service level's TOS byte in ``FABRIC_TOS``. Its sockets have that from the start, unless it is linked statically or
    sets another one.
    """

    command: Annotated[str, AfterValidator(_one_command)] = Field(
        description=(
            "Command line of the program, which each node runs: split into words as by a shell, and run without one "
            "(write `sh -c '...'` for more)."
        )
    )


@dataclass(frozen=True)
class ProcessArguments:
    """What :func:`run_program` needs to know. ``output``: the file that the program's output is added to;
    ``has_own_host``: it runs on a host of a fabric, with all that this has to itself, not just beside this process."""

    host: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    output: Path
    level: ServiceLevel
    has_own_host: bool = False


@dataclass(frozen=True)
class Signal:
    """The order to send the program a signal, for a failure."""

    number: signal.Signals


@dataclass(frozen=True)
class AwaitEnd:
    """The order to wait until the program has ended by itself, at most so many seconds."""

    timeout_s: float


@dataclass(frozen=True)
class Signalled:
    """The answer to that: whether there was a program that ran."""

    had_it: bool


def run_program(agent: Agent, arguments: ProcessArguments) -> None:
    """Start and end a user's program as ordered (a program of :mod:`fabric.world.programs.agents`)."""
    process = _Process(arguments)
    agent.report(Ready())
    try:
        while True:
            order = agent.receive()  # Without a timeout: the run decides when, and its end raises StopRequested.
            try:
                agent.report(process.carry_out(order))
            except TrafficError as error:
                agent.report(ProgramFailed(str(error), is_consequence=False))
    finally:
        process.stop()


class _Process:
    """A program's process in a host, one after another."""

    def __init__(self, arguments: ProcessArguments) -> None:
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = threading.Thread()
        self._phase = ""
        self._started = self._ended = 0.0
        self._sent_before = 0
        self._is_killed = False

    def carry_out(self, order: object) -> Ready | Records | Signalled:
        """Do as ordered, and return the answer. Raises TrafficError as :meth:`start` and :meth:`end` do."""
        if isinstance(order, Play):
            return self.start(order.phase)
        if isinstance(order, AwaitEnd):
            return self.await_end(order.timeout_s)
        return self.signal(order.number) if isinstance(order, Signal) else self.end()

    def signal(self, number: signal.Signals) -> Signalled:
        """Send the program, and what it has started, a signal, unless it has ended."""
        if self._process is None or _has_ended(self._process.pid):
            return Signalled(False)
        self._is_killed |= number is signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
        return Signalled(True)

    def start(self, phase: str) -> Ready:
        """Start the program. Raises TrafficError if there is none."""
        arguments = self._arguments
        self._phase, self._sent_before, self._started = phase, _sent_bytes(), time.monotonic()
        self._is_killed = False
        # SIGINT is blocked in us, and would be in the program, too: signals that are blocked stay so.
        before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            command: Sequence[str] = arguments.command
            if arguments.has_own_host:
                command = hosts.on_host(arguments.host, command, arguments.environment)
            with arguments.output.open("ab") as output:
                self._process = subprocess.Popen(
                    command,
                    env=dict(arguments.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=None if arguments.has_own_host else limits.allow_usual_files,
                )
        except OSError as error:
            raise TrafficError(f"{arguments.host}: cannot start {arguments.command[0]!r}: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._watcher = threading.Thread(target=self._watch, args=(self._process,), daemon=True)
        self._watcher.start()
        return Ready()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._ended = time.monotonic()

    def await_end(self, timeout_s: float) -> Ready:
        """Wait until the program has ended by itself. Raises TrafficError if it has not in time."""
        self._watcher.join(timeout_s)
        if self._watcher.is_alive():
            command = shlex.join(self._arguments.command)
            raise TrafficError(f"{self._arguments.host}: {command} still runs after {timeout_s:g} s{self._said()}")
        return Ready()

    def end(self) -> Records:
        """End the program, if it still runs, and return its row. Raises TrafficError if it has failed."""
        if self._process is None:
            raise TrafficError(f"{self._arguments.host}: has no program to end; call play() before halt()")
        is_running = not _has_ended(self._process.pid)
        sent_bytes = _sent_bytes() - self._sent_before
        ended = time.monotonic()
        self.stop()
        if not is_running and self._process.returncode != 0 and not self._is_killed:
            raise TrafficError(self._failure(self._process.returncode))
        return Records(
            operations=[
                {
                    "phase": self._phase,
                    "service_level": self._arguments.level.label,
                    "operation": STOPPED if is_running else KILLED if self._is_killed else ENDED,
                    "host": self._arguments.host,
                    "peer": "",
                    "size_bytes": sent_bytes,
                    "started_s": self._started,
                    "ended_s": ended if is_running else self._ended,
                    "retries": 0,
                }
            ]
        )

    def _failure(self, code: int) -> str:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return f"{self._arguments.host}: {shlex.join(self._arguments.command)} ended {how}{self._said()}"

    def _said(self) -> str:
        last = self._arguments.output.read_bytes()[-_LAST_BYTES:].decode(errors="replace").strip()
        return f"; it said last:\n{last}" if last else ""

    def stop(self) -> None:
        """End the program and what it started: in good order, or else at once."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            self._watcher.join(END_TIMEOUT_S)
            if not self._watcher.is_alive():
                break


def _has_ended(process: int) -> bool:
    """Return whether a child has ended, also if the thread that waits for it has not been told yet: while that waits,
    ``Popen.poll()`` says that the child runs."""
    try:
        return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # It has been waited for.


def _sent_bytes() -> int:
    """Return what the NICs of this process's host have sent so far."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    rows = (line.partition(":") for line in lines)
    return sum(int(values.split()[8]) for name, _, values in rows if name.strip() != "lo")


class _UsersPrograms:
    """The users' programs of a job, as :class:`fabric.failures.kinds.process.FailingPrograms`: what starts them is
    ordered to."""

    def __init__(self, starters: ProgramGroup[NodeId]) -> None:
        self._starters = starters
        self._killed: set[str] = set()
        self._stopped: set[str] = set()

    @property
    def hosts(self) -> frozenset[str]:
        """Where programs were not killed since they were started last."""
        return self._starters.hosts - self._killed

    def all_started(self) -> None:
        """Know that they have been started anew, and stop those whose host is to stand still."""
        self._killed.clear()
        for host in self._stopped:
            self._send(host, signal.SIGSTOP)

    def stop_on(self, host: str) -> None:
        """Send SIGSTOP, also to what is started there meanwhile. Raises NotThereError if none runs."""
        self._require(host, self._send(host, signal.SIGSTOP))
        self._stopped.add(host)

    def resume_on(self, host: str) -> None:
        """Send SIGCONT."""
        self._stopped.discard(host)
        self._send(host, signal.SIGCONT)

    def kill_on(self, host: str) -> None:
        """Send SIGKILL. Raises NotThereError if none runs."""
        self._require(host, self._send(host, signal.SIGKILL))
        self._stopped.discard(host)
        self._killed.add(host)

    @staticmethod
    def _require(host: str, had_it: bool) -> None:
        if not had_it:
            raise NotThereError(f"no program of a user runs on {host}")

    def restart_on(self, host: str) -> None:
        """Raises TrafficError: what a user's program would have to begin with is not known."""
        raise TrafficError(f"programs of users on {host} were killed, and are not started again")

    def _send(self, host: str, number: signal.Signals) -> bool:
        """Send the programs on a host a signal; return whether one ran there."""
        nodes = [node for node in self._starters.handles if node.name == host]
        had = False
        for node in nodes:
            with self._starters.asking.of(node):
                self._starters.order(Signal(number), [node])
                found = self._starters.collect(f"word that {number.name} was sent", START_TIMEOUT_S, [node])
                had |= any(one.had_it for one in found.values() if isinstance(one, Signalled))
        return had


class ProgramJob:
    """A :class:`traffic.job.Job` of one program on each of ``hosts``."""

    def __init__(
        self, stage: Stage, config: ProgramConfig, hosts: Sequence[NodeId], level: ServiceLevel, name: str
    ) -> None:
        self.level = level
        self.name = name
        self.hosts = tuple(hosts)
        self._stage = stage
        self._config = config
        self._programs: ProgramGroup[NodeId] = ProgramGroup(stage, name)
        self._users = _UsersPrograms(self._programs)

    @property
    def failing_programs(self) -> Sequence[_UsersPrograms]:
        """The users' programs, for failures."""
        return (self._users,)

    def start(self) -> None:
        """Fork what will start the programs. Raises TrafficError or EmulationError."""
        directory = self._stage.logs / "programs"
        directory.mkdir(exist_ok=True, parents=True)
        environment = current_engine().users_environment() | programs_environment(self._stage.fabric, self.hosts)
        environment |= lane_environment(self.level, inside.RUN_DIR)
        for rank, host in enumerate(self.hosts):
            arguments = ProcessArguments(
                host=host.name,
                command=tuple(shlex.split(self._config.command)),
                environment=environment | own_environment(self._stage.fabric, self.hosts, rank),
                output=self.output_of(host),
                level=self.level,
                has_own_host=self._stage.namespace_of(host) is not None,
            )
            self._programs.start(host, self.name, host, run_program, arguments)
        self._programs.await_ready("readiness", START_TIMEOUT_S)

    def output_of(self, host: NodeId) -> Path:
        """Return the file that holds what the program on a host has printed."""
        return self._stage.logs / "programs" / f"{self.name}-{host}.log"

    def play(self, phase: str) -> None:
        """Start the programs; returns once all have been. Raises TrafficError for one that cannot be."""
        with self._programs.asking:
            self._programs.order(Play(phase))
            self._programs.await_ready("start of the program", START_TIMEOUT_S)
            self._users.all_started()

    def halt(self) -> Records:
        """End the programs and return a row of each. Raises TrafficError if one has ended with another code than 0."""
        records = Records()
        with self._programs.asking:
            self._programs.order(Halt())
            found: Mapping[NodeId, Any] = self._programs.collect("end of the program", START_TIMEOUT_S)
        for rows in found.values():
            records.extend(rows)
        return records

    def close(self) -> None:
        """End whatever still runs."""
        self._programs.close()


class EndingProgramJob(ProgramJob):
    """A program on each of ``hosts`` that ends by itself, however long that takes: its phase is over then
    (:class:`traffic.job.FiniteJob`)."""

    timeout_s = 3600.0
    """How long it may take, in the run's time."""

    def finish(self) -> None:
        """Return once all programs have ended by themselves. Raises TrafficError if one has not in time."""
        with self._programs.asking:
            self._programs.order(AwaitEnd(self.timeout_s))
            self._programs.await_ready("end of the program", self.timeout_s + START_TIMEOUT_S)
