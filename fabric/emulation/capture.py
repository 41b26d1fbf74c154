"""Packets of a port: capture to a pcap file, and bytes by service level as they leave its queues."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fabric.errors import EmulationError, UsageError
from fabric.model.network import Fabric, Port, names_like
from fabric.world.datapath import SBIN

if TYPE_CHECKING:  # Whether a port exists is asked before anything is emulated, and without loading Mininet.
    from fabric.emulation.build import Emulation

if TYPE_CHECKING:
    from fabric.emulation.build import Emulation

_START_TIMEOUT_S = 10.0
_PCAP_HEADER_BYTES = 24
_LAST_PACKETS_S = 0.2


def parse_port(fabric: Fabric, text: str) -> Port:
    """Return the port that ``z0l03:7`` (or ``z0l03-eth7``) means. Raises UsageError if the fabric has none such."""
    wanted = text.replace("-eth", ":")
    port = fabric.port_named(wanted)
    if port is not None:
        return port
    name = wanted.rpartition(":")[0] or wanted
    node = fabric.node_named(name)
    hint = f"{fabric.name} has no {name!r}; {names_like(name, fabric)}"
    if node is not None:
        hint = f"{name} has ports {', '.join(str(port.number) for port in fabric.ports_of[node])}"
    raise UsageError(f"{text!r} is no port; write it like z0l03:7; {hint}")


def require_tcpdump() -> str:
    """Return the path of tcpdump. Raises EmulationError if it is not installed."""
    program = shutil.which("tcpdump", path=f"{os.environ.get('PATH', '')}:{SBIN}")
    if program is None:
        raise EmulationError("tcpdump is not installed, and captures need it; apt-get install tcpdump")
    return program


class Capture:
    """A tcpdump on one port, both directions, from :meth:`start` to :meth:`stop`."""

    def __init__(self, emulation: Emulation, port: Port, path: Path) -> None:
        self.path = path
        self._interface = port.interface
        self._prefix = emulation.net.get(port.node.name).prefix()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start; returns once packets are being captured. Raises EmulationError."""
        program = require_tcpdump()
        command = [*self._prefix, program, "-i", self._interface, "-w", str(self.path), "-U", "-n", "-Z", "root"]
        command.append("--immediate-mode")  # Or packets of the last second may never reach the file.
        self._process = (
            subprocess.Popen(  # In a session of its own: Ctrl-C at Mininet's prompt is for the command there.
                command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.path.exists() or self.path.stat().st_size < _PCAP_HEADER_BYTES:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise EmulationError(f"tcpdump on {self._interface}: did not start within {_START_TIMEOUT_S:g} s")
            time.sleep(0.01)

    def stop(self) -> None:
        """End the capture; the file is whole."""
        if self._process is not None:
            time.sleep(_LAST_PACKETS_S)
            self._process.send_signal(signal.SIGINT)
            self._process.wait(_START_TIMEOUT_S)
            self._process = None
