"""What the first guest of a run asks of another: calls, programs in hosts there, their sockets. Needs no root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.guest_scripts import run_script_in_guests

pytestmark = pytest.mark.guest
SCRIPT = Path(__file__).parent / "remote_agents.py"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run_script_in_guests(SCRIPT, guests=2))
    return answer


def test_a_function_is_called_in_every_guest_at_once(found: dict[str, Any]) -> None:
    assert found["numbers"] == [0, 1]


def test_an_error_there_comes_here_as_it_is_or_with_its_words(found: dict[str, Any]) -> None:
    assert found["refuse"] == "UsageError: too much"
    assert found["break_down"] == "EmulationError: guest 1 of the run: break_down failed: KeyError: 'lost'"


def test_a_file_that_is_handed_out_is_there(found: dict[str, Any]) -> None:
    assert found["file"] == "content"


def test_a_netlink_socket_there_answers_as_one_here(found: dict[str, Any]) -> None:
    assert found["interfaces"] == ["a", "b", "lo"]
    assert "setting none up: the kernel refused" in found["no interface"]


def test_programs_there_are_in_their_host_and_each_has_its_pipe(found: dict[str, Any]) -> None:
    assert (found["one"], found["two"]) == (["hello", "one"], ["hello", "two"])
    assert found["interfaces there"] == ["a", "b", "lo"]


def test_programs_there_are_stopped_killed_and_missed_as_those_here(found: dict[str, Any]) -> None:
    assert (found["answers when stopped"], found["answers after that"]) == (False, "are you there")
    assert (found["ended"], found["ended when killed"], found["exit code"]) == (False, True, -9)
    assert found["failure"] == "ValueError: nothing works here"
