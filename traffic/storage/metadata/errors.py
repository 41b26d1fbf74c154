"""What can be wrong with an operation on files, by POSIX's names."""

from __future__ import annotations

import errno
import os

from fabric.errors import TrafficError

KNOWN = ("ENOENT", "EEXIST", "ENOTDIR", "EISDIR", "ENOTEMPTY", "EINVAL", "EBUSY", "EBADF", "ENAMETOOLONG", "EIO")


class FileError(TrafficError):
    """An operation that cannot be, as the error number of a system call would say. ``name``: such as ``ENOENT``;
    ``retries``: how often it had been tried before, without an answer."""

    retries = 0

    def __init__(self, name: str, text: str) -> None:
        if name not in KNOWN:
            raise ValueError(f"{name!r} is not an error of files; it is one of {', '.join(KNOWN)}")
        self.name = name
        self.what = text
        super().__init__(f"{text}: {os.strerror(self.number)} ({name})")

    @property
    def number(self) -> int:
        """The error number."""
        return int(getattr(errno, self.name))


class LengthWentBack(TrafficError):  # noqa: N818 - what happened
    """The length of a file would shrink without a newer truncate version: a bug (3FS: FATAL)."""


class NotOwner(TrafficError):  # noqa: N818
    """A server is asked for what only the owner of an inode does. ``owner``: who that is now; empty if nobody."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        super().__init__(f"the owner of the inode is {owner or 'nobody'}; ask there")
