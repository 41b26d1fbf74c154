"""What other programs read while a fabric runs: a capture on stdout (``--capture PORT=-``), for Wireshark, tshark or
``tcpdump -r -``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from experiments.commands.attending import LOOK_S, attended
from experiments.run.captures import is_on_stdout
from experiments.run.console import tell
from fabric.errors import EmulationError, UsageError

_CAPTURED = "port.pcap"


def begin_streams(captures: Sequence[str]) -> list[str]:
    """Return captures to be made, with a temporary file in place of stdout.

    If one is to be on stdout, the caller is from then on in another process, whose stdout is what stderr is
    (:mod:`experiments.commands.attending`). Raises UsageError if stdout cannot have it.
    """
    streamed = [text for text in captures if is_on_stdout(text)]
    if not streamed:
        return list(captures)
    _require_stdout(streamed)
    directory = attended(lambda directory: [CaptureOnStdout(directory / _CAPTURED)], stdout_is_taken=True)
    port = streamed[0].partition("=")[0]
    return [f"{port}={directory / _CAPTURED}" if is_on_stdout(text) else text for text in captures]


def in_words(arguments: Sequence[str], wanted: Sequence[str], made: Sequence[str]) -> list[str]:
    """Return a command's words with the captures that are made in place of those wanted; what follows two dashes is a
    program's own."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    words = list(arguments)
    for old, new in zip(wanted, made, strict=True):
        if old != new:
            words[:end] = [new if word == old else word.replace(f"={old}", f"={new}") for word in words[:end]]
    return words


def _require_stdout(streamed: Sequence[str]) -> None:
    if len(streamed) > 1:
        ports = ", ".join(streamed)
        raise UsageError(f"--capture {ports}: stdout has room for one of them; give the others files")
    try:
        os.fstat(1)
    except OSError:
        raise UsageError(f"--capture {streamed[0]}: stdout is closed; give a file") from None
    if os.isatty(1):
        raise UsageError(
            f"--capture {streamed[0]}: stdout is a terminal, and pcap is not for reading; pass it on: "
            "... | wireshark -k -i - (or | tcpdump -r -), or give a file"
        )


class CaptureOnStdout:
    """Writes a capture to stdout while it grows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tail: subprocess.Popen[bytes] | None = None
        file.touch()

    def begin(self, command: int) -> None:
        """Begin to follow. Raises EmulationError if tail, which does it, cannot be started."""
        words = ["tail", "-c", "+1", "-s", str(LOOK_S), f"--pid={command}", "-f", str(self._file)]
        try:  # In a session of its own: Ctrl-C ends the command, and the capture with that.
            self._tail = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            raise EmulationError(f"tail, which passes the capture on, cannot be started: {error.strerror}") from error

    def pass_on(self) -> None:
        """Say once if nobody reads any more: the command goes on."""
        if self._tail is not None and self._tail.poll():
            self._tail = None
            tell("capture: whoever read it on stdout has gone")

    def is_done(self) -> bool:
        """Whether all was read, or nobody reads any more."""
        return self._tail is None or self._tail.poll() is not None

    def give_up(self) -> None:
        """Leave what has not been read."""
        if self._tail is not None:
            self._tail.kill()
            self._tail.wait()
            self._tail = None
