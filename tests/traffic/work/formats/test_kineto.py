"""Kineto's traces: what kernels of NCCL are, and what they wait for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fabric.errors import ConfigError
from tests.traffic.work.formats.reading import operations, read, sample
from traffic.work.formats.playing import nothing_sent
from traffic.work.list_schedule import list_schedule
from traffic.work.operations import CollectiveCall, Compute, Operation

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
    assert [round((one.duration_s or 0) * 1e6) for one in host if isinstance(one, Compute)] == [0, 4, 5, 3, 5, 3, 0, 10]
    (synchronize,) = [one for one in host if one.name == "synchronize"]
    assert by_name["d"][0] in synchronize.after


def test_the_world_size_of_the_file_is_how_many_ranks_there_are() -> None:
    file = trace(launch(1, 0), kernel(1, NAME, 5, 50, 9, **{**ARGS, "Process Group Ranks": "[0, 1]"}), world=2)
    assert (read(file).ranks, read(file).alike) == (2, True)
    with pytest.raises(ConfigError, match="is of rank 0 and stands at place 1"):
        read(file, file)


def as_captured(operations: Sequence[Operation], _: Sequence[int]) -> float:
    return max(one.measured_s or 0.0 for one in operations)


def test_a_host_that_launches_all_the_time_is_as_slow_as_it_was() -> None:
    """100 kernels of 2 us, each launched by a call of 6 us, 4 us apart."""
    calls = [event("cuda_runtime", "cudaLaunchKernel", 1000 + 10 * one, 6, correlation=one) for one in range(100)]
    kernels = [kernel(one, "gemm", 1007 + 10 * one, 2, 7) for one in range(100)]
    played = list_schedule(read(trace(*calls, *kernels)).graph(), as_captured)
    assert played.end_s == pytest.approx(992e-6)


def test_a_sample_takes_on_paper_what_was_captured() -> None:
    """First to last kernel: 13.01 ms. Without communication the host has 11.2 ms to do: 2.36 ms of its calls
    were launches, and 0.87 ms of these one copy's that waited for NCCL."""
    graph = sample("kineto_dlrm_worker0.json.gz", ranks=8).graph()
    assert list_schedule(graph, as_captured).end_s == pytest.approx(13.07e-3, rel=1e-3)
    assert list_schedule(graph, lambda operations, ranks: 0.0).end_s == pytest.approx(11.16e-3, rel=1e-3)


def test_a_call_that_waits_for_its_copy_takes_as_long_as_that() -> None:
    """The copy begins 40 us after its call, 30 of them behind a kernel, and the call returns 5 us after its end."""
    copy = event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 140, 10, 7, correlation=2, stream=7)
    made = trace(
        event("cuda_runtime", "cudaLaunchKernel", 90, 2, correlation=1), kernel(1, "gemm", 95, 35, 7),
        event("cuda_runtime", "cudaMemcpyAsync", 100, 55, correlation=2), copy,
        event("cuda_runtime", "cudaLaunchKernel", 160, 2, correlation=3), kernel(3, "gemm", 165, 1, 7),
    )  # fmt: skip
    host = [one for one in read(made).program(0) if one.stream == "host"]
    took = [round((one.duration_s or 0) * 1e6) for one in host if isinstance(one, Compute)]
    assert [(one.name, us) for one, us in zip(host, took, strict=True)] == [
        ("launch", 0), ("launch", 20), ("launch", 0), ("synchronize", 0), ("launch", 10),
    ]  # fmt: skip


def test_what_has_no_time_is_refused_by_number() -> None:
    good = [launch(1, 1000), kernel(1, "gemm", 1010, 10, 7)]
    gone = [launch(2, 0) | {"dur": 0.0}, kernel(2, "gemm", 0.0, 0.0, 7)]
    with pytest.raises(ConfigError, match=r"events 2, 3, counted from 0: without a time .ts 0, dur 0., of 4 that"):
        read(trace(*good, *gone))
    with pytest.raises(ConfigError, match=r"event 1, counted from 0: dur None: must be a number"):
        read(trace(good[0], {key: value for key, value in good[1].items() if key != "dur"}))
    begins_at_0 = [event("cuda_runtime", "cudaPeekAtLastError", 0, 0), launch(1, 3), kernel(1, "gemm", 9, 10, 7)]
    assert len(read(trace(*begins_at_0)).program(0)) == 2


def test_kernels_before_their_launch_are_refused_by_number() -> None:
    with pytest.raises(ConfigError, match=r"events 1, counted from 0: before the calls .*, by up to 20 us"):
        read(trace(launch(1, 100), kernel(1, "gemm", 80, 10, 7), launch(2, 120), kernel(2, "gemm", 130, 10, 7)))
    assert read(trace(launch(1, 100), kernel(1, "gemm", 99, 10, 7))).program(0), "two clocks differ a little"


NAMES = ["lib = Library(\n(1): <module>", "torch\\cuda\\__init__.py(219): gemm", "C:\\u1\\new\\q"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_read_as_the_profiler_writes_them(name: str) -> None:
    """It puts line breaks and backslashes into its JSON as they are."""
    text = trace(launch(1, 0), kernel(1, "gemm", 5, 10, 7)).replace('"gemm"', f'"{name}"')
    (found,) = [one for one in read(text).program(0) if one.stream != "host"]
    assert found.name.startswith(name[:3])


def test_only_a_file_without_its_end_is_asked_whether_it_is_whole() -> None:
    text = trace(launch(1, 0), kernel(1, "gemm", 5, 10, 7))
    for cut in range(15, len(text), 7):
        with pytest.raises(ConfigError, match="is the file whole"):
            read(text[:cut])
    with pytest.raises(ConfigError, match="is not JSON") as raised:
        read(text.replace('"ts": 5', '"ts": five', 1))
    assert "whole" not in str(raised.value)


@pytest.mark.parametrize("time", ["Infinity", "-Infinity", "NaN", "-5", '"5.0"', "1e999", "null"])
def test_times_that_are_none_are_refused_by_number(time: str) -> None:
    text = trace(launch(1, 0), kernel(1, "gemm", 5, 10, 7)).replace('"dur": 10', f'"dur": {time}')
    with pytest.raises(ConfigError, match=r"event 1, counted from 0: dur .*: must be a number of microseconds"):
        read(text)


def test_calls_over_gloo_are_counted_by_number() -> None:
    calls = [event("user_annotation", "gloo:all_reduce", 10 + one, 5) for one in range(3)]
    made = read(trace(*calls))
    assert [count for what, count in made.left_out.items() if "gloo" in what] == [3]
    assert "no rank does anything that can be played" in str(nothing_sent(made))
