"""Notes beside a verdict: their words, a line each, and what a manifest has of them."""

from __future__ import annotations

import json

import pytest

from fabric.records.notes import (
    FewBehindMedians,
    FewSeeds,
    FewValues,
    Note,
    NothingReroutes,
    OutlastedWindows,
    UnusedNics,
    few_named,
    few_seeds,
)

NOTES: dict[str, tuple[Note, str]] = {
    "NICs": (
        UnusedNics({"nccl": 28, "storage": 4}, {"nccl": 32, "storage": 36}),
        "NICs that no job used: 28 of the 32 of nccl's hosts, 4 of the 36 of storage's hosts",
    ),
    "few": (
        FewBehindMedians((FewValues("train", "steps", 3, 8, ("a", "b", "c")), FewValues("s", "reads", 9, 9, ("a",)))),
        "medians and percentiles of fewer than 10 values: 3 to 8 steps of train in each of 3 phases, 9 reads of s in "
        "a; play for longer",
    ),
    "one": (
        FewBehindMedians((FewValues("a place", "cuts", 1, 1, ("a", "b")),)),
        "medians and percentiles of fewer than 10 values: 1 cut of a place in each of 2 phases; play for longer",
    ),
    "seeds": (
        FewSeeds(3),
        "3 seeds are too few for a 95% interval: the true median lies between the least and the largest of 3 values "
        "with 75%; take 6 seeds or more",
    ),
    "a link": (
        NothingReroutes(("z0l00:1--z0s00:1",), ("alone", "lanes")),
        "1 link between switches was cut while nothing reroutes (routing.repair: wait), in alone, lanes: what crosses "
        "z0l00:1--z0s00:1 waits until it is back",
    ),
    "windows": (
        OutlastedWindows(2, 24, "a step", "host link z0h000:0--z0l00:1, 4 s", 3.25),
        "what 2 of 24 cuts did lasted beyond the next cut, by up to 3.25 s (a step of the cut of host link "
        "z0h000:0--z0l00:1, 4 s), and disturbs its figures; raise gap",
    ),
}


@pytest.mark.parametrize(("note", "words"), NOTES.values(), ids=list(NOTES))
def test_a_note_is_a_line_with_its_numbers_and_values_for_programs(note: Note, words: str) -> None:
    assert note.words == words
    kept = json.loads(json.dumps(note.as_json(), allow_nan=False))
    assert (kept["name"], kept["text"]) == (note.name, words)
    assert len(kept) == 2 + len(vars(note))


def test_many_names_are_cut_short() -> None:
    assert few_named(list("abcdef")) == "a, b, c, d and 2 more"


def test_seeds_are_few_from_two_to_five() -> None:
    assert [bool(few_seeds(count)) for count in range(8)] == [False, False, True, True, True, True, False, False]
