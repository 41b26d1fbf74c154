"""What the page shows of a run, as a value: made from the result's directory alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fabric.errors import ResultError
from fabric.model.identity import node_of_port
from fabric.report.figures.data import directions
from fabric.report.users_jobs import UsersJobs, users_jobs_of
from fabric.report.view.findings import Finding, Opening, Sampled, findings_of, opening_of
from fabric.report.view.flows import MOST_FLOWS, PhaseFlows, WaysOf, flows_of
from fabric.report.view.grid import SAMPLED_TABLES, Grid, grids_of, is_cumulative
from fabric.report.view.layout import HOST_ROLES, lay_out
from fabric.report.view.packing import Packed, growth, packed
from fabric.report.view.spans import Happened, happened_in
from fabric.report.view.streams import StreamTrack, streams_of, streams_on_page
from fabric.report.view.trees import Forest, forest_of
from fabric.report.view.users import users_on_page
from fabric.results import Phase, Result
from fabric.stalls.intervals import LinkDirection
from fabric.units import format_rate


@dataclass(frozen=True)
class Wires:
    """The directions of all links, by number: the port that sends, the port that receives, the rate, the tier."""

    ports: tuple[str, ...]
    peers: tuple[str, ...]
    rates_bps: tuple[float, ...]
    tiers: tuple[str, ...]

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Each port's number."""
        return {port: number for number, port in enumerate(self.ports)}

    @classmethod
    def of(cls, fabric: Mapping[str, Any]) -> Wires:
        """Return those of a ``fabric.json``."""
        found = list(directions(fabric).values())
        columns = zip(*((one.port, one.peer, one.rate_bps, one.tier) for one in found), strict=True)
        ports, peers, rates, tiers = columns if found else ((), (), (), ())
        return cls(tuple(ports), tuple(peers), tuple(rates), tuple(tiers))


@dataclass(frozen=True)
class View:
    """A run to look into. ``grids``, ``forests`` and ``flows`` have an item per phase; ``notes`` say what is not there,
    and why."""

    result: Result
    wires: Wires
    lanes: tuple[str, ...]
    grids: tuple[Grid, ...]
    forests: tuple[Forest | None, ...]
    flows: tuple[PhaseFlows, ...]
    happened: Happened
    findings: tuple[Finding, ...]
    opening: Opening
    notes: tuple[str, ...] = ()

    @property
    def phases(self) -> list[Phase]:
        """The phases, in order."""
        return self.result.phases

    @cached_property
    def streams(self) -> list[StreamTrack]:
        """What ranks played, stream by stream: read once, however often a trace is made until it fits."""
        return streams_of(self.result)

    @cached_property
    def users(self) -> list[UsersJobs]:
        """What became of users' jobs of platforms."""
        return users_jobs_of(self.result)


@dataclass(frozen=True)
class Ways:
    """How to find flows' ways, or why they cannot be found."""

    find: WaysOf | None = None
    missing: str = ""


def view_of(result: Result, ways: Ways = Ways()) -> View:  # noqa: B008 - frozen
    """Return what the page shows of a result. Raises ResultError if it has no samples."""
    wires = Wires.of(result.fabric)
    tables = {name: result.table(name) for name in SAMPLED_TABLES}
    lanes = _lanes(tables["ports"]["lane"].dropna().unique())
    grids = tuple(grids_of(tables, result.phases, wires.ports, lanes))
    if not any(len(grid.at_s) for grid in grids):
        raise ResultError(f"{result.directory}: has no samples of ports, so there is nothing to look into")
    forests = _forests(result, grids, wires, lanes)
    happened, flows = happened_in(result), tuple(flows_of(result, ways.find))
    hosts = frozenset(str(node["name"]) for node in result.fabric["nodes"] if node["role"] in HOST_ROLES)
    sampled = Sampled(result.phases, grids, forests, wires.ports, lanes, wires.rates_bps, hosts)
    found = tuple(findings_of(sampled, happened.spans))
    notes = tuple(_notes(grids, flows, happened, ways))
    return View(result, wires, lanes, grids, forests, flows, happened, found, opening_of(found, happened.spans), notes)


def thinned(view: View, every: int) -> View:
    """Return a view with each ``every``-th sample, which says so; what was found in all samples stays."""
    if every == 1:
        return view
    grids = tuple(grid.thinned(every) for grid in view.grids)
    note = (
        f"thinned: this page has 1 of {every} samples; what counters counted between them is whole, and "
        "fabric view --serve shows all"
    )
    forests = _forests(view.result, grids, view.wires, view.lanes)
    return replace(view, grids=grids, forests=forests, notes=(note, *view.notes))


def _forests(result: Result, grids: Sequence[Grid], wires: Wires, lanes: Sequence[str]) -> tuple[Forest | None, ...]:
    ends = {
        port: LinkDirection(peer, rate)
        for port, peer, rate in zip(wires.ports, wires.peers, wires.rates_bps, strict=True)
    }
    waits = result.table("waits")
    return tuple(forest_of(grid, waits, ends, wires.ports, lanes) for grid in grids)


def _lanes(names: Any) -> tuple[str, ...]:
    """Return lanes in the order in which figures show them."""
    from fabric.report.figures.style import level_place

    return tuple(sorted(map(str, names), key=lambda name: (level_place(name), name)))


def _notes(grids: tuple[Grid, ...], flows: tuple[PhaseFlows, ...], happened: Happened, ways: Ways) -> list[str]:
    notes = []
    if unsampled := [grid.phase for grid in grids if not len(grid.at_s)]:
        notes.append(f"phases without samples are left out: {', '.join(unsampled)}")
    if left := sum(grid.left_out for grid in grids):
        notes.append(f"{left} samples without every port are left out")
    if left := sum(one.left_out for one in flows):
        notes.append(f"{left} flows are left out, of phases with more than {MOST_FLOWS:,}")
    notes += [f"{count} of kind {kind} are left out of the time axis" for kind, count in happened.left_out.items()]
    if ways.missing:
        notes.append(f"flows' paths are not shown: {ways.missing}")
    return notes


# For the page --------------------------------------------------------------------------------------------------------


@dataclass
class Described:
    """A view as the page reads it: JSON values, and arrays by name."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Packed] = field(default_factory=dict)

    def keep(self, name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
        """Keep an array, and return what the page must know to find it."""
        self.arrays[name] = packed(array)
        return self.arrays[name].described(name)


def described(view: View, number: int = 0) -> Described:
    """Return a view as the page reads it; ``number``: which of the runs on the page it is."""
    from fabric.report.figures.style import level_names

    out = Described()
    result = view.result
    streams, left_out = streams_on_page(view.streams)
    users, left_of_users = users_on_page(view.users)
    out.values = {
        **_head(result),
        "fabric": fabric_as_page_reads_it(result.fabric),
        "lanes": list(view.lanes),
        "level_names": level_names(result) or sorted(view.lanes),
        "happened": view.happened.as_json(),
        "findings": [finding.as_json() for finding in view.findings],
        "opening": asdict(view.opening),
        "shares": _shares(result),
        "notes": [*view.notes, *left_out, *left_of_users],
        "steps": _steps(result),
        "streams": streams,
        "users": users,
        "phases": [
            _phase(view, place, out, f"r{number}p{place}") for place, grid in enumerate(view.grids) if len(grid.at_s)
        ],
    }
    return out


def _head(result: Result) -> dict[str, Any]:
    rate, reference = float(result.fabric["nic_rate_bps"]), float(result.fabric["reference_nic_rate_bps"])
    scale = "true scale" if rate == reference else f"1 : {reference / rate:,.6g} of {format_rate(reference)}"
    return {
        "title": str(result.summary.get("title") or result.manifest["experiment"]),
        "experiment": str(result.manifest["experiment"]),
        "directory": result.name,
        "engine": str(result.manifest.get("engine", "unknown")),
        "answer": str(result.summary.get("answer") or ""),
        "verdict": {
            "status": str(result.verdict["status"]),
            "reasons": [str(reason) for reason in result.verdict.get("reasons", [])],
            "notes": result.notes,
        },
        "scale": scale,
    }


def fabric_as_page_reads_it(fabric: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``fabric.json`` as the page reads it: with where each node and port is drawn."""
    layout, wires = lay_out(fabric), Wires.of(fabric)
    return {
        "name": str(fabric["name"]),
        "nodes": [
            {"name": node["name"], "role": node["role"], "zone": node.get("zone"), "level": layout.levels[node["name"]]}
            for node in fabric["nodes"]
        ],
        "switches": {name: list(point) for name, point in layout.of_switch.items()},
        "ports": list(wires.ports),
        "peers": [wires.place_of[peer] for peer in wires.peers],
        "rates_bps": list(wires.rates_bps),
        "tiers": list(wires.tiers),
        "points": [list(layout.of_port.get(port, (0.0, 0.0))) for port in wires.ports],
        "owners": [node_of_port(port) for port in wires.ports],
        "zones": {str(zone): list(span) for zone, span in layout.zones.items()},
        "grouped": layout.grouped,
    }


def _shares(result: Result) -> dict[str, float]:
    """Return the fraction of its links that each lane is promised, in queueings with lanes: as the summary has it, else
    the config; none without either."""
    shares = result.summary.get("lane_shares")
    if shares is None:
        try:
            lanes = (result.config.get("queues") or {}).get("lanes") or {}
        except ResultError:
            return {}
        shares = {name: lane["share"] for name, lane in lanes.items() if "share" in lane}
    return {str(name): float(share) for name, share in shares.items()}


def _steps(result: Result) -> list[list[Any]]:
    """Return ``[phase, job, step, start, end]`` of each step that ended, of collectives and of graphs of work."""
    found = [result.table("steps").dropna(subset=["ended_s"])]
    if "work_steps" in result.tables:
        by_step = result.table("work_steps").dropna(subset=["ended_s"])
        whole = by_step.groupby(["phase", "job", "step"], observed=True, as_index=False)
        found.append(whole.agg({"started_s": "min", "ended_s": "max"}))
    columns = ("phase", "job", "step", "started_s", "ended_s")
    return [list(row) for frame in found for row in zip(*(frame[name].tolist() for name in columns), strict=True)]


def _phase(view: View, place: int, out: Described, key: str) -> dict[str, Any]:
    phase, grid, forest = view.phases[place], view.grids[place], view.forests[place]
    columns = {}
    for name, values in grid.columns.items():
        if is_cumulative(name):
            first, grown = growth(values)
            columns[name] = {
                "base": out.keep(f"{key}-{name}-base", first), "growth": out.keep(f"{key}-{name}-growth", grown)
            }  # fmt: skip
        else:
            columns[name] = {"values": out.keep(f"{key}-{name}", values)}
    return {
        "name": phase.name,
        "title": phase.title,
        "queueing": phase.queueing,
        "routing": phase.routing,
        "started_s": phase.started_s,
        "ended_s": phase.ended_s,
        "at_s": out.keep(f"{key}-at_s", grid.at_s),
        "keys": {"ports": out.keep(f"{key}-ports", grid.ports), "lanes": out.keep(f"{key}-lanes", grid.lanes)},
        "columns": columns,
        "trees": None if forest is None else _trees(forest, out, key),
        "flows": _flows(view, view.flows[place], out, key),
    }


def _trees(forest: Forest, out: Described, key: str) -> dict[str, Any]:
    heads, members = out.keep(f"{key}-trees", forest.heads), out.keep(f"{key}-members", forest.members)
    return {"heads": heads, "members": members, "kinds": list(forest.kinds)}


def _flows(view: View, flows: PhaseFlows, out: Described, key: str) -> dict[str, Any]:
    place = view.wires.place_of
    names = list(dict.fromkeys(name for row in flows.rows for name in (row.flow.host, row.flow.peer)))
    jobs = list(dict.fromkeys(row.job for row in flows.rows))
    levels = list(dict.fromkeys(row.flow.service_level for row in flows.rows))
    host, job, level = ({name: number for number, name in enumerate(found)} for found in (names, jobs, levels))
    table = [
        (job[r.job], level[r.flow.service_level], host[r.flow.host], host[r.flow.peer], r.ways) for r in flows.rows
    ]
    ways = [[place[port] for port in row.ports if port in place] for row in flows.rows]  # Not those inside nodes.
    counts = np.array([0, *map(len, ways)], np.int64)
    ports = np.array([port for way in ways for port in way], np.int64)
    return {
        "jobs": jobs,
        "levels": levels,
        "hosts": names,
        "table": out.keep(f"{key}-flows", np.array(table, np.int64).reshape(-1, 5)),
        "begins": out.keep(f"{key}-begins", np.cumsum(counts)),
        "ports": out.keep(f"{key}-ways", ports),
        "stalls": {str(number): row.stall for number, row in enumerate(flows.rows) if row.stall},
    }
