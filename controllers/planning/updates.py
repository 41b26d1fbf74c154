"""From the present rules of switches to the planned ones: differences in an order in which no packet ever loops.

A destination's rules change in order of their distance to it in the new plan: a switch changes only once its new next
hop has, so a packet that meets a changed switch goes the new way from there on, and the old way, which has no loop
either, until then. What rules depend on (groups, paths, guards) is added first and removed last. Between rounds every
switch confirms by a barrier.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controllers.planning.plan import FailoverGroup, FlowRule, RoutePlan, RuleKey, SwitchPlan, is_route

_FIRST = -1
"""The round of what others lean on: it comes before distance 0."""


@dataclass
class Installed:
    """What one switch has: the cookie of each rule, and the numbers of its groups."""

    rules: dict[RuleKey, int] = field(default_factory=dict)
    groups: set[int] = field(default_factory=set)


@dataclass
class Changes:
    """What one switch is told in one round: groups first, then rules, then groups that nothing uses any more."""

    new_groups: list[FailoverGroup] = field(default_factory=list)
    rules: list[FlowRule] = field(default_factory=list)
    gone_rules: list[RuleKey] = field(default_factory=list)
    gone_groups: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many messages that takes."""
        return len(self.new_groups) + len(self.rules) + len(self.gone_rules) + len(self.gone_groups)

    def apply(self, installed: Installed) -> None:
        """Note that a switch has done all this."""
        installed.groups |= {group.number for group in self.new_groups}
        installed.rules.update((rule.key, rule.cookie) for rule in self.rules)
        for key in self.gone_rules:
            installed.rules.pop(key, None)
        installed.groups -= set(self.gone_groups)


Round = Mapping[int, Changes]
"""What each switch is told, by DPID, before anybody is told more."""


def rounds_to(
    plan: RoutePlan, installed: Mapping[int, Installed], pause: Callable[[], object] = lambda: None
) -> list[Round]:
    """Return the rounds that bring switches from what they have to a plan; none if they have it.

    ``pause`` is called after each switch: for large fabrics this takes a second.
    """
    by_round: dict[int, dict[int, Changes]] = defaultdict(dict)
    last: dict[int, Changes] = {}
    differing = {dpid: has for dpid, has in installed.items() if not _has_all(plan.switches[dpid], has, pause)}
    # Parts of one plan cannot loop, so switches that have nothing else, new ones above all, need no order.
    is_ordered = not all(_has_only(plan.switches[dpid], has) for dpid, has in differing.items())
    for dpid, has in differing.items():
        _add_switch(plan.switches[dpid], dpid, has, by_round, is_ordered)
        gone = _leftovers(plan.switches[dpid], has)
        if gone.count:
            last[dpid] = gone
        pause()
    return [*(by_round[number] for number in sorted(by_round)), *([last] if last else [])]


def _has_all(plan: SwitchPlan, has: Installed, pause: Callable[[], object]) -> bool:
    """Whether a switch has what its plan says, and nothing else."""
    pause()
    return has.rules == plan.cookies and has.groups == plan.groups.keys()


def _has_only(plan: SwitchPlan, has: Installed) -> bool:
    return all(cookie in plan.by_cookie for cookie in has.rules.values())


def _add_switch(
    plan: SwitchPlan, dpid: int, has: Installed, by_round: dict[int, dict[int, Changes]], is_ordered: bool
) -> None:
    groups = [group for number, group in plan.groups.items() if number not in has.groups]
    if groups:
        by_round[_FIRST].setdefault(dpid, Changes()).new_groups = groups
    replaced = _old_routes(plan, has)
    for key, cookie in plan.cookies.items():
        is_new = has.rules.get(key) != cookie
        gone = replaced.pop(key[1], []) if replaced and is_route(key) else []
        if is_new or gone:
            rule = plan.by_key[key]
            changes = by_round[rule.distance if rule.distance and is_ordered else _FIRST].setdefault(dpid, Changes())
            changes.rules += [rule] if is_new else []
            changes.gone_rules += gone


def _old_routes(plan: SwitchPlan, has: Installed) -> dict[str | None, list[RuleKey]]:
    """Return the routes that the plan has under another priority: they must go as the new one comes."""
    old: dict[str | None, list[RuleKey]] = defaultdict(list)
    for key in has.rules:
        if key not in plan.cookies and is_route(key):
            old[key[1]].append(key)
    return old


def _leftovers(plan: SwitchPlan, has: Installed) -> Changes:
    """Return what nothing leads to any more."""
    strange = [key for key in has.rules if key not in plan.cookies]
    return Changes(
        gone_rules=[key for key in strange if not (is_route(key) and key[1] in plan.routes)],
        gone_groups=sorted(has.groups - plan.groups.keys()),
    )
