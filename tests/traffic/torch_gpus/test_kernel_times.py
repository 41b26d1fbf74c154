"""Measured times of operators: our CSV, Phantora's tables, a trace of PyTorch's profiler; what has none is said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fabric.errors import ConfigError
from traffic.torch_gpus.catalogue import LAUNCH_NS, gpu_named
from traffic.torch_gpus.communications import Communications
from traffic.torch_gpus.kernel_sources import kernel_times_in
from traffic.torch_gpus.kernel_times import Kernel, KernelTimes
from traffic.torch_gpus.machine import Machine
from traffic.torch_gpus.report import words_of
from traffic.torch_gpus.roofline import Work

PRODUCT = Kernel("mm", ((4096, 4096), (4096, 8)), "bf16")
"""An operator that all files below have."""


def test_our_csv_is_read_as_it_is_written_and_several_of_one_kernel_are_their_median(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text(
        "operator,shapes,type,us\nmm,4096x4096 4096x8,bf16,10\nadd_,8,fp32,1.5\nmm,4096x4096 4096x8,bf16,14\n"
    )
    times = kernel_times_in(path)
    assert times.took_ns == {PRODUCT: 12_000, Kernel("add_", ((8,),), "fp32"): 1_500}
    path.write_text(times.csv())
    assert kernel_times_in(path) == times


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("operator,shapes,us\nmm,8,1\n", "lacks columns type"),
        ("operator,shapes,type,us\nmm,8xa,fp32,1\n", "line 2: invalid literal"),
        ("operator,shapes,type,us\nmm,8,fp32,-1\n", "line 2: us -1: must be a time"),
        ("operator,shapes,type,us\n", "says of no operator"),
    ],
)
def test_a_csv_with_a_fault_is_refused_by_line(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "times.csv").write_text(text)
    with pytest.raises(ConfigError, match=fault):
        kernel_times_in(tmp_path / "times.csv")


def test_phantoras_tables_are_read(tmp_path: Path) -> None:
    def tensor(*shape: int, dtype: str = "BFloat16") -> dict[str, Any]:
        return {"shape": shape, "dtype": dtype}

    rows = [
        ("MM", {"MM": [tensor(4096, 4096), tensor(4096, 8)]}, 5_000),
        ("Linear", {"Linear": [tensor(2, 3, 16), tensor(8, 16), tensor(8)]}, 6_000),
        ("ConvDType", {"ConvDType": [tensor(8, dtype="Float"), "BFloat16"]}, 7_000),
        ("Add", {"Add": [tensor(8, dtype="Float"), tensor(dtype="Double")]}, 8_000),
        ("SDPA", {"SDPA": {"q": tensor(1, 2, 3, 4)}}, 9_000),
    ]
    lines = ["op,key,nanos", *(f'{op},"{json.dumps(key).replace(chr(34), chr(34) * 2)}",{ns}' for op, key, ns in rows)]
    (tmp_path / "compute.csv").write_text("\n".join(lines) + "\n")
    assert kernel_times_in(tmp_path).took_ns == {
        PRODUCT: 5_000,
        Kernel("addmm", ((8,), (6, 16), (16, 8)), "bf16"): 6_000,
        Kernel("_to_copy", ((8,),), "fp32"): 7_000,
        Kernel("add", ((8,),), "fp32"): 8_000,
    }


def event(kind: str, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    """Return an event of a trace."""
    gpu = kind in ("kernel", "gpu_memcpy")
    return {"ph": "X", "cat": kind, "name": name, "pid": 0 if gpu else 9, "tid": 7, "ts": ts, "dur": dur, "args": args}


def test_a_trace_gives_each_operator_what_it_launched_itself_and_by_others(tmp_path: Path) -> None:
    bf16 = ["c10::BFloat16", "c10::BFloat16"]
    product = {"Input Dims": [[4096, 4096], [4096, 8]], "Input type": bf16}
    copy = {"Input Dims": [[8], []], "Input type": ["float", "Scalar"]}
    events = [
        event("cpu_op", "aten::matmul", 0, 100, **product),
        event("cpu_op", "aten::mm", 10, 50, **product),
        event("cuda_runtime", "cudaLaunchKernel", 20, 5, correlation=1),
        event("kernel", "gemm", 500, 40, correlation=1),
        event("cuda_runtime", "cudaLaunchKernel", 30, 5, correlation=2),
        event("kernel", "splitk", 600, 2, correlation=2),
        event("cpu_op", "aten::_to_copy", 200, 20, **copy),
        event("cpu_op", "aten::copy_", 205, 10, **copy),
        event("cuda_runtime", "cudaMemcpyAsync", 206, 5, correlation=3),
        event("gpu_memcpy", "Memcpy DtoD", 700, 3, correlation=3),
        event("cuda_runtime", "cudaLaunchKernel", 300, 5, correlation=4),
        event("kernel", "ncclDevKernel_AllReduce", 800, 90, correlation=4),
        event("cpu_op", "aten::view", 400, 1, **copy),
    ]
    for name, opened in (("trace.json", Path.open), ("trace.json.gz", gzip.open)):
        with opened(tmp_path / name, "wt") as file:
            json.dump({"traceEvents": events}, file)
        assert kernel_times_in(tmp_path / name).took_ns == {
            Kernel("matmul", PRODUCT.shapes, "bf16"): 42_000,
            PRODUCT: 42_000,
            Kernel("_to_copy", ((8,),), "fp32"): 3_000,
            Kernel("copy_", ((8,),), "fp32"): 3_000,
        }


def test_a_measured_operator_takes_its_time_and_what_has_none_is_said_by_count_and_share() -> None:
    machine = Machine(gpu_named("h100"), 1, clock=lambda: 0, times=KernelTimes({PRODUCT: 2 * 10**6 - LAUNCH_NS}))
    machine.play("mm", Work(flop=1, type="bf16"), 0, PRODUCT)
    machine.play("mm", Work(memory_bytes=(10**6 - LAUNCH_NS) * 3350), 0, Kernel("mm", ((2, 2),), "bf16"))
    machine.play("add", Work(memory_bytes=(10**6 - LAUNCH_NS) * 3350), 0, Kernel("add", ((2, 2),), "bf16"))
    said = " ".join(words_of(machine, "0", Communications()))
    assert "3 operators took 4.000 ms;" in said
    assert "measured: 1 operators, 50.0% of the time; not in the table: 2, most often mm 1, add 1" in said
