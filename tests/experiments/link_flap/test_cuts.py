"""Which links are cut and which flows are chosen to feel it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from controllers.planning.planner import plan_routes
from controllers.routing import Repair, Routing
from experiments.link_flap.cuts import (
    Place,
    choose_flows,
    choose_targets,
    covering_flows,
    crossed_links,
    crossing,
    cut_schedule,
    plan_cuts,
)
from fabric.errors import ConfigError
from fabric.model.identity import Role
from fabric.model.network import Tier
from tests.schedules import down_at
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")
CROSSED = crossed_links(FABRIC, plan_routes(FABRIC, Routing()))
TIERS = {Place.HOST_LINK: Tier.ACCESS, Place.LEAF_SPINE: Tier.UPLINK, Place.INTER_ZONE: Tier.INTER_ZONE}


def test_every_pair_of_computes_crosses_both_its_own_links() -> None:
    assert len(CROSSED) == 24 * 23
    for flow, links in CROSSED.items():
        for host in (flow.source, flow.destination):
            assert FABRIC.link_at[FABRIC.nics_of[host][0].port] in links


def test_local_repair_plans_the_same_ways_as_waiting() -> None:
    """Or policies would not be cut at the same flows."""
    assert crossed_links(FABRIC, plan_routes(FABRIC, Routing(repair=Repair.FAST_FAILOVER))) == CROSSED


@pytest.mark.parametrize("place", Place)
def test_targets_are_of_their_place_and_turn_with_the_seed(place: Place) -> None:
    chosen = [choose_targets(FABRIC, CROSSED, place, 3, seed) for seed in range(5)]
    assert len(set(chosen)) > 1
    assert choose_targets(FABRIC, CROSSED, place, 3, 0) == chosen[0]
    for target in (target for found in chosen for target in found):
        if place is Place.SPINE:
            assert len(target.links) == 4
            assert all(any(port.node.role is Role.SPINE for port in link.ports) for link in target.links)
        else:
            assert [link.tier for link in target.links] == [TIERS[place]]
        assert all(port.node.role is not Role.STORAGE for link in target.links for port in link.ports)
        assert any(not links.isdisjoint(target.links) for links in CROSSED.values())


def test_a_place_that_the_fabric_lacks_is_refused() -> None:
    no_inter_zone = {flow: links for flow, links in CROSSED.items() if flow.source.zone == flow.destination.zone}
    with pytest.raises(ConfigError, match="inter_zone: fire_flyer_2_small has no inter-zone link that a flow crosses"):
        choose_targets(FABRIC, no_inter_zone, Place.INTER_ZONE, 1, 1)


def test_enough_flows_cross_every_target_and_not_all_do() -> None:
    targets = [target for place in Place for target in choose_targets(FABRIC, CROSSED, place, 3, 1)]
    flows = choose_flows(CROSSED, targets, 2)
    assert len(flows) == len(set(flows)) < 24
    for target in targets:
        assert len(crossing(CROSSED, flows, target)) >= 2, target
        assert len(crossing(CROSSED, flows, target)) < len(flows), target


def test_cuts_take_places_in_turn_and_never_overlap() -> None:
    targets = {place: choose_targets(FABRIC, CROSSED, place, 2, 1) for place in Place}
    cuts = plan_cuts(targets, 3, duration_s=0.2, gap_s=1.0, lead_s=0.5, seed=1)
    assert [cut.target.place for cut in cuts] == list(Place) * 3
    assert [cuts[place].target for place in (0, 4, 8)] == [*targets[Place.HOST_LINK], targets[Place.HOST_LINK][0]]
    assert cuts[0].at_s >= 0.5
    for cut, following in pairwise(cuts):
        assert 1.0 <= following.at_s - cut.ends_s <= 1.25 + 1e-9
    assert plan_cuts(targets, 3, 0.2, 1.0, 0.5, 2) != cuts
    schedule = cut_schedule(cuts)
    assert [event.causes for event in schedule.link_events if not event.state.up] == [
        (cut.number,) for cut in cuts for _ in cut.target.links
    ]
    for cut in cuts:
        assert down_at(schedule, cut.at_s + 0.1) == frozenset(cut.target.links)
        assert not down_at(schedule, cut.ends_s + 0.1)


def test_covering_flows_cross_every_link_that_any_flow_does() -> None:
    flows = covering_flows(CROSSED, FABRIC.computes)
    assert frozenset().union(*(CROSSED[flow] for flow in flows)) == frozenset().union(*CROSSED.values())
    assert len(flows) < 60
