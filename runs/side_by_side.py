"""What a study says of all its queueings side by side; :mod:`fabric.report.figures.side_by_side` draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fabric.metrics import theory_name, unit_of
from fabric.records.cells import Bound, Quantity
from fabric.units import format_bandwidth, format_time


@dataclass(frozen=True)
class SideBySide:
    """A panel per number of ``panels``, by title, with a bar for each of ``rows``, one per queueing:
    a number in its ``unit``, over ``per``, beside theory where rows have that. With ``is_over_alone`` numbers over
    those alone (:meth:`runs.study.Outcome.times`). ``without_end``: the counts of what never completed."""

    rows: Callable[[Any], Sequence[Any]]
    panels: Mapping[str, str]
    unit: str = "times alone"
    per: float = 1.0
    is_over_alone: bool = False
    without_end: Sequence[str] = ()

    def of(self, found: Any) -> dict[str, Any]:
        """Return it as a summary has it, made of the outcomes of all cases (:class:`runs.study.Found`)."""
        rows, panel = self.rows(found), self._over_alone if self.is_over_alone else self._plain
        panels = [one for title, name in self.panels.items() for one in panel(rows, title, name)]
        lost = [sum(row.values.get(name, 0.0) for name in self.without_end) for row in rows]
        return {
            "unit": self.unit,
            **({"alone": 1.0} if self.is_over_alone else {}),
            "queueings": [row.case.queueing.value for row in rows],
            "panels": panels,
            "drops_packets": [row["drops_packets"] for row in rows],
            **({"flows_without_end": lost} if self.without_end else {}),
        }

    def _plain(self, rows: Sequence[Any], title: str, name: str) -> list[dict[str, Any]]:
        panel = {"title": title, "values": [row[name] / self.per for row in rows]}
        theory = [row[theory_name(name)] / self.per for row in rows]
        return [panel if any(map(math.isnan, theory)) else {**panel, "theory": theory}]

    def _over_alone(self, rows: Sequence[Any], title: str, name: str) -> list[dict[str, Any]]:
        """Return the panel of a number over that alone; none if one of the two is not known."""
        times: list[Quantity] = [row.times(name) for row in rows]
        base = rows[0].alone(name)[name]
        if not all(one.is_measured for one in times) or math.isnan(base):
            return []
        is_least = [one.bound is Bound.AT_LEAST for one in times]
        bounds = {"at_least": is_least} if any(one.bound is not Bound.NONE for one in times) else {}
        return [{"title": title, "values": [one.value for one in times], **bounds, "unit": _over(name, base)}]


def _over(name: str, base: float) -> str:
    """The unit of a value over that alone: its base, and which way is better."""
    if unit_of(name) == "s":
        return f"times alone ({format_time(base)}), less is better"
    return f"times alone ({format_bandwidth(base)}), more is better"
