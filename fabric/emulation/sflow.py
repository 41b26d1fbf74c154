"""sFlow (version 5) of every switch: samples of packets and counters of ports, as Open vSwitch exports them.

A world has no way out to a collector. Its switches send to the world's own loopback address, from where a capture
takes the datagrams into a file, which whoever is outside passes on.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.emulation.capture import Capture, require_file, require_tcpdump
from fabric.errors import UsageError
from fabric.model.identity import NodeId
from fabric.world.engine import Engine

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

DEFAULT_SAMPLING, DEFAULT_POLLING_S = 400, 30
"""Open vSwitch's own."""
MOST = 2**32 - 1
"""Of either: what the protocol has room for."""
PORT = 6343
"""sFlow's own, by IANA."""
AGENTS_FILE, DATAGRAMS_FILE = "sflow-agents.csv", "sflow.pcap"
"""Of a run's logs."""
_LOOPBACK = "127.0.0.1"
_AGENTS = IPv4Address("198.18.0.0")
"""A network for benchmarks of network devices (RFC 2544), which is nobody's: agents' addresses only name switches."""
_LAST_SAMPLES_S = 1.5
"""Agents keep samples until a datagram is full, for a second at most."""


@dataclass(frozen=True)
class SflowExport:
    """What switches export: one in ``sampling`` packets that arrive at them, and the counters of their ports every
    ``polling_s`` seconds. ``file``: where the datagrams go, as pcap."""

    file: str
    sampling: int = DEFAULT_SAMPLING
    polling_s: int = DEFAULT_POLLING_S


def require_sflow(export: SflowExport, engine: Engine) -> None:
    """Refuse, before anything comes up, what cannot be exported. Raises UsageError, or EmulationError without tcpdump,
    which records the datagrams."""
    for what, value in (("sampling", export.sampling), ("polling", export.polling_s)):
        if not 1 <= value <= MOST:
            raise UsageError(f"sFlow {what} {value}: must be 1 to {MOST}")
    try:
        require_file(Path(export.file), engine)
    except UsageError as error:
        raise UsageError(f"sFlow: {error}") from error
    require_tcpdump()


def agents_of(switches: Sequence[NodeId]) -> dict[NodeId, str]:
    """Return the address by which each of a fabric's switches names itself to a collector: 198.18.0.1 for the first,
    and so on."""
    return {switch: str(_AGENTS + number) for number, switch in enumerate(switches, start=1)}


@contextmanager
def exporting(emulation: Emulation, export: SflowExport, logs: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Let every switch export for the time of a block; ``logs`` gets the datagrams and which agent is which switch,
    and ``tell`` what is missing in them. Raises EmulationError."""
    agents = agents_of(emulation.fabric.switches)
    lines = [f"{address},{switch}" for switch, address in agents.items()]
    (logs / AGENTS_FILE).write_text("\n".join(["agent,switch", *lines]) + "\n")
    recorder = Capture([], "lo", Path(export.file), f"udp dst port {PORT}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as nobody:
        # Nobody reads it: where no socket is, the kernel says so to who sends, and every other datagram is not sent.
        nobody.bind((_LOOPBACK, PORT))
        recorder.start()
        try:
            bridges = {switch.name: address for switch, address in agents.items()}
            emulation.switches.export_sflow(bridges, f"{_LOOPBACK}:{PORT}", export.sampling, export.polling_s)
            yield
            time.sleep(_LAST_SAMPLES_S)
        finally:
            if missing := recorder.stop():
                tell(f"sFlow: {missing}")
            shutil.copyfile(export.file, logs / DATAGRAMS_FILE)
