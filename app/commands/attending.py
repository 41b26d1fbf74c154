"""A command that goes on in a child, while this process passes on what the command's world writes into files.

::

    this process ── the command ── its namespaces or guest, which writes
         │                                     │
     followers ────────────────── files in a temporary directory

A world does not reach this process's stdout as it is, nor the user's network; it reaches files in either engine. A
command of real time is replaced by its world, and a user who pipes or redirects is to have all when the command ends:
so this process waits for the command, then for the followers, and ends as the command did.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from fabric.world.isolation.interrupts import ENDING
from fabric.world.isolation.processes import die_with, die_with_sudo
from fabric.world.isolation.temporary import removed_directory

LOOK_S = 0.1
_WAITED_FOR = (*ENDING, signal.SIGCHLD)


class Follower(Protocol):
    """Passes on what comes into a file."""

    def begin(self, command: int) -> None:
        """Begin to follow what the process ``command`` has written."""

    def pass_on(self) -> None:
        """Pass on what has come since; called every LOOK_S."""

    def is_done(self) -> bool:
        """Whether all has been passed on, once the command has ended."""

    def give_up(self) -> None:
        """Pass nothing on any more."""


def attended(make: Callable[[Path], Sequence[Follower]], stdout_is_taken: bool) -> Path:
    """Go on in another process; return the temporary directory whose files the followers ``make(directory)`` follow.

    ``stdout_is_taken``: what the command prints from now on goes to stderr. The caller's first process waits until the
    command has ended and all is passed on. The directory ends with that, whatever the end is.
    """
    die_with_sudo()
    with removed_directory("fabric-stream-") as directory:
        followers = make(directory)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)  # Of both processes, until each is ready.
        command = _forked()
        if command == 0:
            if stdout_is_taken:
                os.dup2(2, 1)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return directory
        code = _attend(command, followers)
    if code < 0:
        _end_by(signal.Signals(-code))
    raise SystemExit(code if code >= 0 else 128 - code)


def _forked() -> int:
    """Return as two processes: in the second one, which ends with the first, 0; in the first the second's number."""
    parent = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # Or both would write it.
    child = os.fork()
    if child == 0:
        die_with(parent)
    return child


def _attend(command: int, followers: Sequence[Follower]) -> int:
    """Wait until a process has ended and followers are done, and return its exit code, negative for a signal.

    Signals that ask for an end go to the process; those of a terminal it has already. Once it has ended, they end the
    followers, who may wait for somebody.
    """
    try:
        for follower in followers:
            follower.begin(command)
    except BaseException:
        os.kill(command, signal.SIGKILL)
        os.waitpid(command, 0)
        raise
    code: int | None = None
    while code is None or not all(follower.is_done() for follower in followers):
        came = signal.sigtimedwait(_WAITED_FOR, LOOK_S)
        asks_to_end = came is not None and came.si_signo in ENDING
        if code is None:
            if came is not None and asks_to_end and came.si_code <= 0:  # Of a process, not of the terminal.
                os.kill(command, came.si_signo)
            ended, status = os.waitpid(command, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if ended else None
        elif asks_to_end:
            for follower in followers:
                follower.give_up()
        for follower in followers:
            follower.pass_on()
    return code


def _end_by(number: signal.Signals) -> None:
    """End this process by a signal, as the command was."""
    if number is not signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
