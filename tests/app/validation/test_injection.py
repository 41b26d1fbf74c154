"""What ``--fault`` may say, and what it comes to."""

from __future__ import annotations

import math

import pytest

from app.validation.injection import read_faults
from fabric.errors import ConfigError
from fabric.failures.schedule import LinkState
from tests.schedules import intervals_of
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("link z0l00-z0s01 rate 0.5", LinkState(rate_fraction=0.5)),
        ("link z0l00:6 loss 0.01", LinkState(loss_fraction=0.01)),
        ("link z0s01:1 down", LinkState(up=False)),
    ],
)
def test_a_link_is_put_into_a_state_from_the_start_to_the_end(text: str, state: LinkState) -> None:
    found = read_faults([text], SMALL)
    assert found.wired == SMALL
    assert [(str(link), what) for link, what in found.states] == [("z0l00:6--z0s01:1", state)]
    (interval,) = intervals_of(found.schedule)
    assert (interval.began_s, interval.ended_s, interval.state) == (0.0, math.inf, state)


def test_exchanged_links_change_the_wiring_only() -> None:
    found = read_faults(["miswired z0l00:5 z0l01:5"], SMALL)
    assert found.states == ()
    changed = [str(link) for link in found.wired.links if link not in SMALL.links]
    assert changed == ["z0l00:5--z0s00:2", "z0l01:5--z0s00:1"]


def test_a_state_follows_the_link_plugged_into_the_first_end() -> None:
    found = read_faults(["link z0l00:5 rate 0.5", "miswired z0l00:5 z0l01:5"], SMALL)
    assert [str(link) for link, _ in found.states] == ["z0l00:5--z0s00:2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slow link", "names no fault"),
        ("link z0l00-z0s09 down", "z0s09"),
        ("link z0l00:6 rate fast", "is not a number"),
        ("link z0l00:6 rate 1.5", "less than 1"),
        ("link z0l00:6 loss 0", "greater than 0"),
        ("link z0l00:99 down", "nothing is plugged into"),
        ("miswired z0l00:5 z0l00:5", "two links of one tier"),
        ("miswired z0l00:5 z0h000:0", "two links of one tier"),
    ],
)
def test_what_is_wrong_is_told_with_its_text(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        read_faults([text, "nonsense"], SMALL)
    assert len(raised.value.faults) == 2
    assert raised.value.exit_code == 2


def test_a_link_is_exchanged_once_at_most() -> None:
    with pytest.raises(ConfigError, match="exchanged twice"):
        read_faults(["miswired z0l00:5 z0l01:5", "miswired z0l00:5 z0l02:5"], SMALL)
