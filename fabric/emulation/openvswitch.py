"""A run's own Open vSwitch: its database and switch daemons, and every bridge in one transaction."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric.emulation.ovsdb import DATABASE, Database, Operation, insert, map_of, reference, set_of
from fabric.errors import EmulationError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from fabric.world.datapath import SBIN, SWITCH_NICENESS, Datapath
from fabric.world.isolation.priority import set_niceness
from fabric.world.programs.preload import switch_library

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
DAEMONS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl")
_NO_QUEUES = "no queues"
_SYS_PIDFD_GETFD = 438  # The same number on every architecture.
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
_SO_MEMINFO = 55
_SO_MEMINFO_FIRST = struct.Struct("=I")  # SK_MEMINFO_RMEM_ALLOC: what waits to be received.
_MAX_BUFFER_BYTES = 2**30 - 1  # The kernel doubles it into an int.
_RECEIVE_BUFFER_BYTES = 16 * 1024 * 1024
_SOL_PACKET, _PACKET_IGNORE_OUTGOING = 263, 23  # linux/if_packet.h
_START_TIMEOUT_S = 20.0
_FIRST_PACKET_TIMEOUT_S, _LOOK_S = 20.0, 0.02
_TRANSACTION_TIMEOUT_S = 300
_STOP_TIMEOUT_S = 60.0  # Hundreds of ports take a while to let go.
_IDLE_MS = 3_600_000
"""Keep datapath flows for an hour: re-learning them in the middle of a measurement would disturb it."""
_MOST_FLOWS = 20_000_000
"""Datapath flows of all switches together. The first switch on a way has one for each pair of hosts: half a million for
the paper's storage. Open vSwitch begins with 10,000, forgets all at twice that, and keeps 2,000 more every second."""
_FLOWS_STAY = {"max-idle": str(_IDLE_MS), "flow-limit": str(_MOST_FLOWS)}
INACTIVITY_PROBE_MS = 60_000
"""How long a switch hears nothing of its controller before it asks whether that still is there, and then waits for an
answer before it connects anew: five seconds by default, in which a busy machine may not have planned a large fabric."""
_ALLOCATOR = "glibc.malloc.tcache_count=512"
"""Some 230 descriptors are polled in each pass, and remembered in as many small blocks, which the C library is to keep
at hand. What frames need is ``patient_switch.c``'s concern."""

_COUNTER = struct.Struct("=Q")
_MAX_INTERFACES = 1 << 16
"""How many interfaces frames into dead ports are counted for: indices of ports are handed out from 1000 on."""

_libc = ctypes.CDLL(None, use_errno=True)

_PASS_FRAMES, _LONGEST_PASS_S = 0.4, 0.001


@dataclass(frozen=True)
class Bridge:
    """A bridge to be made: the OpenFlow number of each interface in it; its DPID and its controller, if it has one."""

    name: str
    ports: Mapping[str, int]
    mtu_bytes: int
    dpid: int | None = None
    controller: str | None = None


def bridges_of(fabric: Fabric, switches: Iterable[NodeId], controller_of: Callable[[NodeId], str]) -> list[Bridge]:
    """Return switches of a fabric as bridges, their ports numbered as in the fabric."""
    return [
        Bridge(
            switch.name,
            {port.interface: port.number for port in fabric.ports_of[switch]},
            fabric.mtu_bytes,
            switch.dpid,
            controller_of(switch),
        )
        for switch in switches
    ]


def _insertions(bridge: Bridge, datapath: Datapath) -> Iterator[Operation]:
    """Yield the rows of a bridge: its own, and two for each port, and for the one that every bridge has of its name."""
    row: dict[str, Any] = {"name": bridge.name, "datapath_type": datapath.ovs_type, "fail_mode": "secure"}
    if bridge.dpid is not None:
        row["other_config"] = map_of({"datapath-id": f"{bridge.dpid:016x}", "disable-in-band": "true"})
    if bridge.controller is not None:
        row |= {"protocols": "OpenFlow13", "controller": reference(f"controller of {bridge.name}")}
        controller = {"target": bridge.controller, "inactivity_probe": INACTIVITY_PROBE_MS}
        yield insert("Controller", f"controller of {bridge.name}", **controller)
    names = [bridge.name, *bridge.ports]
    row["ports"] = set_of(reference(f"port {name}") for name in names)
    yield insert("Bridge", f"bridge {bridge.name}", **row)
    yield insert("Port", f"port {bridge.name}", name=bridge.name, interfaces=reference(f"interface {bridge.name}"))
    yield insert("Interface", f"interface {bridge.name}", name=bridge.name, type="internal")
    for name, number in bridge.ports.items():
        made = {"name": name, "interfaces": reference(f"interface {name}"), "qos": reference(_NO_QUEUES)}
        yield insert("Port", f"port {name}", **made)
        wanted = {"name": name, "ofport_request": number, "mtu_request": bridge.mtu_bytes}
        yield insert("Interface", f"interface {name}", **wanted)


def _verify_numbers(wanted: Mapping[str, int], rows: Iterable[Mapping[str, Any]]) -> None:
    """Raise EmulationError naming an interface that has not come into its bridge under its number, and why."""
    found = {row["name"]: row for row in rows}
    for name, number in wanted.items():
        has, error = (_one_of(found[name][column]) for column in ("ofport", "error"))
        if has != number:
            why = error or f"it has {has or 'none'} as its port"
            raise EmulationError(f"ovs-vswitchd: {name} is not port {number} of its bridge: {why}; see its log")


def _one_of(value: Any) -> Any:
    """Return an optional value of the database, which says that there is none by an empty set."""
    return None if isinstance(value, list) else value


def pass_period_s(fastest_frame_s: float) -> float:
    """Return how far apart the passes of userspace switching begin at least (``patient_switch.c``).

    A part of the time that the largest frame takes on the fastest link, so that a frame waits a fifth of its own time
    on average, and never so long that the controller would notice.
    """
    return min(_PASS_FRAMES * fastest_frame_s, _LONGEST_PASS_S)


def tool(name: str) -> str:
    """Return the path of an Open vSwitch program. Raises EmulationError with the command that installs it."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":" + SBIN)
    if found is None:
        raise EmulationError(f"{name} is not installed; apt-get install openvswitch-switch")
    return found


def packet_sockets(pid: int) -> list[socket.socket]:
    """Return copies of a process's packet sockets, the caller's to close.

    Raises EmulationError if it may not, or if the process has ended.
    """
    try:
        descriptors = [int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError) as error:
        raise _vanished(pid) from error
    sockets = [sock for descriptor in descriptors if (sock := _duplicated_socket(pid, descriptor)) is not None]
    return [sock for sock in sockets if sock.family == socket.AF_PACKET]


def _receives(sock: socket.socket) -> bool:
    """Whether a packet socket is bound to an interface, as all are that the switch receives by."""
    return bool(sock.getsockname()[0])


def _sockets_once_sending(pid: int) -> list[socket.socket]:
    """Return copies of a switch process's packet sockets, the caller's to close, once one of them is there to send by:
    the process may not have had its turn since packets came. Raises EmulationError."""
    deadline = time.monotonic() + _FIRST_PACKET_TIMEOUT_S
    while True:
        sockets = packet_sockets(pid)
        if not all(map(_receives, sockets)):
            return sockets
        for sock in sockets:
            sock.close()
        if time.monotonic() > deadline:
            raise EmulationError(
                f"ovs-vswitchd: waited {_FIRST_PACKET_TIMEOUT_S:g} s for the packet socket that it sends by, to "
                "enlarge its buffer; it is made with the first packet: send one first"
            )
        time.sleep(_LOOK_S)


class InputQueues:
    """What waits in front of the userspace datapath: frames that have arrived at a port and are not switched yet.

    No switch that is emulated has this queue. It stays near empty as long as the one switching thread keeps up, so it
    says what that thread's CPU time does not: it polls, and is as good as always busy whenever packets flow.
    """

    def __init__(self, pid: int) -> None:
        self._sockets = [sock for sock in packet_sockets(pid) if _receives(sock)]

    def waiting_bytes(self) -> int:
        """Return the memory that the frames waiting at all ports take: some two times their size in bytes."""
        return sum(_SO_MEMINFO_FIRST.unpack(self._meminfo(sock))[0] for sock in self._sockets)

    @staticmethod
    def _meminfo(sock: socket.socket) -> bytes:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _SO_MEMINFO_FIRST.size)


def _duplicated_socket(pid: int, descriptor: int) -> socket.socket | None:
    """Return another process's socket as one of ours; None if that descriptor is not a socket."""
    try:
        target = str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())
    except FileNotFoundError:
        return None  # Closed since it was listed.
    if not target.startswith("socket:"):
        return None
    copy = _duplicated(pid, descriptor)
    if copy is None or not stat.S_ISSOCK(os.fstat(copy).st_mode):
        if copy is not None:
            os.close(copy)
        return None  # Closed, or another file's number, since its name was read.
    return socket.socket(fileno=copy)


def _duplicated(pid: int, descriptor: int) -> int | None:
    """Return another process's descriptor as one of ours; None if it has closed it."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise _vanished(pid) from error
    try:
        copy: int = _libc.syscall(_SYS_PIDFD_GETFD, process, descriptor, 0)
        code = ctypes.get_errno()
    finally:
        os.close(process)
    if copy >= 0:
        return copy
    if code == errno.EBADF:
        return None
    if code == errno.ESRCH:
        raise _vanished(pid)
    needs = "needs Linux 5.6 and CAP_SYS_PTRACE"
    raise EmulationError(f"ovs-vswitchd: its sockets cannot be reached: {os.strerror(code)}; {needs}")


def _vanished(pid: int) -> EmulationError:
    return EmulationError(f"ovs-vswitchd (process {pid}): has ended; see its log in the run's logs")


@dataclass
class OpenVSwitch:
    """The daemons of one world, in ``directory``; logs go to ``log_directory``. ``pass_period_s``: see there."""

    directory: Path
    log_directory: Path
    datapath: Datapath
    pass_period_s: float = 0.0
    _daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def _database_socket(self) -> Path:
        return self.directory / "db.sock"

    @property
    def _dead_port_file(self) -> Path:
        return self.directory / "dead_port_frames"

    def dead_port_frames(self, indices: Iterable[int]) -> int:
        """Return the frames that the userspace datapath has sent into ports that were down, of these interfaces; the
        kernel datapath counts none of them, and this returns 0."""
        if self.datapath is not Datapath.USERSPACE:
            return 0
        counters = self._dead_port_file.read_bytes()
        return sum(_COUNTER.unpack_from(counters, index * _COUNTER.size)[0] for index in indices)

    @property
    def switch_pid(self) -> int:
        """The process of ovs-vswitchd."""
        return self._daemons[1].pid

    def start(self) -> None:
        """Start both daemons, empty of bridges, and point every ovs-* tool of this process at them."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for variable in ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"):
            os.environ[variable] = str(self.directory)
        database = self.directory / "conf.db"
        self._run([tool("ovsdb-tool"), "create", str(database), str(SCHEMA)])
        database_socket = self._database_socket
        self._start("ovsdb-server", str(database), f"--remote=punix:{database_socket}")
        self._wait_for(database_socket, "ovsdb-server")
        with Database(database_socket, _START_TIMEOUT_S) as connection:
            connection.transact([insert(DATABASE, "root", other_config=map_of(_FLOWS_STAY))])
        control = self.directory / "switch.ctl"
        arguments = (f"unix:{database_socket}", "--pidfile", f"--unixctl={control}")
        self._start("ovs-vswitchd", *arguments, environment=self._prepare_datapath())
        self._wait_for(control, "ovs-vswitchd")
        set_niceness(self.switch_pid, SWITCH_NICENESS)

    def controller_at(self, listening: Path, bridge: str) -> str:
        """Return what a bridge calls a controller by that listens to a socket: Open vSwitch calls no socket but the
        one that has the bridge's name, which is made a link to that."""
        own = self.directory / f"{bridge}.controller"
        own.symlink_to(listening)
        return f"unix:{own}"

    def add_bridges(self, bridges: Sequence[Bridge]) -> None:
        """Make bridges as ``adding_bridges`` does, and return when they are there."""
        with self.adding_bridges(bridges):
            pass

    @contextmanager
    def adding_bridges(self, bridges: Sequence[Bridge]) -> Iterator[None]:
        """Have bridges with their ports made, in one transaction, while a block does something else: ovs-vswitchd is
        one thread, and thousands of ports take it seconds. They are there when the block ends.

        Bridges forward nothing that no rule says (``fail_mode=secure``), keep their rules when the controller goes
        away, and leave the queues of their ports alone (``linux-noop``). Raises EmulationError naming a port that
        cannot be made.
        """
        rows = [row for bridge in bridges for row in _insertions(bridge, self.datapath)]
        added = set_of(reference(f"bridge {bridge.name}") for bridge in bridges)
        place = {"op": "mutate", "table": DATABASE, "where": [], "mutations": [["bridges", "insert", added]]}
        with Database(self._database_socket, _TRANSACTION_TIMEOUT_S) as database:
            begun = database.configure([insert("QoS", _NO_QUEUES, type="linux-noop"), *rows, place])
            yield
            database.wait_for(begun)
            numbers = {name: number for bridge in bridges for name, number in bridge.ports.items()}
            _verify_numbers(numbers, database.rows("Interface", ["name", "ofport", "error"]))
        self._control("upcall/set-flow-limit", str(_MOST_FLOWS))

    def export_sflow(self, agents: Mapping[str, str], target: str, sampling: int, polling_s: int) -> None:
        """Let bridges, each with an agent's address, send sFlow to ``target``, an address and port in this world: one
        in ``sampling`` packets that arrive, and counters every ``polling_s`` seconds. Raises EmulationError."""
        operations: list[Operation] = []
        for bridge, agent in agents.items():
            row = {"targets": target, "agent": agent, "sampling": sampling, "polling": polling_s}
            operations.append(insert("sFlow", f"sflow of {bridge}", **row))
            exported = {"sflow": reference(f"sflow of {bridge}")}
            operations.append({"op": "update", "table": "Bridge", "where": [["name", "==", bridge]], "row": exported})
        with Database(self._database_socket, _TRANSACTION_TIMEOUT_S) as database:
            database.wait_for(database.configure(operations))

    def enlarge_buffers(self, send_bytes: int) -> None:
        """Give the userspace datapath's sockets room, without touching a sysctl of the machine; and show those that
        receive no copies of what their ports send, which each frame is otherwise cloned for and a filter throws away.

        All its ports send through one packet socket, and frames that wait in any port's queue are charged to it: with
        the default buffer full, frames for *every* port are lost uncounted. It exists once a packet was sent, which is
        waited for. Raises EmulationError if it cannot be reached.
        """
        for sock in _sockets_once_sending(self.switch_pid):
            if _receives(sock):
                sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
                sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            else:
                sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, min(send_bytes, _MAX_BUFFER_BYTES))
            sock.close()

    def finish_pass(self) -> None:
        """Where a process switches, wait for the end of a pass over its ports: of what waited in front of them by now,
        some has moved. It may have to wait for a core before that. Raises EmulationError."""
        if self.datapath is Datapath.USERSPACE:
            self._control("version")

    def settle_counters(self) -> None:
        """Wait until the counters of rules hold all that the datapath has done; otherwise they lag by half a second."""
        self._control("revalidator/wait")

    def _control(self, *command: str, timeout_s: int = 20) -> str:
        """Return what ovs-vswitchd answers to a command of ovs-appctl. Raises EmulationError."""
        control = self.directory / "switch.ctl"
        return self._run([tool("ovs-appctl"), f"--target={control}", f"--timeout={timeout_s}", *command])

    def _keep_coverage(self) -> None:
        """Write what ovs-vswitchd has counted of itself beside its log: why its datapath dropped packets, among it."""
        with suppress(EmulationError, subprocess.TimeoutExpired):  # It has ended or is stuck; its log says why.
            words = self._control("coverage/show", timeout_s=5)
            (self.log_directory / "ovs-coverage.txt").write_text(words + "\n")

    def stop(self) -> None:
        """End both daemons, the switch first."""
        self._keep_coverage()
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(_STOP_TIMEOUT_S)

    def _prepare_datapath(self) -> dict[str, str]:
        """Return what ovs-vswitchd's C library is to know where it switches itself."""
        if self.datapath is Datapath.KERNEL:
            return {}
        self._dead_port_file.write_bytes(bytes(_MAX_INTERFACES * _COUNTER.size))
        return {
            "LD_PRELOAD": str(switch_library()),
            "FABRIC_DEAD_PORT_FRAMES": str(self._dead_port_file),
            "FABRIC_SWITCH_PERIOD_NS": str(round(self.pass_period_s * 1e9)),
            "GLIBC_TUNABLES": _ALLOCATOR,
        }

    def _start(self, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        log = self.log_directory / f"{name}.log"
        command = [tool(name), *arguments, f"--log-file={log}", "-vconsole:off", "-vfile:info"]
        with log.open("ab") as words:
            daemon = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                env=os.environ | (environment or {}),
                start_new_session=True,  # Ctrl-C at Mininet's prompt is for the command there.
            )
        self._daemons.append(daemon)

    def _wait_for(self, path: Path, name: str) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not path.exists():
            code = self._daemons[-1].poll()
            if code is not None:
                raise EmulationError(f"{name}: ended with {code} at its start; its words: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise EmulationError(f"{name}: no {path} within {_START_TIMEOUT_S:g} s; see {self.log_directory}")
            time.sleep(0.005)

    def _last_words(self, name: str) -> str:
        return (self.log_directory / f"{name}.log").read_text(errors="replace")[-500:]

    @staticmethod
    def _run(command: list[str]) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _TRANSACTION_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise EmulationError(f"{Path(command[0]).name}: failed with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()
