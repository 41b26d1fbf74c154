"""What the process that forks programs into hosts imports beforehand."""

from __future__ import annotations

from traffic.storage.job import PRELOAD as STORAGE_PRELOAD

PRELOAD = (
    "traffic.collectives.hfreduce",
    "traffic.collectives.nccl",
    "traffic.flows.background",
    "traffic.flows.probes",
    "traffic.flows.fan_in",
    "traffic.flows.sized_flows",
    "traffic.flows.streams",
    "traffic.flows.pair_streams",
    "traffic.programs.job",
    "fabric.measure.sampling",
    "fabric.failures.injector",
    "fabric.stalls.audit",
    *STORAGE_PRELOAD,
)
