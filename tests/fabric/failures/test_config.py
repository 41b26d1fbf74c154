"""A ``failures`` list: what it comes to, and how each mistake in it is named."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from pydantic import ValidationError

from fabric.config import Strict, checked
from fabric.errors import ConfigError
from fabric.failures.config import FailureLine, failure_faults, miswire, schedule_failures
from fabric.failures.line import FailureConfig
from fabric.failures.schedule import DOWN, WHOLE, LinkState, State
from fabric.model.network import Tier
from tests.schedules import down_at, intervals_of
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")


class Whole(Strict):
    failures: list[FailureLine]


def configs(*lines: dict[str, Any]) -> list[FailureConfig]:
    return checked(Whole, {"failures": list(lines)}, "test").failures


def events(*lines: dict[str, Any], seed: int = 1) -> list[tuple[float, str, State]]:
    schedule = schedule_failures(configs(*lines), FABRIC, seed)
    return [(event.at_s, str(event.target), event.state) for event in schedule.events]


@pytest.mark.parametrize(
    "name", [{"link": "z0l00-z0s01"}, {"link": "z0s01-z0l00"}, {"link": "z0l00:6"}, {"port": "z0s01:1"}]
)
def test_a_link_goes_by_its_nodes_or_by_either_end(name: dict[str, str]) -> None:
    assert events({**name, "at": "1 s", "for": "200 ms"}) == [
        (1.0, "z0l00:6--z0s01:1", DOWN),
        (1.2, "z0l00:6--z0s01:1", WHOLE),
    ]


def test_a_failure_without_an_end_stays() -> None:
    schedule = schedule_failures(configs({"link": "z0l00:6", "at": 1}), FABRIC, 1)
    assert [one.ended_s for one in intervals_of(schedule)] == [math.inf]


@pytest.mark.parametrize(
    ("target", "links"),
    [({"switch": "z0s00"}, 4), ({"host": "z0h003"}, 1), ({"storage": "st001"}, 2), ({"host": "st001"}, 2)],
)
def test_a_node_fails_with_all_its_links(target: dict[str, str], links: int) -> None:
    schedule = schedule_failures(configs({**target, "at": 1, "for": 1}), FABRIC, 1)
    (node,) = target.values()
    assert down_at(schedule, 1.5) == {link for link in FABRIC.links if node in (link.a.node.name, link.b.node.name)}
    assert len(down_at(schedule, 1.5)) == links


def test_repeats_begin_late_by_the_seeds_jitter() -> None:
    line = {"link": "z0l00:6", "at": 1, "for": 0.1, "repeat": {"every": "2 s", "times": 3}, "jitter": "500 ms"}
    began = [at for at, _, state in events(line) if state == DOWN]
    assert all(1 + 2 * number <= at <= 1.5 + 2 * number for number, at in enumerate(began))
    assert len({at % 2 for at in began}) == 3
    assert events(line) == events(line)
    assert events(line) != events(line, seed=2)


def test_a_rate_and_a_loss_are_no_cut() -> None:
    line = {"link": "z0l00:6", "at": 1, "rate": 0.5, "loss": 0.01}
    assert [state for _, _, state in events(line)] == [LinkState(True, 0.5, 0.01)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"at": 1}, "names no target; give exactly one of link, port, switch, host, storage"),
        ({"link": "z0l00:6", "host": "z0h000", "at": 1}, "names link and host; give exactly one"),
        (
            {"link": "z0l00:6", "at": 1, "repeat": {"every": 1, "times": 2}},
            "repeats a failure that never ends; give 'for'",
        ),
        (
            {"link": "z0l00:6", "at": 1, "for": 1, "jitter": 0.5, "repeat": {"every": 1.2, "times": 2}},
            "lasts 1 s and may begin 500 ms late, yet repeats every 1.2 s",
        ),
        ({"link": "z0l00:6", "at": 1, "rate": 1.5}, "failures.0.rate"),
        ({"link": "z0l00:6", "at": 1, "fo": 1}, "did you mean 'failures.0.for'"),
    ],
)
def test_a_wrong_line_is_named(line: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configs(line)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"link": "z0l00:77"}, "nothing is plugged into 'z0l00:77'; z0l00 has ports 1 to 9"),
        ({"link": "z9l00:1"}, "fire_flyer_2_small has no 'z9l00'"),
        ({"link": "z0l00-z0l01"}, "no link joins z0l00 and z0l01; z0l00 is joined to"),
        ({"link": "z0l00-nobody"}, "fire_flyer_2_small has no 'nobody'"),
        ({"link": "z0l00-z0s01#2"}, "joined by 1 links, so #2 does not exist"),
        ({"link": "z0l00"}, "'z0l00' names no link"),
        ({"port": "z0l00-z0s01"}, "'z0l00-z0s01' is not a port"),
        ({"switch": "z0h000"}, "no switch 'z0h000'; they run from z0l00 to ix1"),
        ({"host": "z0l00"}, "no host 'z0l00'"),
        ({"storage": "z0h000"}, "no storage node 'z0h000'; they run from st000 to st003"),
        (
            {"link": "z0l00-z0s01", "rate": 1e-8},
            "rate: 1e-08 of z0l00:6--z0s01:1 (5 Mbit/s) leaves 0.05 bit/s; a link keeps 8 kbit/s or more, rate 0.0016",
        ),
    ],
)
def test_what_the_fabric_does_not_have_is_named(target: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        schedule_failures(configs({**target, "at": 1}), FABRIC, 1)
    assert words in str(caught.value)


def test_every_fault_is_told_at_once() -> None:
    lines = configs(
        {"link": "z0l00:77", "at": 1},
        {"link": "z0l00-z0s01", "at": 1, "for": 2, "rate": 0.5},
        {"switch": "z0s01", "at": 2, "rate": 0.25},
        {"host": "z0h999", "at": 1},
    )
    faults = list(failure_faults(lines, FABRIC, 1))
    assert len(faults) == 3
    assert (
        "failures.1 and failures.2: z0l00:6--z0s01:1 would have 0.5 and 0.25 of its rate at once, from 2 s on"
        in faults[2]
    )


def test_parallel_links_want_a_number() -> None:
    fabric = load_fabric("fire_flyer_2_small", ["spines_per_zone=2", "uplinks_per_spine=2"])
    with pytest.raises(ConfigError, match="2 links join z0l00 and z0s01; choose one, from z0l00-z0s01#1"):
        schedule_failures(configs({"link": "z0l00-z0s01", "at": 1}), fabric, 1)
    first, second = (
        schedule_failures(configs({"link": f"z0l00-z0s01#{number}", "at": 1}), fabric, 1).links for number in (1, 2)
    )
    assert first != second


def test_configs_are_frozen() -> None:
    (config,) = configs({"link": "z0l00:6", "at": 1})
    with pytest.raises(ValidationError):
        config.at = 2.0  # type: ignore[misc]


def test_miswiring_exchanges_two_far_ends_and_nothing_else() -> None:
    one, other = FABRIC.links_of_tier(Tier.UPLINK)[0], FABRIC.links_of_tier(Tier.UPLINK)[5]
    wired = miswire(FABRIC, one, other)
    assert (wired.peer(one.a), wired.peer(other.a)) == (other.b, one.b)
    assert set(FABRIC.links) - set(wired.links) == {one, other}
    assert {port for link in wired.links for port in link.ports} == {
        port for link in FABRIC.links for port in link.ports
    }
    assert FABRIC.peer(one.a) == one.b


def test_miswiring_refuses_what_would_be_no_fabric() -> None:
    one = FABRIC.links_of_tier(Tier.UPLINK)[0]
    with pytest.raises(ValueError, match="two links of one tier"):
        miswire(FABRIC, one, FABRIC.links_of_tier(Tier.ACCESS)[0])
    with pytest.raises(ValueError, match="two links of one tier"):
        miswire(FABRIC, one, one)
    hosts = FABRIC.links_of_tier(Tier.ACCESS)
    far = next(link for link in hosts if link.b.node.zone == 1)
    with pytest.raises(ValueError, match="choose links of one zone"):
        miswire(FABRIC, hosts[0], far)


def test_what_is_repeated_often_is_looked_at_once() -> None:
    """With each pair of ten thousand stops it took half a minute; here twice as many take four times as long, or
    twice."""

    def took_s(times: int) -> float:
        repeat = {"every": "2 ms", "times": times}
        lines = configs({"process": "z0h000", "effect": "stop", "at": 0, "for": "1 ms", "repeat": repeat})
        began = time.process_time()
        schedule_failures(lines, FABRIC, 1)
        return time.process_time() - began

    short, long = (min(took_s(times) for _ in range(3)) for times in (600, 9_600))
    print(f"600 stops: {short:.3f} s, 9,600: {long:.3f} s")
    assert long < 64 * short, "16 times as many took 256 times as long"
