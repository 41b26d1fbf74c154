"""Workers make only the tests of files that they are handed, and report all that one process would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests import handed_files
from tests.side_by_side import SideBySide

def pytest_configure(config):
    config.addinivalue_line("markers", "odd: every other one")
    handed_files.register(config)

def pytest_xdist_make_scheduler(config, log):
    return SideBySide(config, log) if handed_files.is_by_file(config) else None
"""
IMPORTED = "open('imported', 'a').write(f'{__name__}\\n')\n"
NUMBERED = (
    IMPORTED
    + """
import pytest

@pytest.fixture(scope="module", autouse=True)
def module():
    open('modules', 'a').write('up ')
    yield
    open('modules', 'a').write('down ')

@pytest.mark.parametrize("n", [0, pytest.param(1, marks=pytest.mark.odd), 2, pytest.param(3, marks=pytest.mark.odd)])
def test_number(n):
    assert n < 3
"""
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Four files of tests, and one that cannot be imported."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(NUMBERED)
    (tmp_path / "test_e.py").write_text("import no_such_module\n")
    return tmp_path


def outcome_of(project: Path, *arguments: str, workers: int = 1) -> tuple[int, str]:
    """Return how a session of workers that are handed files ends, and what it says at last."""
    command = [sys.executable, "-m", "pytest", "-n", f"{workers}", "--dist", "loadfile", *arguments]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ours |= {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=project, env=ours, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


def test_each_file_is_imported_once_and_what_fails_is_reported(project: Path) -> None:
    code, said = outcome_of(project, workers=2)
    assert code == 1, said
    assert re.search(r"4 failed, 12 passed, 1 error in", said), said
    assert all(f"FAILED test_{name}.py::test_number[3]" in said for name in "abcd")
    assert "No module named 'no_such_module'" in said
    assert sorted((project / "imported").read_text().split()) == [f"test_{name}" for name in "abcd"]
    modules = (project / "modules").read_text().split()
    assert (modules.count("up"), modules.count("down")) == (4, 4)


def test_tests_are_chosen_by_marks_and_names(project: Path) -> None:
    (project / "test_e.py").unlink()
    code, said = outcome_of(project, "-m", "odd", "-k", "not 3")
    assert (code, re.findall(r"(\d+ \w+) in", said)) == (0, ["4 passed"]), said


def test_what_directories_do_not_have_in_common_ends_between_their_files(project: Path) -> None:
    (project / "test_e.py").unlink()
    for name, place in (("b", "one"), ("c", "other/below")):
        (project / place).mkdir(parents=True)
        (project / f"test_{name}.py").rename(project / place / f"test_{name}.py")
    code, said = outcome_of(project, "-k", "not 3")
    assert (code, re.findall(r"(\d+ \w+) in", said)) == (0, ["12 passed"]), said


def test_one_test_by_its_name_is_handed_out_as_xdist_does(project: Path) -> None:
    code, said = outcome_of(project, "test_a.py::test_number[1]")
    assert (code, re.findall(r"(\d+ \w+) in", said)) == (0, ["1 passed"]), said
