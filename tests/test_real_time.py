"""A time is judged in up to three plays; what holds in one of them holds."""

from __future__ import annotations

import pytest

from tests.real_time import TRIES, Seen, in_real_time


class Plays:
    """Scenarios whose results come one after another."""

    def __init__(self, *results: int):
        self.results = list(results)
        self.seen = Seen(lambda: {"rate": self.results.pop(0)})


@in_real_time
def fast_enough(seen: Seen) -> None:
    assert seen["rate"] > 9


def test_a_play_that_falls_short_is_told_and_played_again() -> None:
    plays = Plays(3, 10, 11)
    with pytest.warns(UserWarning, match="fast_enough: played again"):
        fast_enough(seen=plays.seen)
    fast_enough(seen=plays.seen)
    assert plays.results == [11], "what was seen is kept for other tests"


def test_what_never_holds_fails() -> None:
    plays = Plays(*range(TRIES + 1))
    with pytest.warns(UserWarning), pytest.raises(AssertionError):
        fast_enough(seen=plays.seen)
    assert len(plays.results) == 1


def test_errors_other_than_a_judgement_are_not_tried_again() -> None:
    plays = Plays()
    with pytest.raises(IndexError):
        fast_enough(seen=plays.seen)
