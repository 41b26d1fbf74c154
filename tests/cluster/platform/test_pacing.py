"""How a guest's users ask, and how its time goes on: both ends, without a guest."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.platform.gateway import LoopThread
from cluster.platform.pacing import ASKED_S, END, TURN_S, GuestQuestions, PacedQuestions, pieces
from tests.waiting import until


class Clock:
    """A wall clock that passes while it is waited for."""

    now_s = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()

    def waits(*arguments: Any) -> tuple[list[int], list[int], list[int]]:
        made.now_s += arguments[3]
        return [], [], []

    # The module's own: other threads of this process, whoever's they are, wait as they did.
    monkeypatch.setattr("cluster.platform.pacing.select", SimpleNamespace(select=waits))
    return made


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("pace", [0.5, 1.0, 20.0])
def test_virtual_time_passes_as_wall_time_does_times_the_pace(clock: Clock, pace: float) -> None:
    began: list[str] = []
    questions = PacedQuestions(pace, lambda: began.append("up"), lambda: clock.now_s)
    virtual_s = 0.0
    for _ in range(101):
        virtual_s += float(questions.ask())
    assert began == ["up"]
    assert clock.now_s - 100 == pytest.approx((virtual_s - TURN_S) / pace)


def test_what_a_guest_is_late_is_not_made_up_for(clock: Clock) -> None:
    questions = PacedQuestions(1.0, lambda: None, lambda: clock.now_s)
    questions.ask()
    clock.now_s += 3600  # For so long a program computed.
    began_s = clock.now_s
    for _ in range(11):
        questions.ask()
    assert clock.now_s - began_s == pytest.approx(10 * TURN_S)


def test_a_question_is_put_at_once_and_many_do_not_make_time_fly(clock: Clock) -> None:
    thread, guest = LoopThread("users"), LoopThread("guest")
    questions = PacedQuestions(1.0, lambda: None, lambda: clock.now_s)
    asked = {"kind": "submit", "spec": {"command": ["a b", "ü" * 3000, '"']}}

    async def scheduler(question: dict[str, Any]) -> dict[str, Any]:
        if question["kind"] == "breaks":
            raise ValueError("what breaks")
        return {"kind": "done", "question": question}

    begun: list[Future[Any]] = []

    def begin(question: dict[str, Any]) -> Future[Any]:
        begun.append(guest.begin(scheduler(question)))
        return begun[-1]

    out = io.BytesIO()
    inside = GuestQuestions(questions.ask, begin, out)
    try:
        assert inside.turn() == TURN_S
        before_s = clock.now_s
        users = [thread.begin(questions.answer(one)) for one in (asked, {"kind": "breaks"}, {"kind": "list"})]
        thread.begin(asyncio.sleep(0)).result(60)  # Its turn comes behind theirs: they have asked.
        turns = [inside.turn() for _ in range(len(list(pieces(1, asked))) + 2)]
        assert turns.count(ASKED_S) == 3 and set(turns) == {0.0, ASKED_S}
        assert clock.now_s == before_s, "nobody waited"
        until(lambda: out.getvalue().count(b"\n") == len(begun) == 3, "three answers on their way")
        questions.write(out.getvalue()[:30])
        questions.write(out.getvalue()[30:])
        assert users[0].result(60) == {"kind": "done", "question": asked}
        assert users[1].result(60) == {"kind": "failed", "why": "what breaks"}
        assert users[2].result(60)["question"] == {"kind": "list"}
        assert inside.turn() == TURN_S
        assert clock.now_s - before_s == pytest.approx(TURN_S + 3 * ASKED_S), "time that questions took is waited for"
    finally:
        thread.close()
        guest.close()


def test_pieces_fit_into_the_guests_answers() -> None:
    question = {"kind": "submit", "text": 'é\\"' * 5000}
    lines = list(pieces(7, question))
    assert all(len(f"0.02 {line}".encode()) < 4000 and "\n" not in line for line in lines)
    assert json.loads("".join(line.split(" ", 2)[2] for line in lines)) == question
    assert [line.split(" ", 2)[1] for line in lines] == ["1"] * (len(lines) - 1) + ["0"]


def test_the_first_interrupt_lets_it_end_in_good_order_and_the_second_at_once(clock: Clock) -> None:
    questions = PacedQuestions(1.0, lambda: None, lambda: clock.now_s)
    inside = GuestQuestions(questions.ask, lambda _: None, io.BytesIO())
    assert inside.turn() == TURN_S
    signal.raise_signal(signal.SIGINT)
    assert questions.ask() == END
    assert questions.ask() == f"{TURN_S}", "what runs needs time to save"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    other = PacedQuestions(1.0, lambda: None, lambda: clock.now_s)
    other.ask()
    signal.raise_signal(signal.SIGTERM)
    assert GuestQuestions(other.ask, lambda _: None, io.BytesIO()).turn() is None
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
