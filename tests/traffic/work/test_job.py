"""Jobs that play graphs of work: programs of their own, on loopback instead of a fabric."""

from __future__ import annotations

import importlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fabric.config import checked
from fabric.errors import ConfigError, TrafficError
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from fabric.world.programs.agents import AgentPool
from tests.fakes import AT_20_MBIT
from tests.rows import columns_of_programs
from tests.waiting import until
from topologies.load import load_fabric
from traffic import program_group
from traffic.collectives.listing import COLLECTIVES
from traffic.job import Records, Stage
from traffic.work.graph import RankWork, WorkGraph, graph_of
from traffic.work.graph_lines import lines_of
from traffic.work.job import WorkConfig, WorkJob, work_faults
from traffic.work.kinds import WORK_OPERATIONS, WORK_STEPS
from traffic.work.operations import ANY, CollectiveCall, Compute, FileRead, FileWrite, Operation, Receive, Send
from traffic.work.player.payload import Origin, Payload

FABRIC = load_fabric("fire_flyer_2_small", AT_20_MBIT)
RING = Path(__file__).parent / "ring.jsonl"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    pool = AgentPool(preload=("traffic.work.player.rank",))
    yield Stage(FABRIC, pool, lambda _: None, seed=7, address_of=lambda _: "127.0.0.1")
    assert not pool.handles, "a test did not close its job"


@pytest.fixture
def in_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A stage whose ranks talk in the memory of one process."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "transport")
    return replace(stage, make_transport=importlib.import_module("memory_transport").MemoryTransport)


@contextmanager
def started(stage: Stage, folder: Path, graph: WorkGraph, **config: Any) -> Iterator[WorkJob]:
    path = folder / "graph.jsonl"
    path.write_text("\n".join(lines_of(graph)))
    own = checked(WorkConfig, {"graph": str(path), **config}, "test")
    nodes: Sequence[NodeId] = FABRIC.computes[: graph.ranks]
    job = WorkJob(stage, own, nodes, level=ServiceLevel.NCCL, name="work")
    try:
        job.start()
        yield job
    finally:
        job.close()


def graph(*ranks: Sequence[Operation], **groups: tuple[int, ...]) -> WorkGraph:
    return WorkGraph("g", tuple(map(tuple, ranks)), groups)


def times(records: Records) -> Mapping[str, SimpleNamespace]:
    """Return ready, start and end of operations of a step by their names."""
    rows = records.rows("work_operations")
    return {row["name"]: SimpleNamespace(**{key[:-2]: row[key] for key in row if key.endswith("_s")}) for row in rows}


def sample(ranks: int) -> WorkGraph:
    """Return a graph with all kinds of operations, of sizes of all kinds."""
    works = [RankWork() for _ in range(ranks)]
    for rank, work in enumerate(works):
        first = work.add(Compute(duration_s=0.002, stream="compute", name="forward"))
        for tag, size_bytes in enumerate((0, 1, 70_001, 1_000_003)):
            work.add(Send(peer=(rank + 1) % ranks, size_bytes=size_bytes, tag=tag, stream="copies", after=(first,)))
            work.add(Receive(peer=(rank - 1) % ranks, size_bytes=size_bytes, tag=tag))
        for collective in sorted(COLLECTIVES.keys() - {"barrier"}):
            for dtype, size_bytes in (("fp32", 400_004), ("bf16", 10_002), ("fp32", 0)):
                call = CollectiveCall(collective=collective, size_bytes=size_bytes, group="all", dtype=dtype)
                work.add(replace(call, stream="comm", after=(first,), root=1))
        work.add(CollectiveCall(collective="barrier", size_bytes=0, group="all", stream="comm"))
        for sent in (tuple(4000 * (rank + to) for to in range(ranks)), (4,) * ranks, (0,) * ranks):
            call = CollectiveCall(collective="all_to_all_v", size_bytes=sum(sent), group="all", sent_bytes=sent)
            work.add(replace(call, stream="comm"))
        for algorithm in COLLECTIVES["allreduce"].algorithms:
            call = CollectiveCall(collective="allreduce", size_bytes=90_000, group="all", stream="comm")
            work.add(replace(call, algorithm=algorithm))
        if rank in (0, 2):
            work.add(CollectiveCall(collective="allreduce", size_bytes=4, group="pair", algorithm="tree"))
            work.add(CollectiveCall(collective="allreduce", size_bytes=40_000, group="pair", algorithm="hfreduce"))
        if rank == 1:
            work.add(CollectiveCall(collective="allreduce", size_bytes=4, group="alone"))
        work.add(Send(peer=rank, size_bytes=5, tag=9))
        work.add(Receive(peer=rank, size_bytes=5, tag=9))
    return graph_of("sample", works, {"pair": (2, 0), "alone": (1,)})


@pytest.mark.parametrize("transport", ["tcp", "memory"])
def test_a_graph_plays_step_after_step_and_rows_fit_the_tables(
    stage: Stage, in_memory: Stage, tmp_path: Path, transport: str
) -> None:
    of_memory = {"ranks_per_process": 4} if transport == "memory" else {}
    where = in_memory if transport == "memory" else stage
    with started(where, tmp_path, sample(4), recorded_steps=1, recorded_ranks=[0, 3], **of_memory) as job:
        job.warm_up()
        records = job.run_steps(2, "quiet")
        again = job.run_steps(1, "again")
    steps = pd.DataFrame(records.rows("work_steps"))
    assert [*steps.columns] == [column for column in WORK_STEPS.columns if column != "job"]
    assert steps["step"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert (steps["ended_s"] - steps["started_s"] > 0.002).all()
    rows = pd.DataFrame(records.rows("work_operations"))
    assert [*rows.columns] == [column for column in WORK_OPERATIONS.columns if column != "job"]
    assert [*rows["rank"].unique()] == [0, 3]
    assert len(rows) == sum(len(job.graph.operations[rank]) for rank in (0, 3))
    assert (rows["ready_s"] <= rows["started_s"]).all()
    assert (rows["started_s"] <= rows["ended_s"]).all()
    assert {row["step"] for row in again.rows("work_operations")} == {3}
    on_stream = rows[(rows["stream"] == "comm") & (rows["rank"] == 0)].sort_values(["started_s", "ended_s"])
    assert (on_stream["ended_s"].to_numpy()[:-1] <= on_stream["started_s"].to_numpy()[1:]).all(), "serial"


def one_step(stage: Stage, folder: Path, played: WorkGraph, **config: Any) -> Mapping[str, SimpleNamespace]:
    with started(stage, folder, played, recorded_steps=1, **config) as job:
        return times(job.run_steps(1))


def test_dependencies_after_the_end_and_after_the_start_and_streams_are_kept(in_memory: Stage, tmp_path: Path) -> None:
    found = one_step(
        in_memory,
        tmp_path,
        graph(
            [
                Compute(duration_s=0.03, stream="a", name="first"),
                Compute(duration_s=0.02, stream="a", name="second"),
                Compute(duration_s=0.01, stream="b", after_start=(0,), name="beside"),
                Compute(duration_s=0.01, stream="b", after_start=(1,), name="with second"),
                Compute(duration_s=0.01, after=(0, 2), name="then"),
                Compute(duration_s=0.01, stream="a", after=(5 + 1,), name="late on a"),
                Compute(duration_s=0.0, name="nothing"),
            ]
        ),
    )
    began = found["first"].started
    at = {name: (round(one.started - began, 9), round(one.ended - began, 9)) for name, one in found.items()}
    assert at == {
        "first": (0.0, 0.03),
        "second": (0.03, 0.05),
        "beside": (0.0, 0.01),
        "with second": (0.03, 0.04),
        "then": (0.03, 0.04),
        "late on a": (0.05, 0.06),
        "nothing": (0.0, 0.0),
    }, "by planned times, however late a thread wakes up"
    assert round(found["second"].ready - began, 9) == 0.0
    assert round(found["late on a"].ready - began, 9) == 0.0


def test_what_is_sent_early_waits_and_takes_no_memory_and_overlap_hides_it(in_memory: Stage, tmp_path: Path) -> None:
    """A receive that starts long after its message has come ends at once."""
    found = one_step(
        in_memory,
        tmp_path,
        graph(
            [Send(peer=1, size_bytes=3_000_000, tag=tag, name=f"send {tag}") for tag in range(3)],
            [
                Compute(duration_s=2.0, name="busy"),  # Though a thread that sends may have to wait for its turn.
                *(Receive(peer=0, size_bytes=3_000_000, tag=2 - n, after=(0,), name=f"receive {n}") for n in range(3)),
            ],
        ),
        ranks_per_process=2,
    )
    assert all(found[f"send {tag}"].ended < found["busy"].ended for tag in range(3))
    assert all(found[f"receive {n}"].ended == found[f"receive {n}"].started == found["busy"].ended for n in range(3))


def test_a_receive_from_anybody_takes_what_comes_first(in_memory: Stage, tmp_path: Path) -> None:
    found = one_step(
        in_memory,
        tmp_path,
        graph(
            [
                Receive(peer=ANY, tag=ANY, size_bytes=8, name="one"),
                Receive(peer=ANY, tag=ANY, size_bytes=8, name="two"),
            ],
            [Compute(duration_s=2.0, name="late"), Send(peer=0, size_bytes=8, tag=1, after=(0,))],
            [Send(peer=0, size_bytes=8, tag=2)],
        ),
        ranks_per_process=3,
    )
    assert found["one"].ended < found["late"].ended <= found["two"].ended


def test_collectives_beside_computing_shorten_a_step(in_memory: Stage, tmp_path: Path) -> None:
    """Two buckets' allreduces of which one hides behind the second half of computing."""

    def rank(stream: str) -> list[Operation]:
        bucket = CollectiveCall(collective="allreduce", size_bytes=4_000, group="all", stream=stream)
        return [
            Compute(duration_s=0.05, stream="compute"),
            replace(bucket, after=(0,), name="early"),
            Compute(duration_s=0.05, stream="compute", after=(0,) if stream == "comm" else (1,), name="half"),
            replace(bucket, after=(2,), name="late"),
        ]

    def is_hidden() -> bool:
        overlapped = one_step(in_memory, tmp_path, graph(rank("comm"), rank("comm")), ranks_per_process=2)
        assert overlapped["early"].ended < overlapped["late"].ended
        return bool(overlapped["early"].ended < overlapped["half"].ended < overlapped["late"].ended)

    until(is_hidden, "a bucket that hides behind computing; a busy machine may hold some up")
    serial = one_step(in_memory, tmp_path, graph(rank("compute"), rank("compute")), ranks_per_process=2)
    assert serial["early"].ended <= serial["half"].started


@pytest.mark.parametrize(("size_bytes", "words"), [(300_000, "byte 299999 is"), (7, "byte 6 is")])
def test_one_wrong_byte_of_a_message_is_found(size_bytes: int, words: str) -> None:
    payload = Payload(65_536)
    origin = Origin(3, 4, 5, 6)
    last = (size_bytes - 1) // 65_536 * 65_536
    piece = np.frombuffer(payload.piece(origin, last, size_bytes - last), np.uint8).copy()
    payload.verify(origin, last, piece)
    piece[-1] ^= 16
    with pytest.raises(TrafficError, match=f"message 5 of tag 4 from rank 3 in step 6: {words}"):
        payload.verify(origin, last, piece)
    for other in range(4):
        changed = Origin(*(part + (place == other) for place, part in enumerate(origin)))
        assert bytes(payload.piece(changed, 0, 7)) != bytes(payload.piece(origin, 0, 7)), "no two are alike"


def test_wrong_data_on_a_connection_fails_its_job(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dataset that says otherwise than it should stands for one wrong element. The rank that sees it may be held up
    by a busy machine, after its peers have seen the end of its connections."""
    monkeypatch.setattr(program_group, "FAILURES_TIMEOUT_S", 30.0)
    with started(stage, tmp_path, sample(4)) as job:
        job.run_steps(1)
        assert job._data is not None
        path = job._data.sets[4, "fp32"].files[1]
        with path.open("r+b") as file:
            file.seek(4 * 100)
            file.write(b"\0\0\x80\x3f")
        with pytest.raises(TrafficError, match=r"rank \d .*group all, call \d+, \w+: element 100 of") as error:
            job.run_steps(1)
        assert "the result is not to be trusted" in str(error.value)


def test_a_rank_that_never_sends_is_waited_for_so_long_and_named(in_memory: Stage, tmp_path: Path) -> None:
    waits = [Receive(peer=1, size_bytes=8, tag=3, name="gradients")]
    late = [Compute(duration_s=30.0), Send(peer=0, size_bytes=8, tag=3, after=(0,))]
    config = {"step_timeout": 0.5, "ranks_per_process": 2}
    ended = r"\(z0h00\d\): step 0 did not end within 0.5 s; waits for"
    waits_for = r"rank 0, operation 0 gradients \(receive of 8 B"
    words = rf"rank 0 {ended} {waits_for}|rank 1 {ended} rank 1, operation 0 "  # Whichever is first to say so.
    with (
        started(in_memory, tmp_path, graph(waits, late), **config) as job,
        pytest.raises(TrafficError, match=words),
    ):
        job.run_steps(1)


def test_a_rank_that_dies_is_named(stage: Stage, tmp_path: Path) -> None:
    with started(stage, tmp_path, sample(3)) as job:
        job.run_steps(1)
        job._programs.handles[1].kill()
        with pytest.raises(TrafficError, match="work rank 1"):
            job.run_steps(1)


def test_a_job_begins_again_from_the_step_that_stalled(stage: Stage, tmp_path: Path) -> None:
    with started(stage, tmp_path, sample(3), stall_timeout=2.0) as job:
        job.play("stopped")
        until(lambda: job._next_step, "a first step")
        job._programs.handles[2].send_signal(signal.SIGSTOP)
        (restart,) = until(lambda: job._phase.records.rows("restarts")[:1], "ranks that have begun again")
        until(lambda: job._next_step > restart["step"], "the step that stalled")
        records = job.halt()
    assert len(records.rows("restarts")) >= 1
    numbers = [row["step"] for row in records.rows("work_steps") if row["rank"] == 0]
    assert numbers == list(range(len(numbers)))


def test_what_cannot_be_played_is_told_before_and_named(stage: Stage, tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"rank 0, operation 0 \(send of 8 B to rank 1, tag 0\) is never received"),
        started(stage, tmp_path, graph([Send(peer=1, size_bytes=8)], [])),
    ):
        pass
    write = FileWrite(path="/data", offset_bytes=8, size_bytes=8)
    with (
        pytest.raises(
            ConfigError, match=r"rank 0, operation 0 \(write of /data\): 8 B from 8 on are not whole chunks of"
        ),
        started(stage, tmp_path, graph([write])),
    ):
        pass
    with pytest.raises(ConfigError, match=r"nodes: 2; 4 ranks, 4 on a node, need 1; give so many, or change ranks_per"):
        WorkJob(
            stage,
            checked(WorkConfig, {"graph": str(RING), "ranks_per_node": 4}, "test"),
            FABRIC.computes[:2],
            level=ServiceLevel.NCCL,
            name="work",
        )
    rows = checked(WorkConfig, {"graph": str(RING), "recorded_steps": 1, "recorded_ranks": [7]}, "test")
    assert work_faults(rows, FABRIC) == ["graph: recorded_ranks: 7: ranks are 0 to 3"]


def test_files_are_read_and_written_through_the_storage_client(stage: Stage, tmp_path: Path) -> None:
    """What is read was there before, or is what was written; ranks without files have no client."""
    chunk = 64 * 1024
    ranks = (
        [
            FileRead(path="/dataset", offset_bytes=100, size_bytes=3 * chunk, name="sample"),
            Compute(duration_s=0.01, after=(0,)),
            FileWrite(path="/checkpoint", offset_bytes=0, size_bytes=2 * chunk + 10, after=(1,), name="save"),
            FileRead(path="/checkpoint", offset_bytes=5, size_bytes=chunk, after=(2,), name="load"),
            Send(peer=1, size_bytes=8, after=(3,)),
            FileRead(path="/dataset", offset_bytes=0, size_bytes=0),
        ],
        [Receive(peer=0, size_bytes=8)],
    )
    config = {"files": {"chunk_size": chunk, "stripe": 2, "replicas": 2}, "recorded_steps": 1}
    with started(stage, tmp_path, graph(*ranks), **config) as job:
        job.warm_up()
        records = job.run_steps(2, "files")
        again = job.run_steps(1, "again")
    found = times(records)
    assert found["sample"].ended < found["save"].started < found["save"].ended <= found["load"].started
    rows = pd.DataFrame(records.rows("operations"))
    assert [*rows.columns] == columns_of_programs("operations")
    assert set(rows["operation"]) == {"read", "write"}
    assert rows[rows["operation"] == "write"]["size_bytes"].sum() == 2 * (2 * chunk + 10)
    assert rows[rows["operation"] == "read"]["size_bytes"].sum() == 2 * 4 * chunk
    assert set(rows["host"]) == {"z0h000"}
    assert "z0h000" in {row["peer"] for row in records.rows("flows")}, "services know a client by its host"
    assert all(NodeId.parse(str(row["peer"])) for row in records.rows("flows"))
    assert {row["phase"] for row in again.rows("operations")} == {"again"}


def test_steps_in_a_row_wait_for_no_barrier_of_the_run(in_memory: Stage, tmp_path: Path) -> None:
    """Rank 1 is the slow one; rank 0 has ended its last step before rank 1 begins its second."""
    fast = [Compute(duration_s=0.01, name="fast", stream="compute"), Send(peer=1, size_bytes=8, after=(0,))]
    slow = [Compute(duration_s=0.1, name="slow", stream="compute"), Receive(peer=0, size_bytes=8)]
    config = {"steps_in_a_row": 3, "recorded_steps": 4, "ranks_per_process": 2}

    def is_ahead(records: Records) -> bool:
        """Whether rank 0 has ended the last step of the first play before rank 1 has begun its second."""
        spans = {(row["rank"], row["step"]): (row["started_s"], row["ended_s"]) for row in records.rows("work_steps")}
        first = min(step for _, step in spans)
        assert spans[1, first + 1][0] == spans[1, first][1]
        return bool(spans[0, first + 2][1] < spans[1, first + 1][0])

    with started(in_memory, tmp_path, graph(fast, slow), **config) as job:
        job.warm_up()
        records = job.run_steps(2, "in a row")
        until(lambda: is_ahead(job.run_steps(1)), "a rank that is ahead; a busy machine may hold it up")
    steps = pd.DataFrame(records.rows("work_steps"))
    assert steps.groupby("play")["step"].unique().map(list).to_dict() == {1: [3, 4, 5], 2: [6, 7, 8]}
    assert (steps["ended_s"] - steps["started_s"])[steps["rank"] == 1].min() >= 0.099
    rows = pd.DataFrame(records.rows("work_operations"))
    assert sorted({*zip(rows["step"], rows["operation"], strict=True)}) == [
        (step, place) for step in (3, 4, 5, 6) for place in (0, 1)
    ]
    assert {row["name"] for row in records.rows("work_operations") if row["rank"] == 0} == {"fast", ""}


def test_more_steps_in_a_row_than_memory_holds_are_refused(stage: Stage) -> None:
    many = checked(WorkConfig, {"graph": str(RING), "steps_in_a_row": 10_000}, "test")
    assert work_faults(many, FABRIC) == []
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr("traffic.work.job.MOST_OPERATIONS", 100)
        (fault,) = work_faults(many, FABRIC)
    assert fault.startswith("steps_in_a_row: 10000 steps are ") and "and 100 is the most; lower it" in fault


def test_a_receiver_that_does_not_read_holds_its_sender_back(stage: Stage, tmp_path: Path) -> None:
    """8 MiB do not fit into TCP's buffers, of which the receiver's does not grow; a message of another tag is not held
    back, and comes meanwhile."""
    narrow = replace(stage, receive_window_bytes=256 << 10)
    sender = [
        Send(peer=1, size_bytes=8 << 20, tag=1, name="large"),
        Send(peer=1, size_bytes=8, tag=2, name="small"),
        Send(peer=1, size_bytes=0, tag=1, after=(0,)),
    ]
    receiver = [
        Receive(peer=0, size_bytes=8, tag=2, name="first"),
        Compute(duration_s=0.3, after=(0,), name="computing"),
        Receive(peer=0, size_bytes=8 << 20, tag=1, after=(1,), name="taken"),
        Receive(peer=0, size_bytes=0, tag=1, after=(2,)),
    ]

    def is_held(reads: str) -> bool:
        with started(narrow, tmp_path, graph(sender, receiver), reads=reads, recorded_steps=2) as job:
            job.warm_up()
            found = times(job.run_steps(2, reads))
        assert found["first"].ended < found["computing"].ended
        assert found["taken"].ended >= found["computing"].ended
        return bool(found["large"].ended > found["computing"].ended)

    assert is_held("when_received")
    until(lambda: not is_held("at_once"), "a message that is read at once; a busy machine may hold some up")


def test_what_can_have_no_connections_by_tag_is_refused(stage: Stage, tmp_path: Path) -> None:
    anybody = graph([Send(peer=1, size_bytes=8)], [Receive(peer=ANY, size_bytes=8)])
    words = r"reads: when_received: rank 1, operation 0 \(receive of 8 B from any rank, tag 0\) is decided by who comes"
    with pytest.raises(ConfigError, match=words), started(stage, tmp_path, anybody, reads="when_received"):
        pass
    tags = range(1025)
    many = graph(
        [Send(peer=1, size_bytes=8, tag=tag) for tag in tags], [Receive(peer=0, size_bytes=8, tag=tag) for tag in tags]
    )
    words = "messages from rank 0 to 1 have 1,025 tags, each with a connection of its own, and 1,024 is the most"
    with pytest.raises(ConfigError, match=words), started(stage, tmp_path, many, reads="when_received"):
        pass
