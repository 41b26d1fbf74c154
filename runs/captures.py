"""``--capture PORT=FILE``: captures for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.emulation.capture import capture_of, parse_port, require_file, require_tcpdump
from fabric.errors import UsageError
from fabric.model.network import Fabric, Port
from fabric.world.engine import Engine
from runs.console import tell

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation


ON_STDOUT = "-"
"""What stands for a file: the stdout of a command that can have it there."""


def is_on_stdout(text: str) -> bool:
    """Return whether ``PORT=FILE`` is to write to stdout."""
    return text.partition("=")[2] == ON_STDOUT


def require_captures(fabric: Fabric, wanted: Sequence[str], engine: Engine) -> None:
    """Refuse, before anything comes up, what cannot be captured: a port that is none, a file in no directory. Raises
    UsageError, or EmulationError without tcpdump."""
    for text in wanted:
        _, path = _parsed(fabric, text)
        if is_on_stdout(text):
            who = "only fabric run, replay and exec can have a capture on stdout"
            raise UsageError(f"--capture {text!r}: {who}; give a file, or in real time a FIFO (mkfifo)")
        try:
            require_file(path, engine)
        except UsageError as error:
            raise UsageError(f"--capture {text!r}: {error}") from error
    if wanted:
        require_tcpdump()


@contextmanager
def captures(emulation: Emulation, wanted: Sequence[str]) -> Iterator[None]:
    """Capture ports to pcap files, as ``z0l03:7=leaf.pcap`` asks. Raises UsageError before anything is captured."""
    started = [capture_of(emulation, *_parsed(emulation.fabric, text)) for text in wanted]
    try:
        for capture in started:
            capture.start()
        yield
    finally:
        for capture in started:
            if missing := capture.stop():
                tell(f"capture: {missing}")


def _parsed(fabric: Fabric, text: str) -> tuple[Port, Path]:
    port, equals, file = text.partition("=")
    if not equals or not file:
        raise UsageError(f"--capture {text!r}: write PORT=FILE, e.g. z0l03:7=leaf.pcap")
    try:
        return parse_port(fabric, port), Path(file)
    except UsageError as error:
        raise UsageError(f"--capture {error}") from error
