"""The host's end of the guest's questions; the guest is played by its ends of the sockets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.errors import EmulationError, UsageError
from fabric.world.virtual import dialogue
from fabric.world.virtual.dialogue import LINK, LONGEST_LINE_BYTES, Dialogue

LINES = ["z0h000 ping z0h001", "", "caf\udce9", None]


@pytest.fixture
def said() -> list[str | None]:
    """What the user is going to say."""
    return list(LINES)


@pytest.fixture
def opened(tmp_path: Path, said: list[str | None]) -> Iterator[Dialogue]:
    made = Dialogue(lambda: said.pop(0))
    with made.open(tmp_path):
        yield made


def answer_to(opened: Dialogue) -> bytes:
    opened.guest_questions.send(b"?")
    opened.answer()
    return opened.guest_questions.recv(1 << 16)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_each_question_gets_a_line_an_empty_one_is_not_the_end(opened: Dialogue) -> None:
    answers = [answer_to(opened) for _ in LINES]
    assert answers == [b"=z0h000 ping z0h001", b"=", b"=caf\xe9", b"."]


def test_the_guest_reads_lines_as_the_targets_of_a_link(tmp_path: Path) -> None:
    found = []
    for answer in (b"=a line", b"=", b"."):
        (tmp_path / LINK).unlink(missing_ok=True)
        (tmp_path / LINK).symlink_to(os.fsdecode(answer))
        found.append(dialogue.next_line(tmp_path))
    assert found == ["a line", "", None]


def test_without_anybody_to_ask_the_guest_is_told() -> None:
    with pytest.raises(EmulationError, match="without anybody to ask"):
        dialogue.next_line(Path("/nonexistent"))


@pytest.mark.parametrize("line", ["x" * LONGEST_LINE_BYTES, "a\0b"], ids=["long", "NUL"])
def test_what_no_link_can_hold_is_refused(opened: Dialogue, said: list[str | None], line: str) -> None:
    said.insert(0, line)
    with pytest.raises(UsageError, match=f"the limit is {LONGEST_LINE_BYTES}"):
        answer_to(opened)


def test_ctrl_c_goes_to_the_guest_between_questions_and_ends_it_when_it_does_not_listen(opened: Dialogue) -> None:
    answer_to(opened)
    for _ in range(dialogue.INTERRUPTS_TO_END - 1):
        interrupt()
    assert opened.guest_keys.recv(100) == b"\x03" * (dialogue.INTERRUPTS_TO_END - 1)
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_ctrl_c_is_ours_before_the_first_question_and_after_the_dialogue(tmp_path: Path) -> None:
    with Dialogue(lambda: None).open(tmp_path), pytest.raises(KeyboardInterrupt):
        interrupt()
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_ctrl_c_is_the_prompts_while_a_question_is_open(tmp_path: Path) -> None:
    def ask() -> str:
        try:
            interrupt()
        except KeyboardInterrupt:
            return "interrupted"
        return "not interrupted"

    made = Dialogue(ask)
    with made.open(tmp_path):
        assert [answer_to(made) for _ in range(2)] == [b"=interrupted"] * 2


def test_the_name_of_the_link_is_the_one_that_the_kernels_process_answers() -> None:
    assert f'#define QUESTION "/{LINK}"' in (Path(dialogue.__file__).parent / "host.c").read_text()
