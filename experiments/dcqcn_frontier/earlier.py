"""Results of before this was a study: points by group, and what each program gets alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.dcqcn_frontier.reference import ALGBW, P99, READ
from fabric.results import Result
from runs.cases import Point


def cases(result: Result) -> Iterator[Point]:
    """Yield the cases of such a result."""
    found: dict[str, Any] = result.summary.get("trade_off", {})
    names = {"algbw_GBps": (ALGBW, 1e9), "read_GBps": (READ, 1e9), "read_p99_s": (P99, 1.0)}
    rates = [(one["group"], one["values"]) for one in found.get("points", ())]
    rates += [("alone, alone", {name: value}) for name, value in found.get("alone", {}).items()]
    for group, values in rates:
        control, _, queueing = group.partition(", ")
        numbers = {names[name][0]: names[name][1] * value for name, value in values.items()}
        yield Point({"control": control, "queueing": queueing}, numbers)
