"""The effects of a cut, from the tables of a phase: when it was noticed, and its cost to flows, steps and operations.

A cut's *window* reaches from when the kernel was asked for it to when it was asked for the next. What was under way
when it was asked for is the cut's, and so is what began in its window, however late that ended: each step, operation
and blackout is one cut's. What is under way when the next is asked for is the next one's, unless it began before the
link was back or is long overdue by then: that outlasts the window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import pandas as pd

from experiments.link_flap.cuts import Cut
from experiments.link_flap.tables import TABLES
from fabric.errors import TrafficError
from fabric.records.packed import causes_in, details_in
from fabric.results import Phase
from traffic.flows.probes import ProbeFlow

PARTS = {
    "port_s": "port status",
    "planned_s": "planned",
    "installed_s": "rules in place",
    "packet_s": "first packet",
}
"""What follows a cut when the controller repairs it, in order: each part ends with it."""


@dataclass(frozen=True)
class PhaseTables:
    """The tables of one phase, what steps take when nothing is cut (NaN if nobody knows), and how long the longest
    ``step``, ``read`` and ``write`` lasts then, as far as somebody knows."""

    failures: pd.DataFrame
    controller: pd.DataFrame
    blackouts: pd.DataFrame
    steps: pd.DataFrame
    operations: pd.DataFrame
    undisturbed_step_s: float = math.nan
    longest_s: Mapping[str, float] = field(default_factory=dict)


_OVERDUE = 2
"""What has lasted for so many times the longest without cuts, when a cut is asked for, waits for an earlier one."""
_LATE_PERIODS = 10
"""By so many periods at most a probe is sent late: a blackout that began earlier is not a cut's to come."""


@dataclass(frozen=True)
class CutWindow:
    """A cut and its times in the run: asked for, carrier gone at both ends, back again, and the end of its window.
    ``calm_from_s``: since when nothing else was cut before, None: for as long as after its return."""

    cut: Cut
    asked_s: float
    carrier_s: float
    returned_s: float
    ends_s: float
    calm_from_s: float | None = None
    is_last: bool = False

    def of(self, rows: pd.DataFrame, started: str = "started_s", calm_s: float = math.inf) -> pd.DataFrame:
        """Return the rows that are this cut's. ``started``: the column of when each began; ``calm_s``: what has been
        under way for longer when a cut is asked for is the one's before."""
        began, ended = rows[started], rows["ended_s"]
        calm_from_s = self.asked_s - (self.ends_s - self.returned_s) if self.calm_from_s is None else self.calm_from_s
        if math.isfinite(calm_from_s):
            calm_from_s = max(calm_from_s, self.asked_s - calm_s)
        before = (began >= calm_from_s) & (began < self.asked_s) & (ended > self.asked_s)
        inside = (began >= self.asked_s) & (began < self.ends_s)
        if not self.is_last:
            inside &= (ended <= self.ends_s) | (began < self.returned_s) | (began < self.ends_s - calm_s)
        return rows[before | inside]

    def outlasting(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return those of its rows that were still under way when the next cut was asked for."""
        return rows[(rows["ended_s"] > self.ends_s) & (not self.is_last)]


def windows(cuts: Sequence[Cut], failures: pd.DataFrame, phase: Phase) -> list[CutWindow]:
    """Return the window of each cut, given a phase's rows of ``failures``; cuts are in the order of their times.

    Raises TrafficError if one of them did not begin or did not end.
    """
    went, came = (by_cut(failures[failures["up"] == up]) for up in (False, True))
    if missing := [cut.number for cut in cuts if cut.number not in went or cut.number not in came]:
        raise TrafficError(
            f"phase {phase.name}: of {len(cuts)} cuts that were planned, numbers {missing} did not begin or "
            "did not end; its schedule was not played to its end"
        )
    asked = [float(went[cut.number]["asked_s"].min()) for cut in cuts]
    carrier = [float(went[cut.number]["done_s"].max()) for cut in cuts]
    returned = [float(came[cut.number]["done_s"].max()) for cut in cuts]
    ends, calm = [*asked[1:], phase.ended_s], [-math.inf, *returned[:-1]]
    last = [False] * (len(cuts) - 1) + [True]
    return [CutWindow(*one) for one in zip(cuts, asked, carrier, returned, ends, calm, last, strict=True)]


def by_cut(failures: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Return rows of ``failures`` by the number of the cut that caused them; a row of several cuts is in each."""
    causes = failures["causes"].astype(str).map(causes_in)
    caused = failures.assign(cut=causes).explode("cut").dropna(subset=["cut"])
    return {int(str(number)): rows for number, rows in caused.groupby("cut")}


def cut_tables(
    phase: Phase,
    found: Sequence[CutWindow],
    felt: PhaseTables,
    crossing: Mapping[int, Sequence[ProbeFlow]],
    period_s: float,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a phase's rows of ``cuts`` and ``cut_flows``. ``crossing``: the flows that cross each cut, by number."""
    rows, flow_rows = [], []
    for window in found:
        flows = [str(flow) for flow in crossing[window.cut.number]]
        lost = lost_by_flow(window, felt.blackouts, period_s)
        common = {"phase": phase.name, "routing": phase.routing, "cut": window.cut.number}
        common["place"] = window.cut.target.place.value
        rows.append({**common, **_cut_row(window, felt, flows, lost)})
        flow_rows += [
            {**common, "flow": flow, "crosses": flow in flows, **asdict(lost.get(flow, NOTHING_LOST))}
            for flow in dict.fromkeys([*flows, *lost])
        ]
    for row in flow_rows:
        del row["through_s"]
    return pd.DataFrame(rows, columns=list(TABLES["cuts"].columns)), pd.DataFrame(
        flow_rows, columns=list(TABLES["cut_flows"].columns)
    )


@dataclass(frozen=True)
class LostProbes:
    """What a flow lost in a window: how long it was without a network, and when it was through again."""

    blackout_s: float
    lost_packets: int
    through_s: float


NOTHING_LOST = LostProbes(0.0, 0, -math.inf)


def lost_by_flow(window: CutWindow, blackouts: pd.DataFrame, period_s: float) -> dict[str, LostProbes]:
    """Return what each flow lost by a cut, from the cut on.

    A stretch of n lost probes means that the network was away for n periods, give or take one. One that began earlier,
    since probes were sent late, counts from the cut.
    """
    inside = _lost_in(window, blackouts, period_s)
    found = {}
    for flow, rows in inside.groupby("flow", observed=True):
        began = rows["began_s"].clip(lower=window.asked_s - period_s)
        seconds = (rows["ended_s"] - began - period_s).clip(lower=0).sum()
        # The later ones of a flow come of the link's return, or of new rules: through it was before.
        through = rows[rows["began_s"] < window.returned_s]["ended_s"].max()
        found[str(flow)] = LostProbes(float(seconds), int(rows["lost_packets"].sum()), float(through))
    return found


def _lost_in(window: CutWindow, blackouts: pd.DataFrame, period_s: float) -> pd.DataFrame:
    return window.of(blackouts, "began_s", _LATE_PERIODS * period_s)


def _cut_row(
    window: CutWindow, felt: PhaseTables, flows: Sequence[str], lost: Mapping[str, LostProbes]
) -> dict[str, float | int | str]:
    through = [lost[flow].through_s for flow in flows if flow in lost]
    return {
        "target": window.cut.target.name,
        "duration_s": window.cut.duration_s,
        "asked_s": window.asked_s,
        "carrier_s": window.carrier_s,
        "returned_s": window.returned_s,
        **repair_times(window, felt.controller),
        "packet_s": max(through, default=math.nan),
        "flows": len(flows),
        "stall_s": longest_step_s(window, felt.steps, felt.longest_s) - felt.undisturbed_step_s,
        **_slowest(window, felt.operations, felt.longest_s),
    }


def repair_times(window: CutWindow, controller: pd.DataFrame) -> dict[str, float]:
    """Return when the controller heard of a cut, had planned for it, and had all rules confirmed; NaN for what it did
    not do before the link came back, or did only then."""
    links = window.cut.target.links
    ends, names = {(port.node.name, port.number) for link in links for port in link.ports}, set(map(str, links))
    times = {"port_s": math.nan, "planned_s": math.nan, "installed_s": math.nan}
    planned_s = math.nan
    inside = controller[(controller["at_s"] >= window.asked_s) & (controller["at_s"] < window.ends_s)]
    for at_s, kind, details in zip(inside["at_s"], inside["kind"], inside["details"].map(details_in), strict=True):
        if kind == "port" and (details["switch"], details["port"]) in ends:
            if details["up"]:
                break
            times["port_s"] = at_s if math.isnan(times["port_s"]) else times["port_s"]
        elif math.isnan(times["port_s"]) or names.isdisjoint(details.get("links_down", ())):
            continue
        elif kind == "planned":
            planned_s = at_s
            times["planned_s"] = at_s if math.isnan(times["planned_s"]) else times["planned_s"]
        elif kind == "installed":
            times |= {"planned_s": planned_s, "installed_s": at_s}
    return times


_NOTHING_KNOWN: Mapping[str, float] = {}


def _calm_s(kind: str, longest_s: Mapping[str, float]) -> float:
    return _OVERDUE * longest_s[kind] if kind in longest_s else math.inf


def longest_step_s(window: CutWindow, steps: pd.DataFrame, longest_s: Mapping[str, float] = _NOTHING_KNOWN) -> float:
    """Return the time of a cut's longest step, in seconds; NaN if it has none. ``longest_s`` as in
    :class:`PhaseTables`."""
    found = window.of(steps, calm_s=_calm_s("step", longest_s))
    return float((found["ended_s"] - found["started_s"]).max()) if len(found) else math.nan


def _operations_of(
    window: CutWindow, operations: pd.DataFrame, longest_s: Mapping[str, float]
) -> dict[str, pd.DataFrame]:
    """Return a cut's reads and its writes, those that failed among them."""
    return {
        kind: window.of(
            operations[operations["operation"].isin([kind, f"{kind}_failed"])], calm_s=_calm_s(kind, longest_s)
        )
        for kind in ("read", "write")
    }


def _slowest(window: CutWindow, operations: pd.DataFrame, longest_s: Mapping[str, float]) -> dict[str, float | int]:
    found = _operations_of(window, operations, longest_s)
    slowest = {kind: (rows["ended_s"] - rows["started_s"]).max() for kind, rows in found.items()}
    return {
        "slowest_read_s": float(slowest["read"]),
        "slowest_write_s": float(slowest["write"]),
        "retries": int(sum(rows["retries"].sum() for rows in found.values())),
    }


@dataclass(frozen=True)
class Outlasted:
    """That something of a cut's was still under way when the next cut was asked for: what, and for how much longer it
    lasted, in seconds."""

    window: CutWindow
    what: str
    longer_s: float


def outlasted(found: Sequence[CutWindow], felt: PhaseTables, period_s: float) -> Iterator[Outlasted]:
    """Yield, for each cut whose load or loss outlasts its window, what lasted longest."""
    for window in found:
        operations = _operations_of(window, felt.operations, felt.longest_s)
        rows = {
            "a step": window.of(felt.steps, calm_s=_calm_s("step", felt.longest_s)),
            **{f"a {kind}": found for kind, found in operations.items()},
            "a blackout": _lost_in(window, felt.blackouts, period_s),
        }
        longer_s = {what: window.outlasting(of)["ended_s"].max() - window.ends_s for what, of in rows.items()}
        known = {what: float(value) for what, value in longer_s.items() if not math.isnan(value)}
        if known:
            what = max(known, key=lambda one: known[one])
            yield Outlasted(window, what, known[what])


def parts_s(cuts: pd.DataFrame) -> pd.DataFrame:
    """Return how long each part of a recovery took, by :data:`PARTS`, and their sum; only cuts that went through all.

    The last part is negative where packets were through before the last switch had confirmed its rules.
    """
    whole = cuts.dropna(subset=list(PARTS))
    whole = whole[whole["packet_s"] < whole["returned_s"]]
    times = whole[["asked_s", *PARTS]].to_numpy(dtype=float)
    parts = pd.DataFrame(np.diff(times, axis=1), columns=list(PARTS.values()), index=whole.index)
    return parts.assign(sum=parts.sum(axis=1))
