"""Directories copied out of a run's private mounts, which are root's, to its user.

The directory around them may belong to anybody, as in ``--out /tmp/mine``. So existing links are not followed and
existing files not written to: a copy is a new directory, held open, and its files are reached through it, whatever its
name means by then.
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

from fabric.errors import ResultError
from fabric.world.engines import current_engine


def copy_to_user(source: Path, wanted: Path) -> Path:
    """Copy a directory for the user who called sudo, if one did, to ``wanted`` or, if that exists, ``wanted.2`` and so
    on; return which. Directories above are made. Raises ResultError if somebody else interferes."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    target = _made(wanted)
    directory = _opened(target)
    try:
        if not _is_new(directory):
            raise ResultError(_replaced(target))
        shutil.copytree(source, f"/proc/self/fd/{directory}", symlinks=True, dirs_exist_ok=True)
        _hand_over(directory)
    finally:
        os.close(directory)
    return target


def _made(wanted: Path) -> Path:
    for number in count(1):
        target = wanted if number == 1 else wanted.with_name(f"{wanted.name}.{number}")
        try:
            target.mkdir(mode=0o700)  # Nobody puts anything into it before it is whole.
        except FileExistsError:
            continue
        return target
    raise AssertionError("count() never ends")


def _opened(target: Path) -> int:
    try:
        return os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ResultError(_replaced(target)) from error


def _is_new(directory: int) -> bool:
    """Whether an open directory is one that we made: empty and ours. In a guest, that has its user's rights only."""
    with os.scandir(directory) as entries:
        if any(entries):
            return False
    return current_engine().acts_for_user or os.fstat(directory).st_uid == os.geteuid()


def _replaced(target: Path) -> str:
    return f"{target}: was replaced while it was made; give --out in a directory of your own"


def hand_over(path: Path) -> None:
    """Give a directory and all in it to the user who called sudo, if one did. Raises ResultError if it is a link."""
    directory = _opened(path)
    try:
        _hand_over(directory)
    finally:
        os.close(directory)


def _hand_over(directory: int) -> None:
    """Give an open directory and all in it to the user who called sudo: of links, the links themselves."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    if user is None or group is None:
        return
    owner = int(user), int(group)
    for _, directories, files, inside in os.fwalk(".", topdown=False, dir_fd=directory):
        for name in (*directories, *files):
            os.chown(name, *owner, dir_fd=inside, follow_symlinks=False)
    os.fchown(directory, *owner)
