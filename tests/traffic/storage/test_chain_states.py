"""Every state of a chain, against a second reading of 3FS's rules, in arrays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from fabric.model.identity import NodeId, Role
from traffic.storage.chain_states import (
    ChainState,
    LocalState,
    PublicState,
    TargetState,
    local_state_after,
    may_join,
    next_chain,
    shut_down,
    towards_order,
    without_last_serving,
)
from traffic.storage.chains import Target

S, L, Y, W, O = PublicState  # noqa: E741 - serving, lastsrv, syncing, waiting, offline
UP, ON, OFF = LocalState
TARGETS = [Target(NodeId(Role.STORAGE, None, index), 0) for index in range(4)]
ONE = list(itertools.product(PublicState, LocalState))
Matrix = npt.NDArray[np.int64]


def all_states(length: int) -> Iterator[tuple[tuple[PublicState, LocalState], ...]]:
    return itertools.product(ONE, repeat=length)


def chain_of(states: Sequence[tuple[PublicState, LocalState]]) -> list[TargetState]:
    return [TargetState(target, *state) for target, state in zip(TARGETS, states, strict=False)]


def second_reading(public: Matrix, local: Matrix) -> tuple[Matrix, Matrix]:
    """Return the next public states, and which target stands where, of many chains (one a row) of equal length."""
    up, many, length = local != OFF, *public.shape
    serves = (public == S) & up
    awaited = (public == L) & up & ~serves.any(1)[:, None]
    serves |= awaited & (awaited.cumsum(1) == 1)
    may_wait = ~serves.any(1)[:, None]
    serves_in_the_end = serves | ((public == Y) & (local == UP))
    any_serves = serves_in_the_end.any(1)[:, None]
    new = np.full((many, length), int(O))
    new[serves_in_the_end] = S
    # No target serves, so those that did or were the last to do so are waited for.
    down = (public == S) & ~up
    new[down & (down.cumsum(1) == 1) & ~any_serves] = L
    new[(public == L) & ~up & may_wait & ~any_serves] = L
    syncs = (public == Y) & (local == ON)
    # Of several that sync, which does not come about, only those after one that is up to date go on.
    new[syncs] = np.where(serves.any(1)[:, None] | (((public == Y) & (local == UP)).cumsum(1) > 0), Y, W)[syncs]
    others = ((public == W) | (public == O)) & up
    new[others] = W
    rank = np.where(others & (local == ON), public * length + np.arange(length), 10**6)
    one_syncs = any_serves[:, 0] & ~(new == Y).any(1) & (rank.min(1) < 10**6)
    new[np.flatnonzero(one_syncs), rank.argmin(1)[one_syncs]] = Y
    # The order: by the new state, then by the old one; those that lost their place to one that serves come last.
    waited = (public == L) & ~up & (serves.cumsum(1) == 0) & ~((public == S) & up).any(1)[:, None]
    gave_way = (new == O) & (waited | (down & (down.cumsum(1) == 1)))
    key = new * 1000 + gave_way * 500 + public * 10 + np.arange(length)
    return new, key.argsort(1, kind="stable")


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_state_of_a_chain_is_followed_as_3fs_has_it(length: int) -> None:
    """50,625 states of chains of four, and 3,615 of shorter ones."""
    states = list(all_states(length))
    public, local = (np.array([[one[part] for one in state] for state in states]) for part in (0, 1))
    new, order = second_reading(public, local)
    found = [next_chain(chain_of(state)) for state in states]
    places = np.array([[TARGETS.index(one.target) for one in chain] for chain in found])
    publics = np.array([[one.public for one in chain] for chain in found])
    np.testing.assert_array_equal(publics, np.take_along_axis(new, order, 1))
    np.testing.assert_array_equal(places, order)


def shown(targets: Sequence[TargetState]) -> str:
    return " ".join(f"{one.target.node.index}{one.public.name}" for one in targets)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(S, UP), (S, UP)], "0SERVING 1SERVING"),
        ([(S, OFF), (S, UP), (S, UP)], "1SERVING 2SERVING 0OFFLINE"),
        ([(S, OFF), (S, OFF)], "0LASTSRV 1OFFLINE"),
        ([(S, UP), (O, ON), (O, ON)], "0SERVING 1SYNCING 2WAITING"),
        ([(S, UP), (Y, UP), (W, ON)], "0SERVING 1SERVING 2SYNCING"),
        ([(S, OFF), (Y, ON)], "0LASTSRV 1WAITING"),
        ([(S, OFF), (Y, UP)], "1SERVING 0OFFLINE"),
        ([(L, OFF), (O, ON)], "0LASTSRV 1WAITING"),
        ([(L, ON), (W, ON)], "0SERVING 1SYNCING"),
        ([(L, ON), (L, ON)], "0SERVING 1OFFLINE"),
        ([(S, UP), (W, UP)], "0SERVING 1WAITING"),
    ],
)
def test_chains_that_readers_can_follow(before: list[tuple[PublicState, LocalState]], after: str) -> None:
    assert shown(next_chain(chain_of(before))) == after


def sound_chains(length: int) -> Iterator[ChainState]:
    """Yield the chains that can come about: in the order of their states, and without faults."""
    for states in itertools.combinations_with_replacement(PublicState, length):
        chain = ChainState(7, tuple(zip(TARGETS, states, strict=False)))
        if not chain.faults:
            yield chain


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_what_follows_a_sound_chain_is_sound_and_no_target_that_serves_is_forgotten(length: int) -> None:
    for chain in sound_chains(length):
        for local in itertools.product(LocalState, repeat=length):
            following = chain.updated(dict(zip(TARGETS, local, strict=False)))
            assert following.faults == ()
            assert {target for target, _ in following.targets} == set(TARGETS[:length])
            assert following.version == chain.version + (following.targets != chain.targets)
            # Who serves has served, or was the last to do so, or is up to date: nobody else has what was acknowledged.
            trusted = {*chain.serving, *chain.with_state(L)}
            trusted |= {target for target in chain.with_state(Y) if local[TARGETS.index(target)] is UP}
            assert {*following.serving, *following.with_state(L)} <= trusted
            kept = [target for target in chain.serving if target in following.serving]
            assert [target for target in following.serving if target in kept] == kept


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_once_all_are_up_all_serve_in_the_end(length: int) -> None:
    for chain in sound_chains(length):
        local = dict.fromkeys(TARGETS[:length], ON)
        for _ in range(3 * length):
            chain = chain.updated(local)
            local = {target: local_state_after(local[target], public) for target, public in chain.targets}
            local |= dict.fromkeys(chain.with_state(Y), UP)  # It was brought up to date.
        assert len(chain.serving) == length


def test_a_second_look_at_the_same_chain_changes_nothing_but_who_syncs_next() -> None:
    for chain in sound_chains(4):
        for local in itertools.product(LocalState, repeat=4):
            states = dict(zip(TARGETS, local, strict=True))
            once = chain.updated(states)
            twice = once.updated(states)
            assert twice.updated(states) is twice
            # One more look finds at most that who was SYNCING is whole, or that a target can sync now.
            assert set(twice.serving) >= set(once.serving)


def test_random_failures_and_returns_leave_all_serving() -> None:
    """As the cluster manager and services change states in turn, services only by what they saw."""
    for seed in range(200):
        rng = random.Random(seed)
        chain = ChainState.first(0, TARGETS[:3])
        local = dict.fromkeys(TARGETS[:3], UP)
        for step in range(60):
            if step < 40 and rng.random() < 0.4:
                local[rng.choice(TARGETS[:3])] = OFF
            if rng.random() < 0.7:
                chain = chain.updated(local)
                assert chain.faults == ()
            for target, public in chain.targets:
                if local[target] is OFF:
                    local[target] = ON if may_join([public]) else OFF
                else:
                    local[target] = local_state_after(local[target], public)
                if public is Y and local[target] is ON and rng.random() < 0.5:
                    local[target] = UP
        assert len(chain.serving) == 3, seed


def test_a_service_that_was_forgotten_goes_offline_and_one_that_serves_is_up_to_date() -> None:
    found = {(local, public): local_state_after(local, public) for local in LocalState for public in PublicState}
    changed = {key: after for key, after in found.items() if after is not key[0]}
    assert changed == {(ON, S): UP, (UP, O): OFF, (UP, L): OFF, (UP, W): OFF}


def test_a_service_that_starts_waits_until_nobody_counts_on_it() -> None:
    assert [state for state in PublicState if may_join([O, state])] == [L, O]
    assert may_join([])


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_after_a_loss_of_all_the_one_that_died_last_must_return_first(order: tuple[int, int, int]) -> None:
    """Three services die one after the other, and the chain is there again with the last of them alone."""
    chain, local = ChainState.first(0, TARGETS[:3]), dict.fromkeys(TARGETS[:3], UP)
    for place in order:
        local[TARGETS[place]] = OFF
        chain = chain.updated(local)
    *others, last = (TARGETS[place] for place in order)
    assert chain.with_state(L) == (last,)
    assert chain.updated(dict.fromkeys(others, ON)).serving == ()
    assert chain.updated({last: ON}).serving == (last,)


def test_after_a_loss_at_once_the_head_is_awaited_unless_the_operator_says_otherwise() -> None:
    chain = ChainState.first(0, TARGETS[:3]).updated({})
    assert chain.with_state(L) == (TARGETS[0],)
    assert chain.updated({TARGETS[1]: ON, TARGETS[2]: ON}).serving == ()
    turned = without_last_serving(chain)
    assert turned.version == chain.version + 1
    assert turned.updated({TARGETS[1]: ON}).serving == (TARGETS[1],)
    assert without_last_serving(ChainState.first(0, TARGETS[:3])) == ChainState.first(0, TARGETS[:3])


def test_a_chain_that_was_shut_down_begins_with_any_of_its_targets() -> None:
    chain = shut_down(ChainState.first(0, TARGETS[:3]))
    assert chain.with_state(L) == tuple(TARGETS[:3])
    assert chain.updated({TARGETS[2]: ON}).serving == (TARGETS[2],)
    assert shut_down(ChainState(0, ((TARGETS[0], S), (TARGETS[1], Y)))).with_state(O) == (TARGETS[1],)


def test_a_chain_goes_back_to_an_order_one_target_at_a_time() -> None:
    chain = ChainState.first(0, (TARGETS[1], TARGETS[0], TARGETS[2]))
    local = dict.fromkeys(TARGETS[:3], ON)
    moved = 0
    while (turned := towards_order(chain, TARGETS[:3])) != chain:
        moved += 1
        chain = turned
        for _ in range(4):
            chain = chain.updated(local)
            local |= dict.fromkeys(chain.with_state(Y), UP)
        local = dict.fromkeys(TARGETS[:3], ON)
    assert chain.serving == tuple(TARGETS[:3])
    assert moved == 2
    with pytest.raises(ValueError, match="has no target st003/0"):
        towards_order(chain, [TARGETS[3]])


def test_a_write_passes_those_that_serve_and_the_one_that_syncs() -> None:
    states = ((TARGETS[2], S), (TARGETS[0], S), (TARGETS[1], Y), (TARGETS[3], W))
    assert ChainState(0, states).written == (TARGETS[2], TARGETS[0], TARGETS[1])
    assert ChainState(0, ((TARGETS[0], L), (TARGETS[1], W))).written == ()
    assert [state for state in PublicState if state.takes_writes] == [S, Y]


@pytest.mark.parametrize(
    ("states", "fault"),
    [
        ((W, O), "no target serves, and none is the last"),
        ((S, L), "one serves, and another is the last"),
        ((L, L), "2 are the last that served"),
        ((S, Y, Y), "2 sync at once"),
        ((L, Y), "one syncs and none serves"),
        ((O, S), "not in the order"),
    ],
)
def test_faults_of_a_chain_are_named(states: tuple[PublicState, ...], fault: str) -> None:
    (found,) = ChainState(3, tuple(zip(TARGETS, states, strict=False))).faults
    assert found.startswith("chain 3 version 1: ")
    assert fault in found


def test_a_target_that_is_there_twice_is_named() -> None:
    assert "twice" in ChainState(3, ((TARGETS[0], S), (TARGETS[0], S))).faults[0]
