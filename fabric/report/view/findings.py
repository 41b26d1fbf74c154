"""Where to look first: the roots of congestion trees, who lost contact, which lanes waited, which ports were busiest.

Each row leads to a port or a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fabric.model.identity import node_of_port
from fabric.report.view.grid import Grid
from fabric.report.view.spans import Span
from fabric.report.view.trees import Forest
from fabric.results import Phase
from fabric.units import format_rate, format_size, format_time

_ROWS = 8
_ROWS_A_PHASE = 3
_LEAST_WAITING = 0.5
"""Of a phase's samples: a lane with data waiting in fewer is not shown as one that waits."""
_TREES = "Roots of congestion trees"
_CUTS = "Cuts, and who lost contact for how long"
_WAITING = "Lanes that had data waiting, and got least"
_WHOLE_LINK = 0.9
"""Of a link: a lane that got more has nothing to complain of."""


@dataclass(frozen=True)
class FindingRow:
    """A row of cells, and where it leads: a port (and lane), a time, or both."""

    cells: tuple[str, ...]
    port: str | None = None
    lane: str | None = None
    at_s: float | None = None
    is_tree: bool = False


@dataclass(frozen=True)
class Finding:
    """A table of the overview."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[FindingRow, ...]
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Sampled:
    """What findings are made of: each phase with its samples and trees, the names of ports and lanes, link rates."""

    phases: Sequence[Phase]
    grids: Sequence[Grid]
    forests: Sequence[Forest | None]
    ports: Sequence[str]
    lanes: Sequence[str]
    rates_bps: Sequence[float]
    hosts: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Opening:
    """Where the page opens: a time (None: the start of the run), and why there."""

    at_s: float | None
    why: str


def findings_of(sampled: Sampled, spans: Sequence[Span]) -> list[Finding]:
    """Return the tables that have rows."""
    found = (_roots(sampled), _cuts(spans), _waiting(sampled), _busiest(sampled))
    return [finding for finding in found if finding.rows]


def opening_of(findings: Sequence[Finding], spans: Sequence[Span]) -> Opening:
    """Return the time of what matters most: the largest congestion tree; else the longest loss of contact; else data
    that waited in a phase in which most jobs play at once; else the begin."""
    rows = {finding.title: finding.rows for finding in findings}
    if trees := rows.get(_TREES):
        row = max(trees, key=lambda one: (int(one.cells[3]), int(one.cells[4])))
        return Opening(row.at_s, f"the largest congestion tree: {row.cells[3]} ports wait for {row.cells[1]}")
    if cuts := rows.get(_CUTS):
        _, link, flow, longest, _ = cuts[0].cells
        lost = "the first cut" if longest == "-" else f"the longest loss of contact, {longest} of flow {flow}"
        return Opening(cuts[0].at_s, f"{lost}: {link}")
    if waiting := rows.get(_WAITING):
        row = max(waiting, key=lambda one: _jobs_at(one.at_s, spans))
        jobs = _jobs_at(row.at_s, spans)
        among = f", where {jobs} jobs play at once" if jobs > 1 else ""
        return Opening(row.at_s, f"data waited at {row.port} in lane {row.lane}{among}")
    return Opening(None, "the start of the run: no data waited long, and nothing was cut")


def _jobs_at(at_s: float | None, spans: Sequence[Span]) -> int:
    """Return how many jobs play in the phase of a time."""
    phases = [one for one in spans if one.kind == "phase" and at_s is not None and one.begin_s <= at_s <= one.end_s]
    if not phases:
        return 0
    begin_s, end_s = phases[-1].begin_s, phases[-1].end_s
    return len({one.label for one in spans if one.kind == "job" and one.begin_s < end_s and one.end_s > begin_s})


def _roots(sampled: Sampled) -> Finding:
    rows = [
        row
        for phase, grid, forest in zip(sampled.phases, sampled.grids, sampled.forests, strict=True)
        if forest is not None and len(forest.heads)
        for row in _roots_of(sampled, phase, grid, forest)
    ]
    note = "the full port that all other lanes of the tree wait for, directly or not; most ports and hosts at once"
    return Finding(_TREES, ("phase", "root", "of the time", "ports", "hosts"), tuple(rows), note)


def _roots_of(sampled: Sampled, phase: Phase, grid: Grid, forest: Forest) -> Iterator[FindingRow]:
    lengths = np.diff(grid.at_s, prepend=grid.at_s[0])
    total_s: Counter[tuple[int, int]] = Counter()
    size: Counter[tuple[int, int]] = Counter()
    most: dict[tuple[int, int], tuple[int, int, float]] = {}
    ends = [*forest.heads[1:, 4].tolist(), len(forest.members)]
    for (sample, port, lane, _, begin), end in zip(forest.heads.tolist(), ends, strict=True):
        members = forest.members[begin:end]
        ports = sorted({sampled.ports[place] for place in members[:, 0].tolist()})
        hosts = len(set(map(node_of_port, ports)) & sampled.hosts)
        total_s[port, lane] += lengths[sample]
        size[port, lane] += len(ports) * lengths[sample]
        most[port, lane] = max(most.get((port, lane), (0, 0, 0.0)), (len(ports), hosts, -float(grid.at_s[sample])))
    duration_s = float(grid.at_s[-1] - grid.at_s[0])
    for (port, lane), _ in size.most_common(_ROWS_A_PHASE):
        count, hosts, negative_s = most[port, lane]
        cells = (phase.title, f"{sampled.ports[port]} {sampled.lanes[lane]}", f"{total_s[port, lane] / duration_s:.0%}")
        yield FindingRow(
            (*cells, str(count), str(hosts)), sampled.ports[port], sampled.lanes[lane], -negative_s, is_tree=True
        )


def _cuts(spans: Sequence[Span]) -> Finding:
    """Return which flow each cut blacked out and for how long, the longest first."""
    cuts = [span for span in spans if span.kind == "cut"]
    phases = [span for span in spans if span.kind == "phase"]
    found: dict[tuple[str, str, str], list[tuple[Span, Span | None]]] = {}
    for span in (one for one in spans if one.kind == "blackout"):
        cut = _cause(span, cuts)
        phase = next((one.label for one in phases if one.begin_s <= span.end_s <= one.end_s), "-")
        found.setdefault((phase, cut.label if cut else "no cut", span.label), []).append((span, cut))
    rows = [_blackout_row(names, blackouts) for names, blackouts in found.items()]
    if not rows:
        by_link = {cut.label: cut for cut in reversed(cuts)}
        rows = [
            (0.0, FindingRow(("-", label, "nobody", "-", "-"), cut.ports[0], None, cut.begin_s))
            for label, cut in by_link.items()
        ]
    more = f"the longest {_ROWS} of {len(rows)}; " if len(rows) > _ROWS else ""
    return Finding(
        _CUTS,
        ("phase", "link", "flow of probes", "longest", "times"),
        tuple(row for _, row in sorted(rows, key=lambda one: -one[0])[:_ROWS]),
        f"{more}from the last probe that arrived to the next one",
    )


def _cause(blackout: Span, cuts: Sequence[Span]) -> Span | None:
    """Return the cut that a blackout overlaps and that began nearest to it: the last probe arrived just before."""
    causes = [cut for cut in cuts if cut.begin_s < blackout.end_s and cut.end_s > blackout.begin_s]
    return min(causes, key=lambda one: abs(one.begin_s - blackout.begin_s), default=None)


def _blackout_row(names: tuple[str, str, str], found: Sequence[tuple[Span, Span | None]]) -> tuple[float, FindingRow]:
    """Return the longest blackout of a flow by a link, with how long it was."""
    span, cut = max(found, key=lambda one: one[0].end_s - one[0].begin_s)
    length_s = span.end_s - span.begin_s
    cells = (*names, format_time(length_s), str(len(found)))
    return length_s, FindingRow(cells, cut.ports[0] if cut else None, None, span.begin_s)


def _waiting(sampled: Sampled) -> Finding:
    rows = [
        row
        for phase, grid in zip(sampled.phases, sampled.grids, strict=True)
        if len(grid.at_s) > 1
        for row in _waiting_of(sampled, phase, grid)
    ]
    return Finding(
        _WAITING,
        ("phase", "port", "lane", "waited", "got", "dropped"),
        tuple(rows),
        f"waited: samples with data in the queue; shown: of lanes that waited in {_LEAST_WAITING:.0%} of them or more "
        f"and got less than {_WHOLE_LINK:.0%} of their link, the {_ROWS_A_PHASE} per phase that got least",
    )


def _waiting_of(sampled: Sampled, phase: Phase, grid: Grid) -> Iterator[FindingRow]:
    waited = (grid.columns["backlog_bytes"] > 0).mean(axis=0)
    got, dropped = _rates_bps(grid), grid.columns["drops_packets"][-1] - grid.columns["drops_packets"][0]
    rates = np.array([sampled.rates_bps[port] for port in grid.ports])
    order = np.lexsort((grid.ports, np.round(got / rates, 3)))
    starved = (waited >= _LEAST_WAITING) & (got / rates < _WHOLE_LINK)
    for place in [place for place in order.tolist() if starved[place]][:_ROWS_A_PHASE]:
        port, lane = sampled.ports[grid.ports[place]], sampled.lanes[grid.lanes[place]]
        share = f"{format_rate(float(got[place]))} ({got[place] / rates[place]:.0%})"
        deepest = int(np.argmax(grid.columns["backlog_bytes"][:, place]))
        cells = (phase.title, port, lane, f"{waited[place]:.0%}", share, f"{dropped[place]:,}")
        yield FindingRow(cells, port, lane, float(grid.at_s[deepest]))


def _busiest(sampled: Sampled) -> Finding:
    rows = []
    for phase, grid in zip(sampled.phases, sampled.grids, strict=True):
        if len(grid.at_s) < 2:
            continue
        sent = np.bincount(grid.ports, _rates_bps(grid), len(sampled.ports))
        used = np.round(sent / np.array(sampled.rates_bps), 3)
        for port in np.argsort(-used, kind="stable")[:_ROWS_A_PHASE].tolist():
            depth = grid.columns["backlog_bytes"][:, grid.ports == port].sum(axis=1)
            at_s = float(grid.at_s[int(np.argmax(depth))]) if depth.size else phase.started_s
            cells = (phase.title, sampled.ports[port], f"{used[port]:.0%}", format_size(float(depth.max(initial=0))))
            rows.append(FindingRow(cells, sampled.ports[port], None, at_s))
    return Finding("Busiest ports", ("phase", "port", "of its link", "deepest queue"), tuple(rows))


def _rates_bps(grid: Grid) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return what each lane sent over a phase, per second; a counter that fell began anew."""
    sent = np.diff(grid.columns["sent_bytes"], axis=0)
    grown = np.where(sent < 0, grid.columns["sent_bytes"][1:], sent).sum(axis=0)
    rates: np.ndarray[Any, np.dtype[np.float64]] = 8.0 * grown / (grid.at_s[-1] - grid.at_s[0])
    return rates
