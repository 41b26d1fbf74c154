"""``--capture PORT=FILE``: captures for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.emulation.capture import Capture, parse_port, require_tcpdump
from fabric.errors import UsageError
from fabric.model.network import Fabric, Port

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation


def require_captures(fabric: Fabric, wanted: Sequence[str]) -> None:
    """Refuse, before anything comes up, what cannot be captured: a port that is none, a file in no directory. Raises
    UsageError, or EmulationError without tcpdump."""
    for text in wanted:
        _, path = _parsed(fabric, text)
        if not path.absolute().parent.is_dir():
            raise UsageError(f"--capture {text!r}: there is no directory {path.parent}; make it, or give another file")
    if wanted:
        require_tcpdump()


@contextmanager
def captures(emulation: Emulation, wanted: Sequence[str]) -> Iterator[None]:
    """Capture ports to pcap files, as ``z0l03:7=leaf.pcap`` asks. Raises UsageError before anything is captured."""
    started = [Capture(emulation, *_parsed(emulation.fabric, text)) for text in wanted]
    try:
        for capture in started:
            capture.start()
        yield
    finally:
        for capture in started:
            capture.stop()


def _parsed(fabric: Fabric, text: str) -> tuple[Port, Path]:
    port, equals, file = text.partition("=")
    if not equals or not file:
        raise UsageError(f"--capture {text!r}: write PORT=FILE, e.g. z0l03:7=leaf.pcap")
    try:
        return parse_port(fabric, port), Path(file)
    except UsageError as error:
        raise UsageError(f"--capture {error}") from error
