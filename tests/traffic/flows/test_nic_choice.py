"""Which NICs background flows go between."""

from __future__ import annotations

import itertools
from collections import Counter

from traffic.flows.background import Arrival, BackgroundConfig, NicChoice, arrivals

HERE = ("10.0.0.1", "10.1.0.1")
THERE = [(("10.0.0.9", 5), ("10.1.0.9", 6)), (("10.0.0.8", 7),)]


def test_nics_have_the_same_to_carry_but_for_a_flow() -> None:
    choice = NicChoice(HERE, THERE)
    sent, largest = Counter[str](), 0
    for flow in itertools.islice(arrivals(BackgroundConfig(), 1e9, 2, [0, 1], seed=3), 500):
        source, (address, _) = choice.way_of(flow)
        assert address.startswith("10.0.0.8" if flow.sink else source.removesuffix("1"))
        sent[source] += flow.size_bytes
        largest = max(largest, flow.size_bytes)
    assert max(sent.values()) - min(sent.values()) <= 2 * largest


def test_a_host_with_one_nic_reaches_both_of_another() -> None:
    choice = NicChoice(HERE[:1], THERE)
    found = [choice.way_of(Arrival(0.0, 0, size)) for size in (10, 4, 4)]
    assert found == [(HERE[0], THERE[0][0]), (HERE[0], THERE[0][1]), (HERE[0], THERE[0][1])]
