"""What every run reports of its lossless phases: congestion trees, stalled ports, and the flows that they slowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fabric.measures import Better, Measure
from fabric.metrics import listed, metrics_of
from fabric.model.identity import node_of_port
from fabric.model.lanes import Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.records.cells import Row, count_of, quantity
from fabric.records.summary_table import SummaryTable
from fabric.results import Phase
from fabric.stalls.congestion_trees import RootKind
from fabric.stalls.intervals import BLOCKED_SHARE, LinkDirection, moments, stalled_frame, stalled_time, trees_frame
from fabric.stalls.victims import VICTIM_SHARE, delivered_in_intervals, flows_frame
from runs.session import Session
from runs.ways import WayFinder

_MEASURED = ("stalls", "ports", "waits", "flows", "operations")
_TREES_SHOWN = 3
_LANES_SHOWN = 5
_VICTIMS_SHOWN = 5
_ROOT = ["root_port", "root_lane"]
_KIND_WORDS = {RootKind.BUSY: "", RootKind.CYCLE: " (a cycle)", RootKind.UNSEEN: " (cause not seen)"}


@dataclass(frozen=True)
class Found:
    """A lossless phase and its rows of each table."""

    phase: Phase
    trees: pd.DataFrame
    stalled: pd.DataFrame
    flows: pd.DataFrame

    def part_of_load(self, trees: pd.DataFrame) -> float:
        """Return for what part of the time in which the phase's load played there was one of these trees."""
        from_s, until_s = self.phase.load_s
        moments = trees.drop_duplicates("at_s")
        inside = np.minimum(moments["at_s"], until_s) - np.maximum(moments["at_s"] - moments["interval_s"], from_s)
        return float(inside.clip(lower=0).sum()) / (until_s - from_s)

    @property
    def victims(self) -> pd.DataFrame:
        """The rows of victims, the most slowed first."""
        rows = self.flows[self.flows["victim"].astype(bool)]
        return rows.assign(share=rows["slowed_s"] / rows["active_s"]).sort_values(
            ["share", "host", "peer"], ascending=[False, True, True], kind="stable"
        )


def tell_congestion(session: Session, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the rows of congestion_trees, stalled_time and flow_stalls of a run, and return its summary with their
    metrics and tables. One without lossless phases has its summary unchanged."""
    fabric = session.live.fabric
    measured = {name: session.table(name) for name in _MEASURED}
    found: list[Found] = []
    for outcome in session.phases:
        phase = outcome.phase
        lanes = plan_lanes(session.queues, Queueing(phase.queueing))
        finder = WayFinder(fabric, lanes, outcome.routing, outcome.moves)
        frames = congestion_frames(fabric, measured, phase, finder)
        for name, frame in frames.items():
            session.keep_frame(name, frame)
        if frames:
            found.append(Found(phase, frames["congestion_trees"], frames["stalled_time"], frames["flow_stalls"]))
    if not found:
        return dict(summary)
    metrics = [metric for one in found for metric in metrics_of(one.phase.name, "", congestion_metrics(one))]
    return {
        **summary,
        "metrics": [*listed(summary.get("metrics", ())), *metrics],
        "tables": [*summary.get("tables", ()), *congestion_tables(found)],
    }


def congestion_frames(
    fabric: Fabric, measured: Mapping[str, pd.DataFrame], phase: Phase, finder: WayFinder
) -> dict[str, pd.DataFrame]:
    """Return the rows that a phase adds to each table; nothing if it was not lossless.

    ``measured`` has the tables stalls, ports, waits, flows and operations.
    """
    wires = {
        str(port): LinkDirection(str(link.other(port)), link.rate_bps) for port, link in fabric.every_directed_port()
    }
    time = stalled_time(measured["stalls"], measured["ports"], wires, phase)
    if time is None:
        return {}
    seen = list(moments(time, measured["waits"], wires))
    flows = delivered_in_intervals(measured["flows"], measured["operations"], phase, time.sampled_s)
    ways = {flow: finder.ways(flow, [moment.at_s for moment in seen]) for flow in flows}
    return {
        "stalled_time": stalled_frame(time, phase.name, wires),
        "congestion_trees": trees_frame(seen, phase.name, {host.name for host in fabric.hosts}),
        "flow_stalls": flows_frame(phase, flows, ways, seen, time, wires),
    }


# In the summary -------------------------------------------------------------------------------------------------------


MEASURES = (
    Measure("congested_fraction", "share of the time in which the load played with a congestion tree", Better.LESS),
    Measure("largest_tree_ports", "ports in the largest congestion tree", Better.LESS),
    Measure(
        "deepest_tree_waits", "waits between the root of the deepest congestion tree and its farthest lane", Better.LESS
    ),
    Measure("hosts_blocked_by_a_tree", "most hosts that could not send because of one congestion tree", Better.LESS),
    Measure("victims", "flows that a congestion tree slowed whose root they do not cross", Better.LESS),
)


def congestion_metrics(found: Found) -> dict[str, float]:
    """Return what a phase says of congestion in numbers: of its trees the most ports, waits and blocked hosts.

    ``congested_fraction`` is of the time in which its load played.
    """
    trees = found.trees
    most = {name: 0 if trees.empty else int(trees[name].max()) for name in ("ports", "depth", "hosts")}
    return {
        "congested_fraction": found.part_of_load(trees),
        "largest_tree_ports": most["ports"],
        "deepest_tree_waits": most["depth"],
        "hosts_blocked_by_a_tree": most["hosts"],
        "victims": len(found.victims),
    }


def congestion_tables(phases: Sequence[Found]) -> list[SummaryTable]:
    """Return the tables of trees, of stalled lanes and of victims; phases without a tree are omitted."""
    congested = [found for found in phases if not found.trees.empty]
    return [_trees_table(congested), _stalled_table(congested), _victims_table(congested)] if congested else []


def _trees_table(phases: Sequence[Found]) -> SummaryTable:
    rows: list[Row] = [row for found in phases for row in _phase_first(found, _tree_rows(found))]
    shape = ["ports, most", "depth, most", "hosts blocked, most", "waiting, most"]
    return SummaryTable(
        title="Congestion trees",
        columns=["phase", "root", "of the time", "longest", *shape],
        rows=rows,
        note=f"a lane is blocked in an interval between samples if stalled for more than {BLOCKED_SHARE:.0%} of it; "
        "the root is the port that all lanes of the tree wait for; shown: "
        f"the {_TREES_SHOWN} largest trees per phase, by ports and time; hosts blocked: their NICs are in the tree",
    )


def _phase_first(found: Found, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield rows with the phase's title before the first of them."""
    for number, row in enumerate(rows):
        yield [found.phase.title if number == 0 else "", *row]


def _tree_rows(found: Found) -> Iterator[Row]:
    """Yield the rows of the roots with the largest trees."""
    trees = found.trees.assign(size=found.trees["ports"] * found.trees["interval_s"])
    by_root = trees.groupby(_ROOT, observed=True)
    size = by_root["size"].sum().sort_values(ascending=False, kind="stable")
    for root in size.index[:_TREES_SHOWN]:
        rows = by_root.get_group(root)
        most = [count_of(rows[name].max()) for name in ("ports", "depth", "hosts")]
        time = [quantity(found.part_of_load(rows), ".0%"), quantity(longest_s(rows), "time")]
        words = f"{root[0]} {root[1]}{_KIND_WORDS[RootKind(rows['kind'].iloc[0])]}"
        yield [words, *time, *most, quantity(rows["waiting_bytes"].max(), "size")]


def longest_s(rows: pd.DataFrame) -> float:
    """Return the longest stretch of intervals without a gap between them, from rows of one root in order of time."""
    began = rows["at_s"] - rows["interval_s"]
    # Half an interval tells a gap from what arithmetic makes of two equal times.
    gaps = (began - rows["at_s"].shift()) > rows["interval_s"] / 2
    return float(rows["interval_s"].groupby(gaps.cumsum()).sum().max())


def _stalled_table(phases: Sequence[Found]) -> SummaryTable:
    rows: list[Row] = [row for found in phases for row in _phase_first(found, _stalled_rows(found))]
    return SummaryTable(
        title="Lanes that stalled longest",
        columns=["phase", "link", "lane", "stalls", "stalled for", "of the time", "worst interval"],
        rows=rows,
        note=f"the first {_LANES_SHOWN} per phase; all are in samples/stalled_time.parquet; "
        "of the time: of the whole phase; worst interval: between two samples",
    )


def _stalled_rows(found: Found) -> Iterator[Row]:
    rows = found.stalled[found.stalled["stalled_s"] > 0]
    longest = rows.sort_values(["stalled_s", "port"], ascending=[False, True], kind="stable").head(_LANES_SHOWN)
    for row in longest.to_dict("records"):
        link = f"{row['port']} → {node_of_port(row['peer'])}"
        shares = [quantity(row[name], ".0%") for name in ("stalled_fraction", "worst_fraction")]
        yield [link, row["lane"], quantity(row["stalls"], ",.0f"), quantity(row["stalled_s"], "time"), *shares]


def _victims_table(phases: Sequence[Found]) -> SummaryTable:
    rows: list[Row] = [row for found in phases for row in _phase_first(found, _victim_rows(found))]
    columns = ["phase", "flow", "slowed by", "stalled for", "bandwidth", "idle on its path"]
    return SummaryTable(
        title="Victims: flows slowed by ports that they do not use",
        columns=columns,
        rows=rows,
        note=f"flows whose path was stalled for more than {VICTIM_SHARE:.0%} of their time by trees with roots not "
        f"on it, and had a root on it for no more than that; the first {_VICTIMS_SHOWN} per phase; idle: what the "
        "fullest port of the path left unused meanwhile, which the flow could have used",
    )


def _victim_rows(found: Found) -> Iterator[Row]:
    victims = found.victims
    if victims.empty:
        yield ["none", "", "", "", ""]
    for row in victims.head(_VICTIMS_SHOWN).to_dict("records"):
        flow = f"{row['service_level']} {row['host']} → {row['peer']}"
        rates = [quantity(row[name], "rate") for name in ("rate_bps", "idle_bps")]
        yield [flow, f"{row['root_port']} {row['root_lane']}", quantity(row["share"], ".0% of the time"), *rates]
    if (more := len(victims) - _VICTIMS_SHOWN) > 0:
        yield [f"and {more} more", "", "", "", ""]
