"""What every switch shall do, as a value: flow rules computed without a controller, saved, and installed by the app.

A plan is static: no rule punts to the controller, floods or learns. Every switch has a table-miss rule that drops, so
whatever is not planned, ARP included, is counted where it arrives.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from fabric.errors import ControllerError

FORMAT_VERSION = 1
DROP_COOKIE_BIT = 1 << 32
"""Set in the cookie of every rule that drops, so that a switch can be asked for its drop counters alone."""


class Priority(IntEnum):
    """The priority of each kind of rule; of the rules that match a packet, the highest acts."""

    TABLE_MISS = 0
    ROUTE = 100
    GUARD = 1000


class Purpose:
    """What a rule is for, as ``/rules`` shows it. A plan may use words of its own beside these."""

    DELIVER = "deliver"
    UP = "up"
    DOWN = "down"
    LEAVE_ZONE = "leave zone"
    ENTER_ZONE = "enter zone"
    STORAGE_GUARD = "storage guard"
    TABLE_MISS = "table miss"


@dataclass(frozen=True, slots=True)
class FlowRule:
    """One OpenFlow rule: packets that match all given fields leave by ``outputs`` (each gets a copy), or are dropped.

    ``destination`` and ``source`` are an IPv4 address or a prefix such as ``10.128.0.0/9``; None matches everything.
    """

    dpid: int
    priority: int
    purpose: str
    destination: str | None = None
    source: str | None = None
    in_port: int | None = None
    outputs: tuple[int, ...] = ()

    @property
    def is_drop(self) -> bool:
        """Whether the packets that match are dropped."""
        return not self.outputs

    def matches(self, in_port: int, source: str, destination: str) -> bool:
        """Return whether an IPv4 packet that came in by ``in_port`` matches."""
        return (
            (self.in_port is None or self.in_port == in_port)
            and (self.destination is None or _is_in(destination, self.destination))
            and (self.source is None or _is_in(source, self.source))
        )


def table_miss(dpid: int) -> FlowRule:
    """Return the rule that drops, and counts, what no other rule of the switch matches."""
    return FlowRule(dpid, Priority.TABLE_MISS, Purpose.TABLE_MISS)


@dataclass(frozen=True)
class RoutePlan:
    """The rules of every switch, by DPID, highest priority first; make one with :meth:`of`.

    ``policy`` says which planner made it; ``names`` holds the name of every DPID.
    """

    policy: str
    names: Mapping[int, str]
    rules: Mapping[int, tuple[FlowRule, ...]]

    @classmethod
    def of(cls, policy: str, names: Mapping[int, str], rules: Iterable[FlowRule]) -> RoutePlan:
        """Return the plan with the rules of each switch in order.

        Raises ControllerError for a rule of an unknown switch, two rules with one match and priority, and a switch
        without a table-miss rule.
        """
        by_dpid: dict[int, list[FlowRule]] = {dpid: [] for dpid in sorted(names)}
        for rule in rules:
            if rule.dpid not in by_dpid:
                raise ControllerError(f"route plan: {rule} is for DPID {rule.dpid:#x}, which no switch has; name it")
            by_dpid[rule.dpid].append(rule)
        for dpid, found in by_dpid.items():
            _verify_rules(names[dpid], found)
        ordered = {dpid: tuple(sorted(found, key=_order)) for dpid, found in by_dpid.items()}
        return cls(policy, {dpid: names[dpid] for dpid in ordered}, ordered)

    @property
    def rule_count(self) -> int:
        """The rules of all switches together."""
        return sum(len(rules) for rules in self.rules.values())

    @cached_property
    def cookies(self) -> dict[int, dict[int, FlowRule]]:
        """The rule that each cookie stands for, by DPID. Cookies are never 0, which is what a stranger's rule has."""
        return {dpid: {_cookie(at, rule): rule for at, rule in enumerate(rules)} for dpid, rules in self.rules.items()}

    def lookup(self, dpid: int, in_port: int, source: str, destination: str) -> FlowRule:
        """Return the rule that acts on an IPv4 packet at a switch; the table-miss rule if no other matches."""
        exact, rest = self._index[dpid]
        candidates = exact.get(destination, []) + rest
        return min((r for r in candidates if r.matches(in_port, source, destination)), key=_order)

    @cached_property
    def _index(self) -> dict[int, tuple[dict[str, list[FlowRule]], list[FlowRule]]]:
        return {dpid: _by_destination(rules) for dpid, rules in self.rules.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON values; fields that match everything are left out."""
        switches = {
            self.names[dpid]: {"dpid": dpid, "rules": [_rule_to_json(rule) for rule in rules]}
            for dpid, rules in self.rules.items()
        }
        return {"format_version": FORMAT_VERSION, "policy": self.policy, "switches": switches}

    @classmethod
    def from_json(cls, data: Any, origin: str = "route plan") -> RoutePlan:
        """Return the plan that :meth:`to_json` gave. Raises ControllerError, naming ``origin``, if ``data`` is none."""
        version = data.get("format_version") if isinstance(data, dict) else None
        if version != FORMAT_VERSION:
            raise ControllerError(
                f"{origin}: format_version {version} is not {FORMAT_VERSION}, which this program reads; plan again"
            )
        try:
            names = {int(switch["dpid"]): name for name, switch in data["switches"].items()}
            rules = list(_rules_from_json(data["switches"]))
            policy = str(data["policy"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ControllerError(f"{origin}: is damaged ({type(error).__name__}: {error}); plan again") from error
        return cls.of(policy, names, rules)

    def save(self, path: Path) -> None:
        """Write the plan to a file. Raises ControllerError if it cannot be written."""
        try:
            path.write_text(json.dumps(self.to_json(), separators=(",", ":")) + "\n")
        except OSError as error:
            raise ControllerError(f"route plan {path}: cannot be written: {error.strerror}; choose another") from error

    @classmethod
    def load(cls, path: Path) -> RoutePlan:
        """Read the plan that :meth:`save` wrote. Raises ControllerError, naming the file, if it holds none."""
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise ControllerError(f"route plan {path}: cannot be read: {error.strerror}; give a saved plan") from error
        except ValueError as error:
            raise ControllerError(f"route plan {path}: is not JSON ({error}); plan again") from error
        return cls.from_json(data, f"route plan {path}")


def _cookie(position: int, rule: FlowRule) -> int:
    return position + 1 | (DROP_COOKIE_BIT if rule.is_drop else 0)


def _verify_rules(name: str, rules: list[FlowRule]) -> None:
    matches = Counter((rule.priority, rule.destination, rule.source, rule.in_port) for rule in rules)
    if len(matches) < len(rules):
        (priority, destination, *_), count = matches.most_common(1)[0]
        raise ControllerError(
            f"route plan: {name} has {count} rules of priority {priority} for {destination}; a switch keeps only one"
        )
    if (int(Priority.TABLE_MISS), None, None, None) not in matches:
        raise ControllerError(f"route plan: {name} has no table-miss rule; add table_miss(dpid)")


def _order(rule: FlowRule) -> tuple[int, int, int, str, int]:
    address, length = _prefix_key(rule.destination)
    return -rule.priority, address, length, rule.source or "", rule.in_port or 0


@cache
def _prefix_key(prefix: str | None) -> tuple[int, int]:
    if prefix is None:
        return -1, 0
    network = ipaddress.IPv4Network(prefix)
    return int(network.network_address), network.prefixlen


def _is_in(address: str, prefix: str) -> bool:
    return address == prefix or ("/" in prefix and ipaddress.IPv4Address(address) in ipaddress.IPv4Network(prefix))


def _by_destination(rules: Iterable[FlowRule]) -> tuple[dict[str, list[FlowRule]], list[FlowRule]]:
    exact: dict[str, list[FlowRule]] = {}
    rest: list[FlowRule] = []
    for rule in rules:
        if rule.destination is None or "/" in rule.destination:
            rest.append(rule)
        else:
            exact.setdefault(rule.destination, []).append(rule)
    return exact, rest


def _rule_to_json(rule: FlowRule) -> dict[str, Any]:
    fields = {
        "priority": int(rule.priority),
        "destination": rule.destination,
        "source": rule.source,
        "in_port": rule.in_port,
        "outputs": list(rule.outputs),
        "purpose": rule.purpose,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _rules_from_json(switches: Mapping[str, Any]) -> Iterator[FlowRule]:
    for switch in switches.values():
        for rule in switch["rules"]:
            yield FlowRule(
                dpid=int(switch["dpid"]),
                priority=int(rule["priority"]),
                purpose=str(rule["purpose"]),
                destination=rule.get("destination"),
                source=rule.get("source"),
                in_port=rule.get("in_port"),
                outputs=tuple(int(port) for port in rule["outputs"]),
            )
