"""The user's side: over a connection to the scheduler, and over the Unix socket of a cluster that is up."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.nodes import Nodes
from cluster.platform import client
from cluster.platform.channel import BadMessageError, Message
from cluster.platform.client import Gateway, Up, asked, clusters_up, names_in, the_one
from cluster.platform.gateway import GatewayServer, LoopThread, listening_socket
from cluster.platform.journal import Journal
from cluster.platform.requests import DescribeJob, GoDown, ListJobs, ListNodes, Submit, Who
from cluster.platform.responses import GOING_DOWN, RESPONSES, AboutCluster, Done, JobsListed, JobTaken
from cluster.platform.scheduler_program import Scheduler
from cluster.platform.scheduler_server import SchedulerServer
from cluster.platform.timers import Timers
from cluster.policies import HAI
from cluster.tasks import Priority, Users
from fabric.errors import TrafficError, UsageError
from fabric.model.lanes import ServiceLevel
from traffic.transport.connection import SocketOptions
from traffic.transport.tcp import TcpTransport

TRANSPORT = TcpTransport(SocketOptions(ServiceLevel.CONTROL))
HERE, USER = "127.0.0.1", "127.0.0.2"


def about(folder: str) -> AboutCluster:
    return AboutCluster(None, folder, "tiny", "virtual", "hai", "z0h000", "z0h000", 3)


SPEC = {"name": "one", "user": "ada", "nodes": 2, "command": ["true"], "priority": 10}


def test_a_question_is_asked_over_a_connection(tmp_path: Path) -> None:
    async def be() -> None:
        users = Users({("ada", Priority.NORMAL, "training"): 3})
        with Journal(tmp_path / "journal") as journal:
            scheduler = Scheduler(Nodes.grid(1, 2, 2), users, HAI, Timers(), journal)
            doors = SchedulerServer(scheduler, listener := TRANSPORT.listen(HERE))

            async def ask(question: Message) -> Message:
                return await asked(TRANSPORT, listener.endpoint, USER, question)

            both = await asyncio.gather(ask({"kind": "submit", "spec": SPEC}), ask({"kind": "nodes"}))
            assert both[0] == {"kind": "submitted", "number": 1}
            assert len(both[1]["nodes"]) == 4
            (fault,) = (await ask({"kind": "submit", "spec": SPEC | {"nodes": 4}}))["faults"]
            assert fault.startswith("nodes: 4, but ada's quota at NORMAL in training is 3; ask for 3 or fewer")
            assert (await ask({"kind": "list"}))["jobs"][0]["name"] == "one"
            endpoint = listener.endpoint
            doors.close()
        with pytest.raises(TrafficError, match=r"the scheduler at 127.0.0.1 cannot be reached from 127.0.0.2: "):
            await asked(TRANSPORT, endpoint, USER, {"kind": "list"})

    asyncio.run(be())


def test_a_scheduler_that_takes_a_question_and_is_silent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 1.0)
    listener = TRANSPORT.listen(HERE)
    with pytest.raises(TrafficError, match=r"took the question list and did not answer it within 1 s"):
        asyncio.run(asked(TRANSPORT, listener.endpoint, USER, {"kind": "list"}))
    listener.close()


# Over the Unix socket ------------------------------------------------------------------------------------------------


class Cluster:
    """A gateway whose cluster answers what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.listener = listening_socket()
        self.name = self.listener.getsockname()[1:].decode()
        self.thread = LoopThread("test")
        self.ended: list[str] = []
        self.questions: list[Message] = []
        self.server = GatewayServer(self.thread, self.listener, about(str(folder)), lambda: self.ended.append("down"))

    async def answer(self, question: Message) -> Message:
        self.questions.append(question)
        if question["kind"] == "nodes":
            raise TrafficError("the scheduler cannot be reached")
        if question["kind"] == "describe":
            return {"kind": "refused", "faults": ["nodes: 9", "user: nobody"]}
        return {"kind": "done"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.listener.close()
    made.thread.close()


def test_a_cluster_is_found_and_asked_once_it_is_up(cluster: Cluster, tmp_path: Path) -> None:
    (found,) = [one for one in clusters_up() if one.name == cluster.name]
    assert (found.folder, found.user, found.about) == (tmp_path, os.geteuid(), about(str(tmp_path)))
    with Gateway(found.name) as gateway:
        with pytest.raises(TrafficError, match="the fabric is coming up; ask again"):
            gateway.ask(ListJobs(), JobsListed)
        threading.Timer(0.3, lambda: setattr(cluster.server, "answering", cluster.answer)).start()
        gateway.until_up()
        question = {"kind": "list", "text": "ä" * 50_000}
        assert gateway.exchange(question) == {"kind": "done"}
        assert cluster.questions == [question]
        with pytest.raises(UsageError, match="nodes: 9\nuser: nobody"):
            gateway.ask(DescribeJob(9), Done)
        with pytest.raises(TrafficError, match="the scheduler cannot be reached"):
            gateway.ask(ListNodes(), Done)
        with pytest.raises(BadMessageError, match="answers 'done', not 'jobs'; is it of another version"):
            gateway.ask(ListJobs(), JobsListed)
        with pytest.raises(UsageError, match=r"submit: [0-9]+ bytes; the most is 524288; put what is long into a file"):
            gateway.ask(Submit("x" * 600_000), JobTaken)
        assert not cluster.server.down.is_set()
        gateway.ask(GoDown(), Done)
        assert cluster.server.down.is_set() and cluster.ended == ["down"]
        assert gateway.ask(Who(), AboutCluster).state == GOING_DOWN


def test_who_goes_while_asking_disturbs_nobody(cluster: Cluster) -> None:
    cluster.server.answering = cluster.answer
    for last_words in (b'{"kind":"list"}\n', b'{"kind":', b"nonsense\n", b"[]\n", b""):
        with socket.socket(socket.AF_UNIX) as user:
            user.connect(f"\0{cluster.name}")
            user.sendall(last_words)
    with Gateway(cluster.name) as gateway:
        assert gateway.ask(ListJobs(), Done) == Done()


def test_a_cluster_that_has_gone_or_is_silent_is_told(cluster: Cluster) -> None:
    with pytest.raises(TrafficError, match="the cluster has gone: "):
        Gateway("fabric-cluster-0-none")

    async def never(question: Message) -> Message:
        await asyncio.sleep(60)
        return question

    cluster.server.answering = never
    with Gateway(cluster.name, patience_s=0.2) as gateway:
        with pytest.raises(TrafficError, match=r"did not answer list within 0.2 s"):
            gateway.ask(ListJobs(), JobsListed)
        with pytest.raises(TrafficError, match=r"has not ended within 0.1 s"):
            gateway.until_gone(0.1)


def test_another_users_cluster_is_not_answered(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster.platform.gateway.peer_of", lambda _: 12345)
    with Gateway(cluster.name) as gateway, pytest.raises(TrafficError, match="the cluster has gone before it answered"):
        gateway.ask(ListJobs(), JobsListed)


@pytest.fixture
def silent_of_another() -> Iterator[socket.socket]:
    """A socket of a name that user 12345 gives a cluster, at which nobody answers."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{client.PREFIX}12345-{secrets.token_hex(4)}")
        listener.listen(4)
        yield listener


def answer_who(listener: socket.socket, folder: str) -> None:
    with listener.accept()[0] as one:
        one.recv(1 << 16)
        one.sendall(json.dumps(RESPONSES.to_values(about(folder))).encode() + b"\n")


def test_root_finds_the_cluster_of_another_user(
    silent_of_another: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = silent_of_another.getsockname()[1:].decode()
    (tmp_path / "unix").write_text(f"Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 1 1 01 39713 @{name}\n")
    monkeypatch.setattr(client, "_SOCKETS", tmp_path / "unix")
    monkeypatch.setattr(client, "peer_of", lambda _: 12345)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    answering = threading.Thread(target=answer_who, args=(silent_of_another, "/r/a"), daemon=True)
    answering.start()
    found = clusters_up()
    assert [(one.user, one.folder) for one in found] == [(12345, Path("/r/a"))]
    assert the_one(found, None) is found[0]
    monkeypatch.setattr(client, "peer_of", lambda _: 54321)
    with pytest.raises(TrafficError, match="is not of this user, though its name says so"):
        Gateway(name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(client, "peer_of", lambda _: 12345)
    with pytest.raises(TrafficError, match="is not of this user, though its name says so"):
        Gateway(name)
    answering.join(10)


def test_a_cluster_that_is_stopped_delays_no_other_and_is_told(
    cluster: Cluster, silent_of_another: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = silent_of_another.getsockname()[1:].decode()
    monkeypatch.setattr(client, "WHO_S", 2.0)
    names = [(stopped, os.geteuid())] * 8 + [(cluster.name, os.geteuid())]
    monkeypatch.setattr(client, "names_in", lambda table: names)
    began_s = time.monotonic()
    found = clusters_up()
    assert time.monotonic() - began_s < 14, "two seconds each, one behind the other"
    assert [one.is_silent for one in found] == [True] * 8 + [False]
    assert the_one(found, None).name == cluster.name
    with pytest.raises(UsageError, match=r"is up, and has not answered within 2 s; is its process stopped\?"):
        the_one(found[:1], None)


def up(name: str, folder: str | None) -> Up:
    return Up(name, 0, None if folder is None else about(folder))


def test_which_cluster_is_meant() -> None:
    one, other, foreign = up("a", "/r/a"), up("b", "/r/b"), up("c", None)
    assert the_one([one, foreign], None) == one
    assert the_one([one, other], Path("/r/b")) == other
    for found, folder, words in (
        ([], None, "no cluster is up; bring one up in another terminal: fabric cluster up"),
        ([foreign], None, "a cluster of root is up, and none of yours; ask as that user, e.g. with sudo"),
        ([one, other], None, "2 clusters are up; say which one:\n  --in /r/a \\(tiny, engine virtual\\)\n  --in /r/b"),
        ([one], Path("/r/c"), "--in /r/c: no cluster of this folder is up; bring it up: fabric cluster up /r/c"),
    ):
        with pytest.raises(UsageError, match=words):
            the_one(found, folder)


def test_names_are_read_from_the_kernels_table() -> None:
    table = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 39713 @fabric-cluster-0-0a1b2c3d
0000000000000000: 00000003 00000000 00000000 0001 03 39714 @fabric-cluster-0-0a1b2c3d
0000000000000000: 00000002 00000000 00010000 0001 01 39715 @fabric-cluster-1000-ffffffff
0000000000000000: 00000002 00000000 00010000 0001 01 39716 @fabric-cluster-x-ffffffff
0000000000000000: 00000002 00000000 00010000 0001 01 39717 /run/systemd/notify
0000000000000000: 00000002 00000000 00010000 0001 01 39718
"""
    assert names_in(table) == [("fabric-cluster-0-0a1b2c3d", 0), ("fabric-cluster-1000-ffffffff", 1000)]
