"""What the fabric allows: the least time in which data can be where it is to be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controllers.planning.paths import nics_for, planned_path
from controllers.planning.plan import RoutePlan
from experiments.libraries.catalogue import ALLREDUCE, OWN
from fabric.model.identity import NodeId
from fabric.model.network import ETHERNET_HEADER_BYTES, Fabric, Link
from traffic.collectives.bandwidth import busbw_factor
from traffic.metrics import IP_TCP_HEADER_BYTES

REQUEST_BYTES = 64
"""Of what asks for data that is to be read: a guess, which a link of 200 Gbit/s carries in 5 ns."""


def path(fabric: Fabric, plan: RoutePlan, source: NodeId, destination: NodeId) -> list[Link]:
    """Return the links between two hosts, as the plan has them."""
    ports = planned_path(plan, fabric, *nics_for(fabric, source, destination))
    return [fabric.link_at[port] for port in ports]


def one_way_s(size_bytes: float, links: Sequence[Link], mtu_bytes: int) -> float:
    """Return how long ``size_bytes`` of data take from one end to the other by full TCP segments, which each switch
    receives whole: the slowest link carries all of them, the others the last one. Nobody computes."""
    payload = mtu_bytes - IP_TCP_HEADER_BYTES
    frames = max(1, math.ceil(size_bytes / payload))
    whole_bits = 8 * (size_bytes + frames * (IP_TCP_HEADER_BYTES + ETHERNET_HEADER_BYTES))
    frame_bits = min(whole_bits, 8.0 * (mtu_bytes + ETHERNET_HEADER_BYTES))
    rates = sorted(link.rate_bps for link in links)
    delays_s = sum(link.delay_ns for link in links) / 1e9
    return delays_s + whole_bits / rates[0] + sum(frame_bits / rate for rate in rates[1:])


def transfer_s(size_bytes: int, links: Sequence[Link], mtu_bytes: int, is_read: bool) -> float:
    """Return the least time of a transfer; a read asks for it first."""
    request_s = one_way_s(REQUEST_BYTES, links, mtu_bytes) if is_read else 0.0
    return request_s + one_way_s(size_bytes, links, mtu_bytes)


def sent_bytes(operation: str, size_bytes: int, ranks: int) -> float:
    """Return the least that a rank sends in an operation, in bytes: what nccl-tests' busbw counts."""
    return busbw_factor(OWN[operation], ranks) * size_bytes


def allreduce_s(size_bytes: int, ranks: int, links: Sequence[Link], mtu_bytes: int) -> float:
    """Return the least time of an allreduce: that of what a rank sends at least, one way."""
    return one_way_s(sent_bytes(ALLREDUCE, size_bytes, ranks), links, mtu_bytes)
