"""GPUs by name: peaks, bandwidths and memory, of their vendors' datasheets (``catalogue.csv``)."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fabric.errors import UsageError

_FILE = Path(__file__).with_name("catalogue.csv")
TYPES = ("fp64", "fp32", "tf32", "bf16", "fp8")
"""Types of elements whose peaks are known; 16-bit ones have the same."""
LAUNCH_NS = 900
"""From the end of a kernel to the start of the next on a stream: of kernels of 2.9 us one took 3.8 us on a V100
(NVIDIA, "Getting Started with CUDA Graphs", developer.nvidia.com/blog/cuda-graphs). A kernel itself takes 1 us or more,
which the roofline does not have: a sum of two numbers 1.02 us on an L40S (QDelta/Phantora, tests/perfdb)."""


@dataclass(frozen=True)
class Gpu:
    """A GPU. ``peak_flops``: by type, dense; ``memory_Bps``: of its own memory; ``host_Bps``: to its host, each way;
    ``source``: where the numbers come from."""

    name: str
    title: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    memory_Bps: float  # noqa: N815 - bytes, not bits
    host_Bps: float  # noqa: N815
    peak_flops: Mapping[str, float]
    source: str
    launch_ns: int = LAUNCH_NS


def gpu_named(name: str) -> Gpu:
    """Return a GPU by name. Raises UsageError for one that is not known."""
    known = _all()
    if name not in known:
        raise UsageError(f"GPU {name!r} is not known; use one of {', '.join(known)}")
    return known[name]


@cache
def _all() -> Mapping[str, Gpu]:
    with _FILE.open(newline="") as file:
        return {row["name"]: _gpu(row) for row in csv.DictReader(file)}


def _gpu(row: Mapping[str, str]) -> Gpu:
    peaks = {name: float(text) * 1e12 for name in TYPES if (text := row[f"{name}_tflops"])}
    return Gpu(
        row["name"],
        row["title"],
        (int(row["major"]), int(row["minor"])),
        int(row["multiprocessors"]),
        int(row["memory_MiB"]) * 1024**2,
        float(row["memory_GBps"]) * 1e9,
        float(row["host_GBps"]) * 1e9,
        peaks,
        row["source"],
    )
