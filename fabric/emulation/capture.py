"""Packets of a port: capture to a pcap file, and bytes by service level as they leave its queues."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from select import POLLERR, poll, select
from typing import TYPE_CHECKING

from fabric.errors import EmulationError, UsageError
from fabric.model.network import Fabric, Port, names_like
from fabric.world.datapath import SBIN
from fabric.world.engine import Engine
from fabric.world.kernel_api.write_through import written_through

if TYPE_CHECKING:  # Whether a port exists is asked before anything is emulated, and without loading Mininet.
    from fabric.emulation.build import Emulation

_START_TIMEOUT_S = 10.0
_LOOK_S = 0.05
_LAST_PACKETS_S = 0.2
_PRIVATE = (Path("/run"), Path("/dev"))
"""Of these directories a world has its own: in real time all of them, of a guest what is directly in them."""
_STARTED = b"listening on"
_COUNTED = re.compile(
    rb"(\d+) packets? captured,?\s(\d+) packets? received by filter,?\s(\d+) packets? dropped by kernel"
)
"""In one line when it is asked (SIGUSR1), in three at its end."""
_LOOPBACK = "lo"
_INTERFACE = re.compile(r"^(.+)-eth(\d+)$")


def parse_port(fabric: Fabric, text: str) -> Port:
    """Return the port that ``z0l03:7`` (or ``z0l03-eth7``) means. Raises UsageError if the fabric has none such."""
    wanted = _INTERFACE.sub(r"\1:\2", text)
    port = fabric.port_named(text) or fabric.port_named(wanted)
    if port is not None:
        return port
    ends = (text, text.rpartition(":")[0], wanted.rpartition(":")[0])
    name = next((end for end in ends if fabric.node_named(end) is not None), ends[-1] or text)
    node = fabric.node_named(name)
    hint = f"{fabric.name} has no {name!r}; {names_like(name, fabric)}"
    if node is not None:
        hint = f"{name} has ports {', '.join(str(port.number) for port in fabric.ports_of[node])}"
    raise UsageError(f"{text!r} is not a port; write it like z0l03:7; {hint}")


def require_tcpdump() -> str:
    """Return the path of tcpdump. Raises EmulationError if it is not installed."""
    program = shutil.which("tcpdump", path=f"{os.environ.get('PATH', '')}:{SBIN}")
    if program is None:
        raise EmulationError("tcpdump is not installed, and captures need it; apt-get install tcpdump")
    return program


def require_file(path: Path, engine: Engine) -> None:
    """Refuse what packets cannot be written to, before anything comes up. Raises UsageError.

    A FIFO made by mkfifo is taken in real time: a guest's kernel would have one of its own by that name.
    """
    directory = path.absolute().parent
    if not directory.is_dir():
        raise UsageError(f"directory {path.parent} does not exist; make it, or give another file")
    around = [directory.resolve()] if engine.has_own_kernel else [directory.resolve(), *directory.resolve().parents]
    if private := [one for one in _PRIVATE if one in around]:
        raise UsageError(f"{private[0]} is private to a run, and what is written there is lost; give a path elsewhere")
    if path.is_fifo():
        if engine.has_own_kernel:
            raise UsageError(f"{path} is a FIFO, which a guest cannot write to; give a file, or - for stdout")
    elif path.exists() and not path.is_file():
        raise UsageError(f"{path} is neither a file nor a FIFO; give another name, or - for stdout")


def capture_of(emulation: Emulation, port: Port, path: Path) -> Capture:
    """Return a capture of a port, to be started."""
    return Capture(emulation.net.get(port.node.name).prefix(), port.interface, path)


class Capture:
    """A tcpdump on one interface, both directions, from :meth:`start` to :meth:`stop`; who reads the file meanwhile
    sees packets as they pass. ``prefix``: of a command in the interface's network; ``expression``: which packets."""

    def __init__(self, prefix: Sequence[str], interface: str, path: Path, expression: str = "") -> None:
        self.path = path
        self._interface = interface
        self._prefix = prefix
        self._expression = expression
        self._process: subprocess.Popen[bytes] | None = None
        self._file = -1
        self._at_end = ExitStack()

    def start(self) -> None:
        """Start; returns once packets are being captured. Raises EmulationError."""
        program = require_tcpdump()
        command = [*self._prefix, program, "-i", self._interface, "-w", "-", "-U", "-n", "-Z", "root"]
        command.append("--immediate-mode")  # Or packets of the last second may never reach the file.
        command += [self._expression] if self._expression else []
        file = self._file = self._opened()
        self._at_end.callback(os.close, file)
        self._process = (
            subprocess.Popen(  # In a session of its own: Ctrl-C at Mininet's prompt is for the command there.
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, start_new_session=True
            )
        )
        if not self.path.is_fifo():
            self._at_end.enter_context(written_through(file))
        self._await_start(self._process)

    def _opened(self) -> int:
        """Return the file, open; a FIFO once somebody reads it. Raises EmulationError."""
        if not self.path.is_fifo():
            try:
                return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise EmulationError(f"capture of {self._interface}: {self.path}: {error.strerror}") from error
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                fifo = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise EmulationError(f"capture of {self._interface}: {self.path}: {error.strerror}") from error
                if time.monotonic() > deadline:
                    raise EmulationError(
                        f"capture of {self._interface}: waited {_START_TIMEOUT_S:g} s for a reader of the FIFO "
                        f"{self.path}; start it first, e.g. wireshark -k -i {self.path} &"
                    ) from None
                time.sleep(_LOOK_S)
            else:
                os.set_blocking(fifo, True)
                return fifo

    def _has_no_reader(self) -> bool:
        """Whether nobody reads the FIFO any more; tcpdump hears of that with its next packet, if there is one."""
        looked = poll()
        looked.register(self._file, 0)
        return any(event & POLLERR for _, event in looked.poll(0))

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        deadline, said = time.monotonic() + _START_TIMEOUT_S, b""
        while _STARTED not in said:
            left_s = max(0.0, deadline - time.monotonic())
            piece = os.read(process.stderr.fileno(), 4096) if select([process.stderr], [], [], left_s)[0] else b""
            if not piece:
                words = said.decode(errors="replace").strip() or "nothing"
                raise EmulationError(
                    f"tcpdump on {self._interface}: did not start within {_START_TIMEOUT_S:g} s; it said: {words}"
                )
            said += piece

    def stop(self) -> str | None:
        """End the capture; the file is whole. Return what is missing in it, if it is known that something is."""
        process, self._process = self._process, None
        with self._at_end:
            return None if process is None else self._ended(process)

    def _ended(self, process: subprocess.Popen[bytes]) -> str | None:
        time.sleep(_LAST_PACKETS_S)
        had_ended = process.poll() is not None or self._has_no_reader()
        said, left = (b"", 0) if had_ended else self._taken(process)
        process.send_signal(signal.SIGINT)
        try:
            said += process.communicate(timeout=_START_TIMEOUT_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()  # It waits for a FIFO's reader.
            process.communicate()
            return f"{self.path} is not whole: its reader has not read on for {_START_TIMEOUT_S:g} s"
        if had_ended:
            why = "its reader has gone" if self.path.is_fifo() else said.decode(errors="replace").strip()
            return f"{self.path} ends early: {why}"
        if counted := _COUNTED.findall(said):
            left += int(counted[-1][2])
        return f"{self.path} lacks {left} packets: tcpdump was too slow for them" if left else None

    def _taken(self, process: subprocess.Popen[bytes]) -> tuple[bytes, int]:
        """Wait until tcpdump has taken all packets that have passed by now, for which it may have to wait for a core:
        at its end it leaves those that it has not. Return what it said meanwhile, and how many are left all the same.
        """
        copies = 2 if self._interface == _LOOPBACK else 1  # There, packets pass the filter as they leave, too.
        deadline, said, passed = time.monotonic() + _START_TIMEOUT_S, b"", None
        while process.poll() is None:
            answer = _counts_of(process, deadline)
            said += answer
            counted = _COUNTED.findall(answer)
            if not counted:
                break
            taken, seen, dropped = map(int, counted[-1])
            passed = seen // copies if passed is None else passed
            if taken + dropped >= passed:
                break
            if time.monotonic() > deadline:
                return said, passed - taken - dropped
            time.sleep(_LOOK_S)
        return said, 0


def _counts_of(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Return what tcpdump says when it is asked for its counts; part of it, or nothing, if it is too late for that."""
    assert process.stderr is not None
    process.send_signal(signal.SIGUSR1)
    said = b""
    while not said.endswith(b"\n") and select([process.stderr], [], [], max(0.0, deadline - time.monotonic()))[0]:
        if not (piece := os.read(process.stderr.fileno(), 4096)):
            break
        said += piece
    return said
