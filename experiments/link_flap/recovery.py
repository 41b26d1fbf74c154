"""The effects of a cut, from the tables of a phase: when it was noticed, and its cost to flows, steps and operations.

A cut's *window* reaches from when the kernel was asked for it to when it was asked for the next: what ended within
it is attributed to the cut.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from experiments.link_flap.cuts import Cut
from experiments.link_flap.tables import TABLES
from fabric.errors import TrafficError
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
    """The tables of one phase, and what steps take when nothing is cut (NaN if nobody knows)."""

    failures: pd.DataFrame
    controller: pd.DataFrame
    blackouts: pd.DataFrame
    steps: pd.DataFrame
    operations: pd.DataFrame
    undisturbed_step_s: float = math.nan


@dataclass(frozen=True)
class CutWindow:
    """A cut and its times in the run: asked for, carrier gone at both ends, back again, and the end of its window."""

    cut: Cut
    asked_s: float
    carrier_s: float
    returned_s: float
    ends_s: float


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
    ends = [*asked[1:], phase.ended_s]
    return [CutWindow(*one) for one in zip(cuts, asked, carrier, returned, ends, strict=True)]


def by_cut(failures: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Return rows of ``failures`` by the number of the cut that caused them; a row of several cuts is in each."""
    caused = failures.assign(cut=failures["causes"].astype(str).str.split(", ")).explode("cut")
    return {int(str(number)): rows for number, rows in caused[caused["cut"] != ""].groupby("cut")}


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
    """Return what each flow that lost probes in a window lost: stretches that end in it, from the cut on.

    A stretch of n lost probes means that the network was away for n periods, give or take one. One that began earlier,
    since probes were sent late, counts from the cut.
    """
    inside = _ended_in(window, blackouts)
    found = {}
    for flow, rows in inside.groupby("flow", observed=True):
        began = rows["began_s"].clip(lower=window.asked_s - period_s)
        seconds = (rows["ended_s"] - began - period_s).clip(lower=0).sum()
        # The later ones of a flow come of the link's return, or of new rules: through it was before.
        through = rows[rows["began_s"] < window.returned_s]["ended_s"].max()
        found[str(flow)] = LostProbes(float(seconds), int(rows["lost_packets"].sum()), float(through))
    return found


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
        "stall_s": longest_step_s(window, felt.steps) - felt.undisturbed_step_s,
        **_slowest(window, felt.operations),
    }


def repair_times(window: CutWindow, controller: pd.DataFrame) -> dict[str, float]:
    """Return when the controller heard of a cut, had planned for it, and had all rules confirmed; NaN for what it did
    not do before the link came back, or did only then."""
    links = window.cut.target.links
    ends, names = {(port.node.name, port.number) for link in links for port in link.ports}, set(map(str, links))
    times = {"port_s": math.nan, "planned_s": math.nan, "installed_s": math.nan}
    planned_s = math.nan
    inside = controller[(controller["at_s"] >= window.asked_s) & (controller["at_s"] < window.ends_s)]
    for at_s, kind, details in zip(inside["at_s"], inside["kind"], inside["details"].map(json.loads), strict=True):
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


def _ended_in(window: CutWindow, rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["ended_s"] > window.asked_s) & (rows["ended_s"] <= window.ends_s)]


def longest_step_s(window: CutWindow, steps: pd.DataFrame) -> float:
    """Return the time of the longest step that ended in a window; if none did, of the one that was under way until the
    next cut, however late it ended: left out, the cuts with the longest stalls would not count. NaN without steps."""
    inside = _ended_in(window, steps)
    if inside.empty:
        inside = steps[(steps["started_s"] <= window.ends_s) & (steps["ended_s"] > window.ends_s)]
    return float((inside["ended_s"] - inside["started_s"]).max()) if len(inside) else math.nan


def _slowest(window: CutWindow, operations: pd.DataFrame) -> dict[str, float | int]:
    inside = _ended_in(window, operations)
    taken = inside["ended_s"] - inside["started_s"]
    slowest = {kind: taken[inside["operation"].isin([kind, f"{kind}_failed"])].max() for kind in ("read", "write")}
    return {
        "slowest_read_s": float(slowest["read"]),
        "slowest_write_s": float(slowest["write"]),
        "retries": int(inside["retries"].sum()),
    }


def parts_s(cuts: pd.DataFrame) -> pd.DataFrame:
    """Return how long each part of a recovery took, by :data:`PARTS`, and their sum; only cuts that went through all.

    The last part is negative where packets were through before the last switch had confirmed its rules.
    """
    whole = cuts.dropna(subset=list(PARTS))
    whole = whole[whole["packet_s"] < whole["returned_s"]]
    times = whole[["asked_s", *PARTS]].to_numpy(dtype=float)
    parts = pd.DataFrame(np.diff(times, axis=1), columns=list(PARTS.values()), index=whole.index)
    return parts.assign(sum=parts.sum(axis=1))
