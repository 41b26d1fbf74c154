"""Which metrics of an experiment have no declared meaning."""

from __future__ import annotations

from fabric.measures import measure_named
from fabric.metrics import Metrics, listed
from runs.measures import SHARED
from runs.registry import EXPERIMENTS


def undeclared(experiment: str, metrics: Metrics) -> list[str]:
    """Return the names of metrics that neither the experiment nor what several share declares. Raises AssertionError
    without a metric."""
    measures = (*EXPERIMENTS[experiment].load_measures(), *SHARED)
    names = {one.name for one in listed(metrics)}
    assert names, "a summary without a metric shows nothing"
    return sorted(name for name in names if measure_named(measures, name) is None)
