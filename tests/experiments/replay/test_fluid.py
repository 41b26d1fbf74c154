"""What theory says of flows that share links."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.planning.paths import nics_for, path_load, planned_path
from controllers.planning.planner import plan_routes
from controllers.planning.policies import SPRAY
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


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("start_s", "size"), [(0.05, 8), (0.2, 64), (0.5, 100), (0.5, 256), (1.0, 64), (2.0, 1500), (1e4, 64)]
)
def test_short_flows_that_start_late_end(start_s: float, size: int) -> None:
    """Of their sizes is less left than the time can resolve."""
    start = f"start {start_s * 1e12:.0f}"
    took, delay = times(f"0->1 {start} size {size}", f"2->3 {start} size {size * 3}")
    assert [t - d for t, d in zip(took, delay, strict=True)] == pytest.approx([0.0, 0.0], abs=3 * ALONE_S)
    assert took[0] >= delay[0] * (1 - 1e-9) - math.ulp(start_s)


FLOW = st.tuples(
    st.integers(0, 15),
    st.integers(1, 15),
    st.one_of(st.integers(0, 10**16), st.sampled_from([0, 10**12])),
    st.one_of(st.integers(1, 9000), st.integers(1, 10**15)),
    st.booleans(),
)


@pytest.mark.timeout(120)
@settings(max_examples=60)
@given(flows=st.lists(FLOW, min_size=1, max_size=12), scale=st.sampled_from([1.0, 1e-6, 1e4]))
def test_the_theory_of_any_flows_ends(flows: list[tuple[int, int, int, int, bool]], scale: float) -> None:
    """With starts up to 3 hours, sizes up to a petabyte, and some flows that start when the one before has ended."""
    lines, triggers = list[str](), 0
    for place, (source, hops, start, size, waits) in enumerate(flows):
        begin = f"start {start}"
        if waits and place:
            triggers += 1
            lines[place - 1] += f" recv_done_trigger {triggers}"
            begin = f"id {place + 1} trigger {triggers}"
        lines.append(f"{source}->{(source + hops) % 16} {begin} size {size}")
    header = f"Nodes 16\nConnections {len(flows)}\nTriggers {triggers}"
    text = "\n".join([header, *lines, *(f"trigger id {number + 1} oneshot" for number in range(triggers))])
    matrix = read_matrix(text, "m")
    took = fluid_times(FABRIC, matrix, paths_of(matrix), scale)
    least = [one.size_bytes * 8 / 100e9 for one in matrix.connections]
    assert all(math.isfinite(t) and t > 0 for t in took)
    assert all(t >= shortest * (1 - 1e-6) - 1e-6 for t, shortest in zip(took, least, strict=True))


def test_sprayed_flows_share_all_of_their_paths() -> None:
    """Two flows that meet on one path take twice as long as one alone, and as long once their packets take every
    path."""
    matrix = read_matrix("Nodes 16\nConnections 2\n0->8 start 0 size 2000000\n1->9 start 0 size 2000000\n", "two")
    paths, plan = paths_of(matrix), plan_routes(FABRIC, Routing(policy=SPRAY))
    hosts = FABRIC.computes
    parts = [
        path_load(plan, FABRIC, *nics_for(FABRIC, hosts[one.source], hosts[one.sink])) for one in matrix.connections
    ]
    assert fluid_times(FABRIC, matrix, paths, parts=parts) == pytest.approx([ALONE_S] * 2, rel=0.06)
    assert min(fluid_times(FABRIC, matrix, [paths[0]] * 2)) > 1.9 * ALONE_S
