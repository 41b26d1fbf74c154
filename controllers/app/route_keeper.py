"""The controller's app: keeps every switch's rules and groups as planned for the fabric's present state.

:mod:`controllers.app.rest` says what it can be asked. Statistics are read from the switches on request, never polled.
A restarted controller reads the rules of the switches and sends only differences: traffic and counters continue.
"""
# The library has no types, so its classes and decorators are Any.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from controllers.app import messages
from controllers.app.asking import Questions
from controllers.app.event_log import EventLog
from controllers.app.openflow import (
    CONFIG_DISPATCHER,
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    App,
    cfg,
    hub,
    ofp_event,
    ofproto_v1_3,
    set_ev_cls,
)
from controllers.planning.plan import BOUNCE_GROUP, DROP_GROUP, Purpose, RoutePlan
from controllers.planning.planner import Moves, Planner
from controllers.planning.updates import Installed, Round, rounds_to
from controllers.routing import Repair, Routing
from controllers.task import Task
from fabric.errors import ControllerError
from fabric.garbage import uncollected
from fabric.model.identity import NodeId
from fabric.model.network import Fabric, Link, Port

cfg.CONF.register_opts([cfg.StrOpt("task", help="the fabric, and how to route in it")])

UNPLANNED = "unplanned"
"""The purpose of a rule that a switch has and the plan has not."""
SWITCH_TIMEOUT_S = 30.0
COUNTED_TIMEOUT_S = 5.0
COALESCE_S = 0.002
"""How long changes of ports are gathered: both ends of a link, or many links, report one after the other."""


class PendingChange:
    """What the keeper's thread waits for: that switches are brought to the plan, perhaps since links have changed."""

    def __init__(self) -> None:
        self.links_changed = False
        self._wanted = hub.Event()

    @property
    def is_pending(self) -> bool:
        """Whether something is wanted that has not been taken."""
        return bool(self._wanted.is_set())

    def want(self, links_changed: bool = False) -> None:
        """Ask for it; ``links_changed``: since links have changed."""
        self.links_changed |= links_changed
        self._wanted.set()

    def wait(self) -> None:
        """Wait until something is wanted."""
        self._wanted.wait()

    def take(self) -> None:
        """Want nothing more, for it is about to be done."""
        self._wanted.clear()
        self.links_changed = False


@dataclass
class Switch:
    """An expected switch that is connected. ``installed`` is None until it said what it has."""

    datapath: Any
    installed: Installed | None = None


class RouteKeeper(App):
    """Keeps the switches of the option ``task`` at its plan."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.event_log = EventLog()
        task = Task.load(Path(cfg.CONF.task))
        self.planner = Planner(task.fabric, task.routing)
        self.switches: dict[int, Switch] = {}
        self.dead_ports: dict[int, set[int]] = {}
        self.moves: dict[tuple[NodeId, str], int] = {}
        self.unexpected: set[str] = set()
        self.questions = Questions(self.names)
        self.plan = self._planned(frozenset(), {})
        self.digest = self.plan.digest
        self.planned_for: tuple[frozenset[Link], dict[tuple[NodeId, str], int]] = (frozenset(), {})
        self.settled = False
        self._pending = PendingChange()

    @cached_property
    def names(self) -> dict[int, str]:
        """The name of each switch that it keeps, by its DPID."""
        return {switch.dpid: switch.name for switch in self.fabric.switches}

    @property
    def fabric(self) -> Fabric:
        """The fabric that it keeps."""
        return self.planner.fabric

    @property
    def routing(self) -> Routing:
        """The policies that it plans by."""
        return self.planner.routing

    def start(self) -> Any:
        """Begin to keep switches at the plan; the library calls it."""
        hub.spawn(self._keep)
        if decide := self.routing.policy.decide:
            # Here: it needs numpy, which takes long to import.
            from controllers.app.adaptive_leaves import AdaptiveLeaves

            hub.spawn(AdaptiveLeaves(self, decide).run)
        return super().start()

    def fail(self, text: str) -> None:
        """Keep an error: it ends the run that waits for this controller."""
        self.event_log.errors.append(text)
        self.logger.error("%s", text)

    def note(self, kind: str, **details: Any) -> None:
        """Add to the log of events."""
        self.event_log.note(kind, **details)

    # What switches tell

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def on_state_change(self, event: Any) -> None:
        """Find out what a switch that connected has, and forget one that is gone: its links are not down for that."""
        datapath = event.datapath
        if event.state == DEAD_DISPATCHER:
            self._forget(datapath)
        elif datapath.id in self.names:
            self.switches[datapath.id] = switch = Switch(datapath)
            self.dead_ports[datapath.id] = {number for number, port in datapath.ports.items() if _is_dead(port)}
            self.note("connected", switch=self.names[datapath.id])
            self.settled = False
            hub.spawn(self._read, switch)
        else:
            self.unexpected.add(f"{datapath.id:#x}")
            self.logger.warning("switch with DPID %#x is not of the fabric: it gets no rules", datapath.id)

    def _forget(self, datapath: Any) -> None:
        switch = self.switches.get(datapath.id)
        if switch is not None and switch.datapath is datapath:
            del self.switches[datapath.id]
            self.questions.forget(datapath.id)
            self.note("disconnected", switch=self.names[datapath.id])
            self.logger.warning("%s: disconnected", self.names[datapath.id])

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def on_port_status(self, event: Any) -> None:
        """Note a port that failed or came back, and have the plan made anew."""
        dpid, port = event.msg.datapath.id, event.msg.desc
        dead = self.dead_ports.get(dpid)
        if dead is None or port.port_no > ofproto_v1_3.OFPP_MAX or (port.port_no in dead) == _is_dead(port):
            return
        (dead.add if _is_dead(port) else dead.discard)(port.port_no)
        self.note("port", switch=self.names[dpid], port=port.port_no, up=not _is_dead(port))
        self.want(links_changed=True)

    @set_ev_cls(
        [ofp_event.EventOFPFlowStatsReply, ofp_event.EventOFPPortStatsReply, ofp_event.EventOFPBarrierReply,
         ofp_event.EventOFPGroupDescStatsReply, ofp_event.EventOFPMeterStatsReply],
        MAIN_DISPATCHER,
    )  # fmt: skip
    def on_answer(self, event: Any) -> None:
        """Add to the answer that someone waits for."""
        self.questions.take(event.msg)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def on_error(self, event: Any) -> None:
        """Keep what a switch rejects, with the rule if it is one."""
        message, ofproto = event.msg, event.msg.datapath.ofproto
        dpid = message.datapath.id or 0
        kind = ofproto.ofp_error_code_to_str(message.type, message.code)
        cookie = int.from_bytes(message.data[messages.COOKIE_AT], "big")
        rule = self.plan.switches[dpid].by_cookie.get(cookie) if dpid in self.plan.switches else None
        text = f"{self.names.get(dpid, hex(dpid))}: {kind} for {rule or 'a request'}"
        self.fail(text)

    # Keeping switches at the plan

    def want(self, links_changed: bool = False) -> None:
        """Have switches brought to the plan for what is known now."""
        self.settled = False
        self._pending.want(links_changed)

    def move(self, moves: Moves) -> None:
        """Have leaves send destinations up by other ports from now on."""
        self.moves.update(moves)
        self.note("moved", moves=[[leaf.name, ip, port] for (leaf, ip), port in moves.items()])
        self.want()

    def links_down(self) -> frozenset[Link]:
        """Return the links of which an end is reported dead."""
        links = self.fabric.link_at
        ports = (Port(s, number) for s in self.fabric.switches for number in self.dead_ports.get(s.dpid, ()))
        return frozenset(links[port] for port in ports if port in links)

    def _read(self, switch: Switch) -> None:
        """Ask a switch for its rules and groups; delete the rules that no plan can say."""
        datapath = switch.datapath
        try:
            found = self._ask_one(datapath, lambda d: messages.rule_statistics_request(d, drops_only=False))
            groups = {one.group_id for one in self._ask_one(datapath, messages.group_request)}
        except ControllerError as error:
            self.fail(str(error))
            return
        if not {DROP_GROUP, BOUNCE_GROUP} <= groups and self.routing.repair is not Repair.WAIT:
            for message in messages.common_groups(datapath):
                datapath.send_msg(message)
        installed = Installed(groups=groups - {DROP_GROUP, BOUNCE_GROUP})
        rules = [one for one in found if not messages.is_common(one)]
        for one in rules:
            key = messages.key_of(one)
            if key is None:
                datapath.send_msg(messages.delete_rule(datapath, one.priority, one.match, one.table_id))
            else:
                installed.rules[key] = one.cookie
        switch.installed = installed
        self.note("read", switch=self.names[datapath.id], rules=len(rules), groups=len(groups))
        self.want()

    def _ask_one(self, datapath: Any, request: Callable[[Any], Any]) -> list[Any]:
        return self.questions.ask([datapath], request, SWITCH_TIMEOUT_S).get(datapath.id, [])

    def _keep(self) -> None:
        """Bring the switches to the plan, again and again, as often as something changes."""
        while True:
            self._pending.wait()
            if self._pending.links_changed:
                hub.sleep(COALESCE_S + self.routing.sweep_delay)
            self._pending.take()
            try:
                self._settle()
            except ControllerError as error:
                self.fail(str(error))
            except Exception as error:  # Whatever it is: a controller that stood still in silence would be worse.
                self.fail(f"{type(error).__name__}: {error}")
                raise

    def _settle(self) -> None:
        """Plan for the links as they are, and send what differs, round by round; give up if links change meanwhile."""
        wanted = self.links_down(), dict(self.moves)
        if self.planned_for != wanted:
            self.plan, self.planned_for = self._planned(*wanted), wanted
        installed = {dpid: switch.installed for dpid, switch in self.switches.items() if switch.installed is not None}
        with uncollected():
            rounds = rounds_to(self.plan, installed, _let_others)
        for number, changes in enumerate(rounds, start=1):
            self._send(changes)
            count = sum(change.count for change in changes.values())
            self.note("round", number=number, of=len(rounds), switches=len(changes), messages=count)
            if self._pending.links_changed:
                return
        self.settled = not self._pending.is_pending
        if rounds:
            self.note("installed", rounds=len(rounds), links_down=_names(wanted[0]))
        if self.is_ready and self.event_log.is_first_ready():
            self.logger.info("ready after %.3f s: %d rules", self.event_log.seconds, self.plan.rule_count)

    def _planned(self, down: frozenset[Link], moves: Moves) -> RoutePlan:
        started_s = time.monotonic()
        self.planner = self.planner.after(down)
        plan = self.planner.plan(moves, _let_others)
        seconds = time.monotonic() - started_s
        self.note("planned", seconds=seconds, links_down=_names(down), rules=plan.rule_count, groups=plan.group_count)
        return plan

    def _send(self, changes: Round) -> None:
        """Tell switches what a round says, and wait until all have confirmed it."""
        told = [(self.switches[dpid], change) for dpid, change in changes.items() if dpid in self.switches]
        batches = []
        for switch, change in told:
            datapath = switch.datapath
            barrier = datapath.ofproto_parser.OFPBarrierRequest(datapath)
            batches.append((datapath, [*messages.changes(change), barrier]))
            _let_others()
        self.questions.ask_each(batches, SWITCH_TIMEOUT_S)
        for switch, change in told:
            if switch.installed is not None:
                change.apply(switch.installed)

    # Answers

    @property
    def is_ready(self) -> bool:
        """Whether every expected switch is connected and has what the plan for the present state says."""
        known = sum(switch.installed is not None for switch in self.switches.values())
        return self.settled and known == len(self.names) and not self.event_log.errors

    def state(self) -> dict[str, Any]:
        """Return the answer to ``/state``."""
        known = [dpid for dpid, switch in self.switches.items() if switch.installed is not None]
        return {
            "ready": self.is_ready,
            "plan": self.digest,
            "policy": self.routing.policy.name,
            "repair": self.routing.repair.value,
            "expected": len(self.names),
            "connected": len(self.switches),
            "installed": len(known) if self.settled else 0,
            "missing": [name for dpid, name in self.names.items() if dpid not in self.switches],
            "unexpected": sorted(self.unexpected),
            "links_down": _names(self.links_down()),
            "cuts": self.plan.cuts,
            "errors": self.event_log.errors,
            "seconds": self.event_log.seconds,
        }

    def history(self) -> list[dict[str, Any]]:
        """Return the answer to ``/events``."""
        return self.event_log.events

    def rules(self, timeout_s: float, drops_only: bool = False) -> dict[str, list[dict[str, Any]]]:
        """Return the counters of the rules that each switch has, by its name."""
        answers = self._ask(lambda datapath: messages.rule_statistics_request(datapath, drops_only), timeout_s)
        return {
            self.names[dpid]: [
                messages.rule_statistics(one, self._purpose(dpid, one.cookie))
                for one in found
                if not messages.is_common(one)
            ]
            for dpid, found in answers.items()
        }

    def _ask(self, request: Callable[[Any], Any], timeout_s: float) -> dict[int, list[Any]]:
        return self.questions.ask([s.datapath for _, s in sorted(self.switches.items())], request, timeout_s)

    def bytes_by_destination(self, switch: NodeId) -> dict[str, int]:
        """Return the bytes that a switch's rules have counted, by the address they match; none, with a warning, if it
        does not answer. It counts half a second late."""
        connected = self.switches.get(switch.dpid)
        if connected is None:
            return {}
        try:
            found = self.questions.ask(
                [connected.datapath],
                lambda d: messages.rule_statistics_request(d, drops_only=False),
                COUNTED_TIMEOUT_S,
            )
        except ControllerError as error:
            self.logger.warning("%s", error)
            return {}
        counted: Counter[str] = Counter()
        for one in found[switch.dpid]:
            key = messages.key_of(one)
            if key is not None and key[1] is not None:
                counted[key[1]] += one.byte_count
        return counted

    def _purpose(self, dpid: int, cookie: int) -> str:
        rule = self.plan.switches[dpid].by_cookie.get(cookie)
        return rule.purpose if rule else UNPLANNED

    def ports(self, timeout_s: float) -> dict[str, list[dict[str, int | None]]]:
        """Return the counters of each switch's numbered ports, by its name."""
        answers = self._ask(messages.port_statistics_request, timeout_s)
        numbered = ofproto_v1_3.OFPP_MAX
        return {
            self.names[dpid]: [messages.port_statistics(one) for one in found if one.port_no <= numbered]
            for dpid, found in answers.items()
        }

    def counters(self, timeout_s: float) -> dict[str, dict[str, dict[str, int]]]:
        """Return the packets and bytes dropped by each switch, by its name and the purpose of the rules."""
        dropped: dict[str, dict[str, dict[str, int]]] = {}
        for name, rules in self.rules(timeout_s, drops_only=True).items():
            sums = dropped.setdefault(name, {})
            for rule in rules:
                if rule["purpose"] != Purpose.UNREACHABLE:  # The meter has counted these.
                    _count(sums, rule["purpose"], rule["packets"], rule["bytes"])
        if self.routing.repair is not Repair.WAIT:
            searches = self.routing.repair is Repair.FAST_FAILOVER
            purpose = Purpose.DETOUR if searches else Purpose.UNREACHABLE
            for dpid, found in self._ask(messages.drop_meter_request, timeout_s).items():
                for one in found:
                    _count(dropped[self.names[dpid]], purpose, one.packet_in_count, one.byte_in_count)
        return dropped


def _count(sums: dict[str, dict[str, int]], purpose: str, packets: int, size_bytes: int) -> None:
    total = sums.setdefault(purpose, {"packets": 0, "bytes": 0})
    total["packets"] += packets
    total["bytes"] += size_bytes


def _let_others() -> None:
    """Let other green threads have their turn: they answer switches, who else give the controller up, and requests."""
    hub.sleep(0)


def _is_dead(port: Any) -> bool:
    return bool(port.state & ofproto_v1_3.OFPPS_LINK_DOWN or port.config & ofproto_v1_3.OFPPC_PORT_DOWN)


def _names(links: Iterable[Link]) -> list[str]:
    return sorted(map(str, links))
