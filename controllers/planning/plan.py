"""The rules of every switch, as a value: flow rules and groups computed without a controller, installed by the app.

No rule punts to the controller, floods or learns. Every switch has a table-miss rule that drops, so whatever is not
planned, ARP included, is counted where it arrives. Rules and groups are identified by their content (a digest is a
rule's cookie and a group's number), so a restarted controller can compare a switch's rules with the plan.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from typing import NamedTuple

from fabric.errors import ControllerError
from fabric.model.drawing import code_of

DROP_COOKIE_BIT = 1 << 32
"""Set in the cookie of every rule that drops, so that a switch can be asked for its drop counters alone."""
DROP_GROUP = 1
"""The group, present where there are groups, that drops what has no live way left: it sends it to the drop table."""
DROP_METER = 1
"""The meter that counts what the drop table drops: in the datapath, as it drops it. What rules and groups count is
derived from the datapath's flows twice a second, and what a flow did since then is credited to the rules that it
follows next: to the one that delivers, when a link returns."""
BOUNCE_GROUP = 2
"""The group, present where there are groups, that sends a packet back where it came from, marked as bounced."""
_BITS_OF_MANY = 16
"""A prefix of at most so many bits has the NICs of many nodes."""
_FIRST_GROUP = 1 << 8
_GROUPS = 0xFFFFFF00 - _FIRST_GROUP  # OpenFlow 1.3: numbers above OFPG_MAX = 0xffffff00 are reserved.
MAIN_TABLE, WAYS_TABLE, DROP_TABLE = 0, 1, 2
"""Packets meet the main table first; one that a rule there hashed meets the table of the ways of its hash. The drop
table is not a part of plans: it has one rule, present where there are groups, which drops."""


class Priority(IntEnum):
    """The priority of each kind of rule; of the rules that match a packet, the highest acts."""

    TABLE_MISS = 0
    ROUTE = 100
    BY_SOURCE = 150
    BOUNCED = 200
    LAST_HOP = 300
    DETOUR = 400
    PLAIN = 500
    ASTRAY = 600
    GUARD = 1000


class Purpose:
    """What a rule is for, as ``/rules`` shows it. A plan may use words of its own beside these."""

    DELIVER = "deliver"
    UP = "up"
    DOWN = "down"
    LEAVE_ZONE = "leave zone"
    ENTER_ZONE = "enter zone"
    WAY = "way"
    BOUNCED = "bounced"
    DETOUR = "detour"
    STORAGE_GUARD = "storage guard"
    UNREACHABLE = "unreachable"
    TABLE_MISS = "table miss"


class Mark(NamedTuple):
    """Bits of a packet's Ethernet source address, which no host reads: ``value`` where ``mask`` is 1 (48 bits each)."""

    value: int
    mask: int

    def matches(self, address: int) -> bool:
        """Whether an address carries this mark."""
        return address & self.mask == self.value

    def written(self, address: int) -> int:
        """Return an address with this mark put on it."""
        return address & ~self.mask | self.value


BOUNCED = Mark(0x80 << 32, 0x80 << 32)
"""What a switch puts on a packet that it sends back."""


class Bucket(NamedTuple):
    """One choice of a group: send out of ``port``, alive while that port is, after putting ``mark`` on the packet."""

    port: int
    mark: Mark | None = None


@dataclass(frozen=True)
class FailoverGroup:
    """A fast-failover group: a packet takes the first bucket whose port is alive; else it bounces, or is dropped."""

    dpid: int
    buckets: tuple[Bucket, ...]
    bounces: bool = False

    @cached_property
    def number(self) -> int:
        """The group's number: a digest of what it says."""
        return _group_number(self.buckets, self.bounces)


@lru_cache(maxsize=1 << 16)
def _group_number(buckets: tuple[Bucket, ...], bounces: bool) -> int:
    """Return the number of a group; switches of one kind have the same groups."""
    return _FIRST_GROUP + _digest(repr((buckets, bounces))) % _GROUPS


@dataclass(frozen=True, slots=True)
class Hashing:
    """An action: hash a packet's 5-tuple (see controllers.planning.ecmp), and let the ways table send it one of
    ``ways`` ways.

    ``choice`` says which set of ways, so that switches keep several.
    """

    choice: int
    basis: int
    ways: int

    def code(self, number: int) -> int:
        """Return how the rules of the ways call the way of a number."""
        return number


@dataclass(frozen=True, slots=True)
class Spraying(Hashing):
    """An action: choose for each packet, by the number that the port has drawn at which it arrived
    (:mod:`fabric.model.drawing`). Nothing is hashed, so there is no ``basis``."""

    basis: int = field(default=0, init=False)

    def code(self, number: int) -> int:
        """Return the digits of the way's number."""
        return code_of(self.ways, number)


@dataclass(frozen=True, slots=True)
class FlowRule:
    """One OpenFlow rule: packets that match all given fields leave by ``outputs`` (each gets a copy), or are dropped.

    ``destination`` and ``source`` are an IPv4 address or a prefix such as ``10.128.0.0/9``; None matches everything.
    Instead of outputs, ways may be ``chosen_by`` a group, which is given by its number, by hashing, or by a drawn
    number. With outputs, ``writes`` is a mark that it puts on packets. ``way`` matches a choice and one of its ways, in
    the ways table. ``distance`` is what the packet has still to go, in the planner's measure: updates go by it.
    """

    dpid: int
    priority: int
    purpose: str
    destination: str | None = None
    source: str | None = None
    in_port: int | None = None
    outputs: tuple[int, ...] = ()
    mark: Mark | None = None
    way: tuple[int, int] | None = None
    chosen_by: int | Hashing | None = None
    distance: int = field(default=0, compare=False)
    writes: Mark | None = None

    @property
    def group(self) -> int | None:
        """The number of the group that chooses."""
        return None if isinstance(self.chosen_by, Hashing) else self.chosen_by

    @property
    def hashing(self) -> Hashing | None:
        """The hashing that chooses."""
        return self.chosen_by if isinstance(self.chosen_by, Hashing) else None

    @property
    def is_drop(self) -> bool:
        """Whether the packets that match are dropped."""
        return not self.outputs and self.chosen_by is None

    @property
    def readdresses(self) -> bool:
        """Whether it addresses frames to the NIC that they are delivered to; the parts of a node have all the same."""
        return self.purpose == Purpose.DELIVER and self.destination is not None and "/" not in self.destination

    @property
    def table(self) -> int:
        """The table it is in."""
        return MAIN_TABLE if self.way is None else WAYS_TABLE

    @property
    def key(self) -> RuleKey:
        """What a switch keeps only one rule for."""
        return self.priority, self.destination, self.source, self.in_port, self.mark, self.way

    @property
    def cookie(self) -> int:
        """A digest of what the rule says; never 0, which is what a stranger's rule has."""
        said = repr(
            (int(self.priority), *self.key[1:], self.outputs, self.group, self.hashing, self.purpose, self.writes)
        )
        digest = _digest(said) & ~DROP_COOKIE_BIT | 1
        return digest | DROP_COOKIE_BIT if self.is_drop else digest

    def matches(self, in_port: int, source: str, destination: str, address: int = 0) -> bool:
        """Return whether an IPv4 packet that came in by ``in_port``, with that Ethernet source address, matches."""
        return (
            (self.in_port is None or self.in_port == in_port)
            and (self.mark is None or self.mark.matches(address))
            and (self.destination is None or _is_in(destination, self.destination))
            and (self.source is None or _is_in(source, self.source))
        )


RuleKey = tuple[int, str | None, str | None, int | None, Mark | None, tuple[int, int] | None]
"""Priority, destination, source, port of arrival, mark and way: the match of a rule."""


def is_route(key: RuleKey) -> bool:
    """Whether a rule is a destination's route, which has one rule at a switch, whatever its priority."""
    _, destination, source, in_port, mark, way = key
    others = source is None and in_port is None and mark is None and way is None
    return others and destination is not None and _is_of_one_nic(destination)


def _is_of_one_nic(destination: str) -> bool:
    """Whether a destination is a NIC's: an address, or the block of those of a node's parts."""
    _, _, bits = destination.partition("/")
    return not bits or int(bits) > _BITS_OF_MANY


def rule_of_key(dpid: int, key: RuleKey) -> FlowRule:
    """Return a rule that matches what ``key`` says, and drops."""
    priority, destination, source, in_port, mark, way = key
    return FlowRule(dpid, priority, "", destination, source, in_port, mark=mark, way=way)


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def table_miss(dpid: int) -> FlowRule:
    """Return the rule that drops, and counts, what no other rule of the switch matches."""
    return FlowRule(dpid, Priority.TABLE_MISS, Purpose.TABLE_MISS)


_TABLE_MISS = table_miss(0).key

Parts = tuple[tuple[str, ...], ...]
"""The parts that something is cut into, each the addresses of the NICs in it."""


@dataclass(frozen=True)
class SwitchPlan:
    """What one switch shall do: its rules, highest priority first, and its groups by number; make one with :meth:`of`.

    What is worked out from it is kept with it, so plans that share a switch's part share that, too.
    """

    rules: tuple[FlowRule, ...]
    groups: Mapping[int, FailoverGroup]

    @classmethod
    def of(cls, name: str, rules: Iterable[FlowRule], groups: Iterable[FailoverGroup] = ()) -> SwitchPlan:
        """Return the plan with the rules in order. Raises ControllerError, as RoutePlan.of does, naming the switch."""
        made = cls(tuple(sorted(rules, key=_order)), {group.number: group for group in groups})
        if len(made.by_key) < len(made.rules):
            (priority, destination, *_), count = Counter(rule.key for rule in made.rules).most_common(1)[0]
            raise ControllerError(
                f"route plan: {name} has {count} rules of priority {priority} for {destination}; "
                "a switch keeps only one"
            )
        if _TABLE_MISS not in made.by_key:
            raise ControllerError(f"route plan: {name} has no table-miss rule; add table_miss(dpid)")
        for rule in made.rules:
            if rule.group is not None and rule.group not in made.groups:
                raise ControllerError(f"route plan: {name} has no group {rule.group}, which {rule} names; add it")
        return made

    @cached_property
    def by_key(self) -> dict[RuleKey, FlowRule]:
        """The rule of each match."""
        return {rule.key: rule for rule in self.rules}

    @cached_property
    def cookies(self) -> dict[RuleKey, int]:
        """The cookie of each match's rule: what a switch shall have."""
        return {key: rule.cookie for key, rule in self.by_key.items()}

    @cached_property
    def by_cookie(self) -> dict[int, FlowRule]:
        """The rule that each cookie stands for."""
        return {cookie: self.by_key[key] for key, cookie in self.cookies.items()}

    @cached_property
    def digest(self) -> bytes:
        """What tells this plan from others: its rules' cookies and its groups' numbers, made one."""
        said = (list(self.cookies.values()), sorted(self.groups))
        return blake2b(repr(said).encode(), digest_size=8).digest()

    @cached_property
    def routes(self) -> dict[str, RuleKey]:
        """The match of the one rule that is each destination's route."""
        return {key[1]: key for key in self.by_key if is_route(key) and key[1] is not None}

    def lookup(self, in_port: int, source: str, destination: str, address: int = 0) -> FlowRule:
        """Return the rule of the main table that acts on an IPv4 packet; see RoutePlan.lookup."""
        exact, rest = self._index
        alike = [exact.get(destination, []), rest]
        for bits in self._block_bits:
            alike.append(exact.get(str(ipaddress.ip_network(f"{destination}/{bits}", strict=False)), []))
        found = (
            next((place for place in places if self.rules[place].matches(in_port, source, destination, address)), None)
            for places in alike
        )
        return self.rules[min(place for place in found if place is not None)]  # The table-miss rule matches all.

    @cached_property
    def _index(self) -> tuple[dict[str, list[int]], list[int]]:
        return _by_destination(self.rules)

    @cached_property
    def _block_bits(self) -> frozenset[int]:
        """The lengths of the prefixes of blocks that are destinations."""
        return frozenset(int(one.partition("/")[2]) for one in self._index[0] if "/" in one)

    @cached_property
    def _ways(self) -> dict[int, list[FlowRule]]:
        found: dict[int, list[FlowRule]] = {}
        for rule in self.rules:
            if rule.way is not None:
                found.setdefault(rule.way[0], []).append(rule)
        return {choice: sorted(rules, key=lambda rule: rule.way or ()) for choice, rules in found.items()}

    def ways(self, rule: FlowRule) -> list[int]:
        """Return the ports by which the packets of a rule leave while all ports are alive; several if it hashes."""
        if rule.hashing is not None:
            return [port for way in self._ways[rule.hashing.choice] for port in self.ways(way)]
        if rule.group is not None:
            return [bucket.port for bucket in self.groups[rule.group].buckets[:1]]
        return list(rule.outputs)


@dataclass(frozen=True)
class RoutePlan:
    """What every switch shall do, by DPID; make one with :meth:`of`.

    ``policy`` says which planner made it; ``names`` holds the name of every DPID. ``cuts`` holds what failures have cut
    (``fabric``, or ``storage of zone 0``) with the addresses in each of its parts: empty if all that may reach each
    other do.
    """

    policy: str
    names: Mapping[int, str]
    switches: Mapping[int, SwitchPlan]
    cuts: Mapping[str, Parts] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        policy: str,
        names: Mapping[int, str],
        rules: Iterable[FlowRule],
        groups: Iterable[FailoverGroup] = (),
        cuts: Mapping[str, Parts] | None = None,
    ) -> RoutePlan:
        """Return the plan with the rules of each switch in order.

        Raises ControllerError for a rule of an unknown switch, two rules with one match and priority, a group that a
        rule names and nobody has, and a switch without a table-miss rule.
        """
        by_dpid: dict[int, list[FlowRule]] = {dpid: [] for dpid in sorted(names)}
        for rule in rules:
            if rule.dpid not in by_dpid:
                raise ControllerError(f"route plan: {rule} is for DPID {rule.dpid:#x}, which no switch has; name it")
            by_dpid[rule.dpid].append(rule)
        groups_of: dict[int, list[FailoverGroup]] = {dpid: [] for dpid in by_dpid}
        for group in groups:
            groups_of[group.dpid].append(group)
        switches = {dpid: SwitchPlan.of(names[dpid], found, groups_of[dpid]) for dpid, found in by_dpid.items()}
        return cls(policy, {dpid: names[dpid] for dpid in by_dpid}, switches, cuts or {})

    @cached_property
    def rules(self) -> dict[int, tuple[FlowRule, ...]]:
        """The rules of each switch, highest priority first."""
        return {dpid: switch.rules for dpid, switch in self.switches.items()}

    @cached_property
    def groups(self) -> dict[int, Mapping[int, FailoverGroup]]:
        """The groups of each switch, by number."""
        return {dpid: switch.groups for dpid, switch in self.switches.items()}

    @cached_property
    def digest(self) -> str:
        """A digest of what all switches shall do, by which two processes that plan know that they agree."""
        said = repr([(dpid, switch.digest) for dpid, switch in sorted(self.switches.items())])
        return blake2b(said.encode(), digest_size=8).hexdigest()

    @property
    def rule_count(self) -> int:
        """The rules of all switches together."""
        return sum(len(switch.rules) for switch in self.switches.values())

    @property
    def group_count(self) -> int:
        """The groups of all switches together, but for those that drop and bounce."""
        return sum(len(switch.groups) for switch in self.switches.values())

    def lookup(self, dpid: int, in_port: int, source: str, destination: str, address: int = 0) -> FlowRule:
        """Return the rule of the main table that acts on an IPv4 packet; the table-miss rule if no other matches.

        ``address`` is its Ethernet source address, where marks are.
        """
        return self.switches[dpid].lookup(in_port, source, destination, address)

    def ways(self, rule: FlowRule) -> list[int]:
        """Return the ports by which the packets of a rule leave while all ports are alive; several if it hashes."""
        return self.switches[rule.dpid].ways(rule)


def _order(rule: FlowRule) -> tuple[object, ...]:
    address, length = _prefix_key(rule.destination)
    mark = (rule.mark.value, rule.mark.mask) if rule.mark else ()
    return rule.table, -rule.priority, address, length, rule.source or "", rule.in_port or 0, mark, rule.way or ()


@cache
def _prefix_key(prefix: str | None) -> tuple[int, int]:
    if prefix is None:
        return -1, 0
    network = ipaddress.IPv4Network(prefix)
    return int(network.network_address), network.prefixlen


def _is_in(address: str, prefix: str) -> bool:
    if address == prefix or "/" not in prefix:
        return address == prefix
    network, length = _prefix_key(prefix)
    return (_prefix_key(address)[0] ^ network) >> (32 - length) == 0


def _by_destination(rules: Iterable[FlowRule]) -> tuple[dict[str, list[int]], list[int]]:
    """Return where rules for one NIC are, by destination, and where the others are, both in order; none of ways."""
    exact: dict[str, list[int]] = {}
    rest: list[int] = []
    for place, rule in enumerate(rules):
        if rule.way is not None:
            continue
        if rule.destination is None or not _is_of_one_nic(rule.destination):
            rest.append(place)
        else:
            exact.setdefault(rule.destination, []).append(place)
    return exact, rest
