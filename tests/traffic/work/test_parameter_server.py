"""Parameter servers: shares, bytes, who waits for whom, and times in closed form."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.traffic.work.training import at_once, graph_of_job, played
from traffic.work.closed_forms import sent_bytes
from traffic.work.generators.options import ParameterServer
from traffic.work.generators.parameter_server import shares_of, step_time_s
from traffic.work.graph import WorkGraph
from traffic.work.list_schedule import Timeline
from traffic.work.operations import Receive, Send

SIZE = 4 * 25_557_032
"""Bytes of ResNet-50's gradients."""


def job(workers: int, **servers: object) -> WorkGraph:
    return graph_of_job("resnet50", layout={"data": workers}, parameter_server={"servers": 2, **servers})


def received(graph: WorkGraph) -> list[int]:
    return [sum(one.size_bytes for one in ops if isinstance(one, Receive)) for ops in graph.operations]


def sent(graph: WorkGraph) -> list[int]:
    return [sum(one.size_bytes for one in ops if isinstance(one, Send)) for ops in graph.operations]


@pytest.mark.parametrize(("workers", "servers"), [(2, 1), (4, 4), (6, 2), (3, 2)])
def test_bytes_of_equal_shares(workers: int, servers: int) -> None:
    graph = job(workers, servers=servers)
    assert sent(graph)[:workers] == received(graph)[:workers] == [SIZE] * workers
    assert sum(sent(graph)[workers:]) == workers * SIZE
    for one in (sent(graph), received(graph)):
        assert one[workers:] == pytest.approx([workers * SIZE / servers] * servers, rel=1e-5)
    total = {kind: sum(of_rank) for kind, of_rank in sent_bytes(graph).items()}
    assert total == {"push": workers * SIZE, "pull": workers * SIZE}


@pytest.mark.parametrize(("spare", "time"), [(0, 1.75), (2, 1.474), (4, 1.273), (8, 1.0)])
def test_shares_with_spare_machines_load_all_nics_alike(spare: int, time: float) -> None:
    if spare == 0:
        assert step_time_s(8, ParameterServer.model_construct(servers=0, share="colocated"), 1, 1) == time
        return
    options = ParameterServer(servers=spare, share="colocated")
    assert sum(shares_of(8, options)) == 1
    assert step_time_s(8, options, 1, 1.0) == pytest.approx(time, abs=1e-3)
    graph = job(8, servers=spare, share="colocated")
    assert sent(graph) == pytest.approx([time * SIZE] * (8 + spare), rel=1e-3)
    assert received(graph) == pytest.approx([time * SIZE] * (8 + spare), rel=1e-3)
    if spare == 4:
        shares = [float(share) for share in shares_of(8, options)]
        assert shares == pytest.approx([0.0455] * 8 + [0.159] * 4, abs=1e-3)


def test_colocated_without_spare_machines_is_a_ring() -> None:
    options = ParameterServer.model_construct(servers=0, share="colocated")
    assert shares_of(5, options) == (Fraction(1, 5),) * 5
    assert step_time_s(5, options, 1, 1.0) == pytest.approx(2 * 4 / 5)


@pytest.mark.parametrize(("workers", "servers", "times"), [(2, 1, 2.0), (4, 4, 1.0), (4, 8, 1.0)])
def test_time_of_equal_shares(workers: int, servers: int, times: float) -> None:
    assert step_time_s(workers, ParameterServer(servers=servers), 7, 1.0) == 7 * times


def begun(timeline: Timeline, worker: int) -> list[float]:
    return [
        timeline.starts[worker][place]
        for place, one in enumerate(timeline.graph.operations[worker])
        if one.name.startswith("forward")
    ]


def steps(delay: int | None, **keys: object) -> Timeline:
    servers = {"servers": 1, "steps": 12, "delay": delay, "slow_workers": {2: 2.0}, **keys}
    return played("resnet50", at_once, layout={"data": 3}, parameter_server=servers)


@pytest.mark.parametrize("share", ["equal", "colocated"])
def test_synchronous_steps_are_those_of_the_slowest(share: str) -> None:
    timeline = steps(0, share=share)
    assert begun(timeline, 0) == pytest.approx([6.0 * step for step in range(12)])


def test_asynchronous_steps_are_ones_own() -> None:
    timeline = steps(None)
    assert begun(timeline, 0) == pytest.approx([3.0 * step for step in range(12)])
    assert begun(timeline, 2) == pytest.approx([6.0 * step for step in range(12)])


@pytest.mark.parametrize("share", ["equal", "colocated"])
@pytest.mark.parametrize("delay", [1, 3])
def test_a_worker_is_so_many_steps_ahead_at_most(delay: int, share: str) -> None:
    """It begins step t once all have ended t - 1 - delay."""
    timeline = steps(delay, share=share)
    slowest = [start + 6.0 for start in begun(timeline, 2)]
    for step, start in enumerate(begun(timeline, 0)):
        limit = slowest[step - 1 - delay] if step > delay else 0.0
        assert start == pytest.approx(max(3.0 * step, limit))


def test_pushes_begin_while_gradients_are_computed() -> None:
    timeline = played("vgg16", at_once, layout={"data": 2}, parameter_server={"servers": 1})
    first = min(
        timeline.starts[0][place] for place, one in enumerate(timeline.graph.operations[0]) if isinstance(one, Send)
    )
    late = played(
        "vgg16",
        at_once,
        layout={"data": 2},
        parameter_server={"servers": 1},
        data_parallel={"overlap": False},
    )
    last = min(late.starts[0][place] for place, one in enumerate(late.graph.operations[0]) if isinstance(one, Send))
    assert 1 < first < 1.1 < last == pytest.approx(3)


def test_parts_are_no_larger_than_said() -> None:
    graph = job(2, part=1_000_000)
    sizes = {one.size_bytes for one in graph.operations[0] if isinstance(one, Send)}
    assert max(sizes) == 1_000_000


def test_messages_of_a_step_are_matched_by_tag() -> None:
    graph = job(2)
    tags = [one.tag for one in graph.operations[0] if isinstance(one, Send)]
    assert len(set(tags)) == len(tags)
