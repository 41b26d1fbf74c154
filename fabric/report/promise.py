"""What ``faithful`` promises: the largest difference of a run's metrics from exact ones.

Virtual time is the reference: the same experiment in it has exact rates, and programs and switches that take no time.
In real time programs compute, switches poll, and timers are late, which costs closed loops a little of their bandwidth
and lone messages most of their latency. So throughput is promised, and how long a typical step takes; latencies of
single operations, counts of drops and the deepest queue are not, because they depend on the timing of single frames.
``fabric compare REAL VIRTUAL`` checks a run against this.

It was found to hold for `isolation` on two cores. The limits of :mod:`fabric.measure.fidelity` are fractions and frame
times, so that they mean the same on other machines and at other rates; whether the promise holds there, too, is to be
compared.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """Metrics whose names end with ``suffix`` are within ``tolerance`` (a fraction) of exact."""

    suffix: str
    tolerance: float


PROMISES = (
    Promise("algbw_Bps", 0.10),
    Promise("busbw_Bps", 0.10),
    Promise("bandwidth_Bps", 0.10),
    Promise(".step_s", 0.10),
    Promise("sent_packets", 0.10),
)


def promised(name: str) -> float | None:
    """Return how far a metric may be from exact, as a fraction; None if that is not promised."""
    return next((promise.tolerance for promise in PROMISES if name.endswith(promise.suffix)), None)
