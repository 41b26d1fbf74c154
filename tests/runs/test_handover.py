"""What root copies into a directory of others stays what was copied, and is the user's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fabric.errors import ResultError
from runs import handover
from runs.handover import copy_to_user, make_for_user

SOMEBODY = 65534
needs_root = pytest.mark.root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    (directory / "logs").mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    (directory / "logs" / "ovs.log").write_text("words")
    return directory


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_text("as it was")
    file.chmod(0o600)
    return file


def owners(directory: Path) -> set[int]:
    return {path.lstat().st_uid for path in (directory, *directory.rglob("*"))}


def test_a_copy_is_whole_and_as_open_as_its_source(source: Path, tmp_path: Path) -> None:
    target = copy_to_user(source, tmp_path / "new" / "mine")
    assert target == tmp_path / "new" / "mine"
    assert (target / "logs" / "ovs.log").read_text() == "words"
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(source.stat().st_mode)


def test_what_lies_there_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine.2").symlink_to(tmp_path / "nowhere")
    assert copy_to_user(source, tmp_path / "mine") == tmp_path / "mine.3"
    assert list((tmp_path / "mine").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


@needs_root
def test_the_user_who_called_sudo_gets_all_of_it_and_nothing_that_links_point_at(
    source: Path, precious: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    monkeypatch.setenv("SUDO_GID", str(SOMEBODY))
    (source / "link").symlink_to(precious)
    (source / "logs" / "directory").symlink_to(tmp_path)
    target = copy_to_user(source, tmp_path / "mine")
    assert owners(target) == {SOMEBODY}
    assert precious.stat().st_uid == 0
    assert tmp_path.stat().st_uid == 0
    assert (target / "link").is_symlink()


@needs_root
def test_a_directory_swapped_while_it_is_filled_takes_nothing_elsewhere(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an account does it that may write to the directory around the copy."""
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    monkeypatch.setenv("SUDO_GID", str(SOMEBODY))
    victim = tmp_path / "victim"
    (victim / "logs").mkdir(parents=True)

    def swap(directory: int) -> bool:
        (tmp_path / "mine").rename(tmp_path / "aside")
        (tmp_path / "mine").symlink_to(victim)
        return True

    monkeypatch.setattr(handover, "_is_new", swap)
    copy_to_user(source, tmp_path / "mine")
    assert list((victim / "logs").iterdir()) == []
    assert owners(victim) == {0}
    assert (tmp_path / "aside" / "manifest.json").exists()


@needs_root
def test_a_directory_of_another_account_is_not_filled(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.mkdir()
    os.chown(other, SOMEBODY, SOMEBODY)
    link.symlink_to(tmp_path)
    for target in (other, link, source):
        monkeypatch.setattr(handover, "_made", lambda _, target=target: target)
        with pytest.raises(ResultError, match="was replaced while it was made"):
            copy_to_user(source, tmp_path / "mine")
    assert list(other.iterdir()) == []


@needs_root
def test_directories_made_for_the_user_are_the_users_and_those_above_stay_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    monkeypatch.setenv("SUDO_GID", str(SOMEBODY))
    make_for_user(tmp_path / "results" / "of" / "mine")
    assert owners(tmp_path / "results") == {SOMEBODY}
    assert tmp_path.stat().st_uid == os.geteuid()
    make_for_user(tmp_path)
    assert tmp_path.stat().st_uid == os.geteuid()


@needs_root
def test_results_are_the_users_though_the_run_made_them(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", str(SOMEBODY))
    monkeypatch.setenv("SUDO_GID", str(SOMEBODY))
    copy_to_user(source, tmp_path / "results" / "mine")
    assert owners(tmp_path / "results") == {SOMEBODY}


def test_a_directory_that_somebody_else_makes_meanwhile_stays_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir

    def make_after_somebody(name: str, **place: int) -> None:
        make(name, **place)
        make(name, **place)

    monkeypatch.setattr(os, "mkdir", make_after_somebody)
    monkeypatch.setattr(handover, "_hand_over_itself", lambda directory: pytest.fail("it is not ours to give"))
    make_for_user(tmp_path / "results")
    assert (tmp_path / "results").is_dir()


@pytest.mark.parametrize("is_link", [True, False])
def test_a_directory_that_is_replaced_as_it_is_made_is_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    others = tmp_path / "others"
    (others / "theirs").mkdir(parents=True)

    def make_other(name: str, dir_fd: int) -> None:
        assert dir_fd >= 0
        if is_link:
            (tmp_path / name).symlink_to(others)
        else:
            others.rename(tmp_path / name)

    monkeypatch.setattr(os, "mkdir", make_other)
    with pytest.raises(ResultError, match="results: was replaced while it was made"):
        make_for_user(tmp_path / "results")
