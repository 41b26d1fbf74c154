"""Ports and programs that draw on budgets get what its closed form says. Runs in two guests; needs no root."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vl.guest import measured

pytestmark = pytest.mark.guest

GBPS = 10**9
LINK = 10 * GBPS
ALONE = ((5 * GBPS, 1.0), (5 * GBPS, 4.0), (5 * GBPS, 0.25), (40 * GBPS, 8.0))
FRAME = 4214 * 8 / 0.01 * 1.01
"""A measurement of 10 ms has a frame more or less, in bit/s."""


@pytest.fixture(scope="module")
def link() -> Any:
    """What two hosts and a link show."""
    found = measured("budgets", "on_a_link")
    print(found)
    return found


@pytest.fixture(scope="module")
def switch() -> Any:
    """What ports of a switch show."""
    found = measured("budgets", "at_a_switch")
    print(found)
    return found


def test_a_port_sends_what_its_budget_gives_divided_by_its_weight(link: Any) -> None:
    for (budget_bps, weight), found in zip(ALONE, link["alone"], strict=True):
        assert found["rate"] == pytest.approx(min(LINK, budget_bps / weight), abs=FRAME)
        assert found["drawn_per_byte"] == pytest.approx(weight)


def test_both_directions_of_a_link_share_a_budget(link: Any) -> None:
    found = link["both_directions"]
    assert found["one"] == pytest.approx(8 * GBPS, abs=FRAME)
    assert [found["a-b"], found["b-a"]] == pytest.approx([4 * GBPS] * 2, abs=FRAME)


def test_of_two_budgets_the_narrower_decides(link: Any) -> None:
    assert link["of_two"] == pytest.approx([4 * GBPS] * 2, abs=FRAME)


def test_a_program_takes_turns_with_ports(link: Any) -> None:
    """Alone, it gets all; beside a port, both fill the budget: 64 KiB of the one, a frame of the other."""
    found = link["program"]
    assert found["alone"] == pytest.approx(5 * GBPS, rel=0.001)
    assert found["all"] == pytest.approx(5 * GBPS, rel=0.02)
    assert found["port"] == pytest.approx(5 * GBPS * 4214 / (4214 + 65536), rel=0.02)


def test_budgets_live_as_long_as_a_port_draws_on_them(link: Any) -> None:
    found = link["life"]
    assert (found["made"], found["changed"]) == (4 * GBPS, 2 * GBPS)
    assert found["slower"] == pytest.approx(2 * GBPS, abs=FRAME)
    assert found["without"] == pytest.approx(LINK, abs=FRAME)
    assert (found["one left"], found["none left"]) == (True, True)


def test_ports_of_equal_frames_get_equal_shares_and_their_weights_fill_the_budget(switch: Any) -> None:
    share = 6 * GBPS / (1.0 + 2.0 + 0.25)
    assert list(switch["weighted"].values()) == pytest.approx([share] * 3, abs=FRAME)


def test_a_draw_can_be_of_one_input_only(switch: Any) -> None:
    assert switch["by_input"] == pytest.approx({"a0": 3 * GBPS, "a1": LINK}, abs=FRAME)


def test_who_waits_for_one_budget_keeps_nobody_from_another(switch: Any) -> None:
    expected = {"s-b0": GBPS, "s-b1": GBPS, "s-b2": 7 * GBPS}
    assert switch["beside"] == pytest.approx(expected, abs=2 * FRAME)
