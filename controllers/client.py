"""The controller as a run sees it: a process to start, wait for, query over REST, and stop."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from controllers.app.launcher import DEFAULT_REST_PORT, REST_SOCKET
from controllers.planning.plan import Parts, Purpose, RoutePlan
from fabric.errors import ControllerError
from fabric.model.identity import CONTROLLER_ADDRESS, OPENFLOW_PORT

POLL_INTERVAL_S = 0.02
STOP_TIMEOUT_S = 5.0
STATE_TIMEOUT_S = 5.0
NAMES_SHOWN = 8


@dataclass(frozen=True)
class ControllerState:
    """How far the controller has come. ``seconds`` are from its start until first ready, or until now.

    ``plan`` is the digest of what it has planned for the whole fabric, without failures and moves. ``links_down`` are
    those of which an end is reported dead, ``cuts`` what that cuts into parts (see RoutePlan).
    """

    ready: bool
    plan: str
    policy: str
    repair: str
    expected: int
    installed: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    links_down: tuple[str, ...]
    cuts: Mapping[str, Parts]
    errors: tuple[str, ...]
    seconds: float

    @property
    def connected(self) -> int:
        """How many of the expected switches are connected."""
        return self.expected - len(self.missing)


@dataclass(frozen=True)
class RuleCounters:
    """What one rule of a switch has done; ``purpose`` is the plan's, or ``unplanned``."""

    switch: str
    priority: int
    destination: str | None
    source: str | None
    in_port: int | None
    outputs: tuple[int, ...]
    group: int | None
    purpose: str
    packets: int
    bytes: int


@dataclass(frozen=True)
class PortCounters:
    """What one port of a switch has received and sent; ``port`` is its OpenFlow number.

    None stands for what the switch does not count: on Open vSwitch the drops and errors of patch ports.
    """

    switch: str
    port: int
    received_packets: int | None
    received_bytes: int | None
    received_dropped: int | None
    received_errors: int | None
    sent_packets: int | None
    sent_bytes: int | None
    sent_dropped: int | None
    sent_errors: int | None


@dataclass(frozen=True)
class DropCounters:
    """What one switch has dropped: because no rule matched, because storage traffic must not leave its zone, and

    because failures left no way: the plan says so (``unreachable``), or a search for one ended (``detour``).
    """

    switch: str
    table_miss_packets: int
    table_miss_bytes: int
    guard_packets: int
    guard_bytes: int
    unreachable_packets: int
    unreachable_bytes: int
    detour_packets: int
    detour_bytes: int

    @property
    def packets(self) -> int:
        """All of them."""
        return self.table_miss_packets + self.guard_packets + self.unreachable_packets + self.detour_packets


@dataclass(frozen=True)
class ControllerEvent:
    """What happened in the controller, and when by ``time.monotonic()``, which all processes of a world share.

    ``kind`` is ``connected``, ``disconnected``, ``read`` (a switch said what it has), ``port`` (one failed or came
    back), ``planned``, ``round`` (confirmed by its switches), ``installed`` (the last round), ``moved``, or ``dropped``
    (so many older events, none of them moves, are not kept any more); ``details`` holds what belongs to it.
    """

    at_s: float
    kind: str
    details: Mapping[str, Any]


class ControllerProcess:
    """A controller that does the task in a file. Use as a context manager, or call :meth:`stop`.

    All that it says goes to ``log``. It listens for switches on ``address`` of the network namespace in which it is
    started, by default 127.0.0.1; or, with ``sockets``, to sockets in that directory, without TCP.
    """

    def __init__(
        self,
        task: Path,
        log: Path,
        *,
        openflow_port: int = OPENFLOW_PORT,
        rest_port: int = DEFAULT_REST_PORT,
        address: str = CONTROLLER_ADDRESS,
        sockets: Path | None = None,
    ) -> None:
        self.log = log
        self.openflow_port = openflow_port
        self.rest_port = rest_port
        command = [sys.executable, "-m", "controllers.app.launcher", "--task", str(task)]
        if sockets is None:
            command += ["--openflow-port", str(openflow_port), "--rest-port", str(rest_port), "--address", address]
        else:
            command += ["--sockets", str(sockets)]
        self._sockets = sockets
        self._command = command
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C at Mininet's prompt is for the command there.
            )

    def __enter__(self) -> ControllerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def target(self) -> str:
        """What a bridge's ``set-controller`` takes."""
        return f"tcp:{CONTROLLER_ADDRESS}:{self.openflow_port}"

    def wait_listening(self, timeout_s: float) -> ControllerState:
        """Return the state as soon as the controller answers. Raises ControllerError if it ended or stays silent."""
        return self._wait(timeout_s, lambda state: True)

    def wait_ready(self, timeout_s: float, plan: RoutePlan | None = None) -> ControllerState:
        """Return the state once every switch has all its rules; ``plan``: what the caller has planned for the whole
        fabric, by which it looks for paths.

        Raises ControllerError, naming what is missing and the log, if the controller ended, a switch rejected a rule,
        ``timeout_s`` passed, or the controller has another plan.
        """
        state = self._wait(timeout_s, lambda state: state.ready)
        if plan is not None and state.plan != plan.digest:
            raise ControllerError(
                f"the controller routes by the plan {state.plan} ({state.policy}), and this run looks for paths by "
                f"{plan.digest} ({plan.policy}): they are of two versions of the program, or the task was changed "
                f"meanwhile; run again; {self._see_log}"
            )
        return state

    def _wait(self, timeout_s: float, is_done: Any) -> ControllerState:
        deadline_s = time.monotonic() + timeout_s
        state = None
        while time.monotonic() < deadline_s:
            self._verify_running()
            state = self._state_or_none(deadline_s - time.monotonic()) or state
            if state is not None and state.errors:
                count, first = len(state.errors), state.errors[0]
                raise ControllerError(f"{count} errors of switches, the first: {first}; {self._see_log}")
            if state is not None and is_done(state):
                return state
            time.sleep(POLL_INTERVAL_S)
        raise ControllerError(f"{_what_is_missing(state)} after {timeout_s:g} s; {self._see_log}")

    def _verify_running(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise ControllerError(f"the controller ended with code {code}: {_last_line(self.log)}; {self._see_log}")

    def _state_or_none(self, timeout_s: float) -> ControllerState | None:
        try:
            return self.state(timeout_s)
        except ControllerError:
            return None

    def state(self, timeout_s: float = STATE_TIMEOUT_S) -> ControllerState:
        """Return how far the controller has come. Raises ControllerError if it does not answer."""
        answer = self._get("state", timeout_s)
        del answer["connected"]  # For whoever reads the answer without a sum.
        for key in ("missing", "unexpected", "links_down", "errors"):
            answer[key] = tuple(answer[key])
        answer["cuts"] = {what: tuple(map(tuple, parts)) for what, parts in answer["cuts"].items()}
        return ControllerState(**answer)

    def rules(self, timeout_s: float = 30.0) -> list[RuleCounters]:
        """Return the counters of every rule that the connected switches have, in the switches' order.

        Open vSwitch updates them every half second. Raises ControllerError naming the switches that do not answer.
        """
        return [
            RuleCounters(switch=switch, outputs=tuple(rule.pop("outputs")), **rule)
            for switch, rules in self._get("rules", timeout_s).items()
            for rule in rules
        ]

    def ports(self, timeout_s: float = 30.0) -> list[PortCounters]:
        """Return the counters of every port. Raises ControllerError naming the switches that do not answer."""
        answer = self._get("ports", timeout_s)
        return [PortCounters(switch=switch, **port) for switch, ports in answer.items() for port in ports]

    def counters(self, timeout_s: float = 30.0) -> dict[str, DropCounters]:
        """Return what each switch has dropped by rule, by its name; as late and as sure as :meth:`rules`."""
        return {switch: _drop_counters(switch, found) for switch, found in self._get("counters", timeout_s).items()}

    def events(self, timeout_s: float = STATE_TIMEOUT_S) -> list[ControllerEvent]:
        """Return what has happened since the controller's start, oldest first. Raises ControllerError."""
        found = self._get("events", timeout_s)
        return [ControllerEvent(one.pop("at_s"), one.pop("kind"), one) for one in found]

    def kill(self) -> None:
        """Let the controller crash (SIGKILL); the switches go on by their rules."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Start the controller again after :meth:`kill` or :meth:`stop`; switches connect to it by themselves."""
        if self._process.poll() is None:
            raise ControllerError("the controller still runs; kill or stop it before restart()")
        self._process = self._started()

    def stop(self) -> None:
        """End the controller; a second call does nothing."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def _see_log(self) -> str:
        return f"controller log: {self.log}"

    def _get(self, what: str, timeout_s: float) -> Any:
        # The switches have timeout_s; decoding and writing their answers comes on top.
        connection = self._connection(timeout_s + STATE_TIMEOUT_S)
        try:
            connection.request("GET", f"/{what}?timeout_s={timeout_s}")
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise ControllerError(f"/{what}: the controller does not answer ({error}); {self._see_log}") from error
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise ControllerError(f"/{what}: {_error_in(answer, content)}; {self._see_log}")
        return json.loads(content)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._sockets is None:
            return http.client.HTTPConnection(CONTROLLER_ADDRESS, self.rest_port, timeout=timeout_s)
        return _ToSocket(self._sockets / REST_SOCKET, timeout_s)


class _ToSocket(http.client.HTTPConnection):
    """A connection to a socket that is a file."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _what_is_missing(state: ControllerState | None) -> str:
    if state is None:
        return "the controller does not answer"
    if state.missing:
        names = ", ".join(state.missing[:NAMES_SHOWN]) + (", …" if len(state.missing) > NAMES_SHOWN else "")
        return f"{len(state.missing)} of {state.expected} switches not connected ({names})"
    return f"{state.expected - state.installed} of {state.expected} switches have not confirmed their rules"


def _drop_counters(switch: str, found: dict[str, dict[str, int]]) -> DropCounters:
    nothing = {"packets": 0, "bytes": 0}
    purposes = (Purpose.TABLE_MISS, Purpose.STORAGE_GUARD, Purpose.UNREACHABLE, Purpose.DETOUR)
    sums = [found.get(purpose, nothing) for purpose in purposes]
    return DropCounters(switch, *(one[unit] for one in sums for unit in ("packets", "bytes")))


def _error_in(answer: http.client.HTTPResponse, content: bytes) -> str:
    """Return the sentence in an answer that is no answer."""
    try:
        return str(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.status} {answer.reason}"


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
