"""Random runs of replicas under kills and cuts: what clients see is linearizable, and every write applied once."""

from __future__ import annotations

import asyncio

import pytest

from fabric.errors import TrafficError
from traffic.storage.service.replica import Replica

from .linearizability import violations
from .planted import AnswersFirst, ForgetsClients, ReadsWhatIsPending
from .world import History, random_run

_RUNS_FOR_A_BUG = 60


@pytest.mark.parametrize("writers", [1, 3])
def test_histories_are_linearizable_and_every_write_is_applied_once(writers: int) -> None:
    reads = retries = 0
    for seed in range(25):
        history = asyncio.run(random_run(seed, writers)).history
        assert violations(history.operations) == [], f"seed {seed}"
        assert history.applied_twice == [], f"seed {seed}"
        reads += history.reads
        retries += history.retries
    print(f"{writers} writers a chunk: {reads} reads, {retries} tries in vain")
    assert reads > 500
    assert retries > 20


def _found(history: History) -> list[str]:
    return violations(history.operations) + [f"applied twice: {write}" for write in history.applied_twice]


@pytest.mark.parametrize("kind", [AnswersFirst, ReadsWhatIsPending, ForgetsClients])
def test_a_planted_bug_is_found(kind: type[Replica]) -> None:
    for seed in range(_RUNS_FOR_A_BUG):
        try:
            found = _found(asyncio.run(random_run(seed, 3, kind)).history)
        except (AssertionError, TrafficError) as error:  # The protocol's own checks may see it first.
            print(f"seed {seed}: {type(error).__name__}: {error}")
            continue
        if found:
            print(f"seed {seed}: {found[0]}")
            return
    pytest.fail(f"not found in {_RUNS_FOR_A_BUG} runs")
