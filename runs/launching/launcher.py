"""One callable run, whatever its engine: it reports while it goes on, leaves a directory, and returns it read."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from fabric.errors import EmulationError, FabricError, ResultError
from fabric.world.isolation.interrupts import held_back
from fabric.world.virtual.meeting import Meeting
from runs import known_folders
from runs.handover import make_for_user
from runs.launching.cost import CostMeter
from runs.launching.enter import groundwork_as_line, guest_as_text
from runs.launching.events import Event, Note, Recorded, Report, RunFailure, decoded, error_of
from runs.launching.finish import UNDRAWN
from runs.launching.notebook import notebook_progress
from runs.launching.run_result import RunResult
from runs.launching.spec import Prepared, RunSpec, prepare

_SILENCE_S = 1800.0
"""A run that reports nothing for so long is stuck. The longest silence is the planning of a large fabric."""
_ENDING_S = 60.0
"""How long a run that is told to end may take: it stops its programs and switches."""
_LAST_LINES = 30


class Shares(Protocol):
    """What has other machines join a run: see :class:`app.machines.Machines`."""

    def met(self, guests: int, tell: Callable[[str], None]) -> AbstractContextManager[Meeting]:
        """Have them join for the time of a block. Raises UsageError, EmulationError."""
        ...


def launch(spec: RunSpec, report: Report | None = None, machines: Shares | None = None) -> RunResult:
    """Play a run to its end and return its result; ``report`` is called with each event, in the caller's thread. In a
    notebook, a run without one shows its progress below the cell, and the engine that it has. ``machines``: which
    others play guests of the run, too (:class:`experiments.Machines`).

    Several may be called at once, each in a thread of its own, as far as cores and memory go. The verdict is the
    result's: a run whose verdict is `invalid` has one, too. Raises ConfigError or UsageError before anything is
    started, another FabricError if the run fails, and whatever ``report`` raises; then nothing of the run is left.
    """
    prepared = prepare(spec, sys.argv)
    shown = None if report else notebook_progress(prepared.experiment.name, prepared.engine.name)
    heard = report or (shown.report if shown else lambda event: None)
    with shared(prepared, machines, lambda text: heard(Note(text))) as ready:
        result = play(ready, heard)
    if shown:
        shown.end(f"{result.verdict['status']}, {result.directory}")
    return result


def load(directory: Path | str, experiment_folder: Path | str | None = None) -> RunResult:
    """Return a run's directory, read. ``experiment_folder``: where its experiment is, whose code is run, if that does
    not come with the program and you have not run it on this machine. Raises ResultError if there is no result,
    UsageError if the folder is another experiment's."""
    return RunResult(Path(directory), Path(experiment_folder) if experiment_folder is not None else None)


@contextmanager
def shared(prepared: Prepared, machines: Shares | None, tell: Callable[[str], None]) -> Iterator[Prepared]:
    """Yield a run with the machines that share it, for the time of a block. Raises UsageError, EmulationError."""
    if machines is None:
        yield prepared
        return
    with machines.met(prepared.guest.count, tell) as meeting:
        yield replace(prepared, guest=replace(prepared.guest, meeting=meeting))


def play(prepared: Prepared, report: Report) -> RunResult:
    """Play a run that has been checked; see :func:`launch`."""
    directory, foreign = Path(prepared.order.directory), prepared.experiment.foreign_folder
    if foreign is not None and (why := known_folders.keep(foreign)):
        report(Note(why))
    make_for_user(directory.parent)
    entered = ("enter", prepared.engine.name, str(os.getpid()), guest_as_text(prepared.guest))
    with CostMeter(guests=prepared.guest.count) as meter:

        def report_metered(event: Event) -> None:
            meter.report(event)
            report(event)

        given = groundwork_as_line(prepared.groundwork) + prepared.order.encoded()
        recorded = _ended_well(entered, given, report_metered, _passed(prepared))
    if recorded is None:
        raise EmulationError("the run's process ended well and recorded nothing")
    meter.cost().write(Path(recorded))
    kept = f"what was recorded is complete, in {recorded}; to draw it: fabric report {recorded}"
    try:
        how = str(foreign or "") if prepared.draws else UNDRAWN
        _ended_well(("finish", str(os.getpid()), recorded, str(directory), how), b"", report)
    except FabricError as error:
        raise ResultError(f"{error}\n{kept}") from error
    except BaseException:
        report(Note(kept))
        raise
    return RunResult(directory, foreign)


def _passed(prepared: Prepared) -> tuple[int, ...]:
    """Return the descriptors that a run's process needs of this one."""
    return () if (meeting := prepared.guest.meeting) is None else (meeting.descriptor,)


def _ended_well(arguments: Sequence[str], given: bytes, report: Report, passed: Sequence[int] = ()) -> str | None:
    """Wait for a program of :mod:`runs.launching`, and return where it recorded a run. Raises FabricError."""
    with _started(arguments, passed) as process:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # It has ended; its last words say why.
            process.stdin.write(given)
            process.stdin.close()
        last = _reported(process, report)
    if isinstance(last, RunFailure):
        raise error_of(last)
    return last.directory if last is not None else None


@contextmanager
def _started(arguments: Sequence[str], passed: Sequence[int]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of a run for the time of a block, at whose end it has ended. Ctrl-C reaches it by this process
    only: it is in a session of its own."""
    program, *others = arguments
    pipe = subprocess.PIPE
    with ExitStack() as at_end:
        with held_back():
            process = subprocess.Popen(
                [sys.executable, "-m", f"runs.launching.{program}", *others],
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                pass_fds=passed,
                start_new_session=True,
            )
            at_end.push(partial(_leave, process))
        yield process


def _leave(process: subprocess.Popen[bytes], kind: type[BaseException] | None, *_: object) -> None:
    """End a run that an exception ends, in good order for Ctrl-C, and close what led to it."""
    if kind is not None:
        _end(process, signal.SIGINT if issubclass(kind, KeyboardInterrupt) else signal.SIGTERM)
    for stream in (process.stdin, process.stdout, process.stderr):
        assert stream is not None
        with suppress(BrokenPipeError):
            stream.close()


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """End a run in good order, or else at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Output:
    """What a process writes: events, and lines of stderr as notes, in the order in which they come."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._events: queue.SimpleQueue[Event | FabricError | None] = queue.SimpleQueue()
        self._open = 2
        for read, stream in ((self._read_events, process.stdout), (self._read_words, process.stderr)):
            threading.Thread(target=self._all_of, args=(read, stream), daemon=True).start()

    def _all_of(self, read: Callable[[IO[bytes]], None], stream: IO[bytes]) -> None:
        try:
            read(stream)
        except FabricError as error:
            self._events.put(error)
        except ValueError:
            pass  # Closed: nobody waits for more.
        finally:
            self._events.put(None)

    def _read_events(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._events.put(decoded(line))

    def _read_words(self, stream: IO[bytes]) -> None:
        for line in stream:
            text = line.decode(errors="replace").rstrip()
            self.last.append(text)
            self._events.put(Note(text))

    def events(self) -> Iterator[Event]:
        """Yield events until both streams have ended. Raises EmulationError if none comes for long."""
        while self._open:
            try:
                event = self._events.get(timeout=_SILENCE_S)
            except queue.Empty:
                raise EmulationError(
                    f"waited {_SILENCE_S:g} s for an event of the run, and none came; it was ended"
                ) from None
            if isinstance(event, FabricError):
                raise event
            if event is None:
                self._open -= 1
            else:
                yield event


def _reported(process: subprocess.Popen[bytes], report: Report) -> RunFailure | Recorded | None:
    """Report a process's events until it ends; return why it failed, or else where it recorded a run."""
    output = _Output(process)
    last: RunFailure | Recorded | None = None
    for event in output.events():
        if isinstance(event, RunFailure | Recorded):
            last = event
        else:
            report(event)
    code = process.wait(_ENDING_S)
    if not isinstance(last, RunFailure) and code:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        words = "".join(f"\n  {line}" for line in output.last)
        return RunFailure(EmulationError.__name__, f"the run's process ended {how}; its last words:{words or ' none'}")
    return last
