"""What a sweep says where there is no terminal."""

from __future__ import annotations

import time

import pytest

from app.commands.study import TallyDisplay
from app.sweeps.tally import Tally


def test_a_line_is_told_when_a_run_begins_or_ends_and_not_as_time_passes(capsys: pytest.CaptureFixture[str]) -> None:
    began_s = time.monotonic()
    with TallyDisplay() as display:
        for passed_s, done, running in ((0, 0, 2), (100, 0, 2), (200, 1, 2), (1000, 1, 2), (1100, 2, 1)):
            display.show(Tally(4, 0, began_s - passed_s, ended=done, running=running))
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("done")]
    assert [line.split(", ")[:2] for line in lines] == [
        ["done 0 of 4", "running 2"],
        ["done 1 of 4", "running 2"],
        ["done 2 of 4", "running 1"],
    ]
