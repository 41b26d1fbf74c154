"""Which writes survive the cut of their head, by when they begin: 3FS's timers, in time that jumps, beside arithmetic.

A service is heard every 10 s; it has failed once it was silent for more than 60 s, which is looked at every 10 s; its
client asks for chains every 10 s. So from the cut to the new chain at a client there are 50 s and three waits of 0 to
10 s each. A write has a try at 0, 10 and 30 s; a try goes where the chain led when it began, and the last one takes the
rest of the minute. So what counts is that the new chain is known when the *last try begins*, 30 s after the write.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import NamedTuple

import pytest

from fabric.model.identity import NodeId

from .test_true_timers import config_of, heads_chunk
from .true_timers import NODES, Cluster, no_listeners_left, run

BEGUN_S = (0.0, 10.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 60.0)
CLIENTS = 3
LAST_TRY_S = 30.0


def next_turn(first_s: float, after_s: float) -> float:
    """Return the first of the times ``first_s``, 10 s later and so on that is not before a time."""
    return first_s + 10 * math.ceil((after_s - first_s) / 10 - 1e-6)


class Found(NamedTuple):
    """From the cut of a head on: when the manager made a new chain, when each client knew of it; and whether a write
    succeeded, by its client and its begin."""

    changed_s: float
    known_s: dict[int, float]
    succeeded: dict[tuple[int, float], bool]


async def writes_after_a_cut(node: NodeId, cut_s: float) -> Found:
    """Cut a head off at a time while clients write; return what came of it."""
    cluster = Cluster(config_of())
    await cluster.start(CLIENTS)
    index = heads_chunk(cluster, node)
    await asyncio.sleep(cut_s)
    began_s = time.monotonic()
    cluster.silence(node)
    knows: dict[int, float] = {}

    async def learn(number: int) -> None:
        while node in cluster.clients[f"c{number}"].table.chains[index].nodes:
            await asyncio.sleep(0.5)
        knows[number] = time.monotonic() - began_s

    async def write(number: int, place: int) -> bool:
        await asyncio.sleep(BEGUN_S[place])
        chunk = index + 3 * (1 + number * len(BEGUN_S) + place)
        return (await cluster.write(chunk, f"c{number}")).version is not None

    pairs = [(number, place) for number in range(CLIENTS) for place in range(len(BEGUN_S))]
    done, _ = await asyncio.gather(
        asyncio.gather(*(write(*pair) for pair in pairs)), asyncio.gather(*map(learn, range(CLIENTS)))
    )
    changed_s = next(one.at_s for one in cluster.manager.manager.history if one.at_s > began_s) - began_s
    succeeded = {(number, BEGUN_S[place]): is_there for (number, place), is_there in zip(pairs, done, strict=True)}
    return Found(changed_s, knows, succeeded)


def irwin_hall(value: float) -> float:
    """Return the probability that three numbers from 0 to 1 have a sum of at most that."""
    terms = ((-1) ** k * math.comb(3, k) * max(0.0, value - k) ** 3 for k in range(4))
    return min(1.0, max(0.0, sum(terms) / 6)) if value < 3 else 1.0


def test_a_write_succeeds_if_the_new_chain_is_known_when_its_last_try_begins() -> None:
    """Not if it is known when the last try ends, a minute after the write: that would be from 20 s after the cut on."""
    succeeded = dict.fromkeys(BEGUN_S, 0)
    known: list[float] = []
    scenes = [(node, 30.4 + phase) for node in NODES for phase in range(0, 10, 2)]
    for node, cut_s in scenes:
        with no_listeners_left():
            found = run(writes_after_a_cut(node, cut_s))
        last_heard_s = next_turn(10 * NODES.index(node) / len(NODES), cut_s) - 10 - cut_s
        assert 60 - 0.01 <= found.changed_s - last_heard_s <= 60 + 11, "looked at every 10 s, in looks of 1 s"
        told_s = {c: next_turn(10 * (c + 1) / 4, cut_s + found.changed_s) - cut_s for c in range(CLIENTS)}
        for client, known_s in told_s.items():
            assert 0 <= found.known_s[client] - known_s <= 0.51
            assert 50 <= known_s <= 81
        for (client, begun_s), is_there in found.succeeded.items():
            assert is_there is (begun_s + LAST_TRY_S >= told_s[client]), (node, cut_s, client, begun_s, told_s)
            succeeded[begun_s] += is_there
        known += told_s.values()
    count = len(scenes) * CLIENTS
    print(f"known after {min(known):.1f} to {max(known):.1f} s, mean {sum(known) / len(known):.1f}")
    for begun_s, there in succeeded.items():
        expected = irwin_hall((begun_s + LAST_TRY_S - 50) / 10)
        print(f"begun {begun_s:g} s after the cut: {there / count:.0%} succeed, {expected:.0%} with random phases")
        assert there / count == pytest.approx(expected, abs=0.15)
