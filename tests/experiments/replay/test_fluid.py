"""What theory says of flows that share links."""

from __future__ import annotations

import pytest

from controllers.planning.paths import planned_path
from controllers.planning.planner import plan_routes
from controllers.routing import Routing
from experiments.replay.connection_matrix import Matrix, read_matrix
from experiments.replay.fluid import fluid_times, path_delay_s
from fabric.model.network import Fabric, Port
from topologies.load import load_fabric
from traffic.metrics import payload_fraction

FABRIC = load_fabric("fat_tree_k4")
PLAN = plan_routes(FABRIC, Routing())
ALONE_S = 2e6 * 8 / payload_fraction(FABRIC.mtu_bytes) / 100e9


def paths_of(matrix: Matrix, fabric: Fabric = FABRIC) -> list[tuple[Port, ...]]:
    nics = [fabric.nics_of[host][0] for host in fabric.computes]
    return [tuple(planned_path(PLAN, fabric, nics[one.source], nics[one.sink])) for one in matrix.connections]


def times(*lines: str, triggers: int = 0) -> tuple[list[float], list[float]]:
    header = f"Nodes 16\nConnections {sum('->' in line for line in lines)}\nTriggers {triggers}"
    matrix = read_matrix("\n".join([header, *lines]), "m")
    paths = paths_of(matrix)
    return fluid_times(FABRIC, matrix, paths), [path_delay_s(FABRIC, path) for path in paths]


def test_a_flow_alone_takes_its_size_over_the_rate_and_the_way() -> None:
    (took,), (delay,) = times("0->15 start 0 size 2000000")
    assert delay == pytest.approx(6e-6 + 5 * 4214 * 8 / 100e9)
    assert took == pytest.approx(ALONE_S + delay)


def test_an_incast_takes_as_many_times_as_long() -> None:
    took, delay = times(*(f"{source}->15 start 0 size 2000000" for source in range(15)))
    assert max(took) == pytest.approx(15 * ALONE_S + max(delay))


def test_a_flow_that_ends_leaves_its_share_to_the_other() -> None:
    took, delay = times("1->0 start 0 size 1000000", "2->0 start 0 size 2000000")
    assert took == pytest.approx([ALONE_S + delay[0], 1.5 * ALONE_S + delay[1]])


def test_a_flow_that_starts_later_shares_from_then() -> None:
    took, delay = times("1->0 start 0 size 2000000", f"2->0 start {ALONE_S / 2 * 1e12} size 2000000")
    assert took == pytest.approx([1.5 * ALONE_S + delay[0], 1.5 * ALONE_S + delay[1]])


def test_a_triggered_flow_starts_when_the_other_has_arrived() -> None:
    took, delay = times(
        "0->1 start 0 size 2000000 recv_done_trigger 1", "1->0 id 2 trigger 1 size 2000000", "trigger id 1 oneshot",
        triggers=1,
    )  # fmt: skip
    assert took == pytest.approx([ALONE_S + delay[0], ALONE_S + delay[1]])
