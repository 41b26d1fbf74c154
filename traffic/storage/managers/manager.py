"""The cluster manager's state: who was heard when, the states of targets, chains and the routing's version. Pure.

Heartbeats come in, with a time; at each look, services that were silent for long have failed, and chains are updated by
:func:`traffic.storage.chain_states.next_chain`. Times are of the manager's clock.

At the start every service counts as heard, and all its targets as up to date: their first heartbeat is on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fabric.model.identity import NodeId
from traffic.storage.chain_states import ChainState, LocalState, PublicState
from traffic.storage.chains import ChainTable, TableChange


class TargetReport(NamedTuple):
    """What a service says of its target in a chain, and the version of the chain that it knows."""

    chain: int
    local: LocalState
    chain_version: int


@dataclass(frozen=True)
class Transition:
    """A change of a chain, when it was made."""

    at_s: float
    chain: ChainState


class ClusterManager:
    """Makes a routing of heartbeats. ``failed_after_s``: how long a service may be silent; that is looked at every
    ``checked_every_s``."""

    def __init__(self, table: ChainTable, failed_after_s: float, checked_every_s: float, now_s: float) -> None:
        self._failed_after_s = failed_after_s
        self._checked_every_s = checked_every_s
        self._checked_s = now_s
        self._chains = [ChainState.first(chain.number, chain.targets) for chain in table.chains]
        self._changed_in = [table.version] * len(table.chains)
        """The version of the routing with which each chain changed last."""
        self.version = table.version
        self._of_node: dict[NodeId, dict[int, LocalState]] = {}
        for chain in table.chains:
            for node in chain.nodes:
                self._of_node.setdefault(node, {})[chain.number] = LocalState.UPTODATE
        self._heard_s = dict.fromkeys(self._of_node, now_s)
        self._numbers: dict[NodeId, int] = {}
        self._to_look_at: set[int] = set()
        self.history: list[Transition] = [Transition(now_s, chain) for chain in self._chains]

    @property
    def chains(self) -> Sequence[ChainState]:
        """All chains, as they are now."""
        return tuple(self._chains)

    @property
    def table(self) -> ChainTable:
        """The routing as it is now."""
        return ChainTable(self.version, tuple(chain.routed for chain in self._chains))

    def heartbeat(self, node: NodeId, number: int, reports: Iterable[TargetReport], now_s: float) -> bool:
        """Hear a service; return whether it was news. ``number`` grows with each heartbeat of a service: one that comes
        late, after a later one, is not heard; nor is what is said of a target by an older version of its chain."""
        if node not in self._of_node or self._numbers.get(node, -1) >= number:
            return False
        self._numbers[node] = number
        self._heard_s[node] = now_s
        local = self._of_node[node]
        for report in reports:
            if report.chain in local and report.chain_version >= self._chains[report.chain].version:
                local[report.chain] = report.local
                self._to_look_at.add(report.chain)
        return True

    def look(self, now_s: float) -> TableChange | None:
        """Let services have failed, and update chains; return what changes, None if nothing does."""
        changed = self.changes(now_s)
        return self.apply(changed, now_s) if changed else None

    def changes(self, now_s: float) -> tuple[ChainState, ...]:
        """Let services have failed, and return the chains that are to change: :meth:`apply` makes them so, once they
        are stored."""
        if now_s >= self._checked_s + self._checked_every_s:
            self._checked_s = now_s
            for node, heard_s in self._heard_s.items():
                if now_s - heard_s > self._failed_after_s:
                    self._fail(node)
        changed = []
        for number in sorted(self._to_look_at):
            now = self._chains[number]
            local = {target: self._of_node[target.node][number] for target, _ in now.targets}
            if (following := now.updated(local)) is not now:
                changed.append(following)
        # A chain that has changed is looked at once more: a target may sync now that another one is done.
        self._to_look_at = {chain.number for chain in changed}
        return tuple(changed)

    def apply(self, changed: Iterable[ChainState], now_s: float) -> TableChange:
        """Go by chains that have changed, as the next version of the routing; return that."""
        self.version += 1
        for chain in changed:
            self._chains[chain.number] = chain
            self._changed_in[chain.number] = self.version
            self.history.append(Transition(now_s, chain))
        return self.since(self.version - 1)

    def take_over(self, version: int, chains: Sequence[ChainState], now_s: float) -> None:
        """Go by chains as another manager has stored them. All services count as heard now, and targets as their public
        states say, until they are heard: so a new primary takes nobody for dead whom it has not heard yet."""
        self.catch_up(version, chains, now_s)
        believed = {PublicState.SERVING: LocalState.UPTODATE, PublicState.SYNCING: LocalState.ONLINE}
        for chain in chains:
            for target, public in chain.targets:
                self._of_node[target.node][chain.number] = believed.get(public, LocalState.OFFLINE)
        self._heard_s = dict.fromkeys(self._heard_s, now_s)
        self._checked_s = now_s
        self._to_look_at.clear()

    def catch_up(self, version: int, chains: Sequence[ChainState], now_s: float) -> None:
        """Go by chains as they are stored, with what is known of who was heard and of targets' states."""
        for chain in chains:
            if chain != self._chains[chain.number]:
                self._chains[chain.number] = chain
                self._changed_in[chain.number] = version
                self._to_look_at.add(chain.number)
                self.history.append(Transition(now_s, chain))
        self.version = version

    def hear_all(self, now_s: float) -> None:
        """Count all services as heard that have not failed."""
        self._heard_s = {
            node: max(heard_s, now_s) if any(local.is_up for local in self._of_node[node].values()) else heard_s
            for node, heard_s in self._heard_s.items()
        }

    def _fail(self, node: NodeId) -> None:
        for number, local in self._of_node[node].items():
            if local is not LocalState.OFFLINE:
                self._of_node[node][number] = LocalState.OFFLINE
                self._to_look_at.add(number)

    def since(self, version: int) -> TableChange:
        """Return the chains that have changed after a version of the routing."""
        chains = (
            chain.routed
            for chain, changed_in in zip(self._chains, self._changed_in, strict=True)
            if changed_in > version
        )
        return TableChange(self.version, tuple(chains))
