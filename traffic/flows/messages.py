"""Messages that hosts send each other at once: permuted, an incast, all to all; and the time that NICs need. Pure."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from fabric.model.patterns import permutation
from traffic.flows.sized_flows import SizedFlow
from traffic.metrics import payload_fraction


@dataclass(frozen=True)
class Message:
    """What one host sends another."""

    source: NodeId
    sink: NodeId
    size_bytes: int


def incast(fabric: Fabric, senders: int, size_bytes: int) -> list[Message]:
    """Return a message from each of the first compute nodes to the last one."""
    hosts = fabric.computes
    return [Message(host, hosts[-1], size_bytes) for host in hosts[:senders]]


def all_to_all(fabric: Fabric, size_bytes: int) -> list[Message]:
    """Return messages from every compute node to every other one, of so many bytes of a sender in all."""
    hosts = fabric.computes
    part = -(-size_bytes // (len(hosts) - 1))
    return [Message(host, other, part) for host in hosts for other in hosts if host != other]


def permuted(fabric: Fabric, size_bytes: int, seed: int) -> list[Message]:
    """Return a message from every compute node to another one, to each by one: a permutation of a seed."""
    nics = [fabric.nics_of[host][0] for host in fabric.computes]
    pairs = permutation(fabric, nics, random.Random(f"{seed}"))
    return [Message(source.node, sink.node, size_bytes) for source, sink in pairs]


def flows_of(messages: Sequence[Message], each: int, start_s: float) -> list[SizedFlow]:
    """Return the connections of messages, ``each`` of every message, those of a message one after the other."""
    flows = []
    for message in messages:
        parts = [len(part) for part in np.array_split(range(message.size_bytes), each)] if each > 1 else []
        sizes = parts or [message.size_bytes]
        flows += [SizedFlow(message.source, message.sink, size, start_s) for size in sizes if size]
    return flows


def bound_s(fabric: Fabric, messages: Sequence[Message]) -> float:
    """Return the time that the busiest NIC takes for messages, at the rate of payload."""
    sent, received = Counter[NodeId](), Counter[NodeId]()
    for one in messages:
        sent[one.source] += one.size_bytes
        received[one.sink] += one.size_bytes
    most = max(*sent.values(), *received.values())
    return most * 8 / (fabric.nic_rate_bps * payload_fraction(fabric.mtu_bytes))
