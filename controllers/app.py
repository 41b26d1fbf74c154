"""The thin Ryu app: installs a saved route plan on the switches that it names, and answers for it over REST.

==============  ========================================================================
GET             answer
==============  ========================================================================
``/state``      ready, who is expected, connected and installed, what is missing, errors
``/rules``      packets and bytes of every rule of every switch
``/ports``      packets, bytes, drops and errors of every port of every switch
``/counters``   packets and bytes that the rules which drop have dropped, by purpose
==============  ========================================================================

Statistics are asked of the switches when a request comes, never polled; ``?timeout_s=`` limits the wait.
"""
# Ryu has no types, so its classes and decorators are Any.
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ryu import cfg
from ryu.app.wsgi import ControllerBase, Request, Response, WSGIApplication, route
from ryu.base.app_manager import RyuApp
from ryu.controller import ofp_event
from ryu.controller.handler import CONFIG_DISPATCHER, DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3

from controllers import messages
from controllers.plan import RoutePlan
from fabric.errors import ControllerError

cfg.CONF.register_opts([cfg.StrOpt("plan", help="the route plan to install")])

UNPLANNED = "unplanned"
"""The purpose of a rule that a switch has and the plan has not."""
DEFAULT_TIMEOUT_S = 10.0


@dataclass
class Switch:
    """An expected switch that is connected: installed once it answered the barrier behind its rules."""

    datapath: Any
    barrier_xid: int
    is_installed: bool = False


@dataclass
class Question:
    """A request for statistics to several switches, with the parts of their answers so far."""

    unanswered: set[int]
    answers: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    answered: Any = field(default_factory=hub.Event)

    def take(self, dpid: int, part: list[Any], more_follows: bool) -> None:
        """Add a part of one switch's answer."""
        self.answers[dpid] += part
        if not more_follows:
            self.unanswered.discard(dpid)
        if not self.unanswered:
            self.answered.set()


class PlanInstaller(RyuApp):
    """Installs the plan of the option ``plan`` and knows how far it has come."""

    OFP_VERSIONS = (ofproto_v1_3.OFP_VERSION,)
    _CONTEXTS = {"wsgi": WSGIApplication}  # noqa: RUF012  (Ryu's name for what it passes to the constructor)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plan = RoutePlan.load(Path(cfg.CONF.plan))
        self.switches: dict[int, Switch] = {}
        self.cleaned: set[int] = set()
        self.unexpected: set[str] = set()
        self.errors: list[str] = []
        self.started_s = time.monotonic()
        self.ready_after_s: float | None = None
        self._questions: dict[tuple[int, int], Question] = {}
        kwargs["wsgi"].register(Rest, {"installer": self})

    # Installing

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def on_state_change(self, event: Any) -> None:
        """Install a switch that connected, and forget one that is gone."""
        datapath = event.datapath
        if event.state == DEAD_DISPATCHER:
            self._forget(datapath)
        elif datapath.id in self.plan.names:
            self._install(datapath)
        else:
            self.unexpected.add(f"{datapath.id:#x}")
            self.logger.warning("switch with DPID %#x is not in the plan: it gets no rules", datapath.id)

    def _install(self, datapath: Any) -> None:
        """Send all rules and a barrier in one piece: a message at a time would cost a system call each."""
        dpid = datapath.id
        parts = []
        if dpid not in self.cleaned:  # A switch that comes back keeps forwarding, and its counters.
            parts.append(messages.encoded(datapath, messages.delete_all_rules(datapath)))
        for cookie, rule in self.plan.cookies[dpid].items():
            parts.append(messages.encoded(datapath, messages.add_rule(datapath, rule, cookie)))
        barrier = datapath.ofproto_parser.OFPBarrierRequest(datapath)
        parts.append(messages.encoded(datapath, barrier))
        self.cleaned.add(dpid)
        self.switches[dpid] = Switch(datapath, barrier.xid)
        datapath.send(b"".join(parts))
        self.logger.info("%s: %d rules sent", self.plan.names[dpid], len(self.plan.cookies[dpid]))
        hub.sleep(0)  # Let others connect and REST requests in between.

    def _forget(self, datapath: Any) -> None:
        switch = self.switches.get(datapath.id)
        if switch is not None and switch.datapath is datapath:
            del self.switches[datapath.id]
            self.logger.warning("%s: disconnected", self.plan.names[datapath.id])

    @set_ev_cls(ofp_event.EventOFPBarrierReply, MAIN_DISPATCHER)
    def on_barrier_reply(self, event: Any) -> None:
        """Count a switch as installed."""
        switch = self.switches.get(event.msg.datapath.id)
        if switch is None or switch.barrier_xid != event.msg.xid:
            return
        switch.is_installed = True
        if self.is_ready and self.ready_after_s is None:
            self.ready_after_s = time.monotonic() - self.started_s
            self.logger.info("ready after %.3f s: %d rules", self.ready_after_s, self.plan.rule_count)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def on_error(self, event: Any) -> None:
        """Keep what a switch rejects, with the rule if it is one."""
        message, ofproto = event.msg, event.msg.datapath.ofproto
        dpid = message.datapath.id or 0
        kind = ofproto.ofp_error_code_to_str(message.type, message.code)
        rule = self.plan.cookies.get(dpid, {}).get(int.from_bytes(message.data[messages.COOKIE_AT], "big"))
        text = f"{self.plan.names.get(dpid, hex(dpid))}: {kind} for {rule or 'a request'}"
        self.errors.append(text)
        self.logger.error("%s", text)

    @property
    def is_ready(self) -> bool:
        """Whether every expected switch is connected and has all its rules."""
        installed = sum(switch.is_installed for switch in self.switches.values())
        return installed == len(self.plan.names) and not self.errors

    def state(self) -> dict[str, Any]:
        """Return the answer to ``/state``."""
        installed = [switch for switch in self.switches.values() if switch.is_installed]
        return {
            "ready": self.is_ready,
            "policy": self.plan.policy,
            "rules": self.plan.rule_count,
            "expected": len(self.plan.names),
            "connected": len(self.switches),
            "installed": len(installed),
            "missing": [name for dpid, name in self.plan.names.items() if dpid not in self.switches],
            "unexpected": sorted(self.unexpected),
            "errors": self.errors,
            "seconds": self.ready_after_s or time.monotonic() - self.started_s,
        }

    # Asking switches

    @set_ev_cls(ofp_event.EventOFPFlowStatsReply, MAIN_DISPATCHER)
    def on_rule_statistics(self, event: Any) -> None:
        """Add to the answer that someone waits for."""
        self._take(event.msg)

    @set_ev_cls(ofp_event.EventOFPPortStatsReply, MAIN_DISPATCHER)
    def on_port_statistics(self, event: Any) -> None:
        """Add to the answer that someone waits for."""
        self._take(event.msg)

    def _take(self, message: Any) -> None:
        datapath = message.datapath
        question = self._questions.get((datapath.id, message.xid))
        if question is not None:
            question.take(datapath.id, message.body, bool(message.flags & datapath.ofproto.OFPMPF_REPLY_MORE))

    def ask(self, request: Callable[[Any], Any], timeout_s: float) -> dict[int, list[Any]]:
        """Return every connected switch's statistics. Raises ControllerError naming those that stay silent."""
        asked = {dpid: switch.datapath for dpid, switch in sorted(self.switches.items())}
        question = Question(set(asked))
        keys = []
        for dpid, datapath in asked.items():
            message = request(datapath)
            keys.append((dpid, datapath.set_xid(message)))
            self._questions[keys[-1]] = question
            datapath.send_msg(message)
        complete = not asked or question.answered.wait(timeout_s)
        for key in keys:
            del self._questions[key]
        if not complete:
            silent = ", ".join(self.plan.names[dpid] for dpid in sorted(question.unanswered))
            raise ControllerError(f"no statistics from {silent} within {timeout_s:g} s; see the log of ovs-vswitchd")
        return {dpid: question.answers[dpid] for dpid in asked}

    def rules(self, timeout_s: float, drops_only: bool = False) -> dict[str, list[dict[str, Any]]]:
        """Return the counters of the rules that each switch has, by its name."""
        answers = self.ask(lambda datapath: messages.rule_statistics_request(datapath, drops_only), timeout_s)
        return {
            self.plan.names[dpid]: [messages.rule_statistics(one, self._purpose(dpid, one.cookie)) for one in found]
            for dpid, found in answers.items()
        }

    def _purpose(self, dpid: int, cookie: int) -> str:
        rule = self.plan.cookies[dpid].get(cookie)
        return rule.purpose if rule else UNPLANNED

    def ports(self, timeout_s: float) -> dict[str, list[dict[str, int | None]]]:
        """Return the counters of each switch's numbered ports, by its name."""
        answers = self.ask(messages.port_statistics_request, timeout_s)
        numbered = ofproto_v1_3.OFPP_MAX
        return {
            self.plan.names[dpid]: [messages.port_statistics(one) for one in found if one.port_no <= numbered]
            for dpid, found in answers.items()
        }

    def counters(self, timeout_s: float) -> dict[str, dict[str, dict[str, int]]]:
        """Return the packets and bytes dropped by each switch, by its name and the purpose of the rules."""
        dropped: dict[str, dict[str, dict[str, int]]] = {}
        for name, rules in self.rules(timeout_s, drops_only=True).items():
            sums = dropped.setdefault(name, {})
            for rule in rules:
                total = sums.setdefault(rule["purpose"], {"packets": 0, "bytes": 0})
                total["packets"] += rule["packets"]
                total["bytes"] += rule["bytes"]
        return dropped


class Rest(ControllerBase):
    """The REST answers, each as JSON; 504 and a sentence if a switch does not answer."""

    def __init__(self, request: Any, link: Any, data: Any, **config: Any) -> None:
        super().__init__(request, link, data, **config)
        self.installer: PlanInstaller = data["installer"]

    @route("state", "/state", methods=["GET"])
    def state(self, request: Request, **_: Any) -> Response:
        """Answer at once."""
        return _json(self.installer.state())

    @route("rules", "/rules", methods=["GET"])
    def rules(self, request: Request, **_: Any) -> Response:
        """Ask the switches."""
        return _asked(self.installer.rules, request)

    @route("ports", "/ports", methods=["GET"])
    def ports(self, request: Request, **_: Any) -> Response:
        """Ask the switches."""
        return _asked(self.installer.ports, request)

    @route("counters", "/counters", methods=["GET"])
    def counters(self, request: Request, **_: Any) -> Response:
        """Ask the switches."""
        return _asked(self.installer.counters, request)


def _asked(ask: Callable[[float], object], request: Request) -> Response:
    try:
        timeout_s = float(request.params.get("timeout_s", DEFAULT_TIMEOUT_S))
    except ValueError:
        return _json({"error": f"timeout_s: {request.params['timeout_s']!r} is no number of seconds"}, status=400)
    try:
        return _json(ask(timeout_s))
    except ControllerError as error:
        return _json({"error": str(error)}, status=504)


def _json(value: object, status: int = 200) -> Response:
    return Response(content_type="application/json", text=json.dumps(value), status=status)
