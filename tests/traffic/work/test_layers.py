"""What a step's time goes to, by layer and kind."""

from __future__ import annotations

import pytest

from traffic.work.graph import RankWork, graph_of
from traffic.work.layers import UNNAMED, LayerTime, layer_times
from traffic.work.list_schedule import Timeline, list_schedule
from traffic.work.operations import CollectiveCall, Compute, Operation, Send
from traffic.work.step_metrics import exposed_s


def allreduce(name: str, *after: int) -> CollectiveCall:
    return CollectiveCall(collective="allreduce", size_bytes=8, group="all", name=name, after=after)


@pytest.fixture
def timeline() -> Timeline:
    """Computing of 1 s, then an allreduce of 2 s, partly hidden by another 0.5 s of computing; then 1 s that waits
    for it, and a send of 2 s that nobody waits for while nothing computes, and one that is hidden."""
    works = [RankWork() for _ in range(2)]
    for rank, work in enumerate(works):
        first = work.add(Compute(duration_s=1.0, stream="gpu", name="attention"))
        call = work.add(allreduce("attention", first))
        work.add(Compute(duration_s=0.5, stream="gpu", name="mlp", after=(first,)))
        last = work.add(Compute(duration_s=1.0, stream="gpu", name="mlp", after=(call,)))
        if not rank:
            work.add(Send(peer=0, size_bytes=3, after=(call,)))
            work.add(Send(peer=0, size_bytes=4, name="late", after=(last,)))

    def duration(operations: object, ranks: object) -> float:
        return 2.0 if isinstance(operations, list | tuple) and isinstance(operations[0], CollectiveCall) else 0.75

    return list_schedule(graph_of("two", works), duration)


def by_layer(timeline: Timeline, rank: int) -> dict[tuple[str, str], LayerTime]:
    return {(one.layer, one.kind): one for one in layer_times(timeline, rank)}


def test_computing_exposed_and_hidden_communication_are_told_apart(timeline: Timeline) -> None:
    found = by_layer(timeline, 0)
    assert list(found) == [
        ("attention", "compute"), ("attention", "allreduce"), ("mlp", "compute"), (UNNAMED, "send"), ("late", "send"),
    ]  # fmt: skip
    attention = found["attention", "allreduce"]
    assert (attention.exposed_s, attention.hidden_s, attention.computed_s) == (1.5, 0.5, 0.0)
    assert (attention.operations, attention.size_bytes) == (1, 8)
    assert found["mlp", "compute"].computed_s == 1.5
    assert found["mlp", "compute"].operations == 2
    assert (found[UNNAMED, "send"].exposed_s, found[UNNAMED, "send"].hidden_s) == (0.0, 0.75)
    assert (found["late", "send"].exposed_s, found["late", "send"].hidden_s) == (0.75, 0.0)


def test_what_is_exposed_of_layers_is_what_is_exposed_of_the_rank(timeline: Timeline) -> None:
    for rank in range(2):
        found = sum(one.exposed_s for one in layer_times(timeline, rank))
        assert found == pytest.approx(sum(exposed_s(timeline, rank).values()))


def test_operations_that_overlap_hide_each_other_once() -> None:
    work = RankWork()
    work.add(Compute(duration_s=3.0, stream="gpu", name="a"))
    for _ in range(2):
        work.add(Send(peer=0, size_bytes=1, name="b"))
    graph = graph_of("one", [work])
    timeline = Timeline(graph, ((0.0, 0.0, 0.5),), ((3.0, 1.0, 2.0),))
    assert by_layer(timeline, 0)["b", "send"].hidden_s == 2.0


def test_a_host_computes_if_there_is_no_other() -> None:
    def layers(*operations: Operation) -> list[tuple[str, float]]:
        work = RankWork()
        for one in operations:
            work.add(one)
        timeline = list_schedule(graph_of("one", [work]), lambda *_: 1.0)
        return [(one.layer, one.computed_s) for one in layer_times(timeline, 0)]

    host = Compute(duration_s=1.0, stream="host", name="launch")
    assert layers(host) == [("launch", 1.0)]
    assert layers(host, Compute(duration_s=2.0, stream="gpu", name="kernel")) == [("kernel", 2.0)]
