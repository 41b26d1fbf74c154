"""Passes on what programs on hosts print, as it comes: every byte of one program, whole lines of several."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from typing import IO, BinaryIO

_PIECE_BYTES = 1 << 16


class Sink:
    """A stream of the command that several programs write to; what is written at once stays together."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.has_gone = False
        """Whoever read the stream has closed it: what programs print has nowhere to go."""
        self._is_within_line = False

    def write(self, text: bytes) -> None:
        """Write, and pass on at once. Raises BrokenPipeError if nobody reads it any more."""
        try:
            with self._lock:
                self._stream.write(text)
                self._stream.flush()
                self._is_within_line = not text.endswith(b"\n")
        except BrokenPipeError:
            self.has_gone = True
            raise

    def end_line(self) -> None:
        """End the line that a program has left without an end, before something of ours follows."""
        if self._is_within_line:
            self.write(b"\n")


def pass_on(process: subprocess.Popen[bytes], stdout: Sink, stderr: Sink, name: bytes | None) -> list[threading.Thread]:
    """Pass on, in threads that end with its streams, what a process prints by pipes.

    ``name``: put before each line, of which the last is then given an end if it has none. Without one (None) every
    byte goes on as it comes; with an empty one lines stay whole, and nothing is added.
    """
    pairs = ((process.stdout, stdout), (process.stderr, stderr))
    threads = [threading.Thread(target=_copy, args=(*pair, name), daemon=True) for pair in pairs if pair[0] is not None]
    for thread in threads:
        thread.start()
    return threads


def _copy(source: IO[bytes], sink: Sink, name: bytes | None) -> None:
    with source:  # A program that prints to a pipe which nobody reads is ended by SIGPIPE, as in a shell.
        try:
            for piece in _pieces(source) if name is None else _lines(source, name):
                sink.write(piece)
        except BrokenPipeError:
            return


def _pieces(source: IO[bytes]) -> Iterator[bytes]:
    while piece := os.read(source.fileno(), _PIECE_BYTES):
        yield piece


def _lines(source: IO[bytes], name: bytes) -> Iterator[bytes]:
    for line in source:
        yield name + line + (b"\n" if name and not line.endswith(b"\n") else b"")
