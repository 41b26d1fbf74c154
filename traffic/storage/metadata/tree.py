"""Operations on files and directories, as functions of a transaction (3FS: ``src/meta/store/ops``). Pure.

Paths are looked up by snapshot reads; only what must not change is added to what a commit looks at:

========= ========================================================================================
operation must not change
========= ========================================================================================
create    the name, the directory's inode (so that it is not removed meanwhile); not its other names
open      the inode
remove    the name, the inode; of a directory all names in it
rename    both names, the new directory; of a directory the way up from there, so that no ring comes
========= ========================================================================================

So files that are made in one directory at the same time do not conflict.
"""

from __future__ import annotations

from typing import NamedTuple

from traffic.storage.kv.store import only
from traffic.storage.kv.transaction import Transaction
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.records import (
    FIRST_INODE,
    GC_ROOT,
    MOST_NAME_BYTES,
    ROOT,
    Entry,
    Inode,
    Kind,
    Layout,
    Length,
    Session,
    entries_of,
    entry_key,
    inode_key,
    removed_name,
)
from traffic.storage.metadata.sessions import is_open

SWAPPED_BELOW_BYTES = 1 << 30
"""Opening a shorter file with O_TRUNC gives its name a new inode (3FS: ``otrunc_replace_file_threshold``)."""
MOST_LISTED = 1000
_MOST_DEPTH = 1000


class Place(NamedTuple):
    """A name, whether or not there is something of that name. The root has no name."""

    path: str
    parent: int
    name: str
    entry: Entry | None

    def existing(self) -> Entry:
        """Return its entry. Raises FileError if there is none."""
        if self.entry is None:
            raise FileError("ENOENT", self.path)
        return self.entry


class Opening(NamedTuple):
    """How a file is opened. ``session``: of who opens it for writing; ``new_inode``: a number that nobody has;
    ``layout``: of a file that is made."""

    now_s: float
    new_inode: int
    layout: Layout
    session: Session | None = None
    creates: bool = False
    is_exclusive: bool = False
    truncates: bool = False


class Opened(NamedTuple):
    """An inode that was opened; ``must_truncate``: its opener wanted it empty, and it is too long to be swapped."""

    inode: Inode
    must_truncate: bool = False


async def format_store(transaction: Transaction) -> None:
    """Make the directories that are always there, unless they are."""
    for inode in (ROOT, GC_ROOT):
        if await transaction.get(inode_key(inode)) is None:
            transaction.set(inode_key(inode), Inode(inode, Kind.DIRECTORY, parent=ROOT).pack())


def parts_of(path: str) -> list[str]:
    """Return the names of a path. Raises FileError if it is none from the root, or has names that cannot be."""
    if not path.startswith("/"):
        raise FileError("EINVAL", f"{path!r} does not begin with '/'")
    parts = [part for part in path.split("/") if part]
    for part in parts:
        if part in (".", "..") or "\0" in part:
            raise FileError("EINVAL", f"{path!r} has {part!r}, which is not a name")
        if len(part.encode()) > MOST_NAME_BYTES:
            raise FileError("ENAMETOOLONG", f"{path!r} has a name of {len(part.encode())} B; the limit is 255")
    return parts


async def inode_of(transaction: Transaction, inode: int, snapshot: bool = True) -> Inode | None:
    """Return an inode, or None."""
    value = await transaction.get(inode_key(inode), snapshot)
    return None if value is None else Inode.parse(value)


async def entry_of(transaction: Transaction, parent: int, name: str) -> Entry | None:
    """Return what has a name in a directory, or None."""
    key = entry_key(parent, name)
    value = await transaction.get(key, snapshot=True)
    return None if value is None else Entry.parse(key, value)


async def find(transaction: Transaction, path: str, base: int = ROOT) -> Place:
    """Return a path's place, from the directory with the inode ``base`` on. Raises FileError if a directory on the way
    is missing, or is none."""
    parts = parts_of(path)
    if not parts:
        return Place(path, base, "", Entry(base, "", base, Kind.DIRECTORY))
    parent = base
    for part in parts[:-1]:
        found = await entry_of(transaction, parent, part)
        if found is None:
            raise FileError("ENOENT", f"{path}: {part}")
        if found.kind is not Kind.DIRECTORY:
            raise FileError("ENOTDIR", f"{path}: {part}")
        parent = found.inode
    return Place(path, parent, parts[-1], await entry_of(transaction, parent, parts[-1]))


async def stat(transaction: Transaction, path: str, base: int = ROOT) -> Inode:
    """Return the inode at a path. Raises FileError."""
    entry = (await find(transaction, path, base)).existing()
    inode = await inode_of(transaction, entry.inode)
    if inode is None:
        raise FileError("ENOENT", path)
    return inode


async def list_names(
    transaction: Transaction, path: str, after: str = "", limit: int = MOST_LISTED, base: int = ROOT
) -> list[Entry]:
    """Return the first entries of a directory behind a name, ``limit`` at most, by name. Raises FileError."""
    entry = (await find(transaction, path, base)).existing()
    if entry.kind is not Kind.DIRECTORY:
        raise FileError("ENOTDIR", path)
    pairs = await transaction.range(entries_of(entry.inode, after), limit, snapshot=True)
    return [Entry.parse(key, value) for key, value in pairs]


async def _require_directory(transaction: Transaction, place: Place) -> None:
    """Let the directory of a place be there at the commit. Raises FileError if it is not there now."""
    if await inode_of(transaction, place.parent, snapshot=False) is None:
        raise FileError("ENOENT", place.path)


async def make_directory(transaction: Transaction, path: str, new_inode: int, now_s: float, base: int = ROOT) -> Inode:
    """Make a directory. Raises FileError."""
    place = await find(transaction, path, base)
    if place.entry is not None:
        raise FileError("EEXIST", path)
    inode = Inode(new_inode, Kind.DIRECTORY, 1, now_s, now_s, parent=place.parent)
    await _put_new(transaction, place, inode)
    return inode


async def _put_new(transaction: Transaction, place: Place, inode: Inode) -> None:
    await _require_directory(transaction, place)
    transaction.add_read(only(entry_key(place.parent, place.name)))
    entry = Entry(place.parent, place.name, inode.id, inode.kind)
    transaction.set(entry.key, entry.pack())
    transaction.set(inode_key(inode.id), inode.pack())


async def open_file(transaction: Transaction, path: str, how: Opening, base: int = ROOT) -> Opened:
    """Open a file, and make it if that is wanted. Raises FileError."""
    place = await find(transaction, path, base)
    if place.entry is None:
        if not how.creates:
            raise FileError("ENOENT", path)
        inode = _new_file(how)
        await _put_new(transaction, place, inode)
        _begin_session(transaction, how, inode.id)
        return Opened(inode)
    if place.entry.kind is Kind.DIRECTORY:
        raise FileError("EEXIST" if how.creates and how.is_exclusive else "EISDIR", path)
    found = await inode_of(transaction, place.entry.inode, snapshot=False)
    if found is None:
        raise FileError("ENOENT", path)
    if how.creates and how.is_exclusive:
        raise FileError("EEXIST", path)
    size_bytes = found.length.size_bytes
    # Who has it open for writing may have written what nobody was told of yet.
    if how.truncates and size_bytes < SWAPPED_BELOW_BYTES and (size_bytes or await is_open(transaction, found.id)):
        found = _swapped(transaction, place.entry, found, how)
    _begin_session(transaction, how, found.id)
    return Opened(found, how.truncates and found.length.size_bytes > 0)


async def opened_before(transaction: Transaction, inode: int, how: Opening) -> Opened:
    """Return what an earlier try of the same call has opened, wherever that is now. Raises FileError if it is gone."""
    found = await inode_of(transaction, inode)
    if found is None:
        raise FileError("ENOENT", f"inode {inode:#x}, opened before")
    return Opened(found, how.truncates and found.length.size_bytes > 0)


def _new_file(how: Opening) -> Inode:
    return Inode(how.new_inode, Kind.FILE, 1, how.now_s, how.now_s, Length(), how.layout)


def _begin_session(transaction: Transaction, how: Opening, inode: int) -> None:
    if how.session is not None:
        session = how.session._replace(inode=inode)
        transaction.set(session.key, session.pack())


def _swapped(transaction: Transaction, entry: Entry, old: Inode, how: Opening) -> Inode:
    """Give a name a new, empty file of the old one's layout, in the place of that."""
    transaction.add_read(only(entry.key))
    new = _new_file(how)._replace(layout=old.layout)
    transaction.set(entry.key, entry._replace(inode=new.id).pack())
    transaction.set(inode_key(new.id), new.pack())
    put_away(transaction, old, how.now_s)
    return new


def put_away(transaction: Transaction, inode: Inode, now_s: float) -> None:
    """Let an inode whose name is gone be collected."""
    removed = inode._replace(links=0, changed_s=now_s, parent=GC_ROOT)
    entry = Entry(GC_ROOT, removed_name(inode.kind, now_s, inode.id), inode.id, inode.kind)
    transaction.set(inode_key(inode.id), removed.pack())
    transaction.set(entry.key, entry.pack())


async def remove(
    transaction: Transaction, path: str, now_s: float, is_recursive: bool = False, base: int = ROOT
) -> None:
    """Remove a file or a directory, an empty one unless all in it is to go. Raises FileError."""
    place = await find(transaction, path, base)
    entry = place.existing()
    if not place.name:
        raise FileError("EBUSY", f"{path}: the root cannot be removed")
    transaction.add_read(only(entry.key))
    await _discard(transaction, path, entry, now_s, is_recursive)
    transaction.clear(only(entry.key))


async def _discard(transaction: Transaction, path: str, entry: Entry, now_s: float, is_recursive: bool) -> None:
    """Let what an entry names be gone."""
    inode = await inode_of(transaction, entry.inode, snapshot=False)
    if inode is None:
        raise FileError("ENOENT", path)
    if entry.kind is Kind.FILE or is_recursive:
        put_away(transaction, inode, now_s)
        return
    if await transaction.range(entries_of(entry.inode), 1):
        raise FileError("ENOTEMPTY", path)
    transaction.clear(only(inode_key(entry.inode)))


async def rename(
    transaction: Transaction, old: str, new: str, now_s: float, bases: tuple[int, int] = (ROOT, ROOT)
) -> None:
    """Give what is at one path another one, in the place of what is there. Raises FileError."""
    source, target = await find(transaction, old, bases[0]), await find(transaction, new, bases[1])
    moved = source.existing()
    if not target.name or not source.name:
        raise FileError("EBUSY", f"{old} to {new}: the root cannot be renamed or replaced")
    if (source.parent, source.name) == (target.parent, target.name):
        return
    for place in (source, target):
        transaction.add_read(only(entry_key(place.parent, place.name)))
    await _require_directory(transaction, target)
    if moved.kind is Kind.DIRECTORY:
        await _require_no_ring(transaction, moved.inode, target)
    if target.entry is not None:
        if target.entry.kind is not moved.kind:
            raise FileError("EISDIR" if target.entry.kind is Kind.DIRECTORY else "ENOTDIR", new)
        await _discard(transaction, new, target.entry, now_s, is_recursive=False)
    transaction.clear(only(moved.key))
    entry = Entry(target.parent, target.name, moved.inode, moved.kind)
    transaction.set(entry.key, entry.pack())
    if moved.kind is Kind.DIRECTORY:
        inode = await inode_of(transaction, moved.inode, snapshot=False)
        if inode is None:
            raise FileError("ENOENT", old)
        transaction.set(inode_key(inode.id), inode._replace(parent=target.parent, changed_s=now_s).pack())


async def _require_no_ring(transaction: Transaction, moved: int, target: Place) -> None:
    """Follow the directories from a place up to the root, which must not change meanwhile. Raises FileError if one is
    the directory that is to be moved there, or is being removed."""
    above = target.parent
    for _ in range(_MOST_DEPTH):
        if above == moved:
            raise FileError("EINVAL", f"{target.path} is inside of what is to be moved there")
        if above == ROOT:
            return
        inode = await inode_of(transaction, above, snapshot=False)
        if inode is None or above == GC_ROOT:
            raise FileError("ENOENT", target.path)
        above = inode.parent
    raise FileError("EINVAL", f"{target.path} is deeper than {_MOST_DEPTH} directories")


async def next_numbers(transaction: Transaction, key: bytes, count: int, first: int = FIRST_INODE) -> int:
    """Return the first of ``count`` numbers that nobody else gets."""
    value = await transaction.get(key)
    number = first if value is None else int(value)
    transaction.set(key, b"%d" % (number + count))
    return number
