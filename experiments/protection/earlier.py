"""Results of before this was a study: curves by panel, bandwidth by load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.protection.study import OFFERED
from fabric.model.lanes import Queueing
from fabric.results import Result
from runs.cases import Point


def cases(result: Result) -> Iterator[Point]:
    """Yield the cases of such a result."""
    found: Mapping[str, Any] = result.summary.get("protection", {})
    for panel in found.get("panels", ()):
        factor, label = (100, OFFERED) if panel["is_fraction"] else (1, panel["axis"])
        for queueing, curve in panel["curves"].items():
            for load, left in zip(panel["loads"], curve, strict=True):
                if left is not None and panel["alone_Bps"]:
                    settings = {"panel": panel["title"], "axis": label, "load": f"{factor * load:g}"}
                    numbers = {"left": left / panel["alone_Bps"], "promised": panel["promised_share"]}
                    yield Point({**settings, "queueing": Queueing(queueing).words}, numbers)
