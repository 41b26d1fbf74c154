from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traffic.storage.kv.sqlite_store import SqliteStore
from traffic.storage.kv.store import Commit, Conflict, Pair, Range, Store, TooOld, only, prefixed

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def put(store: Store, **pairs: str) -> int:
    sets = tuple(Pair(key.encode(), value.encode()) for key, value in pairs.items())
    return run(store.commit(Commit(run(store.read_version()), sets=sets)))


def test_values_are_read_as_they_were_at_a_version() -> None:
    store: Store = SqliteStore()
    first = put(store, a="1", b="1")
    second = put(store, a="2")
    third = run(store.commit(Commit(second, clears=(only(b"a"),))))
    assert (first, second, third) == (1, 2, 3)
    assert [run(store.get(b"a", version)) for version in range(4)] == [None, b"1", b"2", None]
    everything = Range(b"", b"\xff")
    assert run(store.range(everything, 2, 10)) == [(b"a", b"2"), (b"b", b"1")]
    assert run(store.range(everything, 2, 10, reverse=True)) == [(b"b", b"1"), (b"a", b"2")]
    assert run(store.range(everything, 3, 10)) == [(b"b", b"1")]
    assert run(store.range(everything, 2, 1)) == [(b"a", b"2")]


def test_what_was_read_and_has_changed_since_conflicts_and_nothing_is_written() -> None:
    store = SqliteStore()
    version = put(store, a="1", c="1")
    put(store, b="1")
    for reads, is_conflict in [
        ((only(b"b"),), True),
        ((Range(b"a", b"c"),), True),
        ((only(b"a"), only(b"c")), False),
        ((Range(b"a", b"b"),), False),
        ((Range(b"b\0", b"z"),), False),
    ]:
        work = store.commit(Commit(version, reads, sets=(Pair(b"z", b"1"),)))
        if is_conflict:
            with pytest.raises(Conflict, match="b'b' was changed by version 2, after 1"):
                run(work)
            assert run(store.get(b"z", run(store.read_version()))) is None
        else:
            run(work)
            run(store.commit(Commit(run(store.read_version()), clears=(only(b"z"),))))


def test_a_key_that_was_cleared_has_changed_and_one_that_never_was_has_not() -> None:
    store = SqliteStore()
    version = put(store, a="1")
    run(store.commit(Commit(version, clears=(Range(b"", b"\xff"),))))
    with pytest.raises(Conflict):
        run(store.commit(Commit(version, (only(b"a"),), sets=(Pair(b"z", b""),))))
    run(store.commit(Commit(version, (only(b"b"),), sets=(Pair(b"z", b""),))))


def test_what_only_reads_writes_no_version() -> None:
    store = SqliteStore()
    version = put(store, a="1")
    assert run(store.commit(Commit(version, (only(b"a"),)))) == version
    assert run(store.read_version()) == version


def test_old_versions_are_forgotten_and_the_newest_values_are_not() -> None:
    store = SqliteStore(kept_versions=10)
    put(store, steady="1", gone="1")
    run(store.commit(Commit(1, clears=(only(b"gone"),))))
    for turn in range(1000):
        put(store, busy=str(turn))
    with pytest.raises(TooOld, match="version 1 is no longer kept, the oldest is 990"):
        run(store.get(b"steady", 1))
    latest = run(store.read_version())
    assert run(store.range(Range(b"", b"\xff"), latest, 10)) == [(b"busy", b"999"), (b"steady", b"1")]
    assert run(store.get(b"busy", 995)) == b"992"
    rows = store._database.execute("SELECT COUNT(*) FROM pairs").fetchone()[0]
    assert rows < 20
    with pytest.raises(TooOld):
        run(store.commit(Commit(5, sets=(Pair(b"a", b""),))))


def test_a_file_has_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "pairs.sqlite"
    store = SqliteStore(path)
    put(store, a="1")
    version = put(store, a="2")
    store.close()
    again = SqliteStore(path)
    assert run(again.read_version()) == version
    assert [run(again.get(b"a", one)) for one in (1, 2)] == [b"1", b"2"]
    assert put(again, b="3") == version + 1


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: Commit(0, sets=(Pair(b"", b""),)), "a key of 0 B; it can have 1 to 10000"),
        (lambda: Commit(0, sets=(Pair(b"a", bytes(100_001)),)), "b'a': a value of 100001 B, more than 100000"),
        (lambda: Commit(0, reads=(Range(b"b", b"a"),)), "its end is before it"),
        (lambda: Commit(0, sets=tuple(Pair(b"%d" % n, bytes(99_000)) for n in range(102))), "a commit of 1"),
        (lambda: prefixed(b"\xff\xff"), "no key is above all"),
        (lambda: run(SqliteStore().get(b"a", 7)), "version 7 is not there yet, the latest is 0"),
        (lambda: run(SqliteStore().range(Range(b"", b"a"), 0, 0)), "a limit of 0 pairs"),
    ],
)
def test_what_cannot_be_is_named(make: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        make()


def test_a_prefix_has_the_keys_that_begin_with_it() -> None:
    for prefix in (b"a", b"a\xff", b"ab\x00"):
        range_ = prefixed(prefix)
        assert all(range_.begin <= key < range_.end for key in (prefix, prefix + b"\0", prefix + b"\xff\xff"))
        assert not any(range_.begin <= key < range_.end for key in (prefix[:-1], b"b", b"b\0"))


keys = st.sampled_from([b"a", b"b", b"c", b"d"])
sets_and_clears = st.tuples(
    st.dictionaries(keys, st.sampled_from([b"1", b"2"]), max_size=3), st.lists(st.tuples(keys, keys), max_size=1)
)
Write = tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]


@settings(max_examples=100)
@given(st.lists(sets_and_clears, max_size=8), keys, keys, st.integers(1, 3), st.booleans())
def test_every_version_is_that_of_a_dictionary(
    writes: list[Write], one: bytes, other: bytes, limit: int, reverse: bool
) -> None:
    store = SqliteStore()
    kept: dict[int, dict[bytes, bytes]] = {0: {}}
    for sets, cleared in writes:
        ranges = tuple(Range(*sorted(pair)) for pair in cleared)
        version = run(store.commit(Commit(max(kept), (), ranges, tuple(Pair(*pair) for pair in sets.items()))))
        now = {key: v for key, v in kept[max(kept)].items() if not any(b <= key < e for b, e in ranges)} | sets
        kept[version] = now
    range_ = Range(*sorted((one, other)))
    for version, pairs in kept.items():
        inside = sorted((pair for pair in pairs.items() if range_.begin <= pair[0] < range_.end), reverse=reverse)
        assert run(store.range(range_, version, limit, reverse)) == inside[:limit]
        assert run(store.get(one, version)) == pairs.get(one)
