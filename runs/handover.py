"""Directories made by a run for its user: copied out of its private mounts, or new ones above them.

Under sudo they would be root's, and the user could not remove them.

The directory around them may belong to anybody, as in ``--out /tmp/mine``. So existing links are not followed and
existing files not written to: a copy is a new directory, held open, and its files are reached through it, whatever its
name means by then.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from fabric.errors import ResultError
from fabric.world.engines import current_engine

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_for_user(directory: Path) -> None:
    """Make a directory, and those above it that are missing, for the user who called sudo, if one did. Those that exist
    stay whose they are. Raises ResultError if somebody else interferes."""
    missing = [one for one in (directory, *directory.parents) if not one.exists()][::-1]
    if not missing:
        return
    with ExitStack() as stack:
        made = []
        parent = os.open(missing[0].parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, parent)
        for path in missing:
            is_ours = _made_in(parent, path)
            parent = _opened(path, parent)
            stack.callback(os.close, parent)
            if is_ours and not _is_new(parent):
                raise ResultError(_replaced(path))
            made += [parent] if is_ours else []
        for one in made[::-1]:
            _hand_over_itself(one)


def _made_in(parent: int, path: Path) -> bool:
    """Make a directory in an open one; return False if somebody else has made it meanwhile."""
    try:
        os.mkdir(path.name, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def copy_to_user(source: Path, wanted: Path) -> Path:
    """Copy a directory for the user who called sudo, if one did, to ``wanted`` or, if that exists, ``wanted.2`` and so
    on; return which. Directories above are made. Raises ResultError if somebody else interferes."""
    make_for_user(wanted.parent)
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


def _opened(target: Path, parent: int | None = None) -> int:
    try:
        return os.open(target if parent is None else target.name, _FLAGS, dir_fd=parent)
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
    owner = calling_user()
    if owner is None:
        return
    for _, directories, files, inside in os.fwalk(".", topdown=False, dir_fd=directory):
        for name in (*directories, *files):
            os.chown(name, *owner, dir_fd=inside, follow_symlinks=False)
    os.fchown(directory, *owner)


def _hand_over_itself(directory: int) -> None:
    owner = calling_user()
    if owner is not None:
        os.fchown(directory, *owner)


def calling_user() -> tuple[int, int] | None:
    """Return the user and group who called sudo, if one did."""
    user, group = os.environ.get("SUDO_UID"), os.environ.get("SUDO_GID")
    return None if user is None or group is None else (int(user), int(group))
