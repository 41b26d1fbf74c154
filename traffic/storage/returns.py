"""What became of chains and of targets that came back in a phase, as rows of a storage job's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from traffic.storage.chain_states import ChainState, PublicState
from traffic.storage.managers.manager import Transition
from traffic.storage.orders import ResyncAttempt

CHAINS, RESYNCS = "storage_chains", "storage_resyncs"


def chain_rows(phase: str, transitions: Sequence[Transition], began_s: float) -> list[dict[str, Any]]:
    """Return the rows of ``storage_chains``: each chain as it was when the phase began, then its changes in order."""
    before: dict[int, Transition] = {}
    since = []
    for one in transitions:
        if one.at_s <= began_s:
            before[one.chain.number] = Transition(began_s, one.chain)
        else:
            since.append(one)
    return [_chain_row(phase, one.at_s, one.chain) for one in (*before.values(), *since)]


def _chain_row(phase: str, at_s: float, chain: ChainState) -> dict[str, Any]:
    return {
        "at_s": at_s,
        "phase": phase,
        "chain": chain.number,
        "version": chain.version,
        "targets": len(chain.targets),
        "serving": len(chain.serving),
        "syncing": ", ".join(map(str, chain.with_state(PublicState.SYNCING))),
    }


def resync_rows(phase: str, attempts: Iterable[ResyncAttempt], began_s: float) -> list[dict[str, Any]]:
    """Return the rows of ``storage_resyncs``: attempts that began in the phase, by time."""
    return [
        {
            "phase": phase,
            "chain": one.chain,
            "sender": str(one.sender),
            "target": str(one.target),
            "started_s": one.began_s,
            "ended_s": one.ended_s,
            "chunks": one.chunks,
            "size_bytes": one.size_bytes,
            "outcome": one.outcome,
        }
        for one in sorted(attempts, key=lambda one: one.began_s)
        if one.began_s >= began_s
    ]
