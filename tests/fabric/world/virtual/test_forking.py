"""Who starts a guest for a run, and which guests that wait are kept for it: without a guest."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fabric.world.virtual import forking
from fabric.world.virtual.guest import FORK_HERE, WAITING, Boot
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
        names = {path.name for path in directory.iterdir()}
    assert booted == kinds, "each was started once"
    assert names == {forking._KEEPER, *(forking._name(kind) for kind in kinds if kind != kinds[1])}
    assert WAITING not in os.environ
    assert not directory.exists()


def test_guests_that_differ_in_what_they_start_from_are_not_forked_of_each_other() -> None:
    others = [replace(of_kind(1), memory_bytes=2), replace(of_kind(1), seed=1), replace(of_kind(1), bytecode=None)]
    assert len({forking._name(kind) for kind in (of_kind(1), of_kind(2), *others)}) == 5
    assert forking._decoded(forking._encoded(of_kind(1))) == of_kind(1)
