"""Fabrics of other shapes than Fire-Flyer 2's carry real packets as planned: three layers, rails, dual ToR, planes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.guest_scripts import run_module

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
Look = Callable[[str], dict[str, Any]]
NICS = {"fat_tree_k4_small": 1, "rail_optimised_small": 4, "dual_tor_small": 2, "next_generation_32768_small": 4}
HOPS = {"fat_tree_k4_small": 6, "rail_optimised_small": 4, "dual_tor_small": 4, "next_generation_32768_small": 4}


SHAPES = [
    pytest.param(name, marks=[pytest.mark.soak] if name != "next_generation_32768_small" else []) for name in NICS
]
"""One with planes; free forms of every shape are tried in packets, too."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Look:
    """What any_fabric.py saw of one of them, in a guest."""

    @cache
    def look(name: str) -> dict[str, Any]:
        report = tmp_path_factory.mktemp("any_fabric") / "report.json"
        run_module("tests.virtual.any_fabric", str(report), name, keep=[report.parent])
        found: dict[str, Any] = json.loads(report.read_text())[name]
        return found

    return look


@pytest.mark.parametrize("name", SHAPES)
def test_packets_take_the_planned_way_by_every_nic(seen: Look, name: str) -> None:
    probes = seen(name)["probes"]
    assert len(probes) == NICS[name]
    for one in probes:
        assert one["delivered"]
        assert one["met"] == one["planned"]
        assert len(one["planned"]) <= HOPS[name]


@pytest.mark.parametrize("name", SHAPES)
def test_a_permutation_gets_the_fair_shares_of_its_planned_paths(seen: Look, name: str) -> None:
    """Also by NICs other than a host's first: each flow binds to its NIC's address, and leaves by that NIC."""
    found = seen(name)["permutation"]
    print(name, dict(zip(found["flows"], found["fractions"], strict=True)))
    assert sum(found["fractions"]) / len(found["fractions"]) == pytest.approx(1, abs=0.05)
    assert min(found["fractions"]) > 0.8
    assert found["unaccounted_packets"] == 0


@pytest.mark.parametrize("name", SHAPES)
def test_all_to_all_is_in_order(seen: Look, name: str) -> None:
    found = seen(name)["all_to_all"]
    print(found["measured"])
    assert found["outcome"] == "passed"
    assert found["figures"]["unaccounted_packets"] == 0
