"""When fluids end, against closed forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from controllers.planning.fairness import Shared
from controllers.planning.fluid import Followers, Loads, Times, fluid_ends

LINK_BPS = 10.0


def on_a_link(bits: Sequence[float], starts_s: Sequence[float], followers: Followers = lambda *_: ()) -> Times:
    paths = np.zeros((len(bits), 1), dtype=np.int32)
    loads = Loads(np.array(bits, dtype=float), np.array(starts_s, dtype=float))
    return fluid_ends(Shared.alike(np.array([LINK_BPS]), paths), loads, followers)


def test_flows_that_end_free_their_share() -> None:
    """10 and 30 bits: both have 5 bit/s until 2 s; the second then has 10 for its other 20 bits."""
    assert on_a_link([10, 30], [0, 0]).ended_s == pytest.approx([2.0, 4.0])


def test_flows_that_start_take_their_share() -> None:
    """The first has 10 bit/s for 1 s; both then have 5, until its other 10 bits have gone."""
    times = on_a_link([20, 20], [0, 1])
    assert times.began_s == pytest.approx([0.0, 1.0])
    assert times.ended_s == pytest.approx([3.0, 4.0])


def test_flows_start_once_others_have_ended() -> None:
    def second_after_first(flow: int, end_s: float) -> list[tuple[int, float]]:
        return [(1, end_s + 0.5)] if flow == 0 else []

    times = on_a_link([10, 10], [0, np.inf], second_after_first)
    assert times.began_s == pytest.approx([0.0, 1.5])
    assert times.ended_s == pytest.approx([1.0, 2.5])


def test_ends_of_any_sizes_are_those_of_processor_sharing() -> None:
    """On one link, flow n of those in order of size ends after (sum of the smaller ones, and its size for each other)
    over the rate."""
    sizes = np.sort(np.random.default_rng(4).uniform(1, 100, 300))
    smaller = np.concatenate([[0.0], np.cumsum(sizes)[:-1]])
    wanted = (smaller + sizes * np.arange(len(sizes), 0, -1)) / LINK_BPS
    assert on_a_link(sizes.tolist(), [0.0] * len(sizes)).ended_s == pytest.approx(wanted)


def test_a_tolerance_moves_ends_by_no_more_than_that() -> None:
    sizes = np.random.default_rng(4).uniform(1, 100, 300)
    shared = Shared.alike(np.array([LINK_BPS]), np.zeros((len(sizes), 1), dtype=np.int32))
    loads = Loads(sizes, np.zeros(len(sizes)))
    exact, fast = fluid_ends(shared, loads), fluid_ends(shared, loads, within=0.02)
    assert fast.ended_s == pytest.approx(exact.ended_s, rel=0.05)
    assert fast.ended_s.max() >= exact.ended_s.max() * (1 - 1e-9)


def test_a_late_short_flow_is_as_exact_as_an_early_one() -> None:
    """The tolerance is of the time that flows take, not of the time of day."""
    shared = Shared.alike(np.array([LINK_BPS]), np.zeros((2, 1), dtype=np.int32))
    times = fluid_ends(shared, Loads(np.array([10.0, 10.5]), np.array([1e6, 1e6])), within=0.02)
    assert times.ended_s - 1e6 == pytest.approx([2.0, 2.05], rel=0.03)
