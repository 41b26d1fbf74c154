"""What users of their own send: only a job is taken, and what else is in a journal is stopped."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from cluster.platform.channel import Channel
from cluster.platform.config import SubmittedJob
from cluster.platform.events import JobSpec, Submitted, spec_of, to_line
from cluster.platform.messages import RankEnd
from cluster.platform.state import JobState
from cluster.tasks import Priority
from fabric.config import checked
from fabric.errors import ConfigError
from tests.cluster.platform.fake_nodes import MANAGER, PORT, FakeCluster
from tests.cluster.platform.test_programs import play
from traffic.storage.wire.event_loop import dialled

SOUND: dict[str, Any] = {"name": "a", "user": "ada", "nodes": 2, "command": ["counts", "5"], "priority": 10}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"limit_s": "x"}, "limit_s: 'x' is not a time; give seconds, more than 0, or null for none"),
    ({"limit_s": float("nan")}, "limit_s: nan is not a time; give seconds, more than 0, or null for none"),
    ({"limit_s": -1}, "limit_s: -1 is not a time; give seconds, more than 0, or null for none"),
    ({"nodes": 2.5}, "nodes: 2.5 is not a whole number; give 1 or more"),
    ({"nodes": 8 / 2}, "nodes: 4.0 is not a whole number; give 1 or more"),
    ({"nodes": True}, "nodes: True is not a whole number; give 1 or more"),
    ({"nodes": "2"}, "nodes: '2' is not a whole number; give 1 or more"),
    ({"name": 5}, "name: 5 is not text; give one without a NUL"),
    ({"name": "a\0"}, "name: 'a\\x00' is not text; give one without a NUL"),
    ({"name": "a" * 300}, "name: has 300 characters; the most is 255"),
    ({"user": {}}, "user: {} is not text; give one without a NUL"),
    ({"user": None}, "user: None is not text; give one without a NUL"),
    ({"group": []}, "group: [] is not text; give one without a NUL"),
    ({"directory": 3}, "directory: 3 is not text; give one without a NUL"),
    ({"command": "sleep"}, "command: 'sleep' is not a list of texts; give a program and its arguments"),
    ({"command": []}, "command: [] is not a list of texts; give a program and its arguments"),
    ({"command": [1]}, "command: word 1, 1, is not text; put it in quotes"),
    ({"command": {"a": 1}}, "command: {'a': 1} is not a list of texts; give a program and its arguments"),
    ({"command": ["a", "b\0"]}, "command: word 2, 'b\\x00', has a NUL in it, which no program can be given"),
    ({"priority": 7}, "priority: 7 is not a priority; use 50 (EXTREME_HIGH), 40"),
    ({"priority": "HIGH"}, "priority: 'HIGH' is not a priority; use 50 (EXTREME_HIGH), 40"),
    ({"nods": 2}, "nods: is not a key of a job; use name, user, nodes"),
]


@pytest.mark.parametrize(("change", "fault"), WRONG)
def test_a_value_of_another_type_is_named_with_what_is_needed(change: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        spec_of(SOUND | change)
    (found,) = refused.value.faults
    assert found.startswith(fault)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        spec_of({"name": 5, "nodes": 2.5})
    assert [fault.partition(":")[0] for fault in refused.value.faults] == ["user", "command", "name", "nodes"]
    others: list[Any] = [None, 3, [], "job"]
    for other in others:
        with pytest.raises(ConfigError, match="is not a mapping; give name, user, nodes, command"):
            spec_of(other)


def test_what_is_sound_is_taken_with_the_defaults() -> None:
    assert spec_of({key: SOUND[key] for key in SOUND if key != "priority"}) == JobSpec("a", "ada", 2, ("counts", "5"))
    odd = SOUND | {"command": ["\udcff"], "directory": "/\udcff", "limit_s": 5}
    assert spec_of(odd).command == ("\udcff",), "a word that is not UTF-8, as the kernel takes it"


def test_a_config_refuses_a_nul() -> None:
    with pytest.raises(ConfigError, match=r"word 2, 'a.x00b', has a NUL in it"):
        checked(SubmittedJob, {"name": "a", "user": "ada", "nodes": 1, "command": ["echo", "a\0b"]}, "job")


def test_what_is_refused_never_enters_the_journal_and_the_scheduler_goes_on(tmp_path: Path) -> None:
    questions: list[dict[str, Any]] = [
        *({"kind": "submit", "spec": SOUND | change} for change, _ in WRONG),
        {"kind": "submit", "spec": [SOUND]},
        {"kind": "submit"},
        {"kind": "cancel", "number": 1e999},
        {"kind": "cancel", "number": {}},
        {"kind": "log", "number": 1, "offset": -1},
        {"kind": "list", "after": []},
    ]

    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("counts", 1, 20)
        await asyncio.sleep(3)
        log = tmp_path / cluster.scheduler.state.nodes_of(job)[0] / f"{job}-0" / "log"
        log.parent.mkdir(parents=True)
        log.write_text("a word")
        for question in questions:
            assert (await cluster.ask(question))["kind"] == "refused", question
        await asyncio.sleep(12)
        assert not cluster.turns.done()
        assert (tmp_path / "journal").read_text().count('"submitted"') == 1
        await cluster.until_over(job)

    play(tmp_path, scene)


@pytest.mark.parametrize("change", [change for change, _ in WRONG if "nods" not in change])
def test_a_journal_that_has_a_wrong_submission_is_gone_on_with(tmp_path: Path, change: dict[str, Any]) -> None:
    """Before specs were checked, such lines were written, and each scheduler that read them ended."""

    async def scene(cluster: FakeCluster) -> None:
        job = await cluster.without_scheduler(1, 20, after_s=3)
        spec = JobSpec("a", "ada", 2, ("counts", "5"), Priority.NORMAL)
        line = json.loads(to_line(Submitted(1003.5, 2, spec, "mine")))
        line["spec"] = asdict(spec) | change
        with (tmp_path / "journal").open("a") as journal:
            journal.write(json.dumps(line) + "\n")
        cluster.start_scheduler()
        wrong = cluster.scheduler.state.jobs[2]
        assert (wrong.state, wrong.code) == (JobState.CANCELLED, 1)
        assert wrong.why.startswith(f"was submitted with values of other types: {next(iter(change))}: ")
        await cluster.until_over(job)
        assert cluster.submit("counts", 1, 1) == 3
        await cluster.until_over(3)

    play(tmp_path, scene)


def test_why_a_rank_was_killed_is_in_the_event_of_its_end(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        job = cluster.submit("deaf", 2, 100)
        await asyncio.sleep(5)
        node = cluster.scheduler.state.nodes_of(job)[0]
        cluster.scheduler.suspend(job)
        (life,) = cluster.ranks[node].running
        task, words = cluster.ranks[node].running.pop(life)
        task.cancel()
        words.ended(RankEnd(life, 137, why="cannot be shown the suspend command: it has no folder"))
        await asyncio.sleep(12)
        described = await cluster.ask({"kind": "describe", "number": job})
        (left,) = (event for event in described["events"] if event["event"] == "left")
        assert left["why"] == f"{node}: cannot be shown the suspend command: it has no folder"
        assert cluster.scheduler.state.jobs[job].lives == [1, 2], "it begins again"
        await cluster.until_over(job)

    play(tmp_path, scene)


def test_a_hello_that_comes_late_changes_nothing(tmp_path: Path) -> None:
    """An agent that dials anew may leave a hello on its way in the connection that it has given up."""

    async def scene(cluster: FakeCluster) -> None:
        victim = cluster.nodes.names[0]
        old = await dialled(cluster.transport(victim), (MANAGER, PORT), victim, 10.0)
        at_s = asyncio.get_running_loop().time()
        job = cluster.submit("counts", 4, 40)
        await asyncio.sleep(20)
        live = cluster.scheduler.agents[victim]
        channel = Channel(old, lambda message: None, lambda why: None)
        hello = {"kind": "hello", "node": victim, "unwell": "", "running": [], "ended": [], "saved": []}
        channel.send(hello | {"at": at_s})
        await asyncio.sleep(0.5)
        channel.close()
        await asyncio.sleep(0.5)
        assert cluster.scheduler.agents[victim] is live
        assert live.is_open
        refused = await cluster.ask(hello)
        assert refused["faults"] == ["hello: came without 'at'"]
        await cluster.until_over(job)
        assert cluster.scheduler.state.jobs[job].lives == [1]
        assert cluster.disk.sums(job) == list(range(1, 41)), "no step is made twice"

    play(tmp_path, scene)
