"""Our graphs, written as Chakra and GOAL, are the same when they are read back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import SAMPLES, read, sample
from traffic.work.checks import require_playable
from traffic.work.formats.chakra_writing import write_chakra
from traffic.work.formats.goal_writing import write_goal
from traffic.work.formats.lowering import lowered
from traffic.work.formats.names import ALL_TO_ALL_V
from traffic.work.graph import ALL_RANKS, RankWork, WorkGraph, graph_of
from traffic.work.graph_lines import lines_of
from traffic.work.loading import load_graph
from traffic.work.operations import ANY, CollectiveCall, Compute, FileRead, FileWrite, Receive, Send

COLLECTIVES = (
    "allreduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "broadcast", "reduce", "gather",
    "scatter", "barrier",
)  # fmt: skip
DTYPES = ("fp32", "bf16")
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
times = st.floats(0, 1e5, allow_nan=False)
sizes = st.integers(0, 2**40)


@st.composite
def graphs(draw: Any, files: bool = False) -> WorkGraph:
    """Draw a graph; it need not be one that can be played."""
    ranks = draw(st.integers(1, 4))
    groups = {"pair": tuple(draw(st.permutations(range(ranks))))[:2], "7": tuple(range(ranks))}
    works = [RankWork() for _ in range(ranks)]
    for rank, work in enumerate(works):
        for place in range(draw(st.integers(0, 6))):
            before = st.lists(st.integers(0, place - 1), max_size=3, unique=True) if place else st.just([])
            common = {
                "after": tuple(draw(before)),
                "after_start": tuple(draw(before)),
                "stream": draw(st.sampled_from(["", "compute", "cpu 0", "cpu 3", "nic 1", "cpu x"]) | texts),
                "name": draw(texts),
                "measured_s": draw(st.none() | times),
            }
            work.add(draw(_operation(common, rank, groups, files)))
    return graph_of(draw(texts), works, groups)


def _operation(common: dict[str, Any], rank: int, groups: dict[str, tuple[int, ...]], files: bool) -> Any:
    ranks = len(groups["7"])
    mine = [name for name, members in groups.items() if rank in members] + [ALL_RANKS]
    tags = st.integers(0, 2**31)
    places, peers = st.integers(0, 3), st.integers(0, ranks - 1)

    def call(name: str, size: int, group: str, root: int, dtype: str) -> CollectiveCall:
        sent = (size,) if name == ALL_TO_ALL_V else ()
        how = "tree" if name == "reduce" else None
        return CollectiveCall(
            **common, collective=name, size_bytes=size, group=group, root=root % len(groups.get(group, groups["7"])),
            dtype=dtype, algorithm=how, sent_bytes=sent,
        )  # fmt: skip

    kinds: list[Any] = [
        st.builds(partial(Compute, **common), duration_s=st.none() | times, flops=st.floats(0, 1e30)),
        st.builds(lambda ns: Compute(**common, duration_s=ns / 10**9), st.integers(0, 10**12)),
        st.builds(partial(Send, **common), peer=peers, size_bytes=sizes, tag=tags),
        st.builds(partial(Receive, **common), peer=st.just(ANY) | peers, size_bytes=sizes, tag=st.just(ANY) | tags),
        st.builds(call, st.sampled_from(COLLECTIVES), sizes, st.sampled_from(mine), places, st.sampled_from(DTYPES)),
    ]
    if files:
        path = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=9)
        for kind in (FileRead, FileWrite):
            kinds.append(st.builds(partial(kind, **common), path=path, offset_bytes=sizes, size_bytes=sizes))
    return st.one_of(kinds)


@settings(max_examples=40, deadline=None)
@given(graph=graphs(files=True))
def test_a_graph_is_the_same_as_chakra(graph: WorkGraph) -> None:
    assert read(*write_chakra(graph)).graph() == WorkGraph(graph.name or "trace.0", graph.operations, graph.groups)


@settings(max_examples=40, deadline=None)
@given(graph=graphs())
def test_a_graph_of_messages_is_the_same_as_goal(graph: WorkGraph) -> None:
    plain = [tuple(one for one in operations if not isinstance(one, CollectiveCall)) for operations in graph.operations]
    works: Sequence[RankWork] = [RankWork() for _ in plain]
    for work, operations in zip(works, plain, strict=True):
        for place, one in enumerate(operations):
            kept = {key: tuple(p for p in getattr(one, key) if p < place) for key in ("after", "after_start")}
            work.add(type(one)(**{**{name: getattr(one, name) for name in one.__dataclass_fields__}, **kept}))
    expected = graph_of(graph.name or "trace.0", works)
    assert read(write_goal(expected)).graph() == expected


def test_samples_are_the_same_as_chakra() -> None:
    for name in ("stg_dp2tp2pp2.tar.gz", "dlrm_1.0.1.tar.gz", "goal_semantics.goal"):
        graph = sample(name).graph()
        assert read(*write_chakra(graph)).graph() == graph


def test_goal_has_no_files() -> None:
    graph = WorkGraph("g", ((FileRead(path="a", offset_bytes=0, size_bytes=1),),))
    with pytest.raises(ConfigError, match="rank 0, operation 0: FileRead: GOAL has only calc, send and recv"):
        write_goal(graph)


def every_collective(ranks: int, size_bytes: int) -> WorkGraph:
    works = [RankWork() for _ in range(ranks)]
    for rank, work in enumerate(works):
        for name in COLLECTIVES:
            sent = tuple((rank + 1) * (to + 2) for to in range(ranks)) if name == ALL_TO_ALL_V else ()
            work.add(
                CollectiveCall(
                    collective=name, size_bytes=sum(sent) if sent else size_bytes, group="all", root=ranks - 1,
                    sent_bytes=sent, stream="comm", dtype="fp8",
                )
            )  # fmt: skip
        work.add(Compute(duration_s=1.0, stream="comm"))
        work.add(Send(peer=rank, size_bytes=1, tag=5))
        work.add(Receive(peer=rank, size_bytes=1, tag=5))
    return graph_of("all of them", works)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("size_bytes", [0, 1, 1000])
def test_collectives_as_messages_end_and_are_the_same_as_goal(ranks: int, size_bytes: int) -> None:
    graph = lowered(every_collective(ranks, size_bytes))
    require_playable(graph)
    assert read(write_goal(graph)).graph() == graph


@pytest.mark.parametrize(
    ("collective", "shares"),
    [
        ("allreduce", dict.fromkeys(range(8), 2 * 7 / 8)),
        ("all_gather", dict.fromkeys(range(8), 7 / 8)),
        ("reduce_scatter", dict.fromkeys(range(8), 7 / 8)),
        ("all_to_all", dict.fromkeys(range(8), 7 / 8)),
        ("gather", {0: 0.0} | dict.fromkeys(range(1, 8), 1 / 8)),
        ("scatter", {0: 7 / 8} | dict.fromkeys(range(1, 8), 0.0)),
        ("broadcast", {0: 3.0, 4: 2.0, 2: 1.0, 6: 1.0, 1: 0.0, 3: 0.0, 5: 0.0, 7: 0.0}),
    ],
)
def test_ranks_send_what_the_closed_form_says(collective: str, shares: dict[int, float]) -> None:
    call = CollectiveCall(collective=collective, size_bytes=8000, group="all")
    graph = lowered(WorkGraph("g", ((call,),) * 8))
    sent = {rank: sum(one.size_bytes for one in graph.operations[rank] if isinstance(one, Send)) for rank in range(8)}
    assert sent == {rank: share * 8000 for rank, share in shares.items()}


def test_collectives_that_jobs_know_stay() -> None:
    graph = every_collective(3, 1000)
    partly = lowered(graph, ("allreduce", "broadcast"))
    kept = {one.collective for _, _, one in partly.all_operations() if isinstance(one, CollectiveCall)}
    assert kept == {"allreduce", "broadcast"}
    require_playable(partly)


def test_collectives_beside_receives_of_any_tag_are_refused() -> None:
    graph = WorkGraph(
        "g",
        ((CollectiveCall(collective="barrier", size_bytes=0, group="all"), Receive(peer=0, size_bytes=1, tag=ANY)),),
    )
    with pytest.raises(ConfigError, match="receives any tag and calls collectives"):
        lowered(graph)


def test_our_own_lines_are_a_trace_and_traces_are_graphs_of_jobs(tmp_path: Path) -> None:
    graph = every_collective(3, 1000)
    assert read("\n".join(lines_of(graph))).graph() == graph
    assert load_graph(SAMPLES / "goal_semantics.goal").operations == sample("goal_semantics.goal").graph().operations
    (tmp_path / "both").mkdir()
    for name in ("a.goal", "b.goal"):
        (tmp_path / "both" / name).write_text("num_ranks 1\nrank 0 { }\n")
    with pytest.raises(ConfigError, match="holds 2 traces, and a job plays one; name the files of one"):
        load_graph(tmp_path / "both")
