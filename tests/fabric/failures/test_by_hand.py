"""Failures by hand: what a target's name means, what changes as failures begin and are healed, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.errors import ConfigError
from fabric.failures.by_hand import FailuresByHand
from fabric.failures.kinds.disk import DiskTarget
from fabric.failures.schedule import DOWN, WHOLE, FailureSchedule, LinkState
from fabric.model.network import Link
from topologies.load import load_fabric

TINY = load_fabric("fire_flyer_2_tiny")


def fail(hands: FailuresByHand, target: str, now_s: float = 1.0, **keys: Any) -> FailureSchedule:
    return hands.fail({"target": target, **keys}, now_s)[1]


def states(schedule: FailureSchedule) -> dict[str, LinkState]:
    return {str(event.link): event.state for event in schedule.link_events}


@pytest.mark.parametrize(
    ("target", "key", "count"),
    [
        ("z0l00-z0s00", "link", 1),
        ("z0l00:4", "link", 1),
        ("z0l00", "switch", 6),
        ("z0h002", "host", 1),
        ("nic=z0h002:0", "nic", 1),
        ("switch=z0s00", "switch", 2),
    ],
)
def test_a_name_says_what_kind_of_target_it_is(target: str, key: str, count: int) -> None:
    hands = FailuresByHand(TINY)
    changed = states(fail(hands, target))
    (one,) = hands.under_way
    assert (one.key, len(changed), set(changed.values())) == (key, count, {DOWN})
    assert all(isinstance(hit, Link) for hit in one.hits)


def test_a_disk_is_named_by_its_host_and_number() -> None:
    hands = FailuresByHand(TINY)
    (event,) = fail(hands, f"{TINY.storages[0]}/1", effect="error").events
    assert event.target == DiskTarget(TINY.storages[0].name, 1)


def test_targets_are_as_all_that_fails_makes_them_until_all_of_it_is_healed() -> None:
    hands = FailuresByHand(TINY)
    fail(hands, "z0l00-z0s00", 1.0, loss=0.25)
    link = "z0l00:4--z0s00:1"
    assert states(fail(hands, "z0s00", 2.0))[link] == LinkState(up=False, loss_fraction=0.25)
    (healed,), schedule = hands.heal("z0s00", 3.0)
    assert healed.name == "z0s00"
    assert states(schedule) == {link: LinkState(loss_fraction=0.25), "z0l01:4--z0s00:2": WHOLE}
    assert {event.at_s for event in schedule.events} == {3.0}, "what changes now, not what did before"
    assert states(hands.heal("", 4.0)[1]) == {link: WHOLE}
    assert hands.under_way == ()


def test_one_with_an_end_ends_then_unless_it_has_been_healed() -> None:
    hands = FailuresByHand(TINY)
    fail(hands, "z0l00-z0s00", 1.0, **{"for": "3 s"})
    (first,) = hands.under_way
    assert first.until_s == 4.0
    hands.heal("z0l00-z0s00", 2.0)
    fail(hands, "z0l00-z0s00", 2.0)
    (again,) = hands.under_way
    assert hands.end(first, 4.0) == ((), FailureSchedule()) and hands.under_way == (again,)
    assert states(hands.end(again, 5.0)[1]) == {"z0l00:4--z0s00:1": WHOLE} and hands.under_way == ()


def test_what_fails_already_by_another_changes_nothing_until_that_is_healed() -> None:
    hands = FailuresByHand(TINY)
    fail(hands, "z0s00", 1.0)
    assert fail(hands, "z0l00-z0s00", 2.0).events == ()
    assert list(states(hands.heal("z0s00", 3.0)[1])) == ["z0l01:4--z0s00:2"]
    assert list(states(hands.heal("z0s00:1", 4.0)[1])) == ["z0l00:4--z0s00:1"], "the same link by another name"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"target": "z0l99"}, "z0l99: fire_flyer_2_tiny has no such node; there are z0l00 to z0l01"),
        ({"target": "z0l00:99"}, "nothing is plugged into 'z0l00:99'; z0l00 has ports 1 to 6"),
        ({"target": "z0l00-z0h009"}, "has no 'z0h009'"),
        ({"target": "disc=st000/0"}, "disc: is not a kind of target; use link, port, switch"),
        ({"target": "z0l00", "losss": 0.1}, "losss: is not a key of such a failure"),
        ({"target": "z0l00", "loss": 7}, "loss: "),
        ({"target": "z0l00", "at": "3 s"}, "at: not of a failure by hand"),
        ({"target": "z0l00", "for": "3 eggs"}, "for: "),
        ({"silent": "z0h002", "then": "dead", "for": "3 s"}, "a failure by hand leaves nothing"),
        ({}, "no target; give one"),
        ({"target": "st000/0"}, "effect"),
    ],
)
def test_what_cannot_fail_is_named(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        FailuresByHand(TINY).fail(keys, 1.0)
    assert words in str(raised.value)


def test_what_fails_already_and_what_contradicts_is_refused_and_changes_nothing() -> None:
    hands = FailuresByHand(TINY)
    fail(hands, "z0l00-z0s00", rate=0.5)
    with pytest.raises(ConfigError, match="fails by hand already; heal it first: fabric cluster heal z0l00-z0s00"):
        fail(hands, "z0l00-z0s00", rate=0.5)
    with pytest.raises(ConfigError, match=r"z0l00-z0s00 and z0s00: .* would have 0.5 and 0.25 of its rate at once"):
        fail(hands, "z0s00", rate=0.25)
    assert [one.name for one in hands.under_way] == ["z0l00-z0s00"]
    for target, words in (
        ("z0h001", "z0h001: does not fail by hand; what does: z0l00-z0s00"),
        ("z0h099", "no such node; .*what fails by hand: z0l00-z0s00"),
    ):
        with pytest.raises(ConfigError, match=words):
            hands.heal(target, 2.0)
    hands.heal("z0l00:4", 2.0)
    with pytest.raises(ConfigError, match="nothing fails by hand"):
        hands.heal("", 3.0)
