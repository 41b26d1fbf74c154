"""What the process that forks programs into hosts imports beforehand."""

from __future__ import annotations

from runs.kinds import KINDS

PRELOAD = (
    *dict.fromkeys(module for kind in KINDS for module in kind.preload),
    # Of jobs that single experiments play, and what watches hosts.
    "traffic.flows.probes",
    "traffic.flows.fan_in",
    "traffic.flows.sized_flows",
    "traffic.flows.streams",
    "traffic.flows.pair_streams",
    "fabric.measure.sampling",
    "fabric.failures.injector",
    "fabric.stalls.audit",
)
