"""The states of a chain's targets, and how the cluster manager changes them. Pure.

A target has a *public* state, which the routing tells everybody, and a *local* one, which its service tells the cluster
manager with its heartbeats. Public states follow from local ones by :func:`next_chain`. What a service makes of a new
routing is :func:`local_state_after`; when one that has just started may join is :func:`may_join`.

The table of 3FS's design notes and its code (``generateNewChain`` in ``src/mgmtd/service/updateChain.cc``) differ. This
follows the code, since that is what runs, and since the table names the state of a predecessor only where the code asks
for the whole chain:

=====================  ==================================  ============================================
state, and local       design notes                        code
=====================  ==================================  ============================================
OFFLINE, up            WAITING                             SYNCING at once, if ONLINE, a target serves and none syncs
SYNCING, ONLINE        by its predecessor's state          SYNCING if any target serves
WAITING, ONLINE        SYNCING if its predecessor serves   so if any serves and no other one syncs
LASTSRV, up            SERVING                             OFFLINE if another one serves
LASTSRV, down          LASTSRV                             OFFLINE if another one serves
SERVING, down          LASTSRV without a predecessor       the first that is down, if none serves afterwards
=====================  ==================================  ============================================

So by the code one target of a chain syncs at a time, and after a total loss the chain waits for its head, though others
may be whole. :func:`without_last_serving` is the operator's way out, which may lose what the head alone had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from traffic.storage.chains import Chain, Target


class PublicState(IntEnum):
    """What the routing says of a target, in the order that targets have in a chain."""

    SERVING = 1
    """Takes reads and writes."""
    LASTSRV = 2
    """Down, and was the last to serve: nobody else has all that was acknowledged."""
    SYNCING = 3
    """Takes writes, and what it lacks, from its predecessor; no reads."""
    WAITING = 4
    """Up, and not yet brought up to date."""
    OFFLINE = 5

    @property
    def takes_writes(self) -> bool:
        """Whether writes are passed on to a target."""
        return self in (PublicState.SERVING, PublicState.SYNCING)


class LocalState(IntEnum):
    """What a service says of its target."""

    UPTODATE = 1
    """It has all that its predecessor has."""
    ONLINE = 2
    OFFLINE = 3
    """Its service is down, or its disk fails, or an operator wants it so."""

    @property
    def is_up(self) -> bool:
        """Whether the target can be used."""
        return self is not LocalState.OFFLINE


class TargetState(NamedTuple):
    """A target of a chain, and what is known of it."""

    target: Target
    public: PublicState
    local: LocalState


def next_chain(targets: Sequence[TargetState]) -> tuple[TargetState, ...]:
    """Return a chain's targets as the cluster manager orders them next: with the public states that follow from the
    local ones, by state, and inside of each as they were. Local states stay. The same ones if nothing changes."""
    return tuple(_Pass(targets).ordered())


class _Pass:
    """One look at a chain: its targets by the state that they are to have, in the order in which they come to it."""

    def __init__(self, targets: Sequence[TargetState]) -> None:
        self._now: dict[PublicState, list[TargetState]] = {state: [] for state in PublicState}
        for one in sorted(targets, key=lambda one: one.public):
            self._put(one, self._state_of(one))
        if self._any(PublicState.SERVING):
            left, self._now[PublicState.LASTSRV] = self._now[PublicState.LASTSRV], []
            for one in left:
                self._put(one, PublicState.OFFLINE)

    def _any(self, state: PublicState) -> bool:
        return bool(self._now[state])

    def _put(self, one: TargetState, public: PublicState) -> None:
        self._now[public].append(one._replace(public=public))

    def _state_of(self, one: TargetState) -> PublicState:
        """Return the state of a target after those that come before it."""
        if one.public is PublicState.SERVING:
            if one.local.is_up:
                return PublicState.SERVING
            return PublicState.OFFLINE if self._any(PublicState.LASTSRV) else PublicState.LASTSRV
        if one.public is PublicState.LASTSRV:
            if self._any(PublicState.SERVING):
                return PublicState.OFFLINE
            return PublicState.SERVING if one.local.is_up else PublicState.LASTSRV
        if not one.local.is_up:
            return PublicState.OFFLINE
        if one.public is PublicState.SYNCING:
            if one.local is LocalState.UPTODATE:
                return PublicState.SERVING
            return PublicState.SYNCING if self._any(PublicState.SERVING) else PublicState.WAITING
        may_sync = self._any(PublicState.SERVING) and not self._any(PublicState.SYNCING)
        return PublicState.SYNCING if may_sync and one.local is LocalState.ONLINE else PublicState.WAITING

    def ordered(self) -> Iterable[TargetState]:
        """Yield the targets as the chain has them."""
        for state in PublicState:
            yield from self._now[state]


@dataclass(frozen=True)
class ChainState:
    """A chain as the cluster manager stores it; ``version`` counts its changes."""

    number: int
    targets: tuple[tuple[Target, PublicState], ...]
    version: int = 1

    @classmethod
    def first(cls, number: int, targets: Iterable[Target]) -> ChainState:
        """Return a new chain, all of whose targets serve."""
        return cls(number, tuple((target, PublicState.SERVING) for target in targets))

    def updated(self, local: Mapping[Target, LocalState]) -> ChainState:
        """Return the chain after one look at its targets' local states; a target that is not among them is OFFLINE.
        Itself if nothing changes."""
        known = [TargetState(target, public, local.get(target, LocalState.OFFLINE)) for target, public in self.targets]
        return self.with_targets((one.target, one.public) for one in next_chain(known))

    def with_targets(self, targets: Iterable[tuple[Target, PublicState]]) -> ChainState:
        """Return the chain with others, as its next version; itself if they are the same."""
        found = tuple(targets)
        return self if found == self.targets else replace(self, targets=found, version=self.version + 1)

    def with_state(self, *states: PublicState) -> tuple[Target, ...]:
        """Return the targets that are in one of some states, in order."""
        return tuple(target for target, public in self.targets if public in states)

    @property
    def serving(self) -> tuple[Target, ...]:
        """The targets that take reads, head first."""
        return self.with_state(PublicState.SERVING)

    @property
    def written(self) -> tuple[Target, ...]:
        """The targets that a write passes, head first; none without one that serves."""
        return self.with_state(PublicState.SERVING, PublicState.SYNCING) if self.serving else ()

    @property
    def routed(self) -> Chain:
        """The chain as the routing tells it."""
        syncing, waiting = self.with_state(PublicState.SYNCING), self.with_state(PublicState.WAITING)
        is_awaited = not self.serving and bool(self.with_state(PublicState.LASTSRV))
        return Chain(self.number, self.serving, self.version, next(iter(syncing), None), waiting, is_awaited)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with it; nothing of a chain that came about by :meth:`updated` from one with nothing wrong."""
        states = [public for _, public in self.targets]
        last, serving, syncing = (states.count(PublicState(state)) for state in (2, 1, 3))
        wrong = {
            "no target serves, and none is the last that did": not serving and not last,
            "one serves, and another is the last that did": serving > 0 and last > 0,
            f"{last} are the last that served": last > 1,
            f"{syncing} sync at once": syncing > 1,
            "one syncs and none serves": syncing > 0 and not serving,
            "they are not in the order of their states": states != sorted(states),
            "a target is there twice": len({target for target, _ in self.targets}) < len(states),
        }
        return tuple(f"chain {self.number} version {self.version}: {what}" for what, is_so in wrong.items() if is_so)


def without_last_serving(chain: ChainState) -> ChainState:
    """Return a chain that no longer waits for the target that served last, but for the one after it (3FS:
    ``rotate-lastsrv``). What only the first had is lost. Itself if it waits for none."""
    if len(chain.targets) < 2 or chain.targets[0][1] is not PublicState.LASTSRV:
        return chain
    turned = [*chain.targets[1:], chain.targets[0]]
    states = [PublicState.LASTSRV, *(PublicState.OFFLINE for _ in turned[1:])]
    return chain.with_targets((target, state) for (target, _), state in zip(turned, states, strict=True))


def towards_order(chain: ChainState, preferred: Sequence[Target]) -> ChainState:
    """Return a chain of which the first target that serves out of place has gone to the end, OFFLINE, so that it comes
    back behind the others (3FS: ``rotate-as-preferred-order``). Its service must stop with it. Itself if there is none
    such. Raises ValueError if the preferred order has other targets."""
    places = {target: place for place, (target, _) in enumerate(chain.targets)}
    if unknown := [str(target) for target in preferred if target not in places]:
        raise ValueError(f"chain {chain.number} has no target {', '.join(unknown)}; name those that it has")
    for place, target in enumerate(preferred):
        if places[target] == place:
            continue
        if chain.targets[places[target]][1] is not PublicState.SERVING:
            break
        moved = chain.targets[place][0]
        others = (one for one in chain.targets if one[0] != moved)
        return chain.with_targets([*others, (moved, PublicState.OFFLINE)])
    return chain


def shut_down(chain: ChainState) -> ChainState:
    """Return a chain whose serving targets all are the last that served, so that any of them may begin anew (3FS:
    ``shutdown-all-chains``)."""
    kept = (PublicState.LASTSRV, PublicState.OFFLINE)
    serving = PublicState.SERVING
    return chain.with_targets(
        (target, public if public in kept else kept[0] if public is serving else kept[1])
        for target, public in chain.targets
    )


def local_state_after(local: LocalState, public: PublicState) -> LocalState:
    """Return what a service makes of its target once it sees its public state (3FS: ``TargetMap::updateLocalState``).

    One that was up to date and is told that it does not serve has been without its chain, and goes offline. In 3FS it
    comes back when its service starts again.
    """
    gone = (PublicState.OFFLINE, PublicState.LASTSRV, PublicState.WAITING)
    if local is LocalState.UPTODATE and public in gone:
        return LocalState.OFFLINE
    if local is LocalState.ONLINE and public is PublicState.SERVING:
        return LocalState.UPTODATE
    return local


def may_join(publics: Iterable[PublicState]) -> bool:
    """Return whether a service that has started may say that its targets are ONLINE: once the routing says of none that
    it takes part, so that each is brought up to date first. Until then they are OFFLINE."""
    taking_part = (PublicState.SERVING, PublicState.SYNCING, PublicState.WAITING)
    return not any(public in taking_part for public in publics)
