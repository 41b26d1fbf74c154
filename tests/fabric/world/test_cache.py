"""What is kept in the cache is run by its owner, so only the owner and root may be able to change it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from app.cli import main
from fabric.errors import EmulationError, UsageError
from fabric.world import cache
from tests.waiting import until

SOMEBODY = 65534


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What XDG_CACHE_HOME names; it does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def refusal() -> str:
    with pytest.raises(UsageError) as refused:
        cache.own()
    return str(refused.value)


def test_a_place_of_ones_own_is_taken_whether_it_exists_or_not(home: Path) -> None:
    assert cache.own() == home / cache.NAME
    (home / cache.NAME).mkdir(parents=True)
    assert cache.own() == home / cache.NAME
    assert cache.places() == (home / cache.NAME, cache.SHARED / cache.NAME)


def test_in_a_guest_the_places_are_those_of_whoever_started_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest's root may not have the variable, has another home, and owns none of the places."""
    monkeypatch.setattr(cache, "HANDED", tmp_path / "caches")
    cache.HANDED.write_bytes(cache.encoded_places())
    outside = cache.places()
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.places() != outside
    monkeypatch.setenv("FABRIC_GUEST", "1")
    assert cache.places() == outside == (home / cache.NAME, cache.SHARED / cache.NAME)


def test_a_place_that_every_account_can_write_to_is_refused_and_one_like_tmp_is_not(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    assert f"{home} can be written to by every account" in refusal()
    home.chmod(0o1777)
    assert cache.own() == home / cache.NAME
    (home / cache.NAME).mkdir()
    (home / cache.NAME).chmod(0o757)
    assert f"{home / cache.NAME} can be written to by every account" in refusal()


@pytest.mark.root
def test_root_does_not_use_another_accounts_cache(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``sudo -E fabric ...`` would have it, also where nothing has been built yet."""
    home.mkdir()
    os.chown(home, SOMEBODY, SOMEBODY)
    expected = (
        f"XDG_CACHE_HOME, {home / cache.NAME}: {home} belongs to uid {SOMEBODY}, and files kept there are run as uid 0"
    )
    assert refusal().startswith(expected)
    (home / cache.NAME).mkdir()
    assert refusal().startswith(expected)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("a world was entered"))
    assert main(["path", "fire_flyer_2_small", "z0h000", "z0h001", "--probe"]) == 2
    assert "sudo without -E" in capsys.readouterr().err


@pytest.mark.root
def test_a_group_of_others_may_not_write_there(home: Path) -> None:
    home.mkdir()
    home.chmod(0o775)
    assert cache.own() == home / cache.NAME
    os.chown(home, 0, SOMEBODY)
    home.chmod(0o775)
    assert f"can be written to by group {SOMEBODY}" in refusal()


def test_the_shared_place_is_looked_at_too(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(cache, "SHARED", shared)
    with pytest.raises(UsageError, match="the shared cache"):
        cache.places()


def test_who_waits_for_another_says_so_and_goes_on_once_that_has_ended(tmp_path: Path) -> None:
    other = (tmp_path / "lock").open("w")
    fcntl.flock(other, fcntl.LOCK_EX)
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        other.close()

    with cache.locked(tmp_path / "lock", "doing it", 60, tell), (tmp_path / "lock").open("w") as third:
        assert told == ["doing it: waiting for another one to finish"]
        with pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_who_has_waited_for_too_long_holds_nothing_afterwards(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with (
            pytest.raises(EmulationError, match=r"doing it: another one at it has not ended within 0.1 s"),
            cache.locked(tmp_path / "lock", "doing it", 0.1),
        ):
            raise AssertionError("both hold it")

    def is_free() -> bool:
        with (tmp_path / "lock").open("w") as third:
            try:
                fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    until(is_free, "the lock")
