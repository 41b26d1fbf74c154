"""Links with a delay: what is asked of the kernel, and what a topology may say."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from fabric.emulation import arrivals
from fabric.errors import ConfigError, EmulationError
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.model.network import Tier
from fabric.queueing.htb import ShapedPort, install_requests
from fabric.world.kernel_api import netlink
from fabric.world.kernel_api.netlink import Netlink, attributes_of
from topologies.load import load_fabric

LANES = plan_lanes(QueueConfig(), Queueing.LANES)
TCMSG_BYTES = 20


def port(delay_ns: int) -> ShapedPort:
    return ShapedPort("z0h000-eth0", 10, 200_000_000_000, 4200, 0.0, delay_ns)


def parent_of(request: netlink.Request) -> int:
    return int(struct.unpack_from("=I", request.body, 12)[0])


def test_a_delay_is_netem_at_the_root_with_the_lanes_below() -> None:
    delay, htb, *_ = install_requests(port(5_000), LANES)
    attributes = dict(attributes_of(delay.body, TCMSG_BYTES))
    assert attributes[1] == b"netem\0"
    assert dict(attributes_of(attributes[2], 24))[10] == struct.pack("=q", 5_000)
    assert (parent_of(delay), parent_of(htb)) == (netlink.TC_H_ROOT, netlink.DELAY_HANDLE | 1)


@pytest.mark.parametrize("queueing", [Queueing.SHARED, Queueing.LANES])
def test_jitter_is_netem_at_hosts_only_from_none_to_its_most_and_in_order(queueing: Queueing) -> None:
    plan = plan_lanes(QueueConfig(jitter=1), queueing)
    host = replace(port(0), is_host=True)
    netem = dict(attributes_of(install_requests(host, plan)[0].body, TCMSG_BYTES))
    assert netem[1] == b"netem\0"
    options = dict(attributes_of(netem[2], 24))
    mean_ns, half_ns = (struct.unpack("=q", options[kind])[0] for kind in (10, 11))
    assert mean_ns == half_ns == 84  # A frame of 4,214 bytes takes 168.56 ns.
    assert struct.unpack("=Q", options[8])[0] > 10**18, "without a rate, netem reorders"
    delayed = dict(attributes_of(install_requests(replace(host, delay_ns=5_000), plan)[0].body, TCMSG_BYTES))
    assert dict(attributes_of(delayed[2], 24))[10] == struct.pack("=q", 5_084)
    assert parent_of(install_requests(port(0), plan)[0]) == netlink.TC_H_ROOT
    assert b"netem" not in install_requests(port(0), plan)[0].body


def test_jitter_of_lossless_ports_is_theirs() -> None:
    plan = plan_lanes(QueueConfig(jitter=2), Queueing.LOSSLESS_LANES)
    (at_host,) = install_requests(replace(port(0), is_host=True), plan)
    (at_switch,) = install_requests(port(0), plan)
    asked = []
    for request in (at_host, at_switch):
        options = dict(attributes_of(dict(attributes_of(request.body, TCMSG_BYTES))[2], 0))
        asked.append(struct.unpack_from("=Q", options[1], 32)[0])
    assert asked == [337, 0]


def test_without_a_delay_the_lanes_are_the_root() -> None:
    assert parent_of(install_requests(port(0), LANES)[0]) == netlink.TC_H_ROOT


def test_a_delay_on_arrival_leaves_a_hosts_port_its_queues_and_a_lossless_one_its_delay() -> None:
    late = replace(port(5_000), is_host=True, delays_on_arrival=True)
    assert parent_of(install_requests(late, LANES)[0]) == netlink.TC_H_ROOT
    assert not any(b"netem" in request.body for request in install_requests(late, LANES))
    lossless = plan_lanes(QueueConfig(), Queueing.LOSSLESS)
    assert install_requests(late, lossless) == install_requests(replace(late, delays_on_arrival=False), lossless)


def test_where_a_process_switches_a_delay_at_a_hosts_link_is_refused_by_name() -> None:
    arrivals.require(load_fabric("fire_flyer_2_small_200g", ["link_delay=0", "inter_zone.delay=30 us"]))
    with pytest.raises(EmulationError, match=r"link z0h000:0--z0l00:\d+: a delay of 1000 ns at a host's link"):
        arrivals.require(load_fabric("fire_flyer_2_small_200g"))


def test_a_topology_gives_its_links_their_delays() -> None:
    fabric = load_fabric("fire_flyer_2_small_200g", ["link_delay=2 us", "inter_zone.delay=30 us"])
    assert {link.delay_ns for link in fabric.links_of_tier(Tier.INTER_ZONE)} == {30_000}
    assert {link.delay_ns for link in fabric.links if link.tier is not Tier.INTER_ZONE} == {2_000}
    assert fabric.scale == 1


def test_a_delay_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"link_delay: Input should be greater than or equal to 0 \(got -1\)"):
        load_fabric("fire_flyer_2_small_200g", ["link_delay=-1"])


@pytest.mark.root
def test_a_kernel_without_netem_says_what_is_missing(private_network: None) -> None:
    requests = install_requests(ShapedPort("lo", 1, 10**9, 4200, 0.0, 1_000), LANES)
    with Netlink() as link:
        try:
            link.send(requests)
        except EmulationError as error:
            assert "delaying lo by netem, which this kernel must have" in str(error)
