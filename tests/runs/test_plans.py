from __future__ import annotations

import pytest

from controllers.planning.plan import RoutePlan
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC
from controllers.routing import Repair, Routing
from experiments.routing_incast.config import RoutingIncastConfig, choose
from fabric.delivered import Flow
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric
from runs import plans
from runs.registry import resolve
from runs.ways import WayFinder


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Routing]:
    """The routings that were planned, in their order."""
    found: list[Routing] = []

    def counted(fabric: Fabric, routing: Routing) -> RoutePlan:
        found.append(routing)
        return plan_routes(fabric, routing)

    plans._planned.cache_clear()
    monkeypatch.setattr(plans, "plan_routes", counted)
    return found


def test_who_looks_for_paths_in_a_run_goes_by_the_runs_plan(made: list[Routing]) -> None:
    resolved = resolve("routing_incast", [])
    fabric, config = resolved.fabric, resolved.config
    assert isinstance(config, RoutingIncastConfig)
    assert made == [Routing(policy=STATIC), Routing(policy=ECMP)], "to check who can take part"
    plans.planned(fabric, config.routing)
    choose(config, fabric)
    first, last = fabric.computes[0].name, fabric.computes[-1].name
    finder = WayFinder(fabric, plan_lanes(QueueConfig(), Queueing.SHARED), config.routing)
    assert finder.ways(Flow("storage", first, last), [0.0])[0]
    assert len(made) == 2


def test_a_plan_is_of_its_fabric_and_its_routing(made: list[Routing]) -> None:
    fabric = resolve("isolation", []).fabric
    for routing in (Routing(), Routing(repair=Repair.REROUTE), Routing(repair=Repair.REROUTE)):
        plans.planned(fabric, routing)
    plans.planned(resolve("isolation", ["topology.storage=2"]).fabric, Routing(repair=Repair.REROUTE))
    assert [one.repair for one in made] == [Repair.WAIT, Repair.REROUTE, Repair.REROUTE]
