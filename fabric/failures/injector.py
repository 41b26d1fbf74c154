"""Injects failures of links, in a process of its own, and reports when each really happened.

- A **cut** is one netlink message that sets a switch's end down. Carrier goes on both ends at once; the kernel empties
  both ends' queues (the peer's from its link watch, at once, since veth ends are each other's lower link); packets on
  the wire are lost. The HTB tree, addresses, permanent neighbours and routes stay. A host's end is never set down: its
  routes would go with it.
- A lower **rate** changes the classes of both ends' trees, or lossless ports' options, in place; queued packets stay.
- A **pause** of a NIC changes the options of the lossless port that sends to it.
- A **loss** is a BPF program on both ends (:mod:`fabric.failures.loss`), there from before the first frame until all is
  counted, since the kernel empties a port's queues when one is put on it or taken off.

The process has the priority of switches, and keeps to the schedule by the absolute clock. Around each cut it reads what
bounds the packets that the cut may have lost; :mod:`fabric.measure.census` holds what is missing against it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from fabric.errors import EmulationError, TrafficError
from fabric.failures.loss import LossProgram, remove_request
from fabric.failures.report import Change, FaultReport, LinkChange
from fabric.failures.schedule import WHOLE, FailureSchedule, LinkEvent, LinkState
from fabric.model.identity import NodeId
from fabric.model.lanes import LanePlan
from fabric.model.network import Link, Port, Tier
from fabric.queueing.counters import QueueReader
from fabric.queueing.htb import ShapedPort, rate_requests
from fabric.world import inside
from fabric.world.datapath import SWITCH_NICENESS
from fabric.world.engines import current_engine
from fabric.world.isolation.priority import leave_session
from fabric.world.kernel_api.netlink import LinkCounters, Netlink, Request, link_state
from fabric.world.programs.agents import Agent, AgentHandle, AgentPool

if TYPE_CHECKING:  # Programs in hosts are forked from a process with this module, and Mininet is large.
    from fabric.emulation.build import Emulation

_READY_TIMEOUT_S = 60.0
_RESTORE_TIMEOUT_S = 60.0
"""In real time, how long before an event the process is awake, to read counters; then it sleeps on until it is due. In
virtual time reading takes none."""
_RUNNING_TIMEOUT_S, _RUNNING_POLL_S = 5.0, 0.0002
_POLL_S = 0.002
"""Waiting for an order may last this much longer than asked for: poll counts in milliseconds."""
_IN_FLIGHT_PACKETS = 64
"""A NAPI budget: what the kernel may hold of a port between its queue, the wire and whoever receives."""
_SMALLEST_FRAME_BYTES = 60
ChangeHook = Callable[[Change], None]


@dataclass(frozen=True)
class _End:
    """A link's end as the process reaches it."""

    port: Port
    namespace: Path | None
    shaped: ShapedPort


@dataclass(frozen=True)
class _Setup:
    ends: dict[Port, _End]
    ports_of: dict[NodeId, tuple[Port, ...]]


@dataclass(frozen=True)
class _Prepare:
    """``inner``: the ends of links inside nodes that the schedule has; ``tells``: whether each change is told at
    once."""

    schedule: FailureSchedule
    plan: LanePlan
    inner: dict[Port, _End]
    tells: bool = False


@dataclass(frozen=True)
class _Start:
    at: float


@dataclass(frozen=True)
class _CarryOut:
    """Let links be so at once, which were asked to be at ``at``."""

    events: tuple[LinkEvent, ...]
    at: float
    inner: dict[Port, _End]


@dataclass(frozen=True)
class _Told:
    """Changes that were just made; ``is_by_hand``: as a :class:`_CarryOut` asked for."""

    changes: tuple[LinkChange, ...]
    is_by_hand: bool = False


@dataclass(frozen=True)
class _Restore:
    pass


@dataclass(frozen=True)
class _Release:
    pass


class LinkInjector:
    """The run's end of the process, an :class:`fabric.failures.injection.Injector`. Between :meth:`play` and
    :meth:`restore` links fail as a schedule says.

    Each schedule takes :meth:`prepare`, :meth:`play`, :meth:`restore` and :meth:`release`, in this order. ``hit``:
    hears of each change at once, in a thread; :meth:`carry_out` needs one.
    """

    def __init__(self, pool: AgentPool, emulation: Emulation, hit: ChangeHook | None = None) -> None:
        self._emulation = emulation
        self._hit = hit
        self._listener: _Listener | None = None
        fabric = emulation.fabric
        ends = {port: _end(emulation, port) for port in fabric.link_at}
        setup = _Setup(ends, {switch: fabric.ports_of[switch] for switch in fabric.switches})
        self._dead_frames = 0
        self._has_prepared = self._is_playing = False
        self._agent: AgentHandle = pool.start("faults", "this world", inject, setup, None)
        self._agent.receive(_READY_TIMEOUT_S, "report that it is ready")

    def prepare(self, schedule: FailureSchedule) -> None:
        """Get everything ready for a schedule, while nothing is sent.

        Raises TrafficError, with the reason, if this kernel cannot play it.
        """
        inner, tells = self._inner_ends(schedule), self._hit is not None
        self._agent.send(_Prepare(schedule, self._emulation.lane_plan, inner, tells))
        self._agent.receive(_READY_TIMEOUT_S, "report that it can play the schedule")
        self._has_prepared = True

    def play(self, started: float) -> None:
        """Let the schedule that was prepared begin at ``started`` (``time.monotonic()``); returns at once."""
        self._dead_frames = self._dead_port_frames()
        self._agent.send(_Start(started))
        self._is_playing = True
        if self._hit is not None:
            self._listener = _Listener(self._agent, self._hit)

    def carry_out(self, schedule: FailureSchedule) -> None:
        """Let links be so at once. Raises TrafficError if they are not in time."""
        assert self._listener is not None, "somebody hears of changes, and a schedule plays"
        self._agent.send(_CarryOut(schedule.link_events, time.monotonic(), self._inner_ends(schedule)))
        self._listener.wait_for_hand()

    def _inner_ends(self, schedule: FailureSchedule) -> dict[Port, _End]:
        links = [link for link in schedule.links if link.tier is Tier.INSIDE]
        return {port: _end(self._emulation, port) for link in links for port in link.ports}

    def look_again(self) -> None:
        """Links are there."""

    def restore(self) -> FaultReport:
        """End the schedule wherever it is, make every link whole, and return what happened. Raises TrafficError."""
        if self._listener is not None:
            self._listener.end()
            self._listener = None
        self._agent.send(_Restore())
        self._is_playing = False
        what = "report of the failures"
        while isinstance(report := self._agent.receive(_RESTORE_TIMEOUT_S, what), _Told):
            self._pass_on(report)
        assert isinstance(report, FaultReport), "the process tells changes, then its report"
        return replace(report, refused=report.refused + self._dead_port_frames() - self._dead_frames)

    def _pass_on(self, told: _Told) -> None:
        if self._hit is not None:
            for change in told.changes:
                self._hit(change)

    def release(self) -> None:
        """Take off links what could make them lose, once nothing is sent and all is counted. Raises TrafficError."""
        self._agent.send(_Release())
        self._has_prepared = False
        self._agent.receive(_RESTORE_TIMEOUT_S, "report that links are restored")

    def abandon(self) -> None:
        """Make every link whole and take off what could make it lose, wherever a schedule is. Raises TrafficError."""
        if self._is_playing:
            self.restore()
        if self._has_prepared:
            self.release()

    def _dead_port_frames(self) -> int:
        indices = [index for port, index in self._emulation.indices.items() if port.node.is_switch]
        return self._emulation.switches.dead_port_frames(indices)


class _Listener:
    """Passes on what the process tells, in a thread, from now until :meth:`end`."""

    def __init__(self, agent: AgentHandle, hit: ChangeHook) -> None:
        self._agent, self._hit = agent, hit
        self._by_hand: SimpleQueue[str] = SimpleQueue()
        """A word for each order by hand: empty, or why it is not carried out."""
        self._woken, self._wake = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, daemon=True, name="failures of links")
        self._thread.start()

    def _run(self) -> None:
        while self._woken not in wait([self._woken, self._agent.pipe]):
            try:
                told = self._agent.receive_a(_Told, _RESTORE_TIMEOUT_S, "word of a change")
            except TrafficError as error:  # restore() raises it where the run sees it.
                self._by_hand.put(str(error))
                return
            for change in told.changes:
                self._hit(change)
            if told.is_by_hand:
                self._by_hand.put("")

    def wait_for_hand(self) -> None:
        """Return once an order by hand is carried out. Raises TrafficError if it is not, or not in time."""
        try:
            why = self._by_hand.get(timeout=_RESTORE_TIMEOUT_S)
        except Empty:
            why = f"failures: waited {_RESTORE_TIMEOUT_S:g} s for links to be as asked for: no answer"
        if why:
            raise TrafficError(why)

    def end(self) -> None:
        """End the thread."""
        self._wake.send_bytes(b".")
        self._thread.join()
        self._wake.close()
        self._woken.close()


def _end(emulation: Emulation, port: Port) -> _End:
    return _End(port, emulation.namespace_of_port(port), emulation.shaped_port(port))


def _nobody(told: _Told) -> None:
    """Tell nobody."""


def inject(agent: Agent, setup: _Setup) -> None:
    """Be the process (a program of :mod:`fabric.world.programs.agents`)."""
    leave_session(SWITCH_NICENESS)
    inside.precise_timers()
    agent.report("ready")
    while True:
        order = agent.receive_a(_Prepare)
        whole = replace(setup, ends=setup.ends | order.inner) if order.inner else setup
        hands = _LinkControl(whole, order.schedule, order.plan)
        tells = agent.report if order.tells else _nobody
        agent.report("prepared")
        try:
            start = agent.receive()
            if isinstance(start, _Start):
                _play(agent, hands, order.schedule, start.at, tells)
            agent.report(hands.restored())
            agent.receive()
            hands.release()
        finally:
            hands.close()
        agent.report("released")


def _play(
    agent: Agent,
    hands: _LinkControl,
    schedule: FailureSchedule,
    started: float,
    tells: Callable[[_Told], None] = _nobody,
) -> None:
    """Carry out the schedule, then what is asked for by hand; return when the order to restore has come."""
    lead_s = current_engine().timing.lead_s
    for at_s, events in groupby(schedule.link_events, lambda event: event.at_s):
        due = started + at_s
        if _told_to_stop(agent, due - lead_s):
            return
        hands.look(together := list(events))
        if _told_to_stop(agent, due):
            return
        tells(_Told(hands.apply(together, due)))
    while isinstance(order := agent.receive(), _CarryOut):
        hands.reach(order.inner)
        hands.look(order.events)
        tells(_Told(hands.apply(order.events, order.at), is_by_hand=True))


def _told_to_stop(agent: Agent, until: float) -> bool:
    """Wait until a time, to the microsecond; return early, and True, if the order to restore comes."""
    try:
        agent.receive(max(0.0, until - _POLL_S - time.monotonic()))
    except TimeoutError:
        time.sleep(max(0.0, until - time.monotonic()))
        return False
    return True


class _LinkControl:
    """What reaches into links: sockets in the namespaces of all links of a schedule, opened beforehand."""

    def __init__(self, setup: _Setup, schedule: FailureSchedule, plan: LanePlan) -> None:
        self._setup = setup
        self._plan = plan
        self._ends: Mapping[tuple[Hashable, float], float] = schedule.changes_s
        self._sockets: dict[Path | None, Netlink] = {None: Netlink()}
        for link in schedule.links:
            for port in link.ports:
                self._socket(port)
        self._states: dict[Link, LinkState] = {}
        self._causes: dict[Link, tuple[int, ...]] = {}
        self._programs: dict[Port, LossProgram] = {}
        self._install_programs([event.link for event in schedule.link_events if event.state.loss_fraction])
        self._changes: list[LinkChange] = []
        self._watch = _Watch(setup, self._socket)
        self._waiting: dict[Port, int] = {}

    def _socket(self, port: Port) -> Netlink:
        namespace = self._setup.ends[port].namespace
        if namespace not in self._sockets:
            self._sockets[namespace] = Netlink(namespace)
        return self._sockets[namespace]

    def _install_programs(self, links: Iterable[Link]) -> None:
        """Put programs on links that will lose, which lose nothing yet."""
        for port in dict.fromkeys(port for link in links for port in link.ports):
            shaped, program = self._setup.ends[port].shaped, LossProgram()
            self._programs[port] = program
            program.set_fraction(0.0)
            self._socket(port).send(program.install_requests(shaped.index, shaped.interface))

    def look(self, events: Sequence[LinkEvent]) -> None:
        """Read what is about to be lost: call it shortly before :meth:`apply`."""
        cut = [event.link for event in events if not event.state.up]
        ports = [port for event in events for port in event.link.ports]
        self._waiting = self._watch.before_cut([link for link in cut if self._state(link).up], ports)

    def reach(self, inner: Mapping[Port, _End]) -> None:
        """Know further ends of links inside nodes."""
        self._setup.ends.update(inner)

    def apply(self, events: Sequence[LinkEvent], due: float) -> tuple[LinkChange, ...]:
        """Change links, those of one moment in one burst of messages; return the changes. Raises EmulationError."""
        losing = [event.link for event in events if event.state.loss_fraction]
        self._install_programs([link for link in losing if link.a not in self._programs])
        before = len(self._changes)
        batches: dict[Path | None, list[Request]] = {}
        for event in events:
            for port, request in self._requests(event):
                batches.setdefault(self._setup.ends[port].namespace, []).append(request)
        asked = time.monotonic()
        for namespace in sorted(batches, key=str, reverse=True):  # The world's own, with all cuts, first.
            self._sockets[namespace].send(batches[namespace])
        for event in events:
            self._set_loss(event)
        for event in events:
            self._verify_carrier(event)
        done = time.monotonic()
        for event in events:
            waiting = sum(self._waiting.get(port, 0) for port in event.link.ports)
            self._changes.append(
                LinkChange(
                    event.link, event.state, due, asked, done, event.causes,
                    due_end_s=due + self._ends.get((event.link, event.at_s), math.inf) - event.at_s,
                    waiting_packets=waiting,
                )
            )  # fmt: skip
            was_up, self._states[event.link] = self._state(event.link).up, event.state
            self._causes[event.link] = event.causes
            if event.state.up and not was_up:
                self._watch.after_return(event.link)
        return tuple(self._changes[before:])

    def _state(self, link: Link) -> LinkState:
        return self._states.get(link, WHOLE)

    def _requests(self, event: LinkEvent) -> Iterable[tuple[Port, Request]]:
        old, new = self._state(event.link), event.state
        if (old.rate_fraction, old.paused) != (new.rate_fraction, new.paused):
            for port in event.link.ports:
                is_paused = new.paused and port == switch_end(event.link)
                shaped = self._setup.ends[port].shaped.at_fraction(new.rate_fraction, is_paused)
                yield from ((port, request) for request in rate_requests(shaped, self._plan))
        if old.up != new.up:
            port = switch_end(event.link)
            shaped = self._setup.ends[port].shaped
            yield port, link_state(shaped.index, shaped.interface, new.up)

    def _set_loss(self, event: LinkEvent) -> None:
        for port in event.link.ports:
            if port in self._programs:
                self._programs[port].set_fraction(event.state.loss_fraction)

    def _verify_carrier(self, event: LinkEvent) -> None:
        for port in event.link.ports:
            carrier = self._watch.counters(port).carrier
            if carrier != event.state.up:
                seen, wanted = ("carrier", "none") if carrier else ("no carrier", "carrier")
                raise EmulationError(f"{port}: {seen} after its link was set {event.state}; it should have {wanted}")
            if carrier:
                self._wait_until_it_sends(port)

    def _wait_until_it_sends(self, port: Port) -> None:
        """Wait for the kernel's link watch: the end that was up all the time sends nothing before it has run."""
        deadline = time.monotonic() + _RUNNING_TIMEOUT_S
        while not self._watch.counters(port).running:
            if time.monotonic() > deadline:
                raise EmulationError(f"{port}: sends nothing {_RUNNING_TIMEOUT_S:g} s after its carrier has returned")
            time.sleep(_RUNNING_POLL_S)

    def restored(self) -> FaultReport:
        """Make every link whole and return what happened."""
        broken = [link for link, state in self._states.items() if state != WHOLE]
        events = [LinkEvent(0.0, link, WHOLE, self._causes[link]) for link in broken]
        self._waiting, self._ends = {}, {}
        self.apply(events, ended := time.monotonic())
        by_loss = {port: program.lost()[0] for port, program in self._programs.items()}
        changes = tuple(change.until(ended) for change in self._changes)
        return FaultReport(changes, self._watch.in_switches(), self._watch.on_wires(), by_loss, self._watch.refused)

    def release(self) -> None:
        """Take all programs off their ports."""
        for port in self._programs:
            shaped = self._setup.ends[port].shaped
            self._socket(port).send([remove_request(shaped.index, shaped.interface)])

    def close(self) -> None:
        """Let go of all sockets and programs."""
        for sock in self._sockets.values():
            sock.close()
        for program in self._programs.values():
            program.close()


def switch_end(link: Link) -> Port:
    """Return the end of a link that is set down to cut it: a switch's, so that no host loses its routes."""
    return link.b if link.b.node.is_switch else link.a


class _Watch:
    """Bounds, from counters, what cuts have lost: in switches with a dead port, and on the wires that were cut."""

    def __init__(self, setup: _Setup, socket_of: Callable[[Port], Netlink]) -> None:
        self._setup = setup
        self._socket_of = socket_of
        self._dead: dict[NodeId, set[Port]] = {}
        self._arrived_before: dict[NodeId, int] = {}
        self._dropped_before: dict[Port, int] = {}
        self._switches: Counter[NodeId] = Counter()
        self._wires: Counter[Port] = Counter()
        self.refused = 0
        """Packets that the kernel has counted as sent into switches' ports without carrier."""

    def waiting(self, ports: Sequence[Port]) -> dict[Port, int]:
        """Return how many packets wait in the queues of each port."""
        found: Counter[Port] = Counter()
        for group in _by_namespace(ports, self._setup).values():
            keys, counters = QueueReader().read(self._socket_of(group[0]).dump_qdiscs())
            by_index = {self._setup.ends[port].shaped.index: port for port in group}
            for (index, _), waiting in zip(keys, counters["backlog_packets"].tolist(), strict=True):
                if index in by_index:
                    found[by_index[index]] += waiting
        return dict(found)

    def before_cut(self, links: Sequence[Link], ports: Sequence[Port]) -> dict[Port, int]:
        """Take counters down before links are cut; return how many packets wait in the queues of ports.

        Arrivals are read first: a packet that comes before queues are read is in both, and in the bound.
        """
        cut = [port for link in links for port in link.ports]
        for port in cut:
            end = self._setup.ends[port]
            self._dropped_before[port] = self.counters(port).tx_dropped
            on_the_wire = end.shaped.delay_ns * end.shaped.rate_bps // (8 * 10**9 * _SMALLEST_FRAME_BYTES)
            self._wires[port] += _IN_FLIGHT_PACKETS + on_the_wire
            if port.node.is_switch:
                self._begin(port)
        waiting = self.waiting(ports)
        for port in cut:
            if port.node.is_switch:
                self._switches[port.node] += _IN_FLIGHT_PACKETS + waiting.get(port, 0)
        return waiting

    def _begin(self, port: Port) -> None:
        dead = self._dead.setdefault(port.node, set())
        if not dead:
            self._arrived_before[port.node] = self._arrived(port.node)
        dead.add(port)

    def after_return(self, link: Link) -> None:
        """Take counters down after a link has come back."""
        for port in link.ports:
            dropped = self.counters(port).tx_dropped - self._dropped_before.pop(port)
            self._wires[port] += dropped
            if port.node.is_switch:
                self.refused += dropped
                dead = self._dead[port.node]
                dead.remove(port)
                if not dead:
                    self._switches[port.node] += self._arrived(port.node) - self._arrived_before.pop(port.node)

    def _arrived(self, switch: NodeId) -> int:
        return sum(self.counters(port).rx_packets for port in self._setup.ports_of[switch])

    def counters(self, port: Port) -> LinkCounters:
        """Return the counters and the state of a port."""
        return self._socket_of(port).link(self._setup.ends[port].shaped.index)

    def in_switches(self) -> dict[NodeId, int]:
        """Return the most packets that each switch may have lost."""
        return dict(self._switches)

    def on_wires(self) -> dict[Port, int]:
        """Return the most packets that each direction of a cut link, by its sending port, may have lost."""
        return dict(self._wires)


def _by_namespace(ports: Sequence[Port], setup: _Setup) -> dict[Path | None, list[Port]]:
    found: dict[Path | None, list[Port]] = {}
    for port in ports:
        found.setdefault(setup.ends[port].namespace, []).append(port)
    return found
