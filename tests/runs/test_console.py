"""Tables as the command prints them."""

from __future__ import annotations

import pytest

from runs.console import OUT, print_tables, tell


def test_a_table_that_is_too_wide_breaks_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [str(10**10 + place) for place in range(15)]
    print_tables([{"title": "wide", "columns": [f"in place: column{place}" for place in range(15)], "rows": [numbers]}])
    printed = capsys.readouterr().out.split()
    assert set(numbers) <= set(printed)
    assert "column14" in printed
    print_tables([{"title": "narrow", "columns": ["a"], "rows": [[None], [3]]}])
    assert "\u2503 a \u2503" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["/tmp/[abc]/x", "a [/b] c", "tcp:100:5201", "17:x:18", "[red]"])
def test_text_is_printed_as_it_is_brackets_and_colons_too(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    tell(text)
    OUT.print(text)
    print_tables([{"title": text, "columns": [text], "rows": [[text]], "note": text}])
    printed = capsys.readouterr()
    assert printed.err == f"{text}\n"
    assert printed.out.count(text) == 5
