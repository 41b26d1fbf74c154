"""``fabric cluster submit`` and its like, as users call them: a scheduler answers, without a fabric in between."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.cli import main
from app.commands import cluster_questions, cluster_views
from app.commands.cluster_as_slurm import clock, host_list
from app.commands.cluster_config import config_named, config_of, journal_of, keep_config, locked
from cluster.health.unwell import Unwell
from cluster.platform.channel import Message
from cluster.platform.client import clusters_up
from cluster.platform.gateway import GatewayServer, LoopThread, listening_socket
from cluster.platform.graph_jobs import graph_job_of
from cluster.platform.journal import Journal
from cluster.platform.messages import Beat, RankEnd, Ready
from cluster.platform.responses import RESPONSES, AboutCluster, FailuresListed, HandFailure
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.scheduler_server import answer
from cluster.platform.state import PlatformState
from cluster.platform.timers import Timers
from cluster.policies import HAI
from cluster.tasks import Priority, Users
from fabric.errors import ConfigError, TrafficError, UsageError
from fabric.world.engines import ENGINES
from tests.waiting import LIMIT_S, until

SETTINGS = ["nodes=[z0h000,z0h001,z0h002,z0h003]", "timers.tick=100 ms"]


class LiveCluster:
    """A folder whose cluster is up, with a scheduler in a thread; ranks run as tests say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers_lost = {"submit": 0, "list": 0, "log": 0}
        """How many answers to questions of a kind are lost from now on, though they were taken."""
        self.failing: list[HandFailure] = []
        asked = config_named("fire_flyer_2_tiny", SETTINGS)
        keep_config(asked.config, folder)
        journal_of(folder).parent.mkdir(parents=True)
        users = Users({("ada", Priority.HIGH, "training"): 1})
        journal = Journal(journal_of(folder), time.monotonic())
        self.scheduler = Scheduler(asked.config.listed(asked.fabric), users, HAI, Timers(), journal)
        self.thread, self.listener = LoopThread("test"), listening_socket()
        about = AboutCluster(None, str(folder), "tiny", "namespace", "hai", "z0h000", "z0h000", 3)
        self.server = GatewayServer(self.thread, self.listener, about, self.end)
        self.server.answering = self.answer

    async def answer(self, question: Message) -> Message:
        if question["kind"] == "failures":
            return RESPONSES.to_values(FailuresListed(3.0, failures=tuple(self.failing)))
        found = answer(self.scheduler, question)
        if self.answers_lost.get(question["kind"]):
            self.answers_lost[question["kind"]] -= 1
            raise TrafficError("the scheduler ended the connection")
        return found

    def do(self, what: Any, *arguments: Any) -> None:
        """Call something in the scheduler's thread."""

        async def be() -> None:
            what(*arguments)

        self.thread.begin(be()).result(LIMIT_S)

    def turn(self) -> None:
        """Let the scheduler decide, and all nodes that it asks take what they get."""
        self.do(lambda: self.scheduler.turn(time.monotonic()))
        for life, asking in list(self.scheduler.asking.items()):
            for node in sorted(asking.missing):
                self.do(self.scheduler.hear, node, Ready(life, asking.turn, Unwell()))

    def rank_ends(self, life: int, code: int = 0, step: int | None = None, suspended: bool = False) -> None:
        for node in self.scheduler.state.nodes_of(life):
            self.do(self.scheduler._rank_ended, node, RankEnd(life, code, step, suspended))

    def end(self) -> None:
        """End, as a cluster that goes down: nobody is answered any more."""
        self.listener.close()
        for task in asyncio.all_tasks():
            asyncio.get_running_loop().call_later(0.1, task.cancel)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    made = LiveCluster(tmp_path)
    yield made
    made.listener.close()
    made.thread.close()
    made.scheduler.journal.close()


def said(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> tuple[str, str]:
    """Return what a command printed on stdout and stderr, whose exit code must be this one."""
    found = main(["cluster", *words])
    out, err = capsys.readouterr()
    assert found == code, out + err
    return out, " ".join(err.split())


def test_a_user_submits_lists_describes_suspends_and_stops(
    cluster: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--in", str(cluster.folder))
    out, _ = said(capsys, 0, "submit", *where, "--nodes", "2", "--user", "ada", "--name", "first", "--", "sleep", "5")
    assert out == "job 1 is submitted: fabric cluster describe 1\n"
    out, _ = said(capsys, 0, "submit", *where, "--nodes", "3", "--user", "bo", "--json", "--", "true")
    assert json.loads(out) == {"number": 2}
    spec = cluster.scheduler.state.jobs[1].spec
    assert (spec.command, spec.directory) == (("sleep", "5"), str(Path.cwd()))
    cluster.turn()

    listed = json.loads(said(capsys, 0, "list", *where, "--json")[0])
    first, second = listed["jobs"]
    assert (first["state"], second["state"], second["waits"]) == (
        "running", "waiting_init", "it comes first, but too few nodes are free or may be taken from others",
    )  # fmt: skip
    text = said(capsys, 0, "list", *where)[0]
    assert re.search(r"1 .* first .* ada .* NORMAL .* running .* z0h00., z0h00.", text), text
    assert "asks for 3" in text and "no limit" in text and "quota" in text

    out, _ = said(capsys, 0, "suspend", *where, "1")
    assert out == "job 1 has to save and to leave; it waits again\n"
    cluster.rank_ends(1, 75, 7, suspended=True)
    out, err = said(capsys, 2, "stop", *where, "2", "9")
    assert out == "job 2 is stopped\n"
    assert "job 9: is not the number of a job that has not ended" in err
    out, _ = said(capsys, 0, "describe", *where, "1")
    for words in ("job 1: first of ada, 2 nodes at NORMAL", "sleep 5", "last checkpoint: step 7", "suspend at"):
        assert words in out, out
    assert re.search(r"^ +\d+\.\d s  life 1: suspend: its user suspended it$", out, re.MULTILINE), out
    described = json.loads(said(capsys, 0, "describe", *where, "1", "--json")[0])
    assert [life["life"] for life in described["lives"]] == [1, 3]
    nodes = json.loads(said(capsys, 0, "nodes", *where, "--json")[0])["nodes"]
    assert [node["name"] for node in nodes] == ["z0h001", "z0h002", "z0h003"]
    cluster.do(cluster.scheduler.hear, "z0h003", Beat(Unwell("a slow NIC"), 0.0, 0.0))
    text = said(capsys, 0, "nodes", *where)[0]
    assert "2 free, 0 busy, 1 out" in text and "unwell: a slow NIC" in text


def test_a_job_that_is_held_waits_until_it_is_released_and_one_that_is_cancelled_says_so(
    cluster: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--in", str(cluster.folder))
    said(capsys, 0, "submit", *where, "--nodes", "2", "--user", "ada", "--name", "first", "--", "true")
    said(capsys, 0, "submit", *where, "--nodes", "3", "--user", "bo", "--name", "second", "--", "true")
    cluster.turn()
    queue = json.loads(said(capsys, 0, "squeue", *where, "--json")[0])["jobs"]
    assert [(one["reason"], one["is_held"], one["is_leaving"]) for one in queue] == [
        ("", False, False), ("no_room", False, False),
    ]  # fmt: skip
    out = said(capsys, 0, "hold", *where, "1", "2")[0]
    assert out == "job 1 is held until it is released\njob 2 is held until it is released\n"
    assert "2: is held already; let it go on: fabric cluster release 2" in said(capsys, 2, "hold", *where, "2")[1]
    cluster.rank_ends(1, 75, 7, suspended=True)
    cluster.turn()
    assert not cluster.scheduler.asking, "neither starts, though all nodes are free"
    text = said(capsys, 0, "squeue", *where)[0]
    assert re.search(r"1 .* training .* first .* ada .* PD .* 0:00 .* 2 .* \(JobHeldUser\)", text), text
    assert "held by its user: fabric cluster release 2" in said(capsys, 0, "describe", *where, "2")[0]
    said(capsys, 0, "release", *where, "1")
    assert "1: is not held; hold it: fabric cluster hold 1" in said(capsys, 2, "release", *where, "1")[1]
    cluster.turn()
    text = said(capsys, 0, "squeue", *where)[0]
    assert re.search(r"1 .* first .* ada .* R .* 0:0\d .* z0h\[00\d[,-]00\d\]", text), text
    assert re.search(r"training\* .* up .* infinite .* 2 .* alloc .* z0h\[", said(capsys, 0, "sinfo", *where)[0])
    said(capsys, 0, "cancel", *where, "1", "2")
    cluster.rank_ends(1 if 1 in cluster.scheduler.left else max(cluster.scheduler.left), 137)
    jobs = json.loads(said(capsys, 0, "list", *where, "--json")[0])["jobs"]
    assert [(one["state"], one["code"]) for one in jobs] == [("cancelled", 137), ("cancelled", 1)]
    assert json.loads(said(capsys, 0, "squeue", *where, "--json")[0])["jobs"] == []
    events = [type(one).__name__ for one in cluster.scheduler.journal.events()]
    assert (events.count("Held"), events.count("Released")) == (2, 1)
    state = PlatformState(
        cluster.scheduler.state.nodes, cluster.scheduler.state.users, cluster.scheduler.journal.events()
    )
    assert state.jobs[2].is_held and not state.jobs[1].is_held, "a scheduler that begins again knows it"
    _, err = said(capsys, 2, "stop", *where, "1")
    assert "is not the number of a job that has not ended" in err


def test_status_is_looked_at_again_and_again(
    cluster: LiveCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.failing = [HandFailure("z0s00", "switch", "down", 2.0, 5.0, ("a", "b"))]
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(cluster_views, "time", SimpleNamespace(sleep=sleep))
    out, _ = said(capsys, 0, "status", "--in", str(cluster.folder), "--watch")
    assert looks == [2.0, 2.0] and out.count("NODELIST(REASON)") == 2 and out.count("z0s00") == 2, out
    assert "--watch 0: give more than 0" in said(capsys, 2, "list", "--in", str(cluster.folder), "--watch", "0")[1]


def test_times_and_names_are_as_slurm_writes_them() -> None:
    assert [clock(seconds) for seconds in (4.9, 65, 3600 + 62, 86_400 + 3600)] == [
        "0:04",
        "1:05",
        "1:01:02",
        "1-01:00:00",
    ]
    assert host_list(["z0h003", "z0h000", "z0h001"]) == "z0h[000-001,003]"
    assert host_list(["z0h003", "z1h000", "gateway"]) == "z0h003,z1h000,gateway"


def test_a_submission_whose_answer_is_lost_is_asked_for_again_and_is_one_job(
    cluster: LiveCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_questions, "_LOOK_S", 0.01)
    where = ("--in", str(cluster.folder))
    for number, lost in ((1, 2), (2, 0)):
        cluster.answers_lost["submit"] = lost
        out, err = said(capsys, 0, "submit", *where, "--json", "--", "true")
        assert json.loads(out) == {"number": number}
        assert err.count("the scheduler ended the connection; asking again, for the same job") == lost
    tokens = list(cluster.scheduler.state.tokens)
    assert len({*tokens}) == 2 == len(cluster.scheduler.state.jobs)
    journal = journal_of(cluster.folder).read_text()
    assert [journal.count(token) for token in tokens] == [1, 1]
    cluster.answers_lost["submit"] = 1000
    with cluster_questions.asked(SimpleNamespace(folder=cluster.folder)) as asked:  # type: ignore[arg-type]
        spec = {"name": "one", "user": "ada", "nodes": 1, "command": ["true"], "priority": 10}
        with pytest.raises(TrafficError, match=r"asked again for 0.05 s; whether the job was taken is not known"):
            cluster_questions.submitted(asked, spec, again_s=0.05)


def test_a_user_submits_a_graph_and_a_collective(cluster: LiveCluster, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--in", str(cluster.folder))
    graph = "{steps: 4, training: {model: lenet5, layout: {data: 3, gpus_per_node: 1}, compute: {forward: 10 ms}}}"
    said(capsys, 0, "submit", *where, "--graph", graph)
    keys = cluster.folder / "keys.yaml"
    keys.write_text("collective: {steps: 2, begin: 64 KiB}")
    said(capsys, 0, "submit", *where, "--nodes", "2", "--name", "sums", "--collective", str(keys))
    first, second = (cluster.scheduler.state.jobs[number].spec for number in (1, 2))
    assert [(one.name, one.nodes) for one in (first, second)] == [("lenet5", 3), ("sums", 2)]
    assert first.command[:3] == ("python3", "-m", "cluster.platform.graph_steps")
    assert graph_job_of(second.command[-1]).command == second.command
    for words, fault in (
        (("--graph", graph, "--", "true"), "--graph and a program: a job is one of them; leave the others out"),
        (("--collective", "{steps: 2}"), "--collective: is of any number of nodes; say how many: --nodes 4"),
        (("--nodes", "2", "--graph", graph), "--graph: the job asks for 2 nodes, and 3 ranks, 1 on a node, take 3"),
        (("--graph", "{steps: 4}"), "training, work: neither is given"),
        (("--graph", "none.yaml"), "none.yaml: cannot be read"),
    ):
        _, err = said(capsys, 2, "submit", *where, *words)
        assert fault in err, err


def test_a_program_whose_name_is_not_utf_8_is_told_all_the_same(
    cluster: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--in", str(cluster.folder))
    program = cluster.folder / os.fsdecode(b"odd-\xff")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    said(capsys, 0, "submit", *where, "--", str(program))
    for words in (("describe", "1"), ("list",), ("list", "--json")):
        assert "odd-\\udcff" in said(capsys, 0, words[0], *where, *words[1:])[0]


def test_what_cannot_be_is_refused_with_the_next_step(
    cluster: LiveCluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = ("--in", str(cluster.folder))
    for words, told in (
        (("--nodes", "4", "--", "true"), "nodes: 4, but the group training has 3; ask for 3 or fewer"),
        (("--nodes", "0", "--", "true"), "nodes: 0; a task asks for 1 or more whole nodes"),
        (
            ("--nodes", "2", "--user", "ada", "--priority", "HIGH", "--", "true"),
            "nodes: 2, but ada's quota at HIGH in training is 1; ask for 1 or fewer, or use another priority",
        ),
        (("--priority", "TOP", "--", "true"), "--priority TOP: use EXTREME_HIGH"),
        (("--", "no-such-program"), "program no-such-program: not found, or not executable"),
        ((), "no program; write it after two dashes"),
    ):
        assert told in said(capsys, 2, "submit", *where, *words)[1]
    with pytest.raises(SystemExit):
        main(["cluster", "submit", *where, "--limit", "5", "--", "true"])
    assert "--limit: '5': a time without a unit; use one of s, ms" in capsys.readouterr().err
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    told = said(capsys, 2, "suspend", "--in", str(elsewhere), "1")[1]
    assert f"no cluster of this folder is up; bring it up: fabric cluster up {elsewhere}" in told
    assert "is not a cluster's folder: it has no cluster.yaml" in said(capsys, 2, "list", "--in", str(elsewhere))[1]
    assert "job 5: no job has this number; no job has been submitted yet" in said(capsys, 2, "describe", *where, "5")[1]
    assert "only fabric exec and fabric cluster submit take" in said(capsys, 2, "list", *where, "--", "true")[1]
    cluster.server._about = replace(cluster.server._about, sees=("/tmp/mine",))
    monkeypatch.chdir(elsewhere)
    told = said(capsys, 2, "submit", *where, "--", "true")[1]
    assert f"{elsewhere}: is not seen in the guest" in told and "/tmp/mine" in told
    cluster.server.answering = None


def test_who_waits_gets_the_exit_code(cluster: LiveCluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = [sys.executable, "-m", "app.cli", "cluster", "submit", "--in", str(cluster.folder), "--wait"]
    process = subprocess.Popen([*words, "--", "false"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: cluster.scheduler.state.jobs, "the job to be submitted")
    cluster.turn()
    (node,) = cluster.scheduler.state.nodes_of(1)
    cluster.answers_lost["list"] = 1
    until(lambda: not cluster.answers_lost["list"], "a question that is not answered")
    cluster.rank_ends(1, 3)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (3, f"job 1 ended with code 3: {node}: its rank ended with code 3\n"), err


def test_logs_are_followed_over_lives_and_read_when_it_is_down(
    cluster: LiveCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--in", str(cluster.folder))
    assert said(capsys, 0, "submit", *where, "--user", "ada", "--", "true")
    assert "has had no nodes yet" in said(capsys, 0, "logs", *where, "1")[1]
    cluster.turn()
    (node,) = cluster.scheduler.state.nodes_of(1)

    def prints(life: int, text: str) -> None:
        path = journal_of(cluster.folder).parent / node / f"{life}-0" / "log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    prints(1, "one\n")
    assert said(capsys, 0, "logs", *where, "1")[0] == "one\n"
    words = [sys.executable, "-m", "app.cli", "cluster", "logs", *where, "1", "--follow"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    cluster.answers_lost["log"] = 1
    until(lambda: not cluster.answers_lost["log"], "a question that is not answered")
    prints(1, "one\ntwo \xff\n")
    assert process.stdout.readline() == "two \xff\n".encode()
    cluster.do(cluster.scheduler.suspend, 1)
    cluster.rank_ends(1, 75, 2, suspended=True)
    cluster.turn()
    prints(2, "three\n")
    assert process.stdout.readline() == b"three\n"
    cluster.rank_ends(2)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert said(capsys, 0, "logs", *where, "1", "--life", "1")[0] == "one\ntwo \xff\n"
    assert "down; journal and logs: " in said(capsys, 0, "down", *where)[0]
    assert not [one for one in clusters_up() if one.folder == cluster.folder]
    assert said(capsys, 0, "logs", *where, "1")[0] == "three\n"
    (told,) = json.loads(said(capsys, 0, "logs", *where, "1", "--json")[0])
    assert told == {"life": 2, "rank": 0, "node": node, "text": "three\n"}
    (job,) = json.loads(said(capsys, 0, "list", *where, "--json")[0])["jobs"]
    assert (job["state"], job["code"]) == ("finished", 0)
    assert "no cluster of this folder is up" in said(capsys, 2, "stop", *where, "1")[1]


# What comes up -------------------------------------------------------------------------------------------------------


def test_a_config_names_a_topology_and_keeps_it_whole(tmp_path: Path) -> None:
    usual = config_named("fire_flyer_2_tiny", [])
    nodes, login = usual.config.placed(usual.fabric)
    assert (nodes, login) == (usual.fabric.computes, usual.fabric.computes[-1])
    some = config_named("fire_flyer_2_tiny", SETTINGS)
    nodes, login = some.config.placed(some.fabric)
    assert [node.name for node in nodes] == ["z0h000", "z0h001", "z0h002", "z0h003"]
    assert login not in nodes, "a host of its own"
    keep_config(some.config, tmp_path)
    again = config_of(tmp_path)
    assert again.config == some.config and again.fabric == some.fabric
    file = tmp_path / "mine.yaml"
    jobs = "jobs: [{name: a, user: ada, nodes: 1, command: [sleep, '60']}]"
    file.write_text(f"topology: fire_flyer_2_tiny\nnodes: [z0h000, z0h001]\nlogin: z0h002\npolicy: fifo\n{jobs}\n")
    mine = config_named(str(file), ["timers.beat=2 s", "files={replicas: 2}", "users={ada: {quota: 1}}"])
    assert mine.config.users_of.quota(("ada", Priority.HIGH, "training")) == 1
    kept = tmp_path / "kept"
    kept.mkdir()
    keep_config(mine.config, kept)
    assert config_of(kept).config == mine.config and mine.config.files is not None
    assert (mine.config.policy, mine.config.timers.beat, len(mine.config.jobs)) == ("fifo", 2.0, 1)
    assert mine.config.placed(mine.fabric)[1].name == "z0h002"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["nodes=[z0h000]"], "nodes: "),
        (["nodes=[z0h000,z0h099]"], "nodes: no host 'z0h099'; hosts run from "),
        (["nodes=[z0h000,z0h001,z0h001]"], "nodes: z0h001 is named more than once"),
        (["nodes=[z0h000,st000]"], "nodes: "),
        (["login=z7h000"], "login: no host 'z7h000'"),
        (["polic=fifo"], "polic: unknown key; did you mean 'policy'"),
        (["timers.tick=0 s"], "timers.tick"),
        (["groups={a: [z0h000]}"], "groups: z0h000: no node of this platform's jobs"),
        (["files={replicas: 9}"], "files.replicas: Input should be less than or equal to 8"),
        (["files={mdtest: {}}"], "files.load: fio and mdtest are loads of jobs"),
        (
            ["nodes=[z0h000,z0h001]", "jobs=[{name: a, user: b, nodes: 2, command: ['true']}]"],
            "jobs.0 (a): nodes: 2, but the group training has 1; ask for 1 or fewer",
        ),
    ],
)
def test_what_is_wrong_in_a_config_is_named(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_named("fire_flyer_2_tiny", settings)
    assert words in str(raised.value)


def test_up_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine"
    folder.mkdir()
    keep_config(config_named("fire_flyer_2_tiny", []).config, folder)
    (tmp_path / "other").mkdir()
    virtual = ("--engine", "virtual")
    for words, told in (
        (("up", "nowhere"), "no such topology file or builtin"),
        (("up", "fire_flyer_2_tiny", "--out", str(folder)), f"to go on with it: fabric cluster up {folder}"),
        (("up", "fire_flyer_2_tiny", "--out", "other"), "already exists, and is not a cluster's; give a new name"),
        (("up", str(folder), "--nodes", "z0h000,z0h001"), f"--nodes: {folder} goes on as it was; omit it"),
        (("up", "other"), "is not a cluster's folder: it has no cluster.yaml"),
        (("up", "fire_flyer_2_tiny", "--pace", "2"), "--pace 2: is for --engine virtual"),
        (("up", "fire_flyer_2_tiny", *virtual, "--pace", "0"), "--pace 0: must be 0.01 to 1000"),
        (("up", "fire_flyer_2_tiny", "--out", "/run/x"), "/run is private to a run"),
    ):
        assert told in said(capsys, 2, *words)[1], words
    descriptor = locked(folder)
    with pytest.raises(UsageError, match="is up already; ask it"):
        locked(folder)
    os.close(descriptor)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "other"], "nothing is left"
    assert set(ENGINES) == {"namespace", "virtual"}
