"""What a rank says of its checkpoints is whole and in order, whichever of its threads says it."""

from __future__ import annotations

import os
import threading
from argparse import Namespace
from pathlib import Path

import pytest

from cluster.platform import lockstep
from cluster.platform.rank_words import saved_word, steps_in
from cluster.platform.ranks import saved_before
from cluster.platform.user import FOLDER, SAVED_FILE, saved


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("5", (5, None)),
        ("5 12.5", (5, 12.5)),
        ("5 nan", None),
        ("5 inf", None),
        ("-1", None),
        ("1" + "0" * 30, None),
        ("9" * 5000, None),
        ("five", None),
        ("", None),
    ],
)
def test_a_saved_step_that_is_no_number_is_none(folder: Path, text: str, word: tuple[int, float | None] | None) -> None:
    """The journal has no other, and the scheduler would end by it."""
    (folder / SAVED_FILE).write_text(text)
    assert saved_word(folder) == word


def test_what_is_no_regular_file_is_not_read_and_does_not_block(folder: Path) -> None:
    """To open a FIFO would wait for whoever writes into it, and an agent with it."""
    os.mkfifo(folder / SAVED_FILE)
    assert saved_word(folder) is None
    assert saved_before(folder.parent) == {}
    os.mkfifo(folder / "progress")
    with pytest.raises(OSError, match="no regular file"):
        steps_in(folder / "progress")
    (folder / "zero").symlink_to("/dev/zero")
    with pytest.raises(OSError, match="no regular file"):
        steps_in(folder / "zero")
    (folder / "long").write_text("7 " * 100_000)
    assert steps_in(folder / "long").split()[0] == "7"


def test_two_threads_may_tell_of_checkpoints_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def replace_later(path: Path, target: Path) -> Path:
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=saved, args=[1])
            other.start()
            other.join()
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", replace_later)
    saved(2)
    assert (folder / SAVED_FILE).read_text().split()[0] == "2"
    assert [path.name for path in folder.iterdir()] == [SAVED_FILE]


def test_who_suspends_tells_of_no_older_checkpoint_afterwards(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    left: list[threading.Thread] = []

    def go_suspend() -> None:
        left.extend(set(threading.enumerate()) - before)
        raise SystemExit

    def receive_suspend_command() -> bool:
        return next(asked)

    asked = iter([False, False, True])  # At the begin, then at the end of each step.
    monkeypatch.setattr(lockstep, "go_suspend", go_suspend)
    monkeypatch.setattr(lockstep, "receive_suspend_command", receive_suspend_command)
    options = Namespace(steps=9, every=1, step=0.0, stall=0.0, durable=600.0, save=0.0, gather=60.0, silent=60.0)
    with pytest.raises(SystemExit):
        lockstep._step_on(options, 0, {})
    assert (folder / SAVED_FILE).read_text().split()[0] == "2"
    assert not left


def test_a_checkpoint_begins_when_the_last_one_is_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps there are, and however short they take: storage writes one at a time."""
    under_way: list[int] = []
    most: list[int] = []

    def complete(step: int) -> None:
        under_way.remove(step)
        saved(step)

    timer = threading.Timer

    def started(after_s: float, function: object, arguments: list[int]) -> threading.Timer:
        under_way.extend(arguments)
        most.append(len(under_way))
        return timer(after_s, complete, arguments)

    monkeypatch.setattr(threading, "Timer", started)
    monkeypatch.setattr(lockstep, "receive_suspend_command", lambda: False)
    options = Namespace(steps=5, every=1, step=0.0, stall=0.0, durable=0.05, save=0.0, gather=60.0, silent=60.0)
    lockstep._step_on(options, 0, {})
    assert most == [1, 1, 1, 1, 1]
    assert int((folder / SAVED_FILE).read_text().split()[0]) >= 4
