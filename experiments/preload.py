"""What the process that forks programs into hosts imports beforehand."""

from __future__ import annotations

from traffic.storage.job import PRELOAD as STORAGE_PRELOAD

PRELOAD = (
    "traffic.collectives.hfreduce",
    "traffic.collectives.nccl",
    "traffic.background",
    "traffic.blackout",
    "traffic.fan_in",
    "traffic.streams",
    "fabric.measure.sampling",
    "fabric.failures.injector",
    "fabric.stalls.audit",
    *STORAGE_PRELOAD,
)
