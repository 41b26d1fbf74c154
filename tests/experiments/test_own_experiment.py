"""An experiment of one's own is a folder, anywhere, and nothing else."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments import RunSpec, launch
from experiments.registry import EXPERIMENTS, resolve
from fabric.errors import ConfigError
from fabric.world import packages
from fabric.world.agents import AgentPool

DEFINITION = """
from pathlib import Path

from experiments.run.config import RunConfig
from experiments.run.definition import Experiment
from own_question.counting import count


class OwnConfig(RunConfig):
    seconds: float = 0.5


def run(session, config):
    session.use_queueing(config.queueings_played[0])
    session.run_phase("idle", "nobody sends", [], config.seconds)
    return {"title": "Mine", "answer": "yes", "metrics": {"idle.hosts": count(session.live.fabric)}, "tables": []}


EXPERIMENT = Experiment(Path(__file__).parent, "How many hosts are idle?", OwnConfig, run)
"""


PROGRAM = """
from own_question.counting import count


def report_a_count(agent, arguments):
    agent.report((agent.host, count(arguments)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An experiment: its YAML, its definition, a module of its own, and a program."""
    monkeypatch.setattr(packages._FINDER, "folders", {})
    own = tmp_path / "own_question"
    own.mkdir()
    (own / "__init__.py").touch()
    (own / "experiment.py").write_text(DEFINITION)
    (own / "counting.py").write_text("def count(fabric):\n    return len(fabric.hosts)\n")
    (own / "programs.py").write_text(PROGRAM)
    (own / "own_question.yaml").write_text("experiment: own_question\ntopology: fire_flyer_2_tiny\nseconds: 0.3\n")
    yield own
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_question"]:
        del sys.modules[name]


def test_a_folder_is_found_by_its_path_with_its_defaults(folder: Path) -> None:
    experiment, config, resolved = resolve(str(folder), ["seed=5"])
    assert (experiment.name, experiment.question) == ("own_question", "How many hosts are idle?")
    assert (config.seed, resolved["seconds"]) == (5, 0.3)
    assert "own_question" not in EXPERIMENTS


def test_a_folder_that_python_finds_by_itself_is_the_same_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.chdir(folder.parent)
    assert resolve("own_question", [])[0].folder == folder
    assert resolve(str(folder), [])[0].folder == folder


def test_a_file_elsewhere_may_name_the_experiment_only_by_its_folder(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "own_question.yaml", tmp_path / "mine.yaml")
    with pytest.raises(ConfigError, match="experiment: 'own_question' does not exist"):
        resolve(str(tmp_path / "mine.yaml"), [])


def test_a_folder_that_defines_none_is_refused(folder: Path) -> None:
    (folder / "experiment.py").write_text("")
    with pytest.raises(ConfigError, match="defines no EXPERIMENT"):
        resolve(str(folder), [])


@pytest.mark.parametrize("name", ["json", "traffic", "wave"])
def test_a_folder_with_the_name_of_a_package_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"has the name of the Python package '{name}'; rename the folder"):
        resolve(str(folder.rename(folder.with_name(name))), [])


def test_programs_of_a_folder_run_in_processes_of_their_own(folder: Path) -> None:
    resolve(str(folder), [])
    program = importlib.import_module("own_question.programs").report_a_count
    pool = AgentPool()
    try:
        assert pool.start("program", "z0h000", program, SimpleNamespace(hosts="abc"), None).receive(20, "count") == (
            "z0h000",
            3,
        )
    finally:
        pool.stop()


@pytest.mark.guest
def test_a_folder_runs_with_nothing_else_changed(folder: Path, tmp_path: Path) -> None:
    result = launch(RunSpec(str(folder), engine="virtual", directory=tmp_path / "result"))
    (row,) = result.metrics.to_dict("records")
    assert (row["phase"], row["name"], row["value"]) == ("idle", "hosts", 10.0)
    assert result.manifest["experiment"] == "own_question"
    assert result.verdict["status"] == "faithful", result.verdict["reasons"]
