"""A turn of the scheduler comes late by some milliseconds, each by others: waits of whole turns are as long as is said,
however late the turns are in which they begin and end."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Nodes
from cluster.platform.events import Asked, EndOrdered, Event, Left, NodeOut, Started
from cluster.platform.timers import Timers
from cluster.tasks import Priority
from tests.cluster.platform.fake_nodes import FakeCluster
from tests.traffic.storage.true_timers import run

TWO = Nodes.grid(1, 1, 2)
MOST_LATE_S = 0.004


class LateCluster(FakeCluster):
    """Each turn is late, and each by less than the one before."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, TWO, Timers(beat=1.0))
        self.events: list[Event] = []

    def start_scheduler(self) -> None:
        super().start_scheduler()
        self.scheduler.on_event = self.events.append
        in_time, clock, number = self.scheduler.turn, time.monotonic, itertools.count(1)

        def turn(now_s: float, due_s: float | None = None) -> None:
            late: Any = clock
            late.now_s += MOST_LATE_S / next(number)
            in_time(time.monotonic(), due_s)

        self.scheduler.turn = turn  # type: ignore[method-assign]

    async def until(self, kind: type[Event], life: int | None = None) -> float:
        """Wait until something has happened; return when it did."""
        for _ in range(100):
            for event in self.events:
                if isinstance(event, kind) and (life is None or getattr(event, "life", None) == life):
                    return event.at_s
            await asyncio.sleep(0.5)
        raise AssertionError(f"no {kind.__name__} of {life} within 50 s: {self.events}")


def test_a_program_that_does_not_answer_is_killed_when_its_notice_is_over(tmp_path: Path) -> None:
    async def be() -> tuple[float, float]:
        cluster = LateCluster(tmp_path)
        await cluster.start()
        deaf = cluster.submit("deaf", 2, 100)
        await cluster.until(Started, deaf)
        taker = cluster.submit("counts", 2, 3, "bo", Priority.HIGH)
        told_s, left_s = await cluster.until(EndOrdered, deaf), await cluster.until(Left, deaf)
        started_s = await cluster.until(Started, taker)
        cluster.kill_scheduler()
        return left_s - told_s, started_s - told_s

    left_s, others_s = run(be())
    assert left_s == pytest.approx(5, abs=MOST_LATE_S)
    assert others_s == pytest.approx(6, abs=MOST_LATE_S)


def test_a_node_that_does_not_say_that_its_rank_is_killed_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    async def be() -> float:
        cluster = LateCluster(tmp_path)
        await cluster.start()
        deaf = cluster.submit("deaf", 2, 100)
        await cluster.until(Started, deaf)
        cluster.silence(TWO.names[1])
        cluster.submit("counts", 1, 3, "bo", Priority.HIGH)
        told_s, out_s = await cluster.until(EndOrdered, deaf), await cluster.until(NodeOut)
        cluster.kill_scheduler()
        return out_s - told_s

    assert run(be()) == pytest.approx(5 + 5, abs=MOST_LATE_S), "its notice, and the answer of its agent"


def test_a_node_that_does_not_answer_before_a_start_is_waited_for_as_long_as_is_said(tmp_path: Path) -> None:
    async def be() -> float:
        cluster = LateCluster(tmp_path)
        await cluster.start()
        cluster.silence(TWO.names[1])
        cluster.submit("counts", 2, 3)
        asked_s, out_s = await cluster.until(Asked), await cluster.until(NodeOut)
        cluster.kill_scheduler()
        return out_s - asked_s

    assert run(be()) == pytest.approx(5, abs=MOST_LATE_S)
