"""The flows of each phase, the ports on their ways, and how congestion slowed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fabric.delivered import Flow
from fabric.results import Phase, Result

MOST_FLOWS = 20_000
"""Of a phase. More are left out, and the page says so."""
WaysOf = Callable[[Phase, Sequence[Flow]], "list[tuple[tuple[str, ...], ...]]"]
"""Returns, of each flow in a phase, every way that its packets may take: the ports that send them, in order."""


@dataclass(frozen=True)
class FlowRow:
    """A flow of a job. ``ports``: on any of its ways; ``ways``: of how many. ``stall``: what ``flow_stalls`` says of
    it, None if it was not slowed."""

    job: str
    flow: Flow
    ports: tuple[str, ...] = ()
    ways: int = 0
    stall: dict[str, Any] | None = None


@dataclass(frozen=True)
class PhaseFlows:
    """The flows of a phase, and how many there were too many."""

    rows: tuple[FlowRow, ...]
    left_out: int = 0


def flows_of(result: Result, ways_of: WaysOf | None) -> list[PhaseFlows]:
    """Return the flows of each phase; without their ways if nobody can tell them. An operation that has no single peer,
    such as a write to a file, which several storage nodes have, is none."""
    names = ["phase", "job", "service_level", "host", "peer"]
    tables = [result.table(name)[names].dropna() for name in ("flows", "operations")]
    found = pd.concat([table.astype(str).drop_duplicates() for table in tables]).drop_duplicates()
    found = found[found["peer"] != ""]
    slowed = result.table("flow_stalls")
    return [_of_phase(phase, found[found["phase"] == phase.name], slowed, ways_of) for phase in result.phases]


def _of_phase(phase: Phase, found: pd.DataFrame, slowed: pd.DataFrame, ways_of: WaysOf | None) -> PhaseFlows:
    ordered = found.sort_values(["job", "host", "peer", "service_level"], kind="stable")
    shown = ordered.head(MOST_FLOWS)
    columns = zip(*(shown[name].tolist() for name in ("service_level", "host", "peer")), strict=True)
    flows = [Flow(*names) for names in columns]
    ways = ways_of(phase, flows) if ways_of is not None and flows else [()] * len(flows)
    stalls = dict(_stalls(slowed[slowed["phase"] == phase.name]))
    rows = tuple(
        FlowRow(job, flow, tuple(dict.fromkeys(port for way in found for port in way)), len(found), stalls.get(flow))
        for job, flow, found in zip(shown["job"].tolist(), flows, ways, strict=True)
    )
    return PhaseFlows(rows, len(ordered) - len(shown))


def _stalls(slowed: pd.DataFrame) -> Iterator[tuple[Flow, dict[str, Any]]]:
    for row in slowed.to_dict("records"):
        flow = Flow(str(row["service_level"]), str(row["host"]), str(row["peer"]))
        if row["slowed_s"] > 0 or row["own_s"] > 0:
            numbers = {name: float(row[name]) for name in ("active_s", "slowed_s", "own_s", "rate_bps", "idle_bps")}
            known = isinstance(row["root_port"], str)
            root = [row["root_port"], row["root_lane"]] if known else None
            yield flow, {**numbers, "victim": bool(row["victim"]), "root": root}
