"""An experiment of one's own is a folder, anywhere, and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from app.cli import main
from app.sweeps.planning import plan_runs
from app.sweeps.store import Store
from app.sweeps.study import run_missing
from experiments import RunSpec, launch, load
from fabric.errors import ConfigError, ResultError, UsageError
from fabric.report import figures
from fabric.world import cache
from fabric.world.programs import packages
from fabric.world.programs.agents import AgentPool
from runs import known_folders
from runs.launching.run_result import RunResult
from runs.registry import EXPERIMENTS, resolve
from runs.run_tables import RunTables
from tests.experiments.own_results import own_result
from tests.guest_scripts import share_bytecode
from tests.synthetic_result import Recipe, write_result
from tests.waiting import LIMIT_S

SLOW_TO_DRAW = ("ports", "stalls", "waits", "flows", "operations", "machine")
DEFINITION = """
from pathlib import Path

import pandas as pd

from runs.config import RunConfig
from runs.definition import Experiment
from fabric.tables import Column, Table, common
from own_question.counting import count


class OwnConfig(RunConfig):
    seconds: float = 0.5


def run(session, config):
    session.use_queueing(config.queueings_played[0])
    session.run_phase("idle", "nobody sends", [], config.seconds)
    hosts = [str(host) for host in session.live.fabric.hosts]
    session.keep_frame("idlers", pd.DataFrame({"phase": "idle", "host": hosts, "idle_s": config.seconds}))
    return {"title": "Mine", "answer": "yes", "metrics": {"idle.hosts": count(session.live.fabric)}, "tables": []}


IDLERS = Table(
    "One row per phase and host.", {**common("phase", "host"), "idle_s": Column("float64", "s", "how long it was idle")}
)
TABLES = {"idlers": IDLERS}
EXPERIMENT = Experiment(
    folder=Path(__file__).parent,
    question="How many hosts are idle?",
    config="own_question.experiment:OwnConfig",
    run="own_question.experiment:run",
    tables="own_question.experiment:TABLES",
    figures="own_question.figures",
)
"""
FIGURES = """
from fabric.report.figures import FigureSpec
from fabric.report.figures.style import framed


def idlers(result):
    rows = result.table("idlers")
    if rows.empty:
        return None
    with framed(result, "Idle hosts", 6.0, 3.0) as (figure, body):
        body.subplots().bar(rows["host"], rows["idle_s"])
    return figure


FIGURES = (FigureSpec("idlers", "How long each host was idle.", idlers),)
"""


PROGRAM = """
from own_question.counting import count


def report_a_count(agent, arguments):
    agent.report((agent.host, count(arguments)))
"""


@pytest.fixture(autouse=True)
def _few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw one of the figures that every result has: whose code draws is asked here, not what all look like."""
    monkeypatch.setattr(figures, "FIGURES", tuple(one for one in figures.FIGURES if one.name == "steps"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An experiment: its YAML, its definition, a module of its own, and a program."""
    monkeypatch.setattr(packages._FINDER, "folders", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "own_question"
    own.mkdir()
    (own / "__init__.py").touch()
    (own / "experiment.py").write_text(DEFINITION)
    (own / "figures.py").write_text(FIGURES)
    (own / "counting.py").write_text("def count(fabric):\n    return len(fabric.hosts)\n")
    (own / "programs.py").write_text(PROGRAM)
    (own / "own_question.yaml").write_text("experiment: own_question\ntopology: fire_flyer_2_tiny\nseconds: 0.3\n")
    yield own
    forget()


def forget() -> None:
    """Let Python know nothing of it, as a new process does."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_question"]:
        del sys.modules[name]


def test_a_folder_is_found_by_its_path_with_its_defaults(folder: Path) -> None:
    experiment, config, resolved, _ = resolve(str(folder), ["seed=5"])
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


OF = "own_question.experiment"
MISNAMED: dict[str, tuple[str, str, str]] = {
    "a class": (f'"{OF}:OwnConfig"', "OwnConfig", f"config: is <class '{OF}.OwnConfig'>; name what is meant, as"),
    "no module": (":OwnConfig", "s:OwnConfig", f"config: {OF}s:OwnConfig cannot be loaded: ModuleNotFoundError"),
    "no such name": (":run", ":runs", f"run: {OF}:runs cannot be loaded: AttributeError"),
    "no function": (":run", ":TABLES", f"run: {OF}:TABLES is not a function of a session"),
    "another class": (":OwnConfig", ":Table", f"config: {OF}:Table is not a subclass of"),
    "another value": (":TABLES", ":run", f"tables: {OF}:run is not a dictionary of"),
    "a fault in it": (f"{OF}:run", "own_question.faulty:run", r"ZeroDivisionError: .* \(.*own_question/faulty.py:2\)"),
}


@pytest.mark.parametrize(("right", "wrong", "why"), MISNAMED.values(), ids=list(MISNAMED))
def test_what_an_experiment_names_and_cannot_be_loaded_is_refused_before_a_run(
    folder: Path, right: str, wrong: str, why: str
) -> None:
    (folder / "faulty.py").write_text("def run(session, config):\n    return 1 / 0\nrun(None, None)\n")
    text = (folder / "experiment.py").read_text()
    (folder / "experiment.py").write_text(text.replace(right, wrong))
    with pytest.raises(ConfigError, match=f"experiment.py: .*{why}"):
        resolve(str(folder), [])


@pytest.mark.parametrize("name", ["json", "traffic", "wave"])
def test_a_folder_with_the_name_of_a_package_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"has the name of the Python package '{name}'; rename the folder"):
        resolve(str(folder.rename(folder.with_name(name))), [])


@pytest.fixture
def recorded(folder: Path, tmp_path: Path) -> Path:
    """A result of the experiment, as a run leaves it."""
    experiment = resolve(str(folder), [])[0]
    rows = pd.DataFrame({"phase": ["hfreduce_alone"] * 2, "host": ["z0h000", "z0h001"], "idle_s": [0.5, 0.25]})
    directory = own_result(tmp_path / "result", experiment, own={"idlers": rows}, without=SLOW_TO_DRAW).directory
    assert known_folders.keep(folder) is None
    forget()
    return directory


def test_a_stored_result_has_the_tables_and_figures_of_its_folder(recorded: Path) -> None:
    result = load(recorded)
    assert result.table("idlers")["idle_s"].tolist() == [0.5, 0.25]
    assert "How long each host was idle." in result.write_report().read_text()
    assert (recorded / "figures" / "idlers.svg").exists()
    assert result.missing is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
@pytest.mark.parametrize("name", ["figures.py", "parts/more.py", "parts/fast.so"])
def test_the_code_of_another_account_is_not_run_to_read_a_result(recorded: Path, folder: Path, name: str) -> None:
    (folder / "parts").mkdir()
    (folder / "parts" / "more.py").touch()
    (folder / "parts" / "fast.so").touch()
    os.chown(folder / name, 12345, -1)
    result = load(recorded)
    assert result.missing is not None
    assert f"{folder / name} belongs to uid 12345, and its code would be run" in result.missing


def leave_a_trace(folder: Path) -> Path:
    """Let a folder's code leave a file when it is run; return which."""
    trace = folder.parent / "code_was_run"
    for name in ("__init__.py", "experiment.py"):
        (folder / name).write_text(f"open({str(trace)!r}, 'w').close()\n{(folder / name).read_text()}")
    return trace


def with_folder(result: Path, folder: object) -> Path:
    """Let a result's manifest name a folder."""
    manifest = json.loads((result / "manifest.json").read_text())
    (result / "manifest.json").write_text(json.dumps(manifest | {"experiment_folder": str(folder)}))
    return result


def moved_into_the_result(result: Path, folder: Path) -> Path:
    assert known_folders.keep(folder.rename(result / folder.name)) is None
    return result / folder.name


def copied(result: Path, folder: Path) -> Path:
    return shutil.copytree(folder, folder.parent / "unpacked" / folder.name)


def linked(result: Path, folder: Path) -> Path:
    (folder.parent / "links").mkdir()
    link = folder.parent / "links" / folder.name
    link.symlink_to(folder)
    return link


def relative(result: Path, folder: Path) -> Path:
    return Path(os.path.relpath(folder))


def writable(result: Path, folder: Path) -> Path:
    folder.chmod(0o777)
    return folder


def file_writable(result: Path, folder: Path) -> Path:
    (folder / "counting.py").chmod(0o666)
    return folder


def in_a_writable_place(result: Path, folder: Path) -> Path:
    (folder.parent / "open").mkdir(mode=0o777)
    (folder.parent / "open").chmod(0o777)
    there = folder.rename(folder.parent / "open" / folder.name)
    assert known_folders.keep(there) is None
    return there


def with_a_link_out_of_it(result: Path, folder: Path) -> Path:
    shutil.copy(folder / "counting.py", folder.parent / "counting.py")
    (folder / "counting.py").unlink()
    (folder / "counting.py").symlink_to(folder.parent / "counting.py")
    return folder


UNTRUSTED: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "in the result": (moved_into_the_result, "is in the result's own directory"),
    "never run": (copied, "is not an experiment that you have run on this machine"),
    "a link": (linked, "is not an absolute path without links"),
    "relative": (relative, "is not an absolute path without links"),
    "anybody's": (writable, "can be written to by every account, and its code would be run"),
    "a file that is anybody's": (file_writable, "counting.py can be written to by every account"),
    "in a place that is anybody's": (in_a_writable_place, "open can be written to by every account"),
    "a link out of it": (with_a_link_out_of_it, "counting.py leads out of the folder"),
}


@pytest.mark.parametrize(("change", "why"), UNTRUSTED.values(), ids=list(UNTRUSTED))
def test_to_read_a_result_runs_no_code_that_its_user_did_not_ask_for(
    recorded: Path, folder: Path, tmp_path: Path, change: Callable[[Path, Path], Path], why: str
) -> None:
    """What came out of an archive belongs to its user, whoever wrote it."""
    trace = leave_a_trace(folder)
    named = with_folder(recorded, change(recorded, folder))
    result = load(named)
    for command in ("report", "view", "timeline"):
        main([command, str(named)])
    assert not trace.exists()
    assert result.missing is not None
    assert why in result.missing
    assert "name it with --experiment-folder" in result.missing
    assert not result.table("steps").empty


def test_a_folder_that_another_user_has_run_is_not_loaded(
    recorded: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where root keeps what users ran by sudo, for all to read."""
    trace = leave_a_trace(folder)
    monkeypatch.setenv("SUDO_UID", "12345")
    monkeypatch.setenv("SUDO_GID", "12345")
    assert "is not an experiment that you have run" in str(load(recorded).missing)
    assert not trace.exists()
    assert known_folders.keep(folder) is None
    assert load(recorded).missing is None


def test_a_sweep_of_a_folder_keeps_it_for_who_reads_its_results(folder: Path, tmp_path: Path) -> None:
    """Its runs may be played on other machines."""
    plan = plan_runs("mine", RunSpec(str(folder), engine="virtual"), {}, [1])
    assert "that you have run" in str(known_folders.why_not(folder, tmp_path / "result"))
    nothing = SimpleNamespace(run=lambda *_: None)
    run_missing(plan, Store(tmp_path / "sweep"), nothing, lambda tally: None, lambda text: None)
    assert known_folders.why_not(folder, tmp_path / "result") is None


def test_to_collect_a_study_runs_no_code_that_its_user_did_not_ask_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A study may come out of an archive, too, with its runs."""
    trace = leave_a_trace(folder)
    study = tmp_path / "study.yaml"
    study.write_text(f"experiment: {folder}\nengine: virtual\n")
    collect = ["sweep", str(study), "--collect", "--out", str(tmp_path / "sweep")]
    assert main(collect) == 2
    assert "is not an experiment that you have run on this machine" in " ".join(capsys.readouterr().err.split())
    assert not trace.exists()
    assert main([*collect, "--experiment-folder", str(folder)]) == 1
    assert "missing" in capsys.readouterr().out
    assert trace.exists()
    assert main(collect) == 2, "to read it once is not to run it"
    assert known_folders.keep(folder) is None
    assert main(collect) == 1


def test_a_cache_that_others_may_write_to_says_nothing_of_what_was_run(
    recorded: Path, folder: Path, tmp_path: Path
) -> None:
    trace = leave_a_trace(folder)
    (tmp_path / "cache").chmod(0o777)
    assert "can be written to by every account" in str(load(recorded).missing)
    assert "can be written to by every account" in str(known_folders.keep(folder))
    assert not trace.exists()


def test_a_folder_that_is_named_is_loaded(
    recorded: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = copied(recorded, folder)
    assert f"has the name of {folder}, which is loaded" in str(load(recorded, there).missing)
    packages._FINDER.folders.clear()
    result = load(with_folder(recorded, "/home/colleague/own_question"), there)
    assert result.missing is None
    assert result.table("idlers")["idle_s"].tolist() == [0.5, 0.25]
    assert main(["plot", str(recorded), "--experiment-folder", str(there)]) == 0
    assert "idlers.svg" in capsys.readouterr().out


LINKS = {
    "plot": "figures/steps.svg",
    "report": "report.html",
    "view": "view.html",
    "timeline": "timeline.json.partial",
}


@pytest.mark.parametrize(("command", "name"), LINKS.items(), ids=list(LINKS))
def test_what_a_link_in_a_result_leads_to_is_not_written_over(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    """As one in an archive, to a file of whoever unpacks it."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (recorded / name).symlink_to(mine)
    assert main([command, str(recorded)]) == 1
    assert f"{recorded / name}: is a link, and what it leads to could be" in " ".join(capsys.readouterr().err.split())
    assert mine.read_text() == "mine"


REFUSED_FOLDERS = {
    "no experiment": ("cache", "has no experiment.py; give the folder of an experiment"),
    "another one": ("other_question", "is of no result given, which are of own_question; omit it"),
}


@pytest.mark.parametrize(("name", "why"), REFUSED_FOLDERS.values(), ids=list(REFUSED_FOLDERS))
def test_a_named_folder_that_is_not_the_results_is_refused(
    recorded: Path, folder: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    shutil.copytree(folder, folder.parent / "other_question")
    trace = leave_a_trace(folder.parent / "other_question")
    for command in ("plot", "report", "view", "timeline"):
        assert main([command, str(recorded), "--experiment-folder", str(folder.parent / name)]) == 2
        assert why in " ".join(capsys.readouterr().err.split())
    with pytest.raises(UsageError, match="is not the folder of the experiment own_question"):
        load(recorded, folder.parent / name)
    assert not trace.exists()


LOST: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gone": (shutil.rmtree, "own_question is gone, or is not an experiment's folder any more"),
    "broken": (
        lambda folder: (folder / "experiment.py").write_text("1 / 0"),
        "own_question cannot be loaded: ZeroDivisionError: division by zero",
    ),
    "no figures": (
        lambda folder: (folder / "figures.py").unlink(),
        "own_question.figures cannot be loaded: ModuleNotFoundError: No module named 'own_question.figures'",
    ),
}


@pytest.mark.parametrize(("lose", "why"), LOST.values(), ids=list(LOST))
def test_a_stored_result_without_its_folder_says_what_is_missing(
    recorded: Path, folder: Path, lose: Callable[[Path], Any], why: str
) -> None:
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    lose(folder)
    result = load(recorded)
    assert not result.table("steps").empty
    assert result.missing is not None
    assert why in result.missing
    assert why in unescape(result.write_report().read_text())
    assert (recorded / "figures" / "steps.svg").exists()
    with pytest.raises(ResultError, match="figure 'idlers': does not exist"):
        result.figure("idlers")


def test_the_command_draws_what_it_can_and_says_what_is_missing(
    recorded: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(folder)
    assert main(["plot", str(recorded)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "steps.svg" in out
    assert f"tables and figures that only the experiment own_question has are missing: {folder} is gone" in out


def test_a_table_that_only_a_lost_experiment_knows_is_refused_with_its_file(recorded: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    file = recorded / "samples" / "idlers.parquet"
    with pytest.raises(ResultError, match=f"table 'idlers': only its experiment, .* knows what {file} means"):
        load(recorded).table("idlers")
    with pytest.raises(ResultError, match="table 'nothing': does not exist; there are ports, "):
        load(recorded).table("nothing")


def test_a_result_of_an_experiment_that_we_never_had_is_read(tmp_path: Path) -> None:
    result = RunResult(write_result(tmp_path / "run", Recipe("fire_flyer_2_tiny", "storage_interference")))
    assert not result.table("steps").empty
    assert result.missing is not None
    assert "this program has no experiment storage_interference" in result.missing


def test_rows_of_a_table_that_nobody_declared_are_refused_while_the_run_goes_on() -> None:
    with pytest.raises(ResultError, match="table idlers: is not declared; give it to the experiment's tables"):
        RunTables().keep_frame("idlers", pd.DataFrame({"idle_s": [1.0]}))


def test_a_table_of_every_results_name_is_refused(folder: Path) -> None:
    text = (folder / "experiment.py").read_text()
    (folder / "experiment.py").write_text(text.replace('{"idlers": IDLERS}', '{"steps": IDLERS}'))
    with pytest.raises(ConfigError, match="tables: every result has steps; rename yours"):
        resolve(str(folder), [])


def test_programs_of_a_folder_run_in_processes_of_their_own(folder: Path) -> None:
    resolve(str(folder), [])
    program = importlib.import_module("own_question.programs").report_a_count
    pool = AgentPool()
    try:
        started = pool.start("program", "z0h000", program, SimpleNamespace(hosts="abc"), None)
        assert started.receive(LIMIT_S, "count") == ("z0h000", 3)
    finally:
        pool.stop()


@pytest.fixture
def compiled(tmp_path: Path) -> None:
    """Compiled modules in the cache that :func:`folder` names."""
    share_bytecode(tmp_path / "cache" / cache.NAME)


@pytest.mark.guest
@pytest.mark.usefixtures("compiled")
def test_a_folder_runs_with_nothing_else_changed(folder: Path, tmp_path: Path) -> None:
    result = launch(RunSpec(str(folder), engine="virtual", directory=tmp_path / "result", draws=False))
    (row,) = result.metrics.to_dict("records")
    assert (row["phase"], row["name"], row["value"]) == ("idle", "hosts", 10.0)
    assert (result.manifest["experiment"], result.manifest["experiment_folder"]) == ("own_question", str(folder))
    assert result.verdict["status"] == "faithful", result.verdict["reasons"]
    assert result.table("idlers")["idle_s"].tolist() == [0.3] * 10
    assert result.figure("idlers").get_axes()
    assert result.missing is None
