"""What ``fabric run`` prints at its end, for people and for programs, and what it says if it is interrupted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import main
from app.sweeps.study import run_missing
from fabric.measure.verdict import Check
from runs.launching import launcher
from runs.launching.events import Note, Report
from runs.launching.run_result import RunResult
from runs.launching.spec import Prepared
from runs.registry import EXPERIMENTS
from tests.synthetic_result import Recipe, write_result

QUESTION = EXPERIMENTS["isolation"].question
ANSWER = "With one queue, storage takes 72 % of allreduce's bandwidth; with lanes, 44 %."
Played = Callable[..., Path]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Played:
    """Return a function that lets ``fabric run`` find a synthetic result; it returns the run's directory."""

    def end_with(status: str = "faithful", reasons: tuple[str, ...] = (), *, drawn: bool = True) -> Path:
        verdict = {"status": status, "reasons": list(reasons)}
        recipe = Recipe(fabric="fire_flyer_2_tiny", experiment="isolation", verdict=verdict, without=("flows",))

        def play(prepared: Prepared, report: Report) -> RunResult:
            report(Note("played"))
            directory = write_result(Path(prepared.order.directory), recipe)
            manifest = json.loads((directory / "manifest.json").read_text())
            manifest["verdict"]["checks"].append(Check("busy_of_this", 0.4, 0.8, 0.9, "text").as_json())
            (directory / "manifest.json").write_text(json.dumps(manifest))
            if drawn:
                (directory / "report.html").touch()
            return RunResult(directory)

        monkeypatch.setattr(launcher, "play", play)
        return tmp_path / "mine"

    return end_with


@pytest.mark.parametrize(("status", "code"), [("faithful", 0), ("degraded", 0), ("invalid", 3)])
def test_the_answer_comes_first_with_its_verdict_and_the_report(
    played: Played, capsys: pytest.CaptureFixture[str], status: str, code: int
) -> None:
    directory = played(status, ("the queue [of a port] was full",))
    assert main(["run", "isolation", "--out", str(directory)]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"isolation: {QUESTION}"
    assert lines[1:7] == [
        f"answer: {ANSWER}",
        f"verdict: {status}",
        "  the queue [of a port] was full",
        f"report: {directory}/report.html",
        f"all figures: fabric report {directory}",
        f"to look inside: fabric view {directory}",
    ]


def test_what_of_the_summary_could_not_be_written_stands_below_the_answer(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "metrics left out, since not measured (NaN): a.b_s [of c]"
    directory, play = played(), launcher.play

    def noted(prepared: Prepared, report: Report) -> RunResult:
        play(prepared, report)
        told = json.loads((directory / "summary.json").read_text())
        (directory / "summary.json").write_text(json.dumps(told | {"notes": [note]}))
        return RunResult(directory)

    monkeypatch.setattr(launcher, "play", noted)
    assert main(["run", "isolation", "--out", str(directory)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index(f"answer: {ANSWER}") + 1] == f"note: {note}"


def test_a_report_that_has_not_been_drawn_is_not_named(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    directory = played(drawn=False)
    assert main(["run", "isolation", "--out", str(directory), "--no-figures"]) == 0
    assert f"report: none yet; to draw it: fabric report {directory}\n" in capsys.readouterr().out


def test_margins_and_cost_are_for_who_asks_for_them(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    directory = played()
    shown = {}
    for option in ("", "-v", "--verbose"):
        assert main(["run", "isolation", "--out", str(directory) + option, *option.split()]) == 0
        shown[option] = capsys.readouterr().out
    assert "busy_of_this" not in shown[""]
    assert "busy_of_this" in shown["-v"]
    assert shown["-v"].replace("mine-v", "x") == shown["--verbose"].replace("mine--verbose", "x")
    assert shown["-v"].splitlines()[1] == f"answer: {ANSWER}"


def test_one_table_is_printed_and_all_for_who_asks_for_them(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, play = played(), launcher.play
    tables = [{"title": f"table {number}", "columns": ["a column wide enough"], "rows": [["1"]]} for number in range(3)]

    def with_tables(prepared: Prepared, report: Report) -> RunResult:
        play(prepared, report)
        told = json.loads((directory / "summary.json").read_text())
        (directory / "summary.json").write_text(json.dumps(told | {"tables": tables}))
        return RunResult(directory)

    shown = {}
    monkeypatch.setattr(launcher, "play", with_tables)
    for option in ([], ["-v"]):
        shutil.rmtree(directory, ignore_errors=True)
        assert main(["run", "isolation", "--out", str(directory), *option]) == 0
        shown[bool(option)] = capsys.readouterr().out
    assert [f"table {number}" in shown[False] for number in range(3)] == [True, False, False]
    assert "2 more tables: in the report, and here with -v" in shown[False]
    assert all(f"table {number}" in shown[True] for number in range(3))
    assert "more table" not in shown[True]


def test_json_is_one_object_on_stdout_and_progress_is_on_stderr(
    played: Played, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = played("invalid", ("too slow",))
    assert main(["run", "isolation", "--out", str(directory), "--json"]) == 3
    out, err = capsys.readouterr()
    told = json.loads(out)
    metrics = told.pop("metrics")
    assert metrics == json.loads((directory / "summary.json").read_text())["metrics"]
    assert told == {
        "experiment": "isolation",
        "question": QUESTION,
        "answer": ANSWER,
        "verdict": {"status": "invalid", "reasons": ["too slow"]},
        "notes": [],
        "directory": str(directory),
        "report": f"{directory}/report.html",
    }
    assert "played" in err


def test_json_tells_of_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "isolation", "--json", "--repeat", "2"]) == 2
    words = "--json: is about one run; with --repeat 2 runs.csv has all: omit --json"
    assert capsys.readouterr().err == f"error: {words}\n"


@pytest.mark.parametrize("recorded", [False, True])
def test_an_interrupted_run_ends_with_130_and_says_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, recorded: bool
) -> None:
    def play(prepared: Prepared, report: Report) -> RunResult:
        if recorded:
            Path(f"{prepared.order.directory}.partial").mkdir()
            report(Note("what was recorded is complete"))
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "play", play)
    assert main(["run", "isolation", "--out", str(tmp_path / "mine[1]")]) == 130
    what = "what was recorded is complete" if recorded else "nothing is kept of the run: it had not ended"
    assert capsys.readouterr().err.splitlines() == [what, "interrupted"]


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (["sweep", "study.yaml", "--out", "study"], "the same command"),
        (
            ["run", "isolation", "--engine", "virtual", "--repeat", "2", "--out", "study"],
            "the same command with --out ",
        ),
    ],
    ids=lambda words: words[0],
)
def test_interrupted_studies_say_where_their_runs_are(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: list[str],
    how: str,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text("experiment: isolation\nengine: virtual\ngrid: {alone_time: [1 s]}\nseeds: 2\n")
    for module in ("sweep", "repeats"):
        monkeypatch.setattr(f"app.commands.{module}.{run_missing.__name__}", interrupted)
    assert main(command) == 130
    told = " ".join(capsys.readouterr().err.split())
    assert f"runs that had ended are kept in {tmp_path / 'study'}; {how}" in told
    assert told.endswith("plays the others interrupted")
