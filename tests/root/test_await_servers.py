"""``fabric exec`` waits until programs in the background can be connected to, but not forever."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from app.commands import exec_program
from app.commands.exec_program import await_servers
from fabric.model.identity import NodeId
from fabric.world.isolation.listening import bound_sockets
from topologies.load import load_fabric

pytestmark = pytest.mark.root
HOST = load_fabric("fire_flyer_2_tiny").computes[0]
SERVER = """
import socket, sys, time
time.sleep({before_s})
bound = socket.socket(socket.AF_INET, socket.{kind})
bound.bind(("127.0.0.1", 5201))
if bound.type == socket.SOCK_STREAM:
    bound.listen()
time.sleep(60)
"""


def started(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", f"import os; os.system('ip link set lo up')\n{program}"]
    )


def waited_s(hosts: list[NodeId], *programs: str) -> tuple[float, list[int]]:
    servers = [started(program) for program in programs]
    try:
        began = time.monotonic()
        await_servers(hosts, servers)
        return time.monotonic() - began, [bound_sockets(server.pid) for server in servers]
    finally:
        for server in servers:
            server.kill()
            server.wait()


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_a_server_that_is_slow_to_bind_is_waited_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_program, "_SERVERS_READY_S", 60.0)
    took_s, bound = waited_s([HOST], SERVER.format(before_s=1.0, kind=kind))
    assert took_s >= 1.0
    assert bound == [1]


def test_one_that_ends_and_one_that_listens_to_nobody_are_not_waited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_program, "_SERVERS_READY_S", 60.0)
    assert waited_s([HOST], "raise SystemExit")[0] < 50
    monkeypatch.setattr(exec_program, "_SERVERS_READY_S", 1.5)
    took_s, bound = waited_s([HOST], "import time; time.sleep(60)")
    assert 1.5 <= took_s < 30
    assert bound == [0]


def test_sockets_of_the_namespace_that_a_program_comes_from_do_not_count() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(before_s=0, kind="SOCK_DGRAM").replace("5201", "0")]
    )
    try:
        time.sleep(0.5)
        assert bound_sockets(program.pid) == 0
    finally:
        program.kill()
        program.wait()
