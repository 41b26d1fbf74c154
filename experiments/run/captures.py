"""``--capture PORT=FILE``: captures for the time of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.emulation.capture import Capture, parse_port
from fabric.errors import UsageError
from fabric.model.network import Port

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation


@contextmanager
def captures(emulation: Emulation, wanted: Sequence[str]) -> Iterator[None]:
    """Capture ports to pcap files, as ``z0l03:7=leaf.pcap`` asks. Raises UsageError before anything is captured."""
    started = [Capture(emulation, *_parsed(emulation, text)) for text in wanted]
    try:
        for capture in started:
            capture.start()
        yield
    finally:
        for capture in started:
            capture.stop()


def _parsed(emulation: Emulation, text: str) -> tuple[Port, Path]:
    port, equals, file = text.partition("=")
    if not equals or not file:
        raise UsageError(f"--capture {text!r}: write PORT=FILE, e.g. z0l03:7=leaf.pcap")
    return parse_port(emulation.fabric, port), Path(file)
