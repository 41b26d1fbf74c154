from __future__ import annotations

import pytest

from traffic.storage.chains import ChunkId
from traffic.storage.payload import Raw, Recipe, checksum_of, content_of

CHUNK = ChunkId(5, 9)


def made(recipe: Recipe) -> bytearray:
    return bytearray().join(recipe.pieces(0, recipe.size_bytes))


@pytest.mark.parametrize("size", [1, 31, 32, 33, 4096, 3 << 20])
def test_a_recipe_makes_as_many_bytes_as_it_says(size: int) -> None:
    assert len(made(Recipe(CHUNK, 1, size))) == size


@pytest.mark.parametrize(("offset", "length"), [(0, 10), (0, 100), (20, 40), (31, 2), (32, 8), (500, 500), (999, 1)])
def test_a_stretch_is_the_same_bytes_as_in_the_whole(offset: int, length: int) -> None:
    recipe = Recipe(CHUNK, 1, 1000)
    stretch = bytearray().join(recipe.pieces(offset, length))
    assert stretch == made(recipe)[offset : offset + length]
    assert recipe.matches(bytearray(b"xx") + stretch, 2, offset, length)


@pytest.mark.parametrize(
    "other", [Recipe(ChunkId(5, 10), 1, 1000), Recipe(CHUNK, 2, 1000), Recipe(ChunkId(6, 9), 1, 1000)]
)
def test_another_chunk_or_write_makes_other_bytes_everywhere(other: Recipe) -> None:
    ours = made(Recipe(CHUNK, 1, 1000))
    theirs = made(other)
    assert all(ours[start : start + 50] != theirs[start : start + 50] for start in range(0, 1000, 50))
    assert not other.matches(ours, 0, 0, 1000)


def test_made_bytes_are_kept_as_their_recipe_and_others_as_they_are() -> None:
    recipe = Recipe(CHUNK, 7, 5000)
    data = made(recipe)
    assert content_of(data) == recipe
    data[4000] ^= 1
    kept = content_of(data)
    assert isinstance(kept, Raw)
    assert kept.pieces(0, 5000) == [data]
    assert content_of(bytearray(b"short")) == Raw(bytearray(b"short"))


def test_checksum_does_not_depend_on_how_bytes_are_cut() -> None:
    assert checksum_of([b"abc", b"def"]) == checksum_of([b"abcdef"]) != checksum_of([b"abcdeg"])
