"""A service's part in the cluster: the local states of its targets, and whether it may still answer. Pure.

A service that was silent for long, as the cluster manager heard it, is told with the next routing that its targets are
offline, and starts anew: it says that they are offline until nobody counts on any of them, then that they are there, to
be brought up to date. It keeps its chunks.

By 3FS's design notes a service that cannot reach the cluster manager for half of the time after which it has failed
stops; its code has no such thing. ``fence_after_s`` is that time; None: as released.
"""

from __future__ import annotations

import math

from fabric.model.identity import NodeId
from traffic.storage.chain_states import LocalState, PublicState, local_state_after, may_join
from traffic.storage.chains import Chain, ChainTable
from traffic.storage.managers.manager import TargetReport


def public_state(chain: Chain, node: NodeId) -> PublicState:
    """Return the state of a node's target by the routing, which does not tell those that are OFFLINE from LASTSRV."""
    if node in chain.nodes:
        return PublicState.SERVING
    if chain.syncing is not None and chain.syncing.node == node:
        return PublicState.SYNCING
    return PublicState.WAITING if any(one.node == node for one in chain.waiting) else PublicState.OFFLINE


class Membership:
    """The targets of a node, by the number of their chain. ``restart_s``: how long the service takes to start anew.
    Times are ``time.monotonic()``."""

    def __init__(self, node: NodeId, table: ChainTable, now_s: float, restart_s: float, fence_after_s: float | None):
        self.node = node
        self._restart_s = restart_s
        self._fence_after_s = fence_after_s
        self._heard_s = now_s
        self._sees_after_s: float | None = None
        self._joins_at_s: float | None = None
        self._local = {chain.number: LocalState.UPTODATE for chain in table.chains if node in chain.nodes}
        self._numbers = 0
        self.restarts = 0

    def begin_anew(self, now_s: float) -> None:
        """Say that all targets are offline, until they may join again."""
        self.restarts += 1
        self._joins_at_s = now_s + self._restart_s
        self._local = dict.fromkeys(self._local, LocalState.OFFLINE)

    def start_again(self, now_s: float) -> None:
        """Do so as a program that takes the place of one that has ended. Its heartbeats are later than all of that one:
        fewer than one per millisecond."""
        self.begin_anew(now_s)
        self._numbers = int(now_s * 1000)

    @property
    def must_see(self) -> bool:
        """Whether it was silent for so long that it may answer only once it has asked for the routing anew."""
        return self._sees_after_s is not None

    def see(self, table: ChainTable, now_s: float, asked_s: float | None = None) -> None:
        """Go by a routing, which was asked for at a time."""
        if self._sees_after_s is not None and asked_s is not None and asked_s >= self._sees_after_s:
            self._sees_after_s = None
        publics = {number: public_state(table.chains[number], self.node) for number in self._local}
        if self._joins_at_s is not None:
            if now_s >= self._joins_at_s and may_join(publics.values()):
                self._joins_at_s = None
                self._local = dict.fromkeys(self._local, LocalState.ONLINE)
            return
        before = self._local
        self._local = {number: local_state_after(before[number], public) for number, public in publics.items()}
        if any(self._local[number] is LocalState.OFFLINE and before[number].is_up for number in before):
            self.begin_anew(now_s)

    def is_up_to_date(self, chain: int) -> None:
        """Know that the target in a chain was brought up to date."""
        if self._local.get(chain) is LocalState.ONLINE:
            self._local[chain] = LocalState.UPTODATE

    def next_heartbeat(self, table: ChainTable) -> tuple[int, list[TargetReport]]:
        """Return the number of the next heartbeat, and what it says of each target."""
        self._numbers += 1
        reports = [TargetReport(number, local, table.chains[number].version) for number, local in self._local.items()]
        return self._numbers, reports

    @property
    def is_joining(self) -> bool:
        """Whether it begins anew, and has not joined yet."""
        return self._joins_at_s is not None

    def heard(self, sent_s: float, answered_s: float | None = None) -> None:
        """Know that a heartbeat was answered that was sent at a time; ``answered_s``: when the answer came. A service
        that was fenced does not know by that whether others were told that it is out of its chains."""
        silent_s = sent_s - self._heard_s
        if answered_s is not None and self._fence_after_s is not None and silent_s > self._fence_after_s:
            self._sees_after_s = answered_s
        self._heard_s = max(self._heard_s, sent_s)

    def may_answer(self, now_s: float) -> bool:
        """Return whether the service may answer reads and writes: it has not begun anew without a routing that says so,
        is not fenced, and has asked for the routing since it was."""
        limit_s = math.inf if self._fence_after_s is None else self._fence_after_s
        return self._joins_at_s is None and not self.must_see and now_s - self._heard_s <= limit_s
