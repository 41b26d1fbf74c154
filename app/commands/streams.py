"""What other programs read while a fabric runs: a capture on stdout (``--capture PORT=-``), for Wireshark, tshark or
``tcpdump -r -``, and what switches export (``--sflow``), for a collector."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.commands.attending import LOOK_S, Follower, attended
from app.commands.collector import Address, CollectorFollower, collector_address
from app.commands.options import SFLOW_FILE
from fabric.emulation.capture import require_tcpdump
from fabric.emulation.sflow import DEFAULT_POLLING_S, DEFAULT_SAMPLING, MOST, SflowExport
from fabric.errors import EmulationError, UsageError
from runs.captures import is_on_stdout
from runs.console import tell

_CAPTURED, _EXPORTED = "port.pcap", "sflow.pcap"


@dataclass(frozen=True)
class Streams:
    """What a run is to write for those who read it meanwhile: captures, and what switches export."""

    captures: list[str]
    sflow: SflowExport | None = None


def begin_streams(captures: Sequence[str], options: argparse.Namespace) -> Streams:
    """Return what a run is to write, with a temporary file in place of stdout and of ``--sflow``'s collector.

    If there is either, the caller is from then on in another process, whose stdout is what stderr is if a capture has
    it (:mod:`app.commands.attending`). Raises UsageError if stdout cannot have it, or the collector is none.
    """
    streamed = [text for text in captures if is_on_stdout(text)]
    if streamed:
        _require_stdout(streamed)
    collector = _collector_of(options)
    if not streamed and collector is None:
        return Streams(list(captures))

    def followers(directory: Path) -> list[Follower]:
        on_stdout: list[Follower] = [CaptureOnStdout(directory / _CAPTURED)] if streamed else []
        return [*on_stdout, *([CollectorFollower(directory / _EXPORTED, collector)] if collector else ())]

    directory = attended(followers, stdout_is_taken=bool(streamed))
    made = [_in_file(text, directory / _CAPTURED) if is_on_stdout(text) else text for text in captures]
    return Streams(made, None if collector is None else _export(options, str(directory / _EXPORTED)))


def begin_world_streams(arguments: Sequence[str], options: argparse.Namespace) -> list[str]:
    """As :func:`begin_streams`, for a command that goes on in a world by its words: change its options, and return its
    words."""
    streams = begin_streams(options.capture, options)
    words = in_words(arguments, options.capture, streams.captures)
    options.capture = streams.captures
    if streams.sflow is not None:
        options.sflow_file = streams.sflow.file
        words[1:1] = [SFLOW_FILE, streams.sflow.file]
    return words


def export_of(options: argparse.Namespace) -> SflowExport | None:
    """Return, in a world, what switches are to export."""
    return None if options.sflow_file is None else _export(options, options.sflow_file)


def words_of_streams(options: argparse.Namespace) -> list[str]:
    """Return the words that name files which a world is to see."""
    return [*options.capture, *([] if options.sflow_file is None else [options.sflow_file])]


def _in_file(capture: str, file: Path) -> str:
    return f"{capture.partition('=')[0]}={file}"


def _export(options: argparse.Namespace, file: str) -> SflowExport:
    sampling, polling_s = options.sflow_sampling, options.sflow_polling
    return SflowExport(
        file,
        DEFAULT_SAMPLING if sampling is None else sampling,
        DEFAULT_POLLING_S if polling_s is None else polling_s,
    )


def _collector_of(options: argparse.Namespace) -> Address | None:
    """Return where ``--sflow`` leads. Raises UsageError."""
    for name, value in (("--sflow-sampling", options.sflow_sampling), ("--sflow-polling", options.sflow_polling)):
        if value is not None and options.sflow is None:
            raise UsageError(f"{name} {value}: is for --sflow HOST:PORT, which is not given; give it, or omit {name}")
        if value is not None and not 1 <= value <= MOST:
            raise UsageError(f"{name} {value}: must be 1 to {MOST}")
    if options.sflow is None:
        return None
    require_tcpdump()  # Which records what switches export.
    return collector_address(options.sflow)


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
            tell("capture: the reader of stdout has gone")

    def is_done(self) -> bool:
        """Whether all was read, or nobody reads any more."""
        return self._tail is None or self._tail.poll() is not None

    def give_up(self) -> None:
        """Leave what has not been read."""
        if self._tail is not None:
            self._tail.kill()
            self._tail.wait()
            self._tail = None
