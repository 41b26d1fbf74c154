"""Who starts a guest for a run, and which guests that wait are kept for it: without a guest."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from fabric.world.engine import Groundwork
from fabric.world.virtual import forking
from fabric.world.virtual.guest import FORK_HERE, GROUNDWORK, WAITING, Boot
from fabric.world.virtual.kernel import KernelPaths


class _Ended:
    """A guest that has ended as soon as it was started."""

    pid = 1

    def fileno(self) -> int:
        return -1

    def kill(self) -> None:
        pass

    def wait(self) -> int:
        return 0


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[Boot]:
    """What guests were booted with."""
    found: list[Boot] = []

    def start_kernel(boot: Boot, *_: object, **__: object) -> _Ended:
        found.append(boot)
        return _Ended()

    monkeypatch.setattr(forking, "start_kernel", start_kernel)
    monkeypatch.setattr(forking, "_free_part", lambda: 1.0)
    monkeypatch.delenv(WAITING, raising=False)
    return found


def of_kind(number: int) -> Boot:
    return Boot(KernelPaths(Path("/k/linux-6.1-a")), 1 << 30, 0, bytes([0xFF, number]), Path("/compiled"), ())


def test_names_are_those_that_the_kernels_process_knows() -> None:
    source = Path(forking.__file__).with_name("forking.h").read_text()
    assert f'#define FORK_HERE "/{FORK_HERE}"' in source
    assert f'#define NO_MORE "{forking._NO_MORE.decode()}"' in source


def test_a_guest_boots_unless_one_of_its_kind_waits(
    booted: list[Boot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking.start(of_kind(1), tmp_path, None, None)
    monkeypatch.setenv(WAITING, str(tmp_path))  # Where nobody listens.
    forking.start(of_kind(2), tmp_path, None, None)
    assert booted == [of_kind(1), of_kind(2)]


def test_one_waits_for_each_kind_that_was_asked_for_and_the_longest_unused_go(
    booted: list[Boot], tmp_path: Path
) -> None:
    kinds = [of_kind(number) for number in range(forking._MOST + 1)]
    with forking.waiting():
        directory = Path(os.environ[WAITING])
        for kind in [*kinds[:2], kinds[0], *kinds[2:]]:
            with pytest.raises(ConnectionRefusedError):  # It has ended.
                forking._forked(kind, directory, tmp_path, None)
        names = {path.name for path in directory.iterdir() if path.is_socket()}
    assert booted == kinds, "each was started once"
    assert names == {forking._KEEPER, *(forking._name(kind) for kind in kinds if kind != kinds[1])}
    assert WAITING not in os.environ
    assert not directory.exists()


def test_where_memory_is_short_no_more_wait_than_one_run_needs(
    booted: list[Boot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "_free_part", lambda: 0.1)
    kinds = [of_kind(number) for number in range(4)]
    with forking.waiting():
        directory = Path(os.environ[WAITING])
        for kind in kinds:
            with pytest.raises(ConnectionRefusedError):
                forking._forked(kind, directory, tmp_path, None)
        names = {path.name for path in directory.iterdir() if path.is_socket()}
    assert names == {forking._KEEPER, *map(forking._name, kinds[-2:])}


def test_guests_that_differ_in_what_they_start_from_are_not_forked_of_each_other() -> None:
    others = [
        replace(of_kind(1), memory_bytes=2),
        replace(of_kind(1), seed=1),
        replace(of_kind(1), bytecode=None),
        replace(of_kind(1), groundwork=Groundwork("m", "1")),
        replace(of_kind(1), groundwork=Groundwork("m", "2")),
    ]
    kinds = [of_kind(1), of_kind(2), *others]
    assert len({forking._name(kind) for kind in kinds}) == len(kinds)
    assert [forking._decoded(forking._encoded(kind)) for kind in kinds] == kinds


def test_who_wants_a_groundwork_is_forked_of_one_that_has_booted_and_else_boots(
    booted: list[Boot], tmp_path: Path
) -> None:
    wanted = replace(of_kind(1), groundwork=Groundwork("m", "1"))
    with forking.waiting():
        forking.start(wanted, tmp_path, None, None)
        assert booted == [of_kind(1), wanted], "one was to wait, has ended, and so this one boots"


def test_one_with_a_groundwork_is_asked_for_with_a_control_directory_and_where_it_is_to_listen(
    tmp_path: Path,
) -> None:
    wanted = replace(of_kind(1), groundwork=Groundwork("m", "1"))
    place = tmp_path / forking._name(wanted)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waits:
        forking._listen(waits, tmp_path / forking._name(of_kind(1)))
        with forking._waits(wanted, place):
            connection = waits.accept()[0]
            words, descriptors, _, _ = socket.recv_fds(connection, 64, 3)
            control, requests = descriptors
            names = {path.name for path in Path(f"/proc/self/fd/{control}").iterdir()}
            client = forking._connected(place, 10)
            accepted = socket.socket(fileno=requests).accept()[0]
            os.close(control)
            for one in (accepted, client, connection):
                one.close()
    assert words.split()[0] == b"-1", "it stays on no processor"
    assert json.loads((next(tmp_path.glob("control-*")) / GROUNDWORK).read_text()) == {"module": "m", "content": "1"}
    assert {"job", GROUNDWORK, FORK_HERE} <= names
