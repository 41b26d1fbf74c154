"""Estimates against closed forms: line rate, n to 1, lanes by their shares, and what replays say in theory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.estimate.estimating import Asked, Estimate, Setting, estimate, matrix_flows, pattern_flows
from app.estimate.jobs import PatternJob, named_apart
from app.estimate.patterns import MOST_FLOWS, Drawn, Pattern, endpoints
from controllers.planning.paths import planned_path
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ADAPTIVE
from controllers.routing import Routing
from experiments.replay.connection_matrix import read_matrix
from experiments.replay.fluid import fluid_times
from fabric.errors import ConfigError, UsageError
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Fabric
from tests.controllers.free_forms import free_form
from topologies.load import fabric_of, load_fabric
from traffic.metrics import payload_fraction

MATRICES = Path(__file__).parents[2] / "experiments" / "replay"
SIZE = 2_000_000
SHARES = {"hfreduce": 0.6, "nccl": 0.1, "storage": 0.1, "other": 0.15, "control": 0.05}


@cache
def named(name: str) -> Fabric:
    return load_fabric(name)


@cache
def one_switch(hosts: int) -> Fabric:
    return free_form([f"z0h{number:03d}-z0l00" for number in range(hosts)])


def setting(fabric: Fabric, lanes: Mapping[str, Any] | None = None) -> Setting:
    queues = QueueConfig.model_validate({"lanes": lanes} if lanes else {})
    return Setting(fabric, Routing(), plan_lanes(queues, Queueing.LANES))


def estimated(where: Setting, *jobs: dict[str, Any]) -> Estimate:
    checked = named_apart([PatternJob.model_validate({"size": SIZE, **job}) for job in jobs], "jobs")
    return estimate(where, [pattern_flows(where, job) for job in checked])


def alone_s(fabric: Fabric, size_bytes: float = SIZE) -> float:
    """How long a NIC sends as much, headers included."""
    return size_bytes * 8 / payload_fraction(fabric.mtu_bytes) / fabric.nic_rate_bps


def lane(share: float, level: str, ceiling: float = 1.0) -> dict[str, Any]:
    return {"share": share, "ceiling": ceiling, "service_levels": [level]}


def test_a_permutation_has_line_rate_where_nothing_meets() -> None:
    fabric = one_switch(32)
    (job,) = estimated(setting(fabric), {"pattern": "permutation"}).jobs
    assert job.took_s == pytest.approx(alone_s(fabric), rel=0.01)


@pytest.mark.parametrize("name", ["fat_tree_k4", "fat_tree_k8", "fat_tree_k16"])
def test_shifts_of_a_full_tree_have_line_rate(name: str) -> None:
    """d-mod-k spreads the destinations of a pod over all paths up: hosts that all send equally far do not meet."""
    fabric = named(name)
    (job,) = estimated(setting(fabric), {"pattern": "ring"}).jobs
    assert job.asked.count == len(fabric.computes)
    assert job.took_s == pytest.approx(alone_s(fabric), rel=0.05)


@pytest.mark.parametrize("hosts", [2, 5, 16])
def test_an_incast_takes_as_long_as_the_sink_receives(hosts: int) -> None:
    fabric = named("fat_tree_k4")
    found = estimated(setting(fabric), {"pattern": "incast", "hosts": hosts})
    assert found.jobs[0].asked.count == hosts - 1
    assert found.jobs[0].took_s.max() == pytest.approx(alone_s(fabric, SIZE * (hosts - 1)), rel=0.05)
    busiest = found.ports[0]
    assert busiest.utilisation == pytest.approx(1.0)
    assert busiest.flows == hosts - 1 if hosts > 2 else 1


def test_all_to_all_fills_every_nic() -> None:
    fabric = one_switch(16)
    found = estimated(setting(fabric), {"pattern": "all_to_all"})
    assert found.jobs[0].asked.count == 16 * 15
    assert found.jobs[0].took_s.max() == pytest.approx(alone_s(fabric, 15 * SIZE), rel=0.01)
    assert len(found.ports) == 32
    assert all(one.utilisation == pytest.approx(1.0, rel=0.01) for one in found.ports)


def test_jobs_in_lanes_have_their_shares() -> None:
    """Of a sink's link, 0.6 to 0.1: in the time of the first's flows, those of the second have a sixth as many bits."""
    fabric = one_switch(3)
    where = setting(fabric, {name: lane(share, name) for name, share in SHARES.items()})
    first = {"pattern": "incast", "hosts": ["z0h000", "z0h001"], "service_level": "hfreduce", "size": 6 * SIZE}
    second = {"pattern": "incast", "hosts": ["z0h000", "z0h002"], "service_level": "nccl"}
    found = estimated(where, first, second)
    assert [job.lane for job in found.jobs] == ["hfreduce", "nccl"]
    assert [job.took_s[0] for job in found.jobs] == pytest.approx([alone_s(fabric, 7 * SIZE)] * 2, rel=0.01)
    shared = estimated(Setting(fabric, Routing(), plan_lanes(QueueConfig(), Queueing.SHARED)), first, second)
    assert shared.jobs[1].took_s[0] == pytest.approx(alone_s(fabric, 2 * SIZE), rel=0.01)


def test_a_lane_alone_has_its_ceiling() -> None:
    fabric = one_switch(2)
    lanes = {name: lane(share, name, 0.25 if name == "nccl" else 1.0) for name, share in SHARES.items()}
    found = estimated(setting(fabric, lanes), {"pattern": "ring", "service_level": "nccl"})
    assert found.jobs[0].took_s == pytest.approx(4 * alone_s(fabric), rel=0.01)
    assert found.ports[0].utilisation == pytest.approx(0.25)


def test_a_job_that_ends_frees_its_share() -> None:
    """Both send to one sink: half each, until the small one has ended."""
    fabric = one_switch(3)
    found = estimated(
        setting(fabric),
        {"pattern": "incast", "hosts": ["z0h000", "z0h001"], "size": 3 * SIZE},
        {"pattern": "incast", "hosts": ["z0h000", "z0h002"]},
    )
    assert [job.last_s for job in found.jobs] == pytest.approx(
        [alone_s(fabric, 4 * SIZE), alone_s(fabric, 2 * SIZE)], rel=0.01
    )


def test_a_job_that_starts_later_is_timed_from_its_start() -> None:
    fabric = one_switch(2)
    found = estimated(setting(fabric), {"pattern": "ring"}, {"pattern": "ring", "start": 1.0})
    assert found.jobs[1].took_s == pytest.approx(alone_s(fabric), rel=0.01)
    assert found.jobs[1].last_s == pytest.approx(1 + alone_s(fabric), rel=0.01)


@pytest.mark.parametrize("name", ["incast.cm", "perm_16n_16c_2MB.cm"])
def test_a_matrix_takes_what_a_replay_has_as_theory(name: str) -> None:
    fabric, matrix = named("fat_tree_k4"), read_matrix((MATRICES / name).read_text(), name)
    where, plan = setting(fabric), plan_routes(fabric, Routing())
    nics = [fabric.nics_of[host][0] for host in fabric.computes]
    paths = [planned_path(plan, fabric, nics[one.source], nics[one.sink]) for one in matrix.connections]
    found = estimate(where, [matrix_flows(where, matrix, name, "other")], matrix)
    assert found.jobs[0].took_s == pytest.approx(fluid_times(fabric, matrix, paths, fabric.scale), rel=0.02)


def test_triggers_of_a_matrix_start_flows() -> None:
    text = """Nodes 2
    Connections 2
    Triggers 1
    0->1 id 1 start 0 size 2000000 recv_done_trigger 1
    1->0 id 2 trigger 1 size 2000000
    trigger id 1 oneshot"""
    fabric, matrix = named("fat_tree_k4"), read_matrix(text, "m")
    where = setting(fabric)
    found = estimate(where, [matrix_flows(where, matrix, "m", "other")], matrix)
    assert found.jobs[0].took_s == pytest.approx([alone_s(fabric)] * 2, rel=0.02)
    assert found.jobs[0].last_s == pytest.approx(2 * alone_s(fabric), rel=0.02)


def test_hosts_with_several_nics_send_by_all_and_not_to_themselves() -> None:
    fabric = named("rail_optimised_small")
    per_host = len(fabric.nics) // len(fabric.computes)
    drawn = {pattern: endpoints(fabric, Drawn(pattern, fabric.computes, None, 1)) for pattern in Pattern}
    assert len(drawn[Pattern.RING].sources) == len(drawn[Pattern.PERMUTATION].sources) == len(fabric.nics)
    assert len(drawn[Pattern.ALL_TO_ALL].sources) == len(fabric.nics) * (len(fabric.nics) - per_host)
    assert len(drawn[Pattern.INCAST].sources) == len(fabric.nics) - per_host
    for flows in drawn.values():
        ends = zip(flows.sources.tolist(), flows.destinations.tolist(), strict=True)
        assert all(fabric.reaches(fabric.nics[source], fabric.nics[sink]) for source, sink in ends)


def test_planes_that_nothing_joins_play_each_by_itself() -> None:
    fabric = named("next_generation_32768_small")
    for pattern in Pattern:
        flows = endpoints(fabric, Drawn(pattern, fabric.computes, None, 1))
        of_plane = np.array([fabric.network_of(nic) for nic in fabric.nics])
        assert (of_plane[flows.sources] == of_plane[flows.destinations]).all()


def test_fewer_peers_are_spread_evenly() -> None:
    fabric = one_switch(16)
    flows = endpoints(fabric, Drawn(Pattern.ALL_TO_ALL, fabric.computes, 3, 1))
    assert np.bincount(flows.sources).tolist() == np.bincount(flows.destinations).tolist() == [3] * 16


def test_seeds_draw_other_permutations() -> None:
    fabric = named("fat_tree_k4")
    one, same, other = (
        endpoints(fabric, Drawn(Pattern.PERMUTATION, fabric.computes, None, seed)) for seed in (1, 1, 2)
    )
    assert (one.destinations == same.destinations).all()
    assert (one.destinations != other.destinations).any()


def test_routes_that_move_are_refused() -> None:
    where = Setting(named("fat_tree_k4"), Routing(policy=ADAPTIVE), plan_lanes(QueueConfig(), Queueing.LANES))
    with pytest.raises(UsageError, match="adaptive: an estimate needs paths that stay; use static, ecmp, spray"):
        estimated(where, {"pattern": "ring"})


def test_too_many_flows_are_refused_with_what_to_do() -> None:
    fabric = named("three_layer_1600")
    with pytest.raises(UsageError, match=r"all_to_all: 1,438,800 flows, and .* 1,047,552 at most; .*--peers"):
        endpoints(fabric, Drawn(Pattern.ALL_TO_ALL, fabric.computes, None, 1))
    assert len(named("fat_tree_k16").computes) * (len(named("fat_tree_k16").computes) - 1) == MOST_FLOWS


def test_more_peers_than_there_are_is_refused() -> None:
    fabric = one_switch(16)
    with pytest.raises(UsageError, match="--peers 16: a NIC has 15 others"):
        endpoints(fabric, Drawn(Pattern.ALL_TO_ALL, fabric.computes, 16, 1))


def test_a_matrix_of_more_hosts_than_there_are_is_refused() -> None:
    text = "Nodes 17\nConnections 1\n0->16 id 1 start 0 size 5"
    where = setting(named("fat_tree_k4"))
    with pytest.raises(ConfigError, match="Nodes 17: fat_tree_k4 has 16 compute nodes; use a larger topology"):
        matrix_flows(where, read_matrix(text, "m"), "m", "other")


def test_flows_of_several_jobs_keep_apart() -> None:
    """The times of each job are those of its own flows, in its order."""
    fabric = one_switch(4)
    found = estimated(
        setting(fabric),
        {"pattern": "ring", "hosts": ["z0h000", "z0h001"], "size": SIZE},
        {"pattern": "ring", "hosts": ["z0h002", "z0h003"], "size": 3 * SIZE},
    )
    asked: list[Asked] = [job.asked for job in found.jobs]
    assert [one.name for one in asked] == ["ring_1", "ring_2"]
    assert [job.last_s for job in found.jobs] == pytest.approx([alone_s(fabric), alone_s(fabric, 3 * SIZE)], rel=0.01)


def test_thousands_of_hosts_need_no_rules() -> None:
    """A leaf and spine fabric, whose routes are others than those of three layers."""
    fabric = fabric_of(
        {
            "name": "wide", "builder": "fat_tree", "leaves_per_pod": 50, "spines_per_pod": 20, "switch_ports": 64,
            "compute": 2000, "nic_rate": "1 Gbit/s", "uplink_rate": "1 Gbit/s", "mtu": 4200,
            "reference_nic_rate": "1 Gbit/s",
        },
        "test",
    )  # fmt: skip
    found = estimated(setting(fabric), {"pattern": "permutation"})
    assert found.jobs[0].asked.count == 2000
    assert found.jobs[0].took_s.min() >= alone_s(fabric)
