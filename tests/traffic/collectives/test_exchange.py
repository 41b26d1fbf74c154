"""Exchanges of blocks: in which time slots pieces go, and that a rank keeps pace with its peers."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

import numpy as np

from tests.waiting import until
from traffic.collectives.collective import ScheduleOptions
from traffic.collectives.elements import Elements
from traffic.collectives.exchange import Exchange
from traffic.collectives.operations.all_to_all_v import ALL_TO_ALL_V, all_to_all_of
from traffic.collectives.schedule import RankContext
from traffic.program_group import PeerGoneError

RANKS, ELEMENTS, PIECE = 4, 6400, 16


def exchange(counts: Any = None) -> Exchange:
    collective = ALL_TO_ALL_V if counts is None else all_to_all_of(counts)
    made = collective.algorithms["direct"].schedule(ScheduleOptions(RANKS, ELEMENTS, PIECE))
    assert isinstance(made, Exchange)
    return made


class Endless:
    """A connection that takes everything at once; what it gives is what a test has put."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.come: queue.Queue[Elements] = queue.Queue()

    def begin_sending(self, step: int, chunk: int, payload: Elements) -> None:
        self.sent.append(chunk)

    def receive(self, step: int, chunk: int, into: Elements) -> None:
        into[:] = self.come.get(timeout=20)


def test_blocks_of_all_lengths_are_spread_over_all_time_slots() -> None:
    """Of 4 ranks, blocks are 2, 4 and 6 sixteenths, and the longest has a piece in each slot."""
    schedule = exchange()
    assert schedule.time_slots == 150
    slots: dict[int, list[int]] = {}
    for time_slot, one in schedule.in_slots(0):
        if one.target is not None:
            slots.setdefault(one.target, []).append(time_slot)
    assert {target: len(of_target) for target, of_target in slots.items()} == {1: 50, 2: 100, 3: 150}
    assert slots[3] == list(range(150))
    assert slots[1] == [3 * number + 1 for number in range(50)]
    order = [time_slot for time_slot, _ in schedule.in_slots(0)]
    assert order == sorted(order)


def test_a_rank_is_no_more_than_some_pieces_ahead_of_what_it_takes() -> None:
    """Nothing comes from peer 3 behind its 20th piece: rank 0 sends what goes in the slots until then, and a little."""
    schedule = exchange()
    links: Any = {edge: Endless() for edge in schedule.edges if 0 in (edge.dialer, edge.listener)}
    taken = {source: [one for _, one in schedule.in_slots(0) if one.source == source] for source in (1, 2, 3)}
    for edge, link in links.items():
        if edge.listener == 0:
            for number, one in enumerate(taken[edge.dialer]):
                if edge.dialer != 1 or number < 20:  # From rank 1 the longest block comes.
                    link.come.put(np.zeros(one.elements, np.float32))
    inputs = np.zeros(ELEMENTS, np.float32)
    worker = schedule.worker(RankContext(0, links, [inputs], 20.0), [lambda piece, found: None])
    threads = [threading.Thread(target=_quietly, args=(task,), daemon=True) for task in worker.tasks(1)]
    for thread in threads:
        thread.start()

    def sent_to() -> dict[int, int]:
        return {edge.listener: len(link.sent) for edge, link in links.items() if edge.dialer == 0}

    until(lambda: sent_to()[3] >= 20 and sent_to()[1] >= 20 // 3, "20 pieces for rank 3, and a third of them for 1")
    time.sleep(0.3)  # So long it goes no further.
    sent = sent_to()
    lead = -(-schedule.slots // 2) + 2  # Two pieces go in a slot, on average.
    assert 20 <= sent[3] <= 20 + lead + 1, sent
    assert 20 // 3 <= sent[1] <= (20 + lead) // 3 + 1
    worker.abort()


def _quietly(task: Any) -> None:
    with contextlib.suppress(PeerGoneError, queue.Empty):
        task()


def test_a_rank_that_takes_nothing_waits_for_nobody() -> None:
    schedule = exchange([[0, 5, 0, 0], [0, 0, 0, 0], [9, 0, 0, 1], [0, 0, 0, 0]])
    assert max(time_slot for rank in range(RANKS) for time_slot, _ in schedule.in_slots(rank)) < schedule.time_slots
    links: Any = {edge: Endless() for edge in schedule.edges if 2 in (edge.dialer, edge.listener)}
    inputs = np.zeros(ELEMENTS, np.float32)
    worker = schedule.worker(RankContext(2, links, [inputs], 20.0), [lambda piece, found: None])
    for task in worker.tasks(1):
        task()
    sent = {edge.listener: len(link.sent) for edge, link in links.items() if edge.dialer == 2}
    assert (sent[1], sent[3]) == (0, 40)
    assert sent[0] == schedule.time_slots == 360
