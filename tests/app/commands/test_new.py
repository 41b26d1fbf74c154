"""``fabric new`` writes an experiment that is whole, and nothing over what is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from app.commands.new import write
from fabric.errors import UsageError
from fabric.world.programs import packages
from runs.registry import resolve
from tests.experiments.unplayed import leave_jobs_unstarted, unplayed_session


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(packages._FINDER, "folders", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "quick_question"
    for name in [name for name in sys.modules if name.partition(".")[0] == "quick_question"]:
        del sys.modules[name]


def test_a_new_experiment_is_checked_and_named_after_its_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", str(folder)]) == 0
    assert f"fabric run {folder}" in capsys.readouterr().out
    assert main(["check", str(folder)]) == 0
    assert "good; experiment quick_question on fire_flyer_2_tiny" in capsys.readouterr().out
    experiment, config, resolved, _ = resolve(str(folder), ["loads=[0.2]"])
    assert experiment.name == "quick_question"
    assert type(config).__name__ == "QuickQuestionConfig"
    assert resolved["loads"] == [0.2]
    assert all(field.description for field in type(config).model_fields.values())
    assert "NAME" not in "".join(path.read_text() for path in folder.iterdir() if path.is_file())


def test_a_new_experiment_plays_a_grid_and_draws_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder)
    resolved = resolve(str(folder), ["loads=[0.2, 1]"])
    leave_jobs_unstarted(monkeypatch)
    session = unplayed_session(resolved.experiment, resolved.config, resolved.fabric, tmp_path)
    summary = resolved.experiment.load_run()(session, resolved.config)
    assert [one.phase.name for one in session.phases] == ["load_0", "load_0p2", "load_1"]
    assert summary["answer"] == "No step ended."
    assert [row[0] for row in summary["tables"][0].rows] == ["0%", "20%", "100%"]
    assert [one.name for one in resolved.experiment.load_figures()] == ["steps_by_load"]


@pytest.mark.parametrize("name", ["My-question", "2much", "class", "a b"])
def test_a_name_that_python_cannot_import_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="an experiment's name is small letters, digits and _"):
        write(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "mine"
    kept.mkdir()
    with pytest.raises(UsageError, match="mine: is there already, and nothing in it was changed"):
        write(kept)
    assert list(kept.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="mine: cannot be made: Not a directory"):
        write(tmp_path / "file" / "mine")
