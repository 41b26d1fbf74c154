"""Tables as the command prints them."""

from __future__ import annotations

import pytest

from runs.console import print_tables


def test_a_table_that_is_too_wide_breaks_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [str(10**10 + place) for place in range(15)]
    print_tables([{"title": "wide", "columns": [f"in place: column{place}" for place in range(15)], "rows": [numbers]}])
    printed = capsys.readouterr().out.split()
    assert set(numbers) <= set(printed)
    assert "column14" in printed
    print_tables([{"title": "narrow", "columns": ["a"], "rows": [[None], [3]]}])
    assert "\u2503 a \u2503" in capsys.readouterr().out
