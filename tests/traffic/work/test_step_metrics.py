"""Numbers of a step: what is exposed, idle and slack, and who waits for whom."""

from __future__ import annotations

import pytest

from tests.traffic.work.formats.reading import sample
from tests.traffic.work.training import at_once, played
from traffic.work.graph import RankWork, graph_of
from traffic.work.list_schedule import Timeline, list_schedule
from traffic.work.operations import CollectiveCall, Compute, Receive, Send
from traffic.work.step_metrics import (
    bubble,
    compute_s,
    exposed_s,
    slack_s,
    staleness,
    waited_for,
)
from traffic.work.volumes import busiest_s


def two_ranks() -> Timeline:
    """Rank 1 computes for 3 s where rank 0 does for 1, then both add up for 2 s, compute for 1, and send for 0.5 s."""
    works = [RankWork(), RankWork()]
    for rank, work in enumerate(works):
        first = work.add(Compute(duration_s=1.0 + 2 * rank, stream="compute", name="forward"))
        call = work.add(
            CollectiveCall(collective="allreduce", size_bytes=2, group="all", name="gradients", after=(first,))
        )
        last = work.add(Compute(duration_s=1.0, stream="compute", name="update", after=(call,)))
        if rank:
            work.add(Send(peer=0, size_bytes=1, name="pipeline send", after=(last,)))
        else:
            got = work.add(Receive(peer=1, size_bytes=1, name="pipeline receive"))
            work.add(Compute(duration_s=1.0, stream="compute", name="backward", after=(got, last)))
    return list_schedule(graph_of("two", works), lambda operations, _: 2.0 if len(operations) > 1 else 0.5)


def test_who_waits_for_what_and_whom() -> None:
    timeline = two_ranks()
    assert timeline.end_s == 7.5
    assert exposed_s(timeline, 0) == {"gradients": 4.0, "pipeline": 0.5}
    assert exposed_s(timeline, 1) == {"gradients": 2.0, "pipeline": 0.5}
    assert waited_for(timeline) == {(0, 1): 4.5}
    assert compute_s(timeline, 0) == 3.0
    assert bubble(timeline, 0) == pytest.approx(4.5 / 3)
    assert slack_s(timeline, 1) == {"gradients": 0.0, "pipeline send": 1.0}


def test_computing_is_the_time_in_which_any_stream_computes_and_a_host_is_apart() -> None:
    """Two streams overlap by 0.5 s; the host issues meanwhile, and waits for the allreduce before it launches more."""
    work = RankWork()
    first = work.add(Compute(duration_s=1.0, stream="gpu 7"))
    work.add(Compute(duration_s=0.5, stream="gpu 9"))
    issued = work.add(Compute(duration_s=1.5, stream="host", name="launch"))
    call = work.add(CollectiveCall(collective="allreduce", size_bytes=4, group="all", name="sum", after=(first,)))
    waited = work.add(Compute(duration_s=0.0, stream="host", name="synchronize", after=(issued, call)))
    work.add(Compute(duration_s=0.25, stream="gpu 7", after=(waited,)))
    timeline = list_schedule(graph_of("one", [work]), lambda operations, _: 1.0)
    assert timeline.end_s == 2.25
    assert compute_s(timeline, 0) == 1.25
    assert bubble(timeline, 0) == pytest.approx(1.0 / 1.25)
    assert exposed_s(timeline, 0) == {"sum": 1.0}


def test_a_captured_step_computes_no_longer_than_it_lasts() -> None:
    graph = sample("kineto_dlrm_worker0.json.gz", ranks=8).graph()
    timeline = list_schedule(graph, lambda operations, _: 1e-5)
    assert 0 < compute_s(timeline, 0) < timeline.end_s < sum(end - start for _, _, start, end in timeline.spans())
    assert busiest_s(graph)[0] <= compute_s(timeline, 0)
    assert bubble(timeline, 0) > 0


@pytest.mark.parametrize("workers", [2, 4])
def test_gradients_of_equal_workers_miss_those_of_all_others(workers: int) -> None:
    servers = {"servers": 1, "steps": 8, "slow_workers": {one: 1 + one / 1000 for one in range(workers)}}
    keys = {"layout": {"data": workers}}
    free = staleness(played("resnet50", at_once, **keys, parameter_server={**servers, "delay": None}), workers)
    assert {one for steps in free.values() for one in steps[1:-1]} == {workers - 1}
    bound = staleness(played("resnet50", at_once, **keys, parameter_server={**servers, "delay": 0}), workers)
    assert all(one <= workers - 1 for steps in bound.values() for one in steps)


def test_a_slow_worker_slows_synchronous_steps_only() -> None:
    """One of n that takes twice as long: all steps take twice as long, or 1 / (2 n) of the throughput is lost."""
    servers = {"servers": 1, "steps": 10, "slow_workers": {0: 2.0}}
    keys = {"layout": {"data": 4}}
    done = {
        delay: sum(
            end <= 29.9
            for _, one, _, end in played(
                "resnet50", at_once, **keys, parameter_server={**servers, "delay": delay}
            ).spans()
            if isinstance(one, Receive) and one.name.startswith("push") and " part 0 " in one.name
        )
        for delay in (0, None)
    }
    assert done[None] == pytest.approx(4 * 10 * (1 - 1 / 8), abs=4)
    assert done[0] == pytest.approx(4 * 10 / 2, abs=4)
