"""Answers to users: by a scheduler, in time that jumps, and by the folder of a cluster that is down."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.nodes import Nodes
from cluster.platform import queries as book_keeping
from cluster.platform.channel import _MOST_BYTES
from cluster.platform.event_lines import line_as_it_happens, shortened
from cluster.platform.events import (
    Asked,
    Demanded,
    EndKind,
    EndOrdered,
    Event,
    JobSpec,
    Left,
    NodeOut,
    Started,
    Submitted,
)
from cluster.platform.journal import Journal, JournalTail, events_in, last_time_s
from cluster.platform.queries import Snapshot
from cluster.platform.responses import RESPONSES, NodeUse
from cluster.platform.state import JobState, PlatformState
from cluster.tasks import Priority, Users
from fabric.errors import ConfigError
from tests.cluster.platform.fake_nodes import FakeCluster
from tests.cluster.platform.test_programs import FOUR, play

SPEC = JobSpec("counts", "ada", 3, ("counts", "20"))


def test_a_job_is_described_with_all_lives_reasons_and_what_it_waits_for(tmp_path: Path) -> None:
    """A low one yields to a high one; a third, too large while a node is out, says why it waits."""

    async def scene(cluster: FakeCluster) -> None:
        low = cluster.submit("counts", 4, 60)
        await asyncio.sleep(15)
        cluster.submit("counts", 2, 30, "bo", Priority.HIGH)
        await asyncio.sleep(20)
        found = await cluster.ask({"kind": "describe", "number": low})
        assert (found["job"]["state"], found["job"]["lives"], found["job"]["command"]) == (
            "suspended", 2, ["counts", "60"],
        )  # fmt: skip
        first, second = found["lives"]
        assert (first["life"], first["nodes"], first["told"]) == (low, list(FOUR.names), "suspend")
        assert first["started_s"] < first["told_s"] < first["left_s"]
        assert first["step"] and "needs its nodes" in first["told_why"]
        assert (second["nodes"], second["code"]) == ([], None) and "started_s" not in second
        assert found["job"]["waits"] == "it comes first, but too few nodes are free or may be taken from others"
        assert [found["events"][place]["event"] for place in (0, -1)] == ["submitted", "left"]
        assert found["now_s"] - found["job"]["submitted_s"] == pytest.approx(35, abs=0.1)

        listed = await cluster.ask({"kind": "list"})
        assert [job["waits"] for job in listed["jobs"]] == [found["job"]["waits"], ""]
        assert listed["more"] is False
        (job,) = (await cluster.ask({"kind": "list", "after": 1, "most": 1}))["jobs"]
        assert (job["number"], job["user"], job["asks"]) == (2, "bo", 2)
        assert (await cluster.ask({"kind": "list", "most": 1}))["more"] is True

        nodes = (await cluster.ask({"kind": "nodes"}))["nodes"]
        held = {node["name"] for node in nodes if node["state"] == "busy"}
        assert len(held) == 2 and {node["user"] for node in nodes if node["job"] == 2} == {"bo"}
        quotas = {(one["user"], one["priority"]): one for one in (await cluster.ask({"kind": "quotas"}))["quotas"]}
        assert (quotas["ada", "NORMAL"]["waits"], quotas["bo", "HIGH"]["holds"]) == (4, 2)
        assert quotas["bo", "HIGH"]["quota"] is None
        refused = await cluster.ask({"kind": "describe", "number": 9})
        assert refused["faults"] == ["job 9: no job has this number; the last one is 2: fabric cluster list"]
        await cluster.until_over(1, 2)

    play(tmp_path, scene)


def test_logs_come_in_pieces_of_each_life_and_rank(tmp_path: Path) -> None:
    async def scene(cluster: FakeCluster) -> None:
        number = cluster.submit("counts", 2, 5)
        assert (await cluster.ask({"kind": "log", "number": number}))["life"] is None
        await asyncio.sleep(2)
        node = cluster.scheduler.state.nodes_of(number)[1]
        path = tmp_path / node / f"{number}-1" / "log"
        path.parent.mkdir(parents=True)
        data = bytes(range(256)) * 300
        path.write_bytes(data)
        question, read = {"kind": "log", "number": number, "rank": 1}, b""
        while text := (answer := await cluster.ask(question | {"offset": len(read)}))["text"]:
            assert answer["node"] == node and not answer["is_all"]
            read += text.encode("latin-1")
        assert read == data
        await cluster.until_over(number)
        answer = await cluster.ask(question | {"offset": len(read)})
        assert answer["is_all"] and answer["state"] == "finished", "it is told after the end, too"
        for wrong, words in (({"rank": 2}, "ranks 0 to 1"), ({"life": 7}, "had nodes in lives 1; give one of these")):
            (fault,) = (await cluster.ask(question | wrong))["faults"]
            assert words in fault

    play(tmp_path, scene)


def started(at_s: float, life: int, nodes: tuple[str, ...], why: str) -> tuple[Event, Event]:
    return Asked(at_s, life, nodes, why), Started(at_s, life, nodes, why)


def journal(folder: Path, *events: Any, origin_s: float = 0.0) -> Path:
    with Journal(folder / "journal", origin_s) as written:
        for event in events:
            written.write(event)
    return folder / "journal"


def test_the_journals_time_goes_on_over_clocks_that_begin_anew(tmp_path: Path) -> None:
    """Once at 1,000 s of a clock, then at 12 s of another: 7 s have passed when it is down, and count as one."""
    path = journal(tmp_path, Submitted(1003.0, 1, SPEC), *started(1007.0, 1, FOUR.names[:3], "free"), origin_s=1000.0)
    assert [event.at_s for event in events_in(path)] == [3.0, 7.0, 7.0]
    assert last_time_s(path) == 7.0
    with Journal(path, 12.0 - last_time_s(path)) as again:
        assert [event.at_s for event in again.events()] == [8.0, 12.0, 12.0], "as if it had just happened"
        again.write(EndOrdered(14.0, 1, EndKind.SUSPEND, "its user"))
    assert [event.at_s for event in events_in(path)] == [3.0, 7.0, 7.0, 9.0]


def test_a_folder_answers_once_its_cluster_is_down(tmp_path: Path) -> None:
    names = FOUR.names[:3]
    path = journal(
        tmp_path,
        Submitted(1.0, 1, SPEC),
        *started(2.0, 1, names, "free"),
        NodeOut(3.0, FOUR.names[3], "not heard for 60 s"),
        Left(9.0, 1, 20, 0, True),
        Submitted(10.0, 2, SPEC),
        Submitted(10.0, 3, SPEC),
        *started(11.0, 3, names, "free"),
    )
    books = Snapshot.read(path, FOUR, Users({("ada", Priority.NORMAL, "training"): 3}))
    first, second, third = book_keeping.jobs(books).jobs
    assert (first.state, first.code, first.ended_s, second.waits) == (JobState.FINISHED, 0, 9.0, "the cluster is down")
    node = book_keeping.nodes(books).nodes[3]
    assert (node.state, node.out) == (NodeUse.OUT, "not heard for 60 s")
    (quota,) = book_keeping.quotas(books).quotas
    assert (quota.holds, quota.waits, quota.quota) == (3, 3, 3)
    assert third.waits.startswith("the cluster was killed; this job begins again")
    assert book_keeping.log(books, 1).is_all
    with pytest.raises(ConfigError, match="job 4: no job has this number"):
        book_keeping.described(books, 4)


def test_events_are_shown_as_lines_while_they_come(tmp_path: Path) -> None:
    tail, state = JournalTail(tmp_path / "journal"), PlatformState(FOUR, Users())
    assert list(tail.events()) == []
    path = journal(tmp_path, Submitted(1.0, 1, SPEC), *started(2.0, 1, FOUR.names[:3], "enough nodes are free"))
    assert [line_as_it_happens(state, event) for event in tail.events()] == [
        "      1.0 s  job 1 submitted: counts of ada, 3 nodes at NORMAL",
        "      2.0 s  job 1 asked on z0h000, z0h001, z0h002: enough nodes are free",
        "      2.0 s  job 1 started on z0h000, z0h001, z0h002: enough nodes are free",
    ]
    with path.open("ab") as file:
        file.write(b'{"event":"told","at')  # Being written.
    assert list(tail.events()) == []
    path.write_bytes(path.read_bytes()[:-19])
    journal(tmp_path, EndOrdered(3.0, 1, EndKind.RESTART, "z0h001: its rank is gone"), Left(4.0, 1, 10, 137))
    assert [line_as_it_happens(state, event) for event in tail.events()] == [
        "      3.0 s  job 1 restart: z0h001: its rank is gone",
        "      4.0 s  job 1 left: code 137, step 10",
    ]
    journal(tmp_path, *started(5.0, 2, FOUR.names[:3], "free"), NodeOut(6.0, FOUR.names[3], "silent"))
    journal(tmp_path, Demanded(7.0, FOUR.names[:2]))
    assert [line_as_it_happens(state, event)[13:] for event in tail.events()] == [
        "job 1 (life 2) asked on z0h000, z0h001, z0h002: free",
        "job 1 (life 2) started on z0h000, z0h001, z0h002: free",
        "node_out: z0h003: silent",
        "z0h000, z0h001 to be validated: a user asked for it",
    ]
    many = [f"z0h{number:03d}" for number in range(40)]
    assert shortened(many) == "z0h000 ... z0h039 (40)"


def test_a_list_of_thousands_of_jobs_fits_into_messages(tmp_path: Path) -> None:
    state = PlatformState(Nodes.grid(2, 10, 10), Users())
    for number in range(1, 1201):
        state.apply(Submitted(float(number), number, JobSpec("n" * 100, "ada", 1, ("a",))))
    books = Snapshot(state, tmp_path / "journal", 0.0, 2000.0, None)
    seen, more = list[int](), True
    while more:
        answer = book_keeping.jobs(books, seen[-1] if seen else 0)
        assert len(json.dumps(RESPONSES.to_values(answer))) < _MOST_BYTES
        seen += [job.number for job in answer.jobs]
        more = answer.more
    assert seen == list(range(1, 1201))


def test_a_log_is_told_without_reading_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows one asks twice a second, and a journal has every event of a cluster's life."""

    async def scene(cluster: FakeCluster) -> None:
        number = cluster.submit("counts", 2, 30)
        await asyncio.sleep(15)
        assert await cluster.ask({"kind": "suspend", "number": number}) == {"kind": "done"}
        await asyncio.sleep(10)
        lives = cluster.scheduler.state.jobs[number].lives
        assert len(lives) == 2
        with monkeypatch.context() as patch:
            patch.setattr(book_keeping, "events_in", lambda path: pytest.fail("reads the journal"))
            told = [await cluster.ask({"kind": "log", "number": number, "life": life}) for life in (*lives, None)]
        assert [one["life"] for one in told] == [*lives, lives[-1]]
        started = [event for event in events_in(tmp_path / "journal") if isinstance(event, Started)]
        assert [one["node"] for one in told[:2]] == [event.nodes[0] for event in started]
        await cluster.until_over(number)

    play(tmp_path, scene)
