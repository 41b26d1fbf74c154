"""What root copies into a directory of others stays what was copied, and is the user's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from experiments.run import handover
from experiments.run.handover import copy_to_user
from fabric.errors import ResultError

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
