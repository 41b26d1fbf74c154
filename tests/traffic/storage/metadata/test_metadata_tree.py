"""Operations on the tree against a simple model, and pairs of them at the same time against one after the other."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traffic.storage.metadata.memory import FileSystem, SlowStore
from tests.traffic.storage.true_timers import run
from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.transaction import Transaction, transact
from traffic.storage.metadata import tree
from traffic.storage.metadata.errors import FileError
from traffic.storage.metadata.records import (
    Entry,
    Inode,
    Kind,
    Layout,
    Length,
    Session,
    removed_at_s,
    removed_name,
)

Operation = tuple[str, ...]
LAYOUT = Layout(64, 3, 5, 1, 7)


class Model:
    """What a file system is: paths, each a directory or a file with a number of its own."""

    def __init__(self) -> None:
        self.paths: dict[str, int | None] = {"/": None}
        self.made = itertools.count(1)

    def below(self, path: str) -> list[str]:
        return [one for one in self.paths if one.startswith(path.rstrip("/") + "/") and one != "/"]

    def require_parents(self, path: str) -> None:
        parts = path.strip("/").split("/")[:-1]
        for depth in range(len(parts)):
            above = "/" + "/".join(parts[: depth + 1])
            if above not in self.paths:
                raise FileError("ENOENT", path)
            if self.paths[above] is not None:
                raise FileError("ENOTDIR", path)

    def apply(self, operation: Operation) -> None:
        name, path, *rest = operation
        self.require_parents(path)
        if name in ("mkdir", "create") and path in self.paths:
            raise FileError("EEXIST", path)
        if name not in ("mkdir", "create") and path not in self.paths and name != "rename":
            raise FileError("ENOENT", path)
        if name == "mkdir":
            self.paths[path] = None
        elif name == "create":
            self.paths[path] = next(self.made)
        elif name == "remove":
            if self.paths[path] is None and self.below(path):
                raise FileError("ENOTEMPTY", path)
            del self.paths[path]
        elif name == "remove all":
            for one in [*self.below(path), path]:
                del self.paths[one]
        else:
            self.rename(path, rest[0])

    def rename(self, old: str, new: str) -> None:
        self.require_parents(new)
        if old not in self.paths:
            raise FileError("ENOENT", old)
        if old == new:
            return
        is_directory = self.paths[old] is None
        if is_directory and new.startswith(old + "/"):
            raise FileError("EINVAL", new)
        if new in self.paths:
            if (self.paths[new] is None) != is_directory:
                raise FileError("ENOTDIR" if is_directory else "EISDIR", new)
            if is_directory and self.below(new):
                raise FileError("ENOTEMPTY", new)
        for one in [*self.below(old), old]:
            self.paths[new + one[len(old) :]] = self.paths.pop(one)


class Real:
    """The same operations as transactions."""

    def __init__(self, store: SqliteStore | SlowStore) -> None:
        self.store = store
        self.numbers = itertools.count(0x1000)

    async def apply(self, operation: Operation) -> str:
        """Carry one out; return its error's name, or nothing."""
        name, path, *rest = operation
        number = next(self.numbers)

        async def body(transaction: Transaction) -> None:
            if name == "mkdir":
                await tree.make_directory(transaction, path, number, 1.0)
            elif name == "create":
                how = tree.Opening(1.0, number, LAYOUT, creates=True, is_exclusive=True)
                await tree.open_file(transaction, path, how)
            elif name == "rename":
                await tree.rename(transaction, path, rest[0], 1.0)
            else:
                await tree.remove(transaction, path, 1.0, is_recursive=name == "remove all")

        try:
            await transact(self.store, body)
        except FileError as error:
            return error.name
        return ""


def error_of(work: Callable[[], object]) -> str:
    try:
        work()
    except FileError as error:
        return error.name
    return ""


async def paths_of(database: SqliteStore) -> dict[str, bool]:
    """Return all paths, and whether each is a directory; what is unsound raises."""
    system = FileSystem()
    system.database = database
    return {path: inode.kind is Kind.DIRECTORY for path, inode in (await system.tree()).items()}


NAMES = st.sampled_from("abc")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["mkdir", "create", "remove", "remove all"]), PATHS),
    st.tuples(st.just("rename"), PATHS, PATHS),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, min_size=5, max_size=30))
def test_operations_do_what_a_simple_model_does(operations: list[Operation]) -> None:
    async def scene() -> None:
        model, database = Model(), SqliteStore()
        real = Real(database)
        await transact(database, tree.format_store)
        for operation in operations:
            expected = error_of(lambda operation=operation: model.apply(operation))  # type: ignore[misc]
            assert await real.apply(operation) == expected, operation
        assert await paths_of(database) == {path: number is None for path, number in model.paths.items()}

    asyncio.run(scene())


BEFORE: Sequence[Operation] = [
    ("mkdir", "/a"),
    ("mkdir", "/b"),
    ("mkdir", "/a/d"),
    ("create", "/a/f"),
    ("create", "/g"),
]
TOGETHER: Sequence[Operation] = [
    ("mkdir", "/a/d/e"),
    ("create", "/b/n"),
    ("create", "/b/m"),
    ("create", "/a/d/h"),
    ("remove", "/b"),
    ("remove", "/a/f"),
    ("remove all", "/a"),
    ("rename", "/a", "/b/x"),
    ("rename", "/b", "/a/d/y"),
    ("rename", "/a/f", "/b/n"),
    ("rename", "/g", "/a/f"),
    ("rename", "/a/d", "/b"),
]


def one_after_the_other(first: Operation, second: Operation) -> tuple[dict[str, bool], str, str]:
    model = Model()
    for operation in BEFORE:
        model.apply(operation)
    errors = [error_of(lambda one=one: model.apply(one)) for one in (first, second)]  # type: ignore[misc]
    return {path: number is None for path, number in model.paths.items()}, errors[0], errors[1]


async def together(seed: int, one: Operation, other: Operation) -> tuple[dict[str, bool], str, str]:
    """Return the paths after two operations at the same time, and their errors."""
    database, rng = SqliteStore(), random.Random(seed)
    real = Real(database)
    await transact(database, tree.format_store)
    for operation in BEFORE:
        assert await real.apply(operation) == ""
    real.store = SlowStore(database, rng)
    first, second = await asyncio.gather(real.apply(one), real.apply(other))
    return await paths_of(database), first, second


async def wrong_pairs(pairs: Iterable[tuple[Operation, Operation]]) -> list[str]:
    """Return what is not as if one operation had been after the other."""
    wrong = []
    for one, other in pairs:
        there, back = one_after_the_other(one, other), one_after_the_other(other, one)
        orders = [there, (back[0], back[2], back[1])]
        for seed in range(4):
            try:
                found = await together(seed, one, other)
            except (AssertionError, RecursionError) as error:
                wrong.append(str(error))
                continue
            if found not in orders:
                wrong.append(f"{one} with {other}, seed {seed}: {found}")
    return wrong


def test_two_operations_at_the_same_time_are_as_one_after_the_other() -> None:
    assert run(wrong_pairs(itertools.combinations_with_replacement(TOGETHER, 2))) == []


async def no_ring_check(transaction: Transaction, moved: int, target: tree.Place) -> None:
    """As if nobody looked at the way up."""


async def snapshot_of(transaction: Transaction, inode: int, snapshot: bool = True) -> Inode | None:
    """As if no inode that was read had to stay as it is."""
    value = await transaction.get(b"INOD" + inode.to_bytes(8, "little"), snapshot=True)
    return None if value is None else Inode.parse(value)


@pytest.mark.parametrize(
    ("name", "planted", "one", "other"),
    [
        ("_require_no_ring", no_ring_check, ("rename", "/a", "/b/x"), ("rename", "/b", "/a/d/y")),
        ("inode_of", snapshot_of, ("rename", "/a", "/b/x"), ("rename", "/b", "/a/d/y")),
        ("inode_of", snapshot_of, ("create", "/b/n"), ("remove", "/b")),
    ],
)
def test_what_must_not_change_is_what_keeps_them_apart(
    name: str, planted: Callable[..., object], one: Operation, other: Operation
) -> None:
    with mock.patch.object(tree, name, planted):
        assert run(wrong_pairs([(one, other)]))


def test_files_made_in_one_directory_at_the_same_time_do_not_conflict() -> None:
    async def scene() -> int:
        database = SqliteStore()
        await transact(database, tree.format_store)
        real = Real(SlowStore(database, random.Random(1)))
        before = await database.read_version()
        await asyncio.gather(*(real.apply(("create", f"/{number}")) for number in range(20)))
        # A conflict would have been tried again, so what counts is how long it took: one transaction's time.
        return await database.read_version() - before

    assert run(scene()) == 20


def test_a_file_that_is_opened_to_be_emptied_gets_a_new_inode_if_it_is_short() -> None:
    async def emptied(size_bytes: int) -> tuple[bool, bool, int]:
        database = SqliteStore()
        await transact(database, tree.format_store)
        made = tree.Opening(1.0, 0x1000, LAYOUT, creates=True)
        await transact(database, lambda txn: tree.open_file(txn, "/f", made))
        old = Inode(0x1000, Kind.FILE, length=Length(size_bytes, 3), layout=LAYOUT)

        async def lengthen(transaction: Transaction) -> None:
            transaction.set(b"INOD" + (0x1000).to_bytes(8, "little"), old.pack())

        await transact(database, lengthen)
        how = tree.Opening(2.0, 0x1001, LAYOUT, Session(0, 9, 1, 2.0), truncates=True)
        opened = await transact(database, lambda txn: tree.open_file(txn, "/f", how))
        system = FileSystem()
        system.database = database
        await system.tree()
        removed = (await system.records())[1].get(1, [])
        return opened.inode.id != old.id, opened.must_truncate, len(removed)

    assert asyncio.run(emptied(100)) == (True, False, 1)
    assert asyncio.run(emptied(tree.SWAPPED_BELOW_BYTES)) == (False, True, 0)
    assert asyncio.run(emptied(0)) == (False, False, 0)


@pytest.mark.parametrize(
    ("path", "name"), [("a", "EINVAL"), ("/a/../b", "EINVAL"), ("/./a", "EINVAL"), ("/" + "x" * 256, "ENAMETOOLONG")]
)
def test_paths_that_cannot_be_are_refused(path: str, name: str) -> None:
    with pytest.raises(FileError) as refused:
        tree.parts_of(path)
    assert refused.value.name == name


def test_records_come_back_as_they_were() -> None:
    inode = Inode(0xABCDEF, Kind.FILE, 1, 12.5, 13.25, Length(1 << 40, 3), Layout(512 << 10, 16, 96, 5, 1 << 31), 7)
    assert Inode.parse(inode.pack()) == inode
    entry = Entry(77, "näme", 0xABCDEF, Kind.FILE)
    assert Entry.parse(entry.key, entry.pack()) == entry
    session = Session(5, 1 << 40, 3, 1.5)
    assert Session.parse(session.pack()) == session
    assert removed_at_s(removed_name(Kind.FILE, 1234.5, 9)) == 1234.5
    names = [removed_name(kind, at_s, 9) for kind in (Kind.DIRECTORY, Kind.FILE) for at_s in (1.0, 2.0, 1e6)]
    assert names == sorted(names)


def test_layouts_use_each_chain_of_their_stripe_once() -> None:
    layout = LAYOUT.placed(9, 1000)
    assert sorted(layout.chains) == [1, 2, 3]
    assert LAYOUT.placed(9, 10).chains == layout.chains
