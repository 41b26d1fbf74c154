"""When a phase is played again."""

from __future__ import annotations

import pytest

from fabric.errors import ConfigError
from fabric.measure.verdict import Check
from fabric.records.notes import PlayedAgain
from runs.attempts import Attempts, SetAside
from runs.notes import played_again
from runs.registry import resolve

GOOD = Check("cores_busy", 0.5, 0.95, 1.0, "busy 50 %")
BUSY = Check("cores_busy", 0.97, 0.95, 1.0, "busy 97 %")


def test_a_phase_is_repeated_until_the_machine_keeps_up_and_no_more_often_than_asked() -> None:
    attempts = Attempts(most=3)
    assert not attempts.is_to_be_repeated("lanes", [GOOD])
    for number in (1, 2):
        assert attempts.number("lanes") == number
        assert attempts.is_to_be_repeated("lanes", [GOOD, BUSY])
        attempts.set_aside.append(SetAside("lanes", number, 10.0 * number, 10.0 * number + 9, ("busy",)))
    assert attempts.number("lanes") == 3
    assert not attempts.is_to_be_repeated("lanes", [BUSY])
    assert not Attempts(most=1).is_to_be_repeated("lanes", [BUSY])
    assert not Attempts(most=3).is_to_be_repeated("lanes", [])


def test_a_machine_that_is_too_slow_does_not_triple_the_time_of_a_run() -> None:
    """Ten phases of ten seconds, each disturbed in each attempt."""
    attempts, played_s = Attempts(most=3), 0.0
    for phase in map(str, range(10)):
        while attempts.is_to_be_repeated(phase, [BUSY]):
            attempts.set_aside.append(SetAside(phase, attempts.number(phase), played_s, played_s + 10, ("busy",)))
            played_s += 10
        attempts.count(10)
        played_s += 10
    aside_s = sum(one.ended_s - one.started_s for one in attempts.set_aside)
    assert 50 <= aside_s <= 0.5 * 100 + 30 + 20
    assert played_s == 100 + aside_s


def test_the_note_names_what_was_played_again_and_why() -> None:
    aside = [
        SetAside("lanes", 1, 10.0, 20.0, ("degraded: busy 97 %",)),
        SetAside("lanes", 2, 20.0, 30.0, ("degraded: busy 98 %",)),
        SetAside("shared", 1, 40.0, 50.0, ("invalid: a stall of 1 s",)),
    ]
    (note,) = played_again(aside)
    assert note == PlayedAgain({"lanes": 2, "shared": 1}, {"lanes": aside[0].reasons[0], "shared": aside[2].reasons[0]})
    assert note.words == (
        "what the machine disturbed was played again, and 3 attempts do not count: "
        "lanes (degraded: busy 97 %), shared (invalid: a stall of 1 s)"
    )
    (single,) = played_again(aside[2:])
    assert "1 attempt does not count" in single.words
    assert list(played_again([])) == []


@pytest.mark.parametrize("most", [0, 11])
def test_the_key_has_limits(most: int) -> None:
    with pytest.raises(ConfigError, match="phase_attempts"):
        resolve("isolation", [f"phase_attempts={most}"])


def test_short_first_phases_are_repeated_though_little_was_played_before() -> None:
    attempts = Attempts(most=3)
    attempts.set_aside += [SetAside("first", number, 6.0 * number, 6.0 * number + 6, ("busy",)) for number in (1, 2)]
    attempts.count(6)
    assert attempts.is_to_be_repeated("second", [BUSY])
