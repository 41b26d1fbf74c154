"""Topologies at other rates."""

from __future__ import annotations

from typing import Any

import pytest

from fabric.errors import ConfigError
from topologies.load import builtin_names, fabric_of, read_topology
from topologies.rates import at_nic_rate, nic_rate_bps, shape

SMALL = read_topology("fire_flyer_2_small")


def rates(topology: dict[str, Any]) -> list[int]:
    return sorted(link.rate_bps for link in fabric_of(topology, "test").links)


LARGE = {"dgx_a100_10000", "next_generation_32768"}  # Which take seconds to build.


@pytest.mark.parametrize("name", sorted(set(builtin_names()) - LARGE))
def test_every_link_of_every_topology_keeps_its_proportion(name: str) -> None:
    topology = read_topology(name)
    halved = at_nic_rate(topology, nic_rate_bps(topology) // 2)
    assert [2 * rate for rate in rates(halved)] == rates(topology)
    assert fabric_of(halved, "test").reference_nic_rate_bps == fabric_of(topology, "test").reference_nic_rate_bps


def test_topologies_of_one_shape_differ_by_all_rates_in_proportion_only() -> None:
    assert shape(at_nic_rate(SMALL, 7_000_000)) == shape(SMALL)
    assert shape({**SMALL, "name": "mine"}) == shape(SMALL)
    assert shape({**SMALL, "uplink_rate": "40 Mbit/s"}) != shape(SMALL)
    assert shape({**SMALL, "compute": 23}) != shape(SMALL)


@pytest.mark.parametrize("topology", [{}, {"nic_rate": "fast"}])
def test_a_topology_without_a_rate_is_refused(topology: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="nic_rate"):
        at_nic_rate(topology, 10**6)
