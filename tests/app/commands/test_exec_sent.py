"""What ``fabric exec`` says of who has sent what."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from app.commands import exec_sent
from app.commands.exec_sent import ALL, NOBODY, NONE, Programs, Sent, sent_table, silence
from fabric.errors import EmulationError
from fabric.model.network import Fabric
from topologies.load import load_fabric

FABRIC: Fabric = load_fabric("fire_flyer_2_tiny")
A, B, C = FABRIC.hosts[:3]


class Counted:
    """Counts what a test says, in the place of the kernel."""

    def __init__(self, sent: Mapping[tuple[int, str], int]) -> None:
        self._sent = sent

    def environment(self, program: int) -> dict[str, str]:
        return {"GROUP": str(program)}

    def sent(self) -> Mapping[tuple[int, str], int]:
        return self._sent

    def close(self) -> None:
        pass


def programs(monkeypatch: pytest.MonkeyPatch, sent: Mapping[tuple[int, str], int]) -> Programs:
    monkeypatch.setattr(exec_sent, "SentBytes", lambda _: Counted(sent))
    return Programs(FABRIC)


def test_programs_of_a_host_have_a_line_each_and_the_kernel_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {(0, str(B)): 5, (1, str(A)): 7, (2, str(A)): 0, (2, "elsewhere"): 9}
    with programs(monkeypatch, sent) as ours:
        assert [ours.environment(["run", "x y"])["GROUP"] for _ in range(3)] == ["0", "1", "2"]
        rows = ours.sent({A: 10, B: 5, C: 0})
    run = "run 'x y'"
    assert rows == [
        Sent(str(A), run, 7), Sent(str(A), f"{run} (2)", 0), Sent(str(B), run, 5), Sent("elsewhere", run, 9),
        Sent(str(C), NONE, 0), Sent("", NOBODY, 3),
    ]  # fmt: skip
    assert silence(rows).startswith(f"note: {run} (2) on {A}, {C} sent nothing over the fabric")


def test_hosts_are_counted_where_the_kernel_cannot_tell_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> Any:
        raise EmulationError("no control groups")

    monkeypatch.setattr(exec_sent, "SentBytes", refuse)
    with Programs(FABRIC) as ours:
        assert ours.environment(["run"]) == {}
        rows = ours.sent({A: 10, B: 0})
    assert rows == [Sent(str(A), ALL, 10), Sent(str(B), ALL, 0)]
    assert silence(rows).startswith(f"note: {B} sent nothing over the fabric")


def test_nobody_is_named_where_all_or_none_sent() -> None:
    assert silence([Sent("a", "x", 0), Sent("b", "x", 0)]) == silence([Sent("a", "x", 1), Sent("b", "x", 1)]) == ""
    assert silence([Sent("a", "x", 0), Sent("", NOBODY, 99)]) == ""


def test_of_many_programs_the_rest_is_one_line() -> None:
    out = io.StringIO()
    Console(file=out, width=80, markup=False).print(
        sent_table([Sent(f"h{number}", "[x]", number) for number in range(40)])
    )
    lines = out.getvalue().splitlines()
    assert any("[x]" in line for line in lines)
    assert any("25 more" in line and "15 B to 39 B each" in line for line in lines)
