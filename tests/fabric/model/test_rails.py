"""Which NICs of its hosts a job uses."""

from __future__ import annotations

import pytest

from fabric.errors import TopologyError
from fabric.model.network import Fabric, Nic
from fabric.model.rails import dealt_nics, met_nics, most_nics, nic_pairs, rails_in_common
from topologies.load import load_fabric

IN_POD = load_fabric("dgx_a100_10000_small")
PLANES = load_fabric("next_generation_32768_small", ["nics_per_host=8", "switch_ports=16"])
ZONES = load_fabric("fire_flyer_2_small")
NODES = load_fabric("dgx_a100_nodes")


def numbers(nics: tuple[Nic, ...]) -> list[int]:
    return [nic.port.number for nic in nics]


@pytest.mark.parametrize(("fabric", "expected"), [(IN_POD, [0, 1]), (PLANES, [0, 4, 1, 5, 2, 6, 3, 7]), (NODES, [0])])
def test_hosts_use_all_their_nics_by_network_and_nodes_with_an_inside_their_cpus(
    fabric: Fabric, expected: list[int]
) -> None:
    rails = rails_in_common(fabric, fabric.computes)
    assert [numbers(nics) for nics in rails.values()] == [expected] * len(fabric.computes)
    assert most_nics(rails) == len(expected)


def test_nics_of_one_place_reach_each_other() -> None:
    rails = rails_in_common(PLANES, PLANES.computes)
    first, *others = rails.values()
    for other in others:
        assert all(PLANES.reaches(*pair) for pair in met_nics(first, other))


def test_storage_speaks_in_one_zone() -> None:
    server, zone = ZONES.storages[0], 1
    client = next(node for node in ZONES.computes if node.zone == zone)
    assert rails_in_common(ZONES, (client, server), zone)[server] == (ZONES.nic_in_zone(server, zone),)
    assert nic_pairs(ZONES, client, server) == [ZONES.nic_pair(client, server)]
    with pytest.raises(TopologyError, match="no network has a NIC in zone 5 of each of 2 hosts; choose others"):
        rails_in_common(ZONES, (client, server), 5)


def test_every_nic_of_the_end_that_has_more_is_in_a_pair() -> None:
    one, two = IN_POD.computes[:2]
    assert met_nics(IN_POD.nics_of[one], IN_POD.nics_of[two][:1]) == [
        (IN_POD.nics_of[one][0], IN_POD.nics_of[two][0]),
        (IN_POD.nics_of[one][1], IN_POD.nics_of[two][0]),
    ]


def test_flows_are_dealt_by_what_nics_have_to_carry_already() -> None:
    a, b, c = IN_POD.computes[:3]
    found = dealt_nics(IN_POD, [(a, b, 100), (a, b, 30), (a, c, 30), (c, b, 10), (a, b, 60)])
    assert [numbers(pair) for pair in found] == [[0, 0], [1, 1], [1, 1], [1, 1], [1, 1]]
    one, two = ZONES.computes[:2]
    assert dealt_nics(ZONES, [(one, two, 5)] * 2) == [ZONES.nic_pair(one, two)] * 2
