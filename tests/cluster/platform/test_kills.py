"""Programs killed wherever they are: at any line of the journal, whole, torn or not written, and agents, in time that
jumps. Nothing is lost, nothing is done twice behind a checkpoint, no node has two tasks, nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.decisions import Because, Reason
from cluster.health.unwell import Unwell
from cluster.nodes import Nodes
from cluster.platform.events import (
    Asked,
    EndKind,
    EndOrdered,
    Event,
    JobSpec,
    Left,
    NodeOut,
    Requeued,
    Saved,
    Started,
    Submitted,
    from_line,
    to_line,
)
from cluster.platform.journal import Journal
from cluster.platform.liveness import Liveness
from cluster.platform.reasons import FailedChecks, Lemon, NoAnswer, OfNodes, Silent, Why
from cluster.platform.state import JobState, PlatformState
from cluster.platform.timers import Timers
from cluster.tasks import Priority, Users
from fabric.errors import ConfigError
from tests.cluster.platform.fake_nodes import FakeCluster
from tests.cluster.platform.test_programs import check_journal
from tests.traffic.storage.true_timers import no_listeners_left, run

FOUR = Nodes.grid(2, 1, 2)
SHORT = Timers(tick=1.0, beat=2.0, failed_after=12.0, ready=2.0, answer=3.0, save=3.0, gang=3.0, fence=7.0)
LEVELS = (Priority.HIGH, Priority.NORMAL, Priority.UNDER_NORMAL)
EVERY = 10
Action = tuple[str, int, int, int]
"""What happens, two numbers of it, and how many seconds pass before the next."""


class Killed(Exception):  # noqa: N818 - not an error: what kill -9 does
    """The program was killed in the middle of what it did."""


class TornJournal(Journal):
    """A journal at some of whose writes the scheduler is killed, when a part of the line is on disk."""

    def __init__(self, path: Path, cluster: FakeCluster, parts: dict[int, float], writes: list[int]) -> None:
        super().__init__(path)
        self._cluster, self._parts, self._writes = cluster, parts, writes

    def write(self, event: Event) -> None:
        self._writes[0] += 1
        part = self._parts.get(self._writes[0])
        if part is None:
            super().write(event)
            return
        line = to_line(event).encode() + b"\n"
        os.write(self._file.fileno(), line[: round(part * len(line))])
        self._cluster.kill_scheduler()
        asyncio.get_running_loop().call_later(3.0, self._cluster.start_scheduler)
        raise Killed


class KilledCluster:
    """A cluster to which things happen, and what was asked of it."""

    def __init__(self, folder: Path, parts: dict[int, float]) -> None:
        self.cluster = FakeCluster(folder, FOUR, SHORT)
        self.steps: dict[str, int] = {}
        self.stopped: set[str] = set()
        writes = [0]
        self.cluster.journal = lambda path: TornJournal(path, self.cluster, parts, writes)

    def is_up(self) -> bool:
        return self.cluster.scheduler.journal._file is not None and not self.cluster.scheduler.journal._file.closed

    def number_of(self, name: str) -> int | None:
        jobs = self.cluster.scheduler.state.jobs.values()
        return next((job.number for job in jobs if job.spec.name == name), None)

    async def act(self, action: Action) -> None:
        kind, one, other, pause_s = action
        cluster, node = self.cluster, FOUR.names[one % len(FOUR)]
        if kind == "submit":
            await self.submit(one % 4 + 1, other % 30 + 3, f"u{one % 3}", LEVELS[other % 3])
        elif kind == "kill_scheduler" and self.is_up():
            cluster.kill_scheduler()
            asyncio.get_running_loop().call_later(other % 12 + 0.5, cluster.start_scheduler)
        elif kind == "kill_agent" and not cluster.tasks[node].done():
            cluster.kill_agent(node)
            asyncio.get_running_loop().call_later(other % 20 + 0.5, cluster.start_agent, node)
        elif kind == "silence":
            cluster.silence(node)
        elif kind == "cut":
            cluster.network.cut(node, ["manager"], both_ways=bool(other % 2))
        elif kind == "mend":
            cluster.mend()
        elif kind in ("suspend", "cancel") and self.is_up() and self.steps:
            name = sorted(self.steps)[one % len(self.steps)]
            with suppress(ConfigError, Killed):
                getattr(cluster.scheduler, kind)(self.number_of(name))
            if kind == "cancel":
                self.stopped.add(name)
        await asyncio.sleep(pause_s)

    async def submit(self, nodes: int, steps: int, user: str, level: Priority) -> None:
        """As a user does who asks again if there was no answer."""
        name = f"job{len(self.steps)}"
        spec = JobSpec(name, user, nodes, (name, str(steps)), level)
        self.steps[name] = steps
        while True:
            if self.is_up():
                with suppress(Killed):
                    self.cluster.scheduler.submit(spec, token=name)
                    return
            await asyncio.sleep(1)

    async def play(self, actions: list[Action]) -> None:
        asyncio.get_running_loop().set_exception_handler(self._fault)
        await self.cluster.start()
        for action in actions:
            await self.act(action)
        self.cluster.mend()
        await self.until_over()
        self.check()
        self.cluster.kill_scheduler()

    def _fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note what went wrong in a program, but that it was killed."""
        if not isinstance(context.get("exception"), Killed):
            self.cluster.disk.faults.append(str(context))

    async def until_over(self) -> None:
        for _ in range(3000):
            await asyncio.sleep(1)
            if self.is_up() and all(job.ended_s for job in self.cluster.scheduler.state.jobs.values()):
                break
        else:
            raise AssertionError(f"not over: {self.cluster.scheduler.state.jobs}, {self.cluster.scheduler.left}")
        await asyncio.sleep(60)  # All have dialled again, and all is noted.

    def check(self) -> None:
        cluster = self.cluster
        assert not cluster.disk.faults, cluster.disk.faults
        assert not cluster.scheduler.left and not cluster.scheduler.asking
        assert not any(ranks.running for ranks in cluster.ranks.values()), "a rank is left"
        assert not any(agent.untold.ended or agent._running for agent in cluster.agents.values())
        assert not cluster.scheduler.state.out
        assert Counter(job.spec.name for job in cluster.scheduler.state.jobs.values()) == Counter(list(self.steps))
        for job in cluster.scheduler.state.jobs.values():
            if job.spec.name not in self.stopped:
                assert job.code == 0, job
                check_lives(cluster.disk.made[job.number], self.steps[job.spec.name])


def check_lives(made: list[tuple[int, int]], steps: int) -> None:
    """Each life goes on behind a step that was saved, at most a checkpoint's interval and the time of a fence behind
    what was made; after the last there is nothing left to do."""
    last = 0
    by_life: dict[int, list[int]] = {}
    for life, step in made:
        by_life.setdefault(life, []).append(step)
    assert list(by_life) == sorted(by_life) and len(made) == sum(len(one) for one in by_life.values())
    for own in by_life.values():
        assert own == list(range(own[0], own[-1] + 1)), "in order, each once"
        assert own[0] <= last + 1, "no step is left out"
        assert last - own[0] < EVERY + 10, "no more is made again than what was not saved, or not told"
        last = own[-1]
    assert last == steps


def played(actions: list[Action], parts: dict[int, float]) -> None:
    with tempfile.TemporaryDirectory() as name, mock.patch.object(os, "fsync"), no_listeners_left():
        run(KilledCluster(Path(name), parts).play(actions))
        check_journal(Path(name), FOUR)


KINDS = ("submit", "submit", "submit", "kill_scheduler", "kill_agent", "silence", "cut", "mend", "suspend", "cancel")
NUMBERS = st.integers(0, 40)
ACTIONS = st.lists(st.tuples(st.sampled_from(KINDS), NUMBERS, NUMBERS, NUMBERS), min_size=3, max_size=10)
PARTS = st.dictionaries(st.integers(1, 80), st.sampled_from((0.0, 0.4, 1.0)), max_size=6)


@settings(max_examples=25, deadline=None)
@given(ACTIONS, PARTS)
def test_whatever_is_killed_nothing_is_lost_and_nothing_is_left(actions: list[Action], parts: dict[int, float]) -> None:
    played(actions, parts)


def random_walk(seed: int) -> tuple[list[Action], dict[int, float]]:
    """Return what happens, by a seed."""
    rng = random.Random(seed)
    number = partial(rng.randint, 0, 40)
    actions = [(rng.choice(KINDS), number(), number(), number()) for _ in range(rng.randint(5, 25))]
    return actions, {rng.randint(1, 150): rng.choice((0.0, 0.4, 1.0)) for _ in range(rng.randint(0, 10))}


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousands_of_walks_with_kills() -> None:
    for seed in range(2000):
        try:
            played(*random_walk(seed))
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("write", range(1, 12))
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_job_that_is_stopped_while_it_waits_has_ended_wherever_the_scheduler_is_killed(
    write: int, part: float
) -> None:
    """Killed between its two lines, it went on to hold nodes on which nothing began."""
    played([("submit", 3, 12, 2), ("submit", 3, 8, 2), ("cancel", 1, 0, 1), ("submit", 0, 3, 2)], {write: part})


def test_a_kill_at_every_line_of_the_journal_of_a_short_day() -> None:
    """Before it is written, in the middle, and behind: two jobs, one of which yields to the other."""
    day: list[Action] = [("submit", 3, 10, 8), ("submit", 1, 6, 3)]
    for write in range(1, 16):
        for part in (0.0, 0.5, 1.0):
            played(day, {write: part})


def lines(path: Path) -> Iterator[str]:
    return iter(path.read_text().splitlines())


def test_a_torn_last_line_is_taken_away_and_a_second_writer_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    event = Submitted(1.0, 1, JobSpec("a", "ada", 1, ("true",)), "mine")
    with Journal(path) as journal:
        journal.write(event)
        with pytest.raises(ConfigError, match="another scheduler writes this journal; end that first"):
            Journal(path)
    whole = path.read_bytes()
    for size in (1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole + whole[:size])
        with Journal(path) as journal:
            assert list(journal.events()) == [event]
        assert path.read_bytes() == whole


def test_a_write_that_fails_leaves_no_half_line(tmp_path: Path) -> None:
    """As on a full disk: the program ends with the error, and what it wrote before can be read."""
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.write(NodeOut(1.0, "a", "gone"))
        full = OSError(28, "No space left on device")
        with mock.patch.object(os, "fsync", side_effect=full), pytest.raises(OSError, match="No space"):
            journal.write(NodeOut(2.0, "b", "gone"))
        assert list(journal.events()) == [NodeOut(1.0, "a", "gone")]


def test_a_journal_keeps_what_took_a_node_out_and_older_ones_are_read() -> None:
    for why in WHYS:
        for event in (NodeOut(1.0, "a", why), EndOrdered(1.0, 1, EndKind.RESTART, why), Requeued(1.0, 1, why)):
            assert from_line(to_line(event), "journal") == event
    head = '{"event":"node_out","at_s":1.0,"node":"a","why":'
    for line, why in OLD_OUTS:
        assert from_line(f"{head}{line}}}", "journal") == NodeOut(1.0, "a", why)
    head = '{"event":"told","at_s":1.0,"life":1,"how":"restart","why":'
    for line, why in OLD_ENDS:
        assert from_line(f"{head}{line}}}", "journal") == EndOrdered(1.0, 1, EndKind.RESTART, why)


def test_a_reason_that_is_none_is_refused() -> None:
    for why in ('{"nobody": {}}', '{"silent": {"how_s": 3}}', "{}", "3"):
        with pytest.raises(ConfigError, match="is not an event of the platform"):
            from_line(f'{{"event": "node_out", "at_s": 1.0, "node": "a", "why": {why}}}', "journal")


WHYS: tuple[Why, ...] = (
    "not heard: an operator says so",
    Silent(3.07),
    Silent(3.07, "asked to take task 7, no answer within 5 s"),
    Unwell("GPU 0: Xid 79: x", (79,)),
    FailedChecks("gpu: GPU 0: Xid 79: x", (79,), is_again=True),
    Lemon("3 repairs in 28 d (limit 3)"),
    OfNodes(("a", "b"), "its rank is gone"),
    NoAnswer(("a", "b"), 5.0),
    Because(Reason.NODE_LOST, None, ("a",)),
    Because(Reason.YIELDS, 3),
)
OLD_OUTS: tuple[tuple[str, Why], ...] = (
    ('"gone"', "gone"),
    ('"not heard for 3.1 s"', Silent(3.1)),
    ('"not heard for 3.1 s","unheard_s":3.07', Silent(3.07)),
    ('"not heard for 3.1 s","unheard_s":3.07,"by":"silence"', Silent(3.07)),
    ('"not heard: it has no connection"', Silent(0.0, "it has no connection")),
    ('"not heard: so Slurm says","unheard_s":0.0,"by":"others"', "not heard: so Slurm says"),
    ('"unwell: GPU 0: Xid 79: x; NIC 1: y"', Unwell("GPU 0: Xid 79: x; NIC 1: y", (79,))),
    ('"validator after a repair: gpu: GPU 0: Xid 79: x"', FailedChecks("gpu: GPU 0: Xid 79: x", (79,), is_again=True)),
    ('"lemon, out for good: 3 repairs"', Lemon("3 repairs")),
)
"""Ends of lines from before reasons were values, and what they say."""
OLD_ENDS: tuple[tuple[str, Why], ...] = (
    ('"a, b: not ready any more"', OfNodes(("a", "b"), "not ready any more")),
    ('"a, b: no answer within 5 s"', NoAnswer(("a", "b"), 5.0)),
    ('"its user stopped it"', "its user stopped it"),
    ('"was submitted with values of other types: x"', "was submitted with values of other types: x"),
)


def test_a_journal_of_who_asks_nobody_is_read_and_what_cannot_be_is_refused() -> None:
    spec = JobSpec("a", "ada", 2, ("true",))
    names = FOUR.names
    begun: list[Event] = [Submitted(1.0, 1, spec), Started(2.0, 1, names[:2], "free")]
    state = PlatformState(FOUR, Users(), begun)
    assert state.jobs[1].state is JobState.RUNNING and not state.asked
    cases: tuple[tuple[list[Event], str], ...] = (
        ([*begun, Requeued(3.0, 1, "")], "its nodes are not being asked"),
        ([*begun, Submitted(3.0, 2, spec), Asked(4.0, 2, names[1:3], "")], f"{names[1]} has another task"),
        ([begun[0], Asked(2.0, 1, names[:2], ""), Started(3.0, 1, names[1:3], "")], "these nodes were not asked"),
        ([begun[0], Asked(2.0, 1, names[:2], ""), Left(3.0, 1)], "no rank of it has started"),
        ([begun[0], Asked(2.0, 1, names[:2], ""), Saved(3.0, 1, 5)], "it does not run"),
        ([begun[0], Asked(2.0, 1, names[:2], ""), EndOrdered(3.0, 1, EndKind.RESTART, "")], "no rank of it runs"),
    )
    for events, words in cases:
        with pytest.raises(ValueError, match=words):
            PlatformState(FOUR, Users(), events)


def test_when_a_node_was_heard() -> None:
    hearing = Liveness(["a", "b"], 10.0, 100.0)
    hearing.hear("a", 105.0)
    assert (hearing["a"], hearing["b"], "c" in hearing, list(hearing)) == (105.0, 100.0, False, ["a", "b"])
    assert [hearing.silent_s(node, 120.0) for node in "ab"] == [15.0, 20.0]
    assert [hearing.silent_s(node, 500.0) for node in "ab"] == [20.0, 25.0], "the clock stands still from 125 s on"
    hearing.hear("b", 505.0)
    assert [hearing.silent_s(node, 510.0) for node in "ab"] == [25.0, 5.0]
    assert hearing.in_touch == {"b"}, "what the other has sent meanwhile may be on its way"
    hearing.hear("a", 520.0)
    assert hearing.in_touch == {"a", "b"}
    hearing.begin(600.0)
    assert [hearing.silent_s(node, 601.0) for node in "ab"] == [1.0, 1.0]
    assert hearing.in_touch == set()
