"""``python -m app.benchmarks plans``: how much CPU time it takes to plan a fabric, under every policy and repair.

Pure computation, without an emulation: the work of a controller at its start, after a cut, and for an update.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from controllers.planning.plan import RoutePlan
from controllers.planning.planner import Planner
from controllers.planning.policies import POLICIES
from controllers.planning.updates import Changes, Installed, Round, rounds_to
from controllers.routing import Repair, Routing
from fabric.errors import TopologyError
from fabric.model.network import Fabric, Tier
from fabric.records.cells import Row, quantity
from fabric.records.summary_table import SummaryTable
from topologies.load import load_fabric

Result = TypeVar("Result")


def bench_plans(topology: str | None) -> SummaryTable:
    """Return the CPU seconds of plans of a fabric, by default the full Fire-Flyer 2, with a link of a spine cut."""
    fabric = load_fabric(topology or "fire_flyer_2")
    columns = ("policy", "repair", "rules", "groups", "first plan", "after a cut", "what differs", "encoded")
    size = f"{len(fabric.hosts)} hosts, {len(fabric.switches)} switches"
    rows: list[Row] = []
    for policy, repair in product(POLICIES, Repair):
        routing = Routing(policy=policy, repair=repair)
        fresh = replace(fabric, name=routing.name)  # What is known of a fabric is kept.
        try:
            rows.append([policy.name, repair.value, *_row(fresh, routing)])
        except TopologyError:
            rows.append([policy.name, repair.value, "not on this fabric", *[""] * (len(columns) - 3)])
    return SummaryTable(f"{fabric.name}, {size}: seconds of the CPU", columns, rows)


def _row(fabric: Fabric, routing: Routing) -> Row:
    """Return the sizes of plans under one routing, and the seconds that they take."""
    from controllers.app.messages import changes  # Which loads the controller's libraries.

    planner, made_s = _timed(lambda: Planner(fabric, routing))
    plan, first_s = _timed(planner.plan)
    has = {dpid: Installed(dict(one.cookies), set(one.groups)) for dpid, one in plan.switches.items()}
    after, replan_s = _timed(lambda: planner.after(fabric.links_of_tier(Tier.UPLINK)[:1]).plan())
    _, differ_s = _timed(lambda: rounds_to(after, has))
    _, encoded_s = _timed(lambda: _encoded(plan, changes))
    seconds = (made_s + first_s, replan_s, differ_s, encoded_s)
    counts = (quantity(one, ",.0f") for one in (plan.rule_count, plan.group_count))
    return [*counts, *(quantity(one, ".2f in s") for one in seconds)]


def _encoded(plan: RoutePlan, changes: Callable[[Changes], Iterable[bytes]]) -> int:
    """Encode a whole plan by ``changes``, and return its bytes."""
    rounds: Sequence[Round] = rounds_to(plan, {dpid: Installed() for dpid in plan.switches})
    return sum(len(part) for one in rounds for change in one.values() for part in changes(change))


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return what some work gives, and the seconds of the CPU that it took."""
    started_s = time.process_time()
    result = work()
    return result, time.process_time() - started_s
