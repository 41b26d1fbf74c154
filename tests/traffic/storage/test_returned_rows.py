"""Rows of a phase: chains as they were at its begin and change in it, and what targets that came back were sent."""

from __future__ import annotations

from fabric.model.identity import NodeId
from traffic.storage.chain_states import ChainState, PublicState
from traffic.storage.chains import Target
from traffic.storage.managers.manager import Transition
from traffic.storage.orders import ResyncAttempt
from traffic.storage.returns import chain_rows, resync_rows
from traffic.storage.tables import STORAGE_CHAINS, STORAGE_RESYNCS

A, B = (NodeId.parse(name) for name in ("st000", "st001"))
ONE, TWO = Target(A, 0), Target(B, 0)


def test_chains_have_a_row_at_the_begin_of_the_phase_and_one_per_change_in_it() -> None:
    whole = ChainState.first(1, [ONE, TWO])
    alone = whole.with_targets([(ONE, PublicState.SERVING), (TWO, PublicState.OFFLINE)])
    syncing = alone.with_targets([(ONE, PublicState.SERVING), (TWO, PublicState.SYNCING)])
    changes = [Transition(0.0, whole), Transition(0.0, ChainState.first(2, [TWO])), Transition(5.0, alone)]
    rows = chain_rows("second", [*changes, Transition(30.0, syncing), Transition(31.0, whole)], 20.0)
    assert [(row["at_s"], row["chain"], row["targets"], row["serving"], row["syncing"]) for row in rows] == [
        (20.0, 1, 2, 1, ""),
        (20.0, 2, 1, 1, ""),
        (30.0, 1, 2, 1, str(TWO)),
        (31.0, 1, 2, 2, ""),
    ]
    assert all({*row, "job"} == set(STORAGE_CHAINS.columns) for row in rows)


def test_resyncs_are_those_that_began_in_the_phase_by_time() -> None:
    attempts = [ResyncAttempt(1, A, B, at_s, at_s + 1, 2, 100, "done") for at_s in (25.0, 3.0, 21.0)]
    rows = resync_rows("second", attempts, 20.0)
    assert [row["started_s"] for row in rows] == [21.0, 25.0]
    assert all({*row, "job"} == set(STORAGE_RESYNCS.columns) for row in rows)
