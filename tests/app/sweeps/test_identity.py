"""A run's key has all that decides its figures, and whoever finds another one says what differs."""

from __future__ import annotations

import json
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from app.cli import main
from app.sweeps import identity
from app.sweeps.identity import PROGRAM, deciding_parts, differing, program_digest
from app.sweeps.planning import PlannedRun, plan_runs, require_same
from app.sweeps.store import Store
from fabric.errors import UsageError
from runs.launching.spec import RunSpec
from tests.app.sweeps.plain_runs import planned

GOAL = "num_ranks 2\nrank 0 {{\nl1: send {size}b to 1 tag 0\n}}\nrank 1 {{\nl1: recv {size}b from 0 tag 0\n}}\n"


def replay_of(trace: Path) -> PlannedRun:
    settings = {"topology": "fire_flyer_2_tiny", "traces": [{"name": "a", "files": [str(trace)]}], "queueing": "lanes"}
    return plan_runs("s", RunSpec("trace_replay", settings, engine="virtual", draws=False), {}, [1]).runs[0]


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))  # As if it was written later.
    return path


def test_a_file_that_the_config_names_is_a_part_of_the_key(tmp_path: Path) -> None:
    trace = tmp_path / "a.goal"
    first, again, other = (replay_of(written(trace, GOAL.format(size=size))) for size in (1000, 1000, 1_000_000))
    assert first.key == again.key != other.key
    assert differing(first.parts, other.parts) == [f"{trace} has other content"]


def test_words_of_a_command_that_are_files_are_parts(tmp_path: Path) -> None:
    program = written(tmp_path / "train.py", "print(1)")
    texts = [f"python3 {program} --steps 3", "an 'open quotation", "x" * 5000, "a\0b", str(tmp_path)]
    found = deciding_parts(texts, (), None)
    assert list(found) == [PROGRAM, str(program)]
    written(program, "print(2)")
    assert deciding_parts(texts, (), None)[str(program)] != found[str(program)]


def test_the_code_of_an_experiment_of_ones_own_is_a_part_and_results_in_its_folder_are_not(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    (own / "parts").mkdir(parents=True)
    (own / "results" / "one").mkdir(parents=True)
    for name in ("run.py", "parts/more.py", "mine.yaml", "results/one/manifest.json", "results/one/config.yaml"):
        written(own / name, "1")
    found = deciding_parts((), (), own)
    assert sorted(found) == sorted([PROGRAM, str(own / "parts" / "more.py"), str(own / "run.py")])
    written(own / "run.py", "2")
    assert differing(found, deciding_parts((), (), own)) == [f"{own / 'run.py'} has other content"]


def key_of(experiment: Path) -> str:
    spec = RunSpec(str(experiment), {}, engine="namespace", draws=False)
    return plan_runs("s", spec, {}, [1]).runs[0].key


def key_elsewhere(experiment: Path) -> str:
    """Return it as a process finds it that has not imported the experiment before."""
    with ProcessPoolExecutor(1, get_context("fork")) as another:
        return another.submit(key_of, experiment).result(60)


def test_an_experiment_of_ones_own_that_changed_is_another_run(tmp_path: Path) -> None:
    own = tmp_path / "my_question"
    assert main(["new", str(own)]) == 0
    first = key_elsewhere(own)
    assert key_elsewhere(own) == first
    text = (own / "study.py").read_text()
    changed = text.replace("if case.load else", "if case.load > 0.5 else")
    assert changed != text
    written(own / "study.py", changed)
    assert key_elsewhere(own) != first


def test_the_program_is_a_part_without_what_shows_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("runs/a.py", "fabric/report/page.py", "experiments/incast/figures.py", "runs/__pycache__/a.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    monkeypatch.setattr(identity, "_HOME", tmp_path)
    digest = program_digest.__wrapped__
    first = digest()
    for name in ("fabric/report/page.py", "experiments/incast/figures.py", "runs/__pycache__/a.py"):
        (tmp_path / name).write_text("2")
    assert digest() == first
    (tmp_path / "runs" / "a.py").write_text("2")
    assert digest() != first
    assert len(program_digest()) == len(first)


def test_a_worker_with_another_file_names_it(tmp_path: Path) -> None:
    trace = written(tmp_path / "a.goal", GOAL.format(size=1000))
    run = replay_of(trace)
    require_same(run.spec, run.key, run.parts)
    written(trace, GOAL.format(size=2000))
    with pytest.raises(UsageError, match=rf"instead of {run.key}: {trace} has other content: install the same"):
        require_same(run.spec, run.key, run.parts)


def test_a_worker_finds_what_is_meant_beside_the_runs_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned()
    store = Store(tmp_path / "sweep")
    store.open(plan)
    run = plan.runs[0]
    monkeypatch.setattr("app.sweeps.identity.program_digest", lambda: "another")
    words = run.command(store.run_directory(run.key))
    assert words[-2:] == ["--expect-key", run.key]
    with pytest.raises(UsageError, match="the program has other sources: install the same program"):
        require_same(replace(run.spec, directory=store.run_directory(run.key)), run.key)


@pytest.mark.parametrize("is_old", [False, True], ids=["of this version", "without parts, as before"])
def test_a_sweep_says_which_runs_it_plays_again_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    plan, store = planned(), Store(tmp_path / "sweep")
    assert store.open(plan) == []
    keys = [run.plain_key if is_old else run.key for run in plan.runs[:2]]
    for key in keys:
        (store.run_directory(key)).mkdir()
        (store.run_directory(key) / "manifest.json").write_text("{}")
    if is_old:
        known = store.directory / "sweep.json"
        said = json.loads(known.read_text())
        runs = [{"key": one["plain_key"], "seed": one["seed"], "point": one["point"]} for one in said["runs"]]
        known.write_text(json.dumps({**said, "runs": runs}))
    else:
        assert store.open(plan) == [], "nothing has changed"
    monkeypatch.setattr("app.sweeps.identity.program_digest", lambda: "another")
    changed = planned()
    assert {run.key for run in changed.runs}.isdisjoint(run.key for run in plan.runs)
    as_played, words = store.as_played(changed)
    assert [run.key for run in as_played.runs[:3]] == [*keys, changed.runs[2].key], "those that ended can be read"
    assert words[0].startswith("2 runs that had ended are read as they were played: ")
    (told,) = store.open(changed)
    why = "they are of a version whose keys did not have the program" if is_old else "the program has other sources"
    assert told.startswith(f"2 runs that had ended are played again: {why}"), told
    assert len(store.missing(changed.runs)) == len(changed.runs)
