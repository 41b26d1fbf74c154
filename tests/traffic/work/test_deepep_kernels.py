"""What calls of DeepEP's kernels take: its published bandwidth follows, for all numbers of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import pytest

from traffic.work.generators.deepep_kernels import NOTIFY_S, NVLINK_BPS, call_times
from traffic.work.generators.expert_step import Extras, deepseek_phases, step_with_bytes
from traffic.work.generators.routing import RoutingRule, route
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import CollectiveCall, Operation

NIC_BPS = 49.2e9
"""What headers leave of 400 Gbit/s."""
SHRINK = 32
PUBLISHED = {2: (43, 43), 4: (58, 57), 8: (51, 50)}


def test_the_nic_waits_for_a_chunk_on_the_way_back_and_nvlink_for_the_last_on_the_way_out() -> None:
    shape, sizes = (32, 4), (14_400, 422_000_000)
    back, out = (call_times(what, shape, sizes, 1) for what in ("combine", "dispatch"))
    assert back.nvlink_s == pytest.approx(422e6 / NVLINK_BPS["combine"])
    assert back.first_s == pytest.approx(back.nvlink_s * 20 * 12 * 4 / 14_400)
    assert back.last_s == out.first_s == 0
    assert out.last_s == pytest.approx(out.nvlink_s * 32 * 12 * 4 / 14_400 / 2)


def test_times_shrink_with_tokens() -> None:
    whole, less = (
        call_times("combine", (64, 8), (16_000, 4 * 10**8), 1),
        call_times("combine", (64, 8), (250, 6_250_000), 64),
    )
    assert less.notify_s * 64 == whole.notify_s == NOTIFY_S
    assert less.first_s * 64 == pytest.approx(whole.first_s)


def test_a_chunk_is_no_more_than_all() -> None:
    few = call_times("combine", (32, 4), (10, 10**6), 1)
    assert few.first_s == few.nvlink_s
    assert call_times("combine", (32, 4), (0, 0), 1).first_s == 0


@pytest.mark.parametrize("nodes", PUBLISHED)
def test_deepeps_table_follows(nodes: int) -> None:
    """All six of its numbers within 10 %, on paper, from none of them."""
    rule = RoutingRule(experts=256, top=8, groups=nodes, top_groups=min(nodes, 4), best=1)
    routed = route(rule, 8 * nodes, 8, 4096 // SHRINK)
    phases = [one for one in deepseek_phases() if one.layer == 0]
    graph = step_with_bytes(phases, routed, 8, Extras(nvlink_Bps=1.0, kernels_shrink=SHRINK))

    def over_nics(operations: Sequence[Operation], ranks: Sequence[int]) -> float:
        calls = [one for one in operations if isinstance(one, CollectiveCall) and one.sent_bytes]
        return max((sum(one.sent_bytes) * (nodes - 1) / nodes / NIC_BPS for one in calls), default=0.0)

    timeline = list_schedule(graph, over_nics)
    for what, published in zip(("dispatch", "combine"), PUBLISHED[nodes], strict=True):
        found = []
        for rank, operations in enumerate(graph.operations):
            places = [place for place, one in enumerate(operations) if one.name.startswith(f"{what} of ")]
            places = [
                place for place in places if operations[place].name.split()[2] == operations[places[0]].name.split()[2]
            ]
            began_s = min(timeline.starts[rank][place] for place in places)
            ended_s = max(timeline.ends[rank][place] for place in places)
            (rail,) = (operations[place] for place in places if isinstance(operations[place], CollectiveCall))
            assert isinstance(rail, CollectiveCall)
            found.append(rail.size_bytes / (ended_s - began_s) / 1e9)
        assert median(found) == pytest.approx(published, rel=0.1)
