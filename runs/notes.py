"""The notes on a run (:mod:`fabric.records.notes`), from its tables: what may void what is concluded from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from controllers.routing import Repair
from fabric.measures import Measure
from fabric.metrics import Metric
from fabric.model.identity import NodeId, node_of_part
from fabric.model.lanes import LanePlan, Queueing, plan_lanes
from fabric.model.network import Fabric
from fabric.records.notes import (
    LEAST_FOR_MEDIAN,
    FewBehindMedians,
    FewValues,
    NicsUsed,
    Note,
    NothingReroutes,
    PlayedAgain,
    UnusedNics,
)
from fabric.results import Phase
from runs.attempts import SetAside
from runs.measures import SHARED
from runs.session import Session

_STEPS = ("steps", "work_steps")
_OPERATIONS = ("read", "write", "flow")


def notes_of(run: Session, metrics: Sequence[Metric], own: Iterable[Measure]) -> list[Note]:
    """Return the notes on a run that has ended, whose summary has these metrics; ``own``: what its experiment
    declares."""
    of_many = tuple(one for one in (*own, *SHARED) if one.is_of_many)
    phases = [outcome.phase for outcome in run.phases]
    rows = {name: run.table(name) for name in ("flows", "operations", "rank_steps", "ports", *_STEPS)}
    lanes = {phase.queueing: plan_lanes(run.queues, Queueing(phase.queueing)) for phase in phases}
    waiting = [outcome.phase.name for outcome in run.phases if outcome.routing.repair is Repair.WAIT]
    return [
        *unused_nics(run.live.fabric, rows, phases),
        *nics_used(run.live.fabric, rows, phases, lanes),
        *few_behind_medians(rows, phases, metrics, of_many),
        *nothing_reroutes(run.live.fabric, run.table("failures"), waiting),
        *played_again(run.attempts.set_aside),
    ]


def played_again(set_aside: Sequence[SetAside]) -> Iterator[Note]:
    """Yield the note on phases that were played again; none if none was."""
    if set_aside:
        attempts = Counter(one.phase for one in set_aside)
        yield PlayedAgain(dict(attempts), {one.phase: one.reasons[0] for one in reversed(set_aside)})


def unused_nics(fabric: Fabric, rows: Mapping[str, pd.DataFrame], phases: Iterable[Phase]) -> Iterator[Note]:
    """Yield the note on NICs of jobs' hosts that carried nothing in any phase, from the tables ``flows``,
    ``operations``, ``rank_steps`` and ``ports``; none if there are none, or if ports were not sampled."""
    carrying = _carrying(rows["ports"], phases)
    sampled = set(rows["ports"]["port"].unique())
    unused: dict[str, int] = {}
    nics: dict[str, int] = {}
    for job, hosts in _hosts_of_jobs(fabric, rows).items():
        links = [fabric.link_at[nic.port] for host in sorted(hosts) for nic in fabric.nics_of[host]]
        ends = [{str(port) for port in link.ports} for link in links]
        seen = [one for one in ends if one & sampled]
        nics[job] = len(seen)
        if idle := sum(not one & carrying for one in seen):
            unused[job] = idle
    if unused:
        yield UnusedNics(unused, {job: nics[job] for job in unused})


def nics_used(
    fabric: Fabric, rows: Mapping[str, pd.DataFrame], phases: Sequence[Phase], lanes: Mapping[str, LanePlan]
) -> Iterator[Note]:
    """Yield the note on how many NICs jobs used whose hosts have several, from the tables of :func:`unused_nics`; none
    without such hosts. ``lanes``: those of each queueing of the phases. Jobs of one lane that share hosts are not told
    apart."""
    of_jobs = _hosts_of_jobs(fabric, rows).items()
    several = {job: hosts for job, hosts in of_jobs if max(len(fabric.nics_of[host]) for host in hosts) > 1}
    sent = [(phase.queueing, _sent(rows["ports"], phase)) for phase in phases] if several else []
    levels, carried = _levels_of_jobs(rows), dict[str, tuple[int, ...]]()
    for job, hosts in several.items():
        most = max(len(fabric.nics_of[host]) for host in hosts)
        number_of = {
            str(port): nic.port.number
            for host in hosts
            if len(fabric.nics_of[host]) == most
            for nic in fabric.nics_of[host]
            for port in fabric.link_at[nic.port].ports
        }
        sizes = [0] * most
        for queueing, found in sent:
            own = {lanes[queueing].lane_of_label(level).name for level in levels[job]}
            ports, lane = (found.index.get_level_values(name) for name in ("port", "lane"))
            mine = ports.isin(number_of) & lane.isin(own)
            for port, sent_bytes in zip(ports[mine], found[mine], strict=True):
                sizes[number_of[str(port)]] += int(sent_bytes)
        if any(sizes):
            carried[job] = tuple(sizes)
    if carried:
        yield NicsUsed(carried)


def _levels_of_jobs(rows: Mapping[str, pd.DataFrame]) -> dict[str, set[str]]:
    """Return the Service Levels of each job's traffic."""
    found: dict[str, set[str]] = {}
    for table in ("flows", "operations", "rank_steps"):
        pairs = rows[table][["job", "service_level"]].drop_duplicates().astype(str)
        for job, level in pairs.itertuples(index=False):
            found.setdefault(job, set()).add(level)
    return found


def _within(ports: pd.DataFrame, phase: Phase) -> pd.DataFrame:
    """Return the samples of a phase. One that is shorter than the sample period has a sample at most: then from the one
    before it to the one behind it."""
    at_s = np.unique(ports["at_s"])
    from_s, until_s = phase.started_s, phase.ended_s
    if np.count_nonzero((at_s >= from_s) & (at_s <= until_s)) < 2:
        from_s = at_s[at_s <= from_s].max(initial=-math.inf)
        until_s = at_s[at_s >= until_s].min(initial=math.inf)
    return ports[ports["at_s"].between(from_s, until_s)]


def _sent(ports: pd.DataFrame, phase: Phase) -> pd.Series:
    """Return the bytes that each lane of each port sent in a phase, by port and lane."""
    counted = _within(ports, phase).groupby(["port", "lane"], observed=True)["sent_bytes"]
    return counted.max() - counted.min()


def _carrying(ports: pd.DataFrame, phases: Iterable[Phase]) -> set[str]:
    """Return the ports that sent something in some phase."""
    found: set[str] = set()
    for phase in phases:
        sent = _sent(ports, phase)
        found |= set(sent[sent > 0].index.get_level_values("port"))
    return found


def _hosts_of_jobs(fabric: Fabric, rows: Mapping[str, pd.DataFrame]) -> dict[str, set[NodeId]]:
    found: dict[str, set[NodeId]] = {}
    for table, ends in (("flows", ("host", "peer")), ("operations", ("host", "peer")), ("rank_steps", ("host",))):
        for end in ends:
            pairs = rows[table][["job", end]].drop_duplicates().astype(str)
            for job, name in pairs.itertuples(index=False):
                node = fabric.node_named(node_of_part(name))
                if node is not None and not node.is_switch:
                    found.setdefault(job, set()).add(node.host)
    return found


def few_behind_medians(
    rows: Mapping[str, pd.DataFrame], phases: Sequence[Phase], metrics: Sequence[Metric], of_many: Iterable[Measure]
) -> Iterator[Note]:
    """Yield the note on jobs of which metrics are medians or percentiles (``of_many`` declares these), and that had few
    steps, or few operations of a kind that completed, in a phase; none if there are none. What began before or after
    the load of a phase is not counted."""
    named = {phase.name for phase in phases}
    names = {name for name in {one.name for one in metrics} if any(measure.includes(name) for measure in of_many)}
    told = {(one.job, one.phase if one.phase in named else "") for one in metrics if one.name in names}
    found: dict[tuple[str, str], dict[str, int]] = {}
    for phase in phases:
        for job, what, count in _counts(rows, phase):
            if 0 < count < LEAST_FOR_MEDIAN and ((job, phase.name) in told or (job, "") in told):
                found.setdefault((job, what), {})[phase.name] = count
    few = [
        FewValues(job, what, min(counts.values()), max(counts.values()), tuple(counts))
        for (job, what), counts in found.items()
    ]
    if few:
        yield FewBehindMedians(tuple(few))


def _counts(rows: Mapping[str, pd.DataFrame], phase: Phase) -> Iterator[tuple[str, str, int]]:
    """Yield how many steps, and operations of each kind, each job had in a phase."""
    for table in _STEPS:
        for job, steps in _inside(rows[table], phase).groupby("job", observed=True):
            yield str(job), "steps", len(steps)
    operations = _inside(rows["operations"], phase)
    for kind in _OPERATIONS:
        for job, completed in operations[operations["operation"] == kind].groupby("job", observed=True):
            yield str(job), f"{kind}s", len(completed)


def _inside(rows: pd.DataFrame, phase: Phase) -> pd.DataFrame:
    return rows[(rows["phase"] == phase.name) & rows["started_s"].between(*phase.load_s)]


def nothing_reroutes(fabric: Fabric, failures: pd.DataFrame, waiting: Sequence[str]) -> Iterator[Note]:
    """Yield the note on links between switches that were cut in phases of whose names ``waiting`` are those in which
    nothing reroutes, from the table ``failures``; none if there are none."""
    between = {str(link) for link in fabric.links if all(port.node.is_switch for port in link.ports)}
    cut = failures[(failures["kind"] == "link") & ~failures["up"].astype(bool) & failures["phase"].isin(waiting)]
    cut = cut[cut["link"].astype(str).isin(between)]
    if len(cut):
        links, phases = (tuple(dict.fromkeys(cut[column].astype(str))) for column in ("link", "phase"))
        yield NothingReroutes(links, phases)
