"""Lengths: merged in batches, never back within a truncate version; and against what storage has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traffic.storage.metadata.lengths import Synced, merged, needs_query
from traffic.storage.metadata.records import Length

LENGTHS = st.builds(Length, st.integers(0, 20), st.integers(0, 2))
SAID = st.builds(Synced, st.none() | LENGTHS, st.booleans())


@given(LENGTHS, st.lists(SAID, min_size=1, max_size=5), st.integers(0, 20))
def test_a_length_never_shrinks_within_a_truncate_version(now: Length, said: list[Synced], queried: int) -> None:
    found = merged(now, said, queried if needs_query(now, said) else None)
    assert found.truncate_version in (now.truncate_version, now.truncate_version + 1)
    assert found.size_bytes >= now.size_bytes or found.truncate_version > now.truncate_version
    if any(one.is_truncated for one in said):
        assert found == Length(queried, now.truncate_version + 1)


@pytest.mark.parametrize(
    ("said", "queried", "found"),
    [
        ([Synced(Length(15, 1))], None, Length(15, 1)),
        ([Synced(Length(5, 1))], None, Length(10, 1)),
        ([Synced(Length(5, 1)), Synced(Length(12, 1)), Synced(Length(11, 1))], None, Length(12, 1)),
        ([Synced(None)], 30, Length(30, 1)),
        ([Synced(None)], 10, Length(10, 1)),
        ([Synced(None)], 4, Length(4, 2)),
        ([Synced(Length(99, 0))], 10, Length(10, 1)),
        ([Synced(None, is_truncated=True)], 10, Length(10, 2)),
        ([Synced(Length(99, 1)), Synced(None, is_truncated=True)], 7, Length(7, 2)),
    ],
)
def test_what_comes_of_hints(said: list[Synced], queried: int | None, found: Length) -> None:
    assert merged(Length(10, 1), said, queried) == found
