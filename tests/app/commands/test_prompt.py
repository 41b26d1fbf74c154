from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from app.commands import shell
from fabric.world.virtual.dialogue import LONGEST_LINE_BYTES


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let stdin hold a text."""

    def type_in(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return type_in


def test_lines_come_one_by_one_behind_mininets_prompt(
    typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed("nodes\n\nlast")
    assert [shell.ask() for _ in range(4)] == ["nodes", "", "last", None]
    assert capsys.readouterr().out == "mininet> " * 4


def test_a_line_that_no_guest_could_be_handed_is_told_and_the_next_taken(
    typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed("x" * LONGEST_LINE_BYTES + "\na\0b\nnodes\n")
    assert shell.ask() == "nodes"
    said = capsys.readouterr().err
    assert f"a line of {LONGEST_LINE_BYTES} bytes; the limit is {LONGEST_LINE_BYTES}" in said
    assert said.count("not run:") == 2


def test_ctrl_c_begins_a_new_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers = iter(["", "nodes"])

    def read(_: str) -> str:
        answer = next(answers)
        if not answer:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr("builtins.input", read)
    assert shell.ask() == "nodes"
    assert capsys.readouterr().out == "\nInterrupt\n"


def test_without_a_stdin_there_are_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert shell.ask() is None
