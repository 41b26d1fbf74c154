"""How a program in the guest asks the user for a line, and how the user's Ctrl-C reaches it.

A guest that waits in the ordinary way is idle, and its clock leaps ahead. So a line is asked for by reading a symbolic
link in the control directory: ``host.c`` answers the kernel's ``readlink()`` of that name, and does not return before
the user has. The kernel is one thread, so the whole guest stands still meanwhile, its clock included, and uses no
CPU time. (A link, because its target is the one thing of which hostfs keeps no copy.)

Ctrl-C is a character on the guest's terminal ``tty1``; its other end is a socket.
"""

from __future__ import annotations

import os
import signal
import socket
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fabric.errors import EmulationError, UsageError
from fabric.world.engine import Ask

LINK = "next-line-of-the-user"
"""``host.c`` knows this name, too."""
LONGEST_LINE_BYTES = 4000
"""A link's target ends before 4096 bytes."""
INTERRUPTS_TO_END = 3
"""So many Ctrl-C without a new prompt end the guest: it may hang."""
TERMINAL = Path("/dev/tty1")
_CTRL_C = b"\x03"
_LINE, _END = "=", "."


def next_line(control: Path) -> str | None:
    """Return, in the guest, the user's next line, None at the end. All of the guest stands still until it comes.

    Raises EmulationError if nobody was to be asked.
    """
    try:
        answer = os.readlink(control / LINK)  # noqa: PTH115 - a line is not a path: Path would tidy it up
    except FileNotFoundError as error:
        raise EmulationError("this guest was started without anybody to ask for a line") from error
    return answer[1:] if answer[:1] == _LINE else None


def take_terminal() -> int:
    """Let, in the guest, Ctrl-C interrupt the calling program, which must be a session's first; return the terminal."""
    terminal = os.open(TERMINAL, os.O_RDWR | os.O_CLOEXEC)  # Which makes it the session's.
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    return terminal


class UserOutside:
    """A file of the user's lines, in the guest: each is asked for when it is read. It has no keys between them."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._silent, self._kept_open = os.pipe()

    def fileno(self) -> int:
        """Return a descriptor that is never readable."""
        return self._silent

    def readline(self) -> str:
        """Return the next line, with its end, and the empty string when there are no more."""
        line = next_line(self._control)
        return "" if line is None else f"{line}\n"


class Dialogue:
    """The host's end: answers the guest's questions by ``ask``, and passes Ctrl-C on while no question is open."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._questions, self.guest_questions = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._keys, self.guest_keys = socket.socketpair()
        self._interrupts: int | None = None
        """Since the last question; None before the first and while one is open: then Ctrl-C is this process's."""

    def fileno(self) -> int:
        """Return the descriptor that is readable when the guest has asked."""
        return self._questions.fileno()

    def answer(self) -> None:
        """Ask the user for the line that the guest has asked for, and hand it over. Raises UsageError if it cannot."""
        if not self._questions.recv(1):
            return  # The guest has ended; its process says so, too.
        self._interrupts = None
        line = self._ask()
        answer = _END.encode() if line is None else os.fsencode(_LINE + line)
        if len(answer) > LONGEST_LINE_BYTES or b"\0" in answer:
            raise UsageError(f"a line of {len(answer)} bytes: the limit is {LONGEST_LINE_BYTES}, and none can be NUL")
        self._interrupts = 0
        self._questions.send(answer)

    @contextmanager
    def open(self, control: Path) -> Iterator[None]:
        """Let the guest of this control directory ask for the time of a block."""
        (control / LINK).symlink_to("?")
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            for end in (self._questions, self.guest_questions, self._keys, self.guest_keys):
                end.close()

    def _interrupted(self, number: int, frame: FrameType | None) -> Any:
        if self._interrupts is None or self._interrupts + 1 >= INTERRUPTS_TO_END:
            signal.default_int_handler(number, frame)
        self._interrupts = (self._interrupts or 0) + 1
        self._keys.send(_CTRL_C)
