"""Kineto's traces: what kernels of NCCL are, and what they wait for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import operations, read
from traffic.work.operations import CollectiveCall, Compute

NAME = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
ARGS = {"Collective name": "_allgather_base", "In msg nelems": 100, "Out msg nelems": 800, "dtype": "BFloat16",
        "Process Group Name": "3", "Process Group Ranks": "[0, 2, ...]", "Group size": 8}  # fmt: skip


def event(cat: str, name: str, ts: float, dur: float, tid: Any = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(number: int, ts: float) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=number)


def kernel(number: int, name: str, ts: float, dur: float, stream: int, **args: Any) -> dict[str, Any]:
    return event("kernel", name, ts, dur, stream, correlation=number, stream=stream, **args)


def trace(*events: dict[str, Any], world: int | None = None, rank: int = 0) -> str:
    about = {} if world is None else {"distributedInfo": {"rank": rank, "world_size": world}}
    return json.dumps({"schemaVersion": 1, **about, "traceEvents": list(events)})


def test_sizes_of_newer_captures() -> None:
    made = read(trace(launch(1, 0), kernel(1, NAME, 5, 50, 9, **ARGS), world=16))
    (call,) = operations(made, 0, CollectiveCall)
    assert (call.collective, call.size_bytes, call.dtype) == ("all_gather", 1600, "bf16")
    assert call.measured_s == pytest.approx(50e-6)
    assert (made.groups[call.group], made.groups[operations(made, 5, CollectiveCall)[0].group]) == (
        tuple(range(0, 16, 2)), tuple(range(1, 16, 2)),
    )  # fmt: skip


def test_a_list_of_ranks_that_was_cut_goes_on_at_the_distance_of_its_first_two() -> None:
    cut = ["[0, 2, ...]", "[1, 3, ...]"]
    files = [
        trace(
            launch(1, 0),
            kernel(1, NAME, 5, 50, 9, **ARGS | {"Process Group Ranks": cut[rank % 2]}),
            rank=rank,
            world=16,
        )
        for rank in range(16)
    ]
    made = read(*files)
    assert sorted(made.groups.values()) == [tuple(range(0, 16, 2)), tuple(range(1, 16, 2))]
    assert operations(made, 5, CollectiveCall)[0].group != operations(made, 4, CollectiveCall)[0].group


def test_a_kernel_without_a_size_is_counted() -> None:
    made = read(trace(launch(1, 0), kernel(1, NAME, 5, 50, 9), launch(2, 3), kernel(2, "gemm", 6, 10, 7)))
    assert made.left_out == {"kernels of NCCL without a size": 1}
    assert [one.name for one in made.program(0)] == ["launch", "launch", "gemm"]


def test_kernels_wait_for_launches_streams_and_events() -> None:
    made = read(
        trace(
            launch(1, 0), kernel(1, "a", 10, 10, 7), launch(2, 4), kernel(2, "b", 20, 10, 7),
            event("cuda_runtime", "cudaStreamWaitEvent", 7, 1), launch(3, 9), kernel(3, NAME, 30, 50, 9, **ARGS),
            launch(4, 12), kernel(4, "c", 31, 9, 7), event("cuda_runtime", "cudaStreamWaitEvent", 15, 1), launch(5, 17),
            kernel(5, "d", 81, 9, 7), event("cuda_runtime", "cudaDeviceSynchronize", 20, 80), launch(6, 110),
            kernel(6, "e", 115, 5, 7), world=16,
        )
    ).program(0)  # fmt: skip
    by_name = {one.name: (place, one) for place, one in enumerate(made) if one.stream != "host"}

    def waits_for(later: str, earlier: str) -> bool:
        return by_name[earlier][0] in by_name[later][1].after

    assert waits_for("b", "a")
    assert waits_for(NAME, "b")
    assert not waits_for("c", NAME)
    assert waits_for("c", "b")
    assert waits_for("d", NAME)
    assert by_name["a"][1].duration_s == pytest.approx(10e-6)  # type: ignore[attr-defined]
    host = [one for one in made if one.stream == "host"]
    assert [round((one.duration_s or 0) * 1e6) for one in host if isinstance(one, Compute)] == [0, 2, 3, 1, 3, 1, 0, 10]
    (synchronize,) = [one for one in host if one.name == "synchronize"]
    assert by_name["d"][0] in synchronize.after


def test_the_world_size_of_the_file_is_how_many_ranks_there_are() -> None:
    file = trace(launch(1, 0), kernel(1, NAME, 5, 50, 9, **{**ARGS, "Process Group Ranks": "[0, 1]"}), world=2)
    assert (read(file).ranks, read(file).alike) == (2, True)
    with pytest.raises(ConfigError, match="is of rank 0 and stands at place 1"):
        read(file, file)
