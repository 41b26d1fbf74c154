"""Packets of one flow take all uplinks of a leaf: how many each, with all links and with one less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.guest_scripts import run_module

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
PACKETS = 4000
OTHERS = 8
"""Packets other than probes: only what goes to ports where nobody listens, which a kernel reports."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    directory = tmp_path_factory.mktemp("spraying")
    run_module("tests.virtual.spraying", str(directory / "report.json"), keep=[directory])
    report: dict[str, dict[str, Any]] = json.loads((directory / "report.json").read_text())
    print(json.dumps(report, indent=1))
    return report


def spread(count: float, ways: int) -> float:
    """Return four standard deviations of what one of some ways gets at random."""
    return float(4 * (count / ways * (1 - 1 / ways)) ** 0.5)


def test_random_ways_are_binomial(found: dict[str, dict[str, Any]]) -> None:
    whole = found["spray"]["whole"]
    assert sum(whole) == pytest.approx(PACKETS, abs=OTHERS)
    assert all(abs(sent - PACKETS / 4) < spread(PACKETS, 4) for sent in whole), whole
    assert len({*whole}) > 1, "as if in turn"


def test_ways_in_turn_are_exact(found: dict[str, dict[str, Any]]) -> None:
    assert all(abs(sent - PACKETS / 4) <= OTHERS for sent in found["round_robin"]["whole"])


def test_a_sender_s_entropy_takes_all_ways(found: dict[str, dict[str, Any]]) -> None:
    """128 numbers over four ways: each has 32, give or take."""
    whole = found["entropy"]["whole"]
    assert sum(whole) == pytest.approx(PACKETS, abs=OTHERS)
    assert all(sent / PACKETS * 128 == pytest.approx(32, abs=spread(128, 4)) for sent in whole), whole


def test_a_failed_uplink_leaves_the_others_n_over_n_less_one_each(found: dict[str, dict[str, Any]]) -> None:
    exact, drawn = found["round_robin"]["failed"], found["spray"]["failed"]
    assert exact[0] == drawn[0] == 0
    assert all(sent == pytest.approx(PACKETS / 4 * 4 / 3, rel=0.01) for sent in exact[1:]), exact
    assert all(abs(sent - PACKETS / 3) < spread(PACKETS, 3) for sent in drawn[1:]), drawn


def test_switches_lose_no_packet_of_a_link_that_has_just_failed(found: dict[str, dict[str, Any]]) -> None:
    """Fast failover sends its share by others, packet by packet, before the controller knows of it."""
    assert found["spray"]["failing"][0] <= OTHERS
    assert {name: one["arrived"]["whole"] for name, one in found.items()} == dict.fromkeys(found, PACKETS)
    assert found["spray"]["arrived"]["failing"] >= PACKETS - OTHERS
    assert found["spray"]["arrived"]["failed"] == PACKETS
