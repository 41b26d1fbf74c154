"""Starting jobs: what is printed before must not decide what they measure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from runs import jobs
from runs.session import Session


def test_time_settles_between_what_is_printed_and_the_start_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    engine = SimpleNamespace(settle=lambda: happened.append("settled"))
    monkeypatch.setattr(jobs, "current_engine", lambda: engine)
    session = cast(Session, SimpleNamespace(tell=happened.append))

    def job(name: str) -> Any:
        return SimpleNamespace(
            name=name, start=lambda: happened.append(f"{name} starts"), close=lambda: happened.append(f"{name} ends")
        )

    with jobs.started(session, [job("a"), job("b")]):
        pass
    assert happened == [
        "starting a", "settled", "a starts", "starting b", "settled", "b starts", "b ends", "a ends",
    ]  # fmt: skip
