"""The rows of the experiment's own tables, from what the programs of storage say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from experiments.resync.tables import TABLES
from fabric.model.identity import NodeId
from fabric.model.lanes import ServiceLevel
from runs.session import PhaseOutcome
from traffic.storage.apart import StorageInParts
from traffic.storage.chain_states import ChainState, PublicState
from traffic.storage.orders import ResyncAttempt
from traffic.storage.placement import recoveries
from traffic.storage.wire.causes import BYTES, Cause, payload_bytes, sent_bytes


def attempts_of(phase: str, attempts: Sequence[ResyncAttempt], origin_s: float) -> pd.DataFrame:
    """Return the rows of ``resync_attempts``; times become seconds of the run."""
    rows = [
        (
            *(phase, one.chain, str(one.sender), str(one.target)),
            *(one.began_s - origin_s, one.ended_s - origin_s, one.chunks, one.size_bytes, one.outcome),
        )
        for one in attempts
    ]
    return _frame("resync_attempts", rows)


def shares_of(phase: str, storage: StorageInParts, victim: NodeId, is_empty: bool) -> pd.DataFrame:
    """Return the rows of ``resync_shares``. ``is_empty``: whether the node lacked the whole data set."""
    recovery = recoveries(storage.first_table)[victim]
    in_chain: Counter[int] = Counter()
    for layout in storage.dataset:
        for extent in layout.extents():
            in_chain[extent.chain] += extent.length
    expected: Counter[NodeId] = Counter()
    for chain in storage.first_table.chains:
        others = [node for node in chain.nodes if node != victim]
        if is_empty and victim in chain.nodes and others:
            expected[others[-1]] += in_chain[chain.number]
    sent: Counter[NodeId] = Counter()
    for attempt in storage.resyncs:
        sent[attempt.sender] += attempt.size_bytes
    rows = [
        (phase, str(peer), recovery.promised[peer], recovery.sent[peer], expected[peer], sent[peer])
        for peer in recovery.peers
    ]
    return _frame("resync_shares", rows)


def bytes_of(phase: str, storage: StorageInParts, of_manager: Mapping[str, int]) -> pd.DataFrame:
    """Return the rows of ``lane_bytes``. ``of_manager``: what the cluster manager has counted."""
    counts: Counter[str] = Counter(storage.counts)
    counts.update({name: count for name, count in of_manager.items() if name in BYTES})
    payload = payload_bytes(counts)
    manager = storage.config.cluster_manager
    resync = manager.resync.level if manager is not None and manager.resync.level else storage.level.label
    levels = {Cause.RESYNC: resync, Cause.CONTROL: ServiceLevel.CONTROL.label}
    rows = [
        (phase, levels.get(cause, storage.level.label), cause.value, size, payload.get(cause, 0))
        for cause, size in sent_bytes(counts).items()
    ]
    return _frame("lane_bytes", rows)


def changes_of(phase: str, history: Sequence[tuple[float, ChainState]]) -> pd.DataFrame:
    """Return the rows of ``routing_changes``, from the times of changes and the chains as they then were."""
    rows = []
    for at_s, chain in history:
        syncing = "".join(map(str, chain.with_state(PublicState.SYNCING)))
        rows.append((phase, at_s, chain.number, chain.version, len(chain.serving), syncing))
    return _frame("routing_changes", rows)


def nic_bytes(
    ports: pd.DataFrame, nics: Collection[str], lanes: Mapping[str, str], phases: Sequence[PhaseOutcome]
) -> dict[tuple[str, str], float]:
    """Return what all hosts' NICs sent, by phase and Service Level. ``nics``: their ports; ``lanes``: the lane of each
    level; of levels that share one, what the lane carried."""
    found = {}
    of_nics = ports[ports["port"].astype(str).isin(set(nics))]
    for one in phases:
        here = of_nics[of_nics["at_s"].between(one.phase.started_s, one.phase.ended_s)]
        sent = here.groupby(["port", "lane"], observed=True)["sent_bytes"].agg(["min", "max"])
        by_lane = (sent["max"] - sent["min"]).groupby("lane", observed=True).sum()
        for level, lane in lanes.items():
            found[one.phase.name, level] = float(by_lane.get(lane, 0.0))
    return found


@dataclass(frozen=True)
class Span:
    """A stretch of time, in seconds of the run."""

    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.ended_s - self.began_s


def spans_of(attempts: pd.DataFrame) -> list[Span]:
    """Return when anything was sent to bring targets up to date: the attempts that sent anything, those that overlap
    joined."""
    found: list[Span] = []
    for row in attempts[attempts["chunks"] > 0].sort_values("began_s").to_dict("records"):
        began_s, ended_s = float(row["began_s"]), float(row["ended_s"])
        if found and began_s <= found[-1].ended_s:
            found[-1] = Span(found[-1].began_s, max(found[-1].ended_s, ended_s))
        else:
            found.append(Span(began_s, ended_s))
    return found


def share_inside(began_s: float, ended_s: float, spans: Sequence[Span]) -> float:
    """Return what part of a stretch of time lies within some spans, which do not overlap."""
    length = ended_s - began_s
    if length <= 0:
        return float(any(span.began_s <= began_s <= span.ended_s for span in spans))
    inside = sum(max(0.0, min(ended_s, span.ended_s) - max(began_s, span.began_s)) for span in spans)
    return inside / length


def _frame(name: str, rows: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(TABLES[name].columns))
