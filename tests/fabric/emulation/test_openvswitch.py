"""Reaching into the switch process: what it does, or that it ends, between two looks at it."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.emulation import openvswitch
from fabric.errors import EmulationError


@pytest.fixture
def ended() -> int:
    """The id of a process that was there a moment ago."""
    process = subprocess.Popen(["true"])
    process.wait(60)
    return process.pid


@pytest.fixture
def file_taken_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A descriptor of a file whose number was a socket's when its name was read."""
    monkeypatch.setattr(Path, "readlink", lambda self: Path("socket:[1]"))
    descriptor = os.open(tmp_path / "file", os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_a_switch_that_has_ended_is_named(ended: int) -> None:
    with pytest.raises(EmulationError, match=f"ovs-vswitchd \\(process {ended}\\): has ended"):
        openvswitch.packet_sockets(ended)
    with pytest.raises(EmulationError, match="has ended"):
        openvswitch._duplicated(ended, 0)


def test_a_socket_of_another_process_is_copied() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        copy = openvswitch._duplicated_socket(os.getpid(), sock.fileno())
        assert copy is not None
        with copy:
            assert copy.fileno() != sock.fileno()
            assert copy.getsockname() == sock.getsockname()


def test_what_was_closed_since_it_was_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as sock:
        closed = sock.fileno()
    monkeypatch.setattr(Path, "readlink", lambda self: Path("socket:[1]"))
    assert openvswitch._duplicated_socket(os.getpid(), closed) is None


def test_a_number_that_another_file_has_got_since_is_left_out(file_taken_for_a_socket: int) -> None:
    gc.collect()  # Descriptors that other tests left open.
    open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert openvswitch._duplicated_socket(os.getpid(), file_taken_for_a_socket) is None
    assert len(os.listdir("/proc/self/fd")) == open_before  # noqa: PTH208


class Ports:
    """The packet sockets of a switch: one that it receives by, bound to an interface, and from some look on one that it
    sends by."""

    def __init__(self, late_looks: int) -> None:
        self.late_looks = late_looks
        self.looks: list[list[socket.socket]] = []

    def __call__(self, pid: int) -> list[socket.socket]:
        receiving = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        receiving.bind(("lo", 0))
        sending = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)] if len(self.looks) >= self.late_looks else []
        self.looks.append([receiving, *sending])
        return self.looks[-1]


@pytest.mark.root
def test_the_socket_that_a_switch_sends_by_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch had no turn since the first packets came: it makes that socket with them."""
    ports = Ports(late_looks=2)
    monkeypatch.setattr(openvswitch, "packet_sockets", ports)
    copies = openvswitch._sockets_once_sending(1)
    assert [openvswitch._receives(sock) for sock in copies] == [True, False]
    assert [[sock.fileno() >= 0 for sock in look] for look in ports.looks] == [[False], [False], [True, True]]
    for sock in copies:
        sock.close()


@pytest.mark.root
def test_a_switch_that_never_sends_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Ports(late_looks=10**9)
    monkeypatch.setattr(openvswitch, "packet_sockets", ports)
    monkeypatch.setattr(openvswitch, "_FIRST_PACKET_TIMEOUT_S", 0.05)
    with pytest.raises(EmulationError, match=r"waited 0\.05 s for the packet socket that it sends by"):
        openvswitch._sockets_once_sending(1)
    assert {sock.fileno() for look in ports.looks for sock in look} == {-1}
