"""Fair rates against closed forms, and against progressive filling done slowly."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from controllers.planning.fairness import NONE, Numbers, Shared, fair_rates_bps

CASES = range(60)


def shared(
    rates: Sequence[float], paths: Sequence[Sequence[int]], lanes: Sequence[int], shares: Sequence[float]
) -> Shared:
    found = np.full((len(paths), max(map(len, paths))), NONE, dtype=np.int32)
    for row, path in enumerate(paths):
        found[row, : len(path)] = path
    return Shared(np.array(rates, dtype=float), found, np.array(lanes), np.array(shares, dtype=float))


def rated(one: Shared) -> Numbers:
    return fair_rates_bps(one, np.arange(len(one.paths)))


def of_one_lane(rates: Sequence[float], paths: Sequence[Sequence[int]]) -> Numbers:
    return rated(shared(rates, paths, [0] * len(paths), [1.0]))


def filled_slowly(rates: Sequence[float], paths: Sequence[Sequence[int]]) -> list[float]:
    """Progressive filling: all rise together; what meets a full link stays."""
    left, found, rising = [*rates], [0.0] * len(paths), set(range(len(paths)))
    while rising:
        users = Counter(port for flow in rising for port in paths[flow])
        step = min(left[port] / count for port, count in users.items())
        for port, count in users.items():
            left[port] -= step * count
        full = {port for port in users if left[port] <= 1e-9 * rates[port]}
        for flow in rising:
            found[flow] += step
        rising = {flow for flow in rising if full.isdisjoint(paths[flow])}
    return found


def drawn(case: int) -> tuple[list[float], list[list[int]]]:
    draw = random.Random(case)
    ports = draw.randint(1, 12)
    rates = [float(draw.choice([1, 2, 5, 10])) for _ in range(ports)]
    paths = [draw.sample(range(ports), draw.randint(1, min(ports, 4))) for _ in range(draw.randint(1, 30))]
    return rates, paths


def test_two_flows_on_a_link_have_half_each() -> None:
    assert of_one_lane([10.0], [[0], [0]]) == pytest.approx([5.0, 5.0])


def test_what_a_flow_cannot_use_goes_to_the_others() -> None:
    """The second flow passes a link of 2; the first has the other 8."""
    assert of_one_lane([10.0, 2.0], [[0], [0, 1]]) == pytest.approx([8.0, 2.0])


@pytest.mark.parametrize("case", CASES)
def test_rates_are_those_of_progressive_filling(case: int) -> None:
    rates, paths = drawn(case)
    assert of_one_lane(rates, paths) == pytest.approx(filled_slowly(rates, paths), rel=1e-6)


def test_lanes_have_their_shares_however_many_flows_each_has() -> None:
    """Shares of 0.4 and 0.1 of a link of 10: 8 and 2, and within a lane the same for each flow."""
    one = shared([10.0], [[0], [0], [0], [0], [0]], [0, 1, 1, 1, 1], [0.4, 0.1, 0.5])
    assert rated(one) == pytest.approx([8.0, 0.5, 0.5, 0.5, 0.5])


def test_what_a_lane_cannot_use_goes_to_the_others() -> None:
    """Half of a link of 10 is the first lane's, whose only flow has 1 elsewhere."""
    one = shared([10.0, 1.0], [[0, 1], [0], [0]], [0, 1, 2], [0.5, 0.2, 0.3])
    assert rated(one) == pytest.approx([1.0, 9 * 0.4, 9 * 0.6])


@pytest.mark.parametrize("case", CASES)
def test_no_link_carries_more_than_its_rate_and_each_flow_passes_a_full_one(case: int) -> None:
    """In three lanes, also where links wait for each other."""
    rates, paths = drawn(case)
    draw = random.Random(case)
    found = rated(shared(rates, paths, [draw.randrange(3) for _ in paths], [0.5, 0.3, 0.2]))
    carried = dict.fromkeys(range(len(rates)), 0.0)
    for path, rate in zip(paths, found.tolist(), strict=True):
        for port in path:
            carried[port] += rate
    assert all(carried[port] <= rates[port] * (1 + 1e-6) for port in carried)
    assert all(any(carried[port] >= rates[port] * (1 - 1e-6) for port in path) for path in paths)


def test_rates_within_a_tolerance_are_lower_by_no_more_than_that() -> None:
    """100 links that have 50 to 149 flows, each through one link more that has some."""
    draw = random.Random(1)
    paths = [[draw.randrange(100), 100 + draw.randrange(20)] for _ in range(5000)]
    one = shared([1.0] * 100 + [6.0] * 20, paths, [0] * len(paths), [1.0])
    exact, fast = rated(one), fair_rates_bps(one, np.arange(len(paths)), 0.02)
    assert fast.sum() == pytest.approx(exact.sum(), rel=0.02)
    carried = np.bincount(one.paths[:, 0], fast)
    assert carried.max() <= 1 + 1e-6
