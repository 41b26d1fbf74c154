"""Reaching into the switch process: what it does, or that it ends, between two looks at it."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
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


@pytest.fixture
def port() -> Iterator[socket.socket]:
    """A packet socket as a switch receives by, bound to an interface."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind(("lo", 0))
        yield sock


@pytest.mark.root
@pytest.mark.usefixtures("port")
def test_the_socket_that_a_switch_sends_by_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch had no turn since the first packets came: it makes that socket with them."""
    looks: list[float] = []
    with ExitStack() as made:

        def make(pause_s: float) -> None:
            looks.append(pause_s)
            made.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))

        monkeypatch.setattr(time, "sleep", make)
        copies = openvswitch._sockets_once_sending(os.getpid())
        try:
            assert [openvswitch._receives(sock) for sock in copies].count(False) == 1
        finally:
            for sock in copies:
                sock.close()
    assert len(looks) == 1


@pytest.mark.root
@pytest.mark.usefixtures("port")
def test_a_switch_that_never_sends_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvswitch, "_FIRST_PACKET_TIMEOUT_S", 0.05)
    open_before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(EmulationError, match=r"waited 0\.05 s for the packet socket that it sends by"):
        openvswitch._sockets_once_sending(os.getpid())
    assert len(os.listdir("/proc/self/fd")) == open_before  # noqa: PTH208
