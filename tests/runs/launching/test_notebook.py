"""Progress in notebooks: a line for what is done, and one for each phase."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runs.launching import launcher
from runs.launching.events import Event, Note, PhaseProgress, VerdictSoFar
from runs.launching.notebook import Line, notebook_progress
from runs.launching.spec import RunSpec


@dataclass
class Output:
    """What a cell shows: lines, each as it is now."""

    lines: list[Line] = field(default_factory=list)

    def display(self, line: Line, display_id: bool) -> SimpleNamespace:
        assert display_id
        place = len(self.lines)
        self.lines.append(line)
        return SimpleNamespace(update=lambda new: self.lines.__setitem__(place, new))


def in_shell(monkeypatch: pytest.MonkeyPatch, shell: object) -> Output:
    """Let this process look like one of IPython with a shell."""
    output = Output()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    vars(ipython)["get_ipython"] = lambda: shell
    vars(display)["display"] = output.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return output


def test_a_notebook_shows_a_line_per_phase_that_fills_up(monkeypatch: pytest.MonkeyPatch) -> None:
    output = in_shell(monkeypatch, SimpleNamespace(kernel=object()))
    progress = notebook_progress("isolation", "virtual")
    assert progress is not None
    report = progress.report
    assert [repr(line) for line in output.lines] == ["isolation, engine virtual"]
    report(Note("installing 100 rules"))
    for fraction in (0.0, 0.5, 1.0):
        report(PhaseProgress("storage <alone>", fraction))
    report(VerdictSoFar("faithful", (), 1))
    report(PhaseProgress("lanes", 0.25))
    assert [repr(line) for line in output.lines] == [
        "isolation, engine virtual: installing 100 rules",
        f"  {'█' * 20} 100%  storage <alone>",
        f"  {'█' * 5}{'░' * 15}  25%  lanes",
    ]
    progress.end("faithful, results/mine")
    assert repr(output.lines[0]) == "isolation, engine virtual: faithful, results/mine"
    assert "storage &lt;alone&gt;</pre>" in output.lines[1]._repr_html_()


NO_NOTEBOOKS: dict[str, Any] = {"a terminal": SimpleNamespace(), "no shell": None}


@pytest.mark.parametrize("shell", NO_NOTEBOOKS.values(), ids=list(NO_NOTEBOOKS))
def test_nothing_is_shown_elsewhere(monkeypatch: pytest.MonkeyPatch, shell: object) -> None:
    output = in_shell(monkeypatch, shell)
    assert notebook_progress("isolation", "virtual") is None
    assert output.lines == []


def test_a_run_in_a_notebook_shows_itself_unless_it_is_told_to_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    output = in_shell(monkeypatch, SimpleNamespace(kernel=object()))
    ended = SimpleNamespace(verdict={"status": "faithful"}, directory="results/mine")
    prepared = SimpleNamespace(experiment=SimpleNamespace(name="isolation"), engine=SimpleNamespace(name="virtual"))

    def play(_: object, report: Callable[[Event], None]) -> SimpleNamespace:
        report(Note("installing rules"))
        return ended

    monkeypatch.setattr(launcher, "prepare", lambda *_: prepared)
    monkeypatch.setattr(launcher, "play", play)
    told: list[Event] = []
    launcher.launch(RunSpec("isolation"), told.append)
    assert (told, output.lines) == ([Note("installing rules")], [])
    launcher.launch(RunSpec("isolation"))
    assert [repr(line) for line in output.lines] == ["isolation, engine virtual: faithful, results/mine"]


def test_nothing_is_shown_without_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_progress("isolation", "virtual") is None
