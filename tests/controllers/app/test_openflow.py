"""The controller with os-ken, which stands in for Ryu where that is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from controllers.app import openflow

ROOT = Path(__file__).parents[3]


@pytest.fixture
def without(tmp_path: Path) -> Mapping[str, Mapping[str, str]]:
    """Environments in which Python, and each Python that it starts, cannot import some libraries, by their names."""
    found = {}
    for hidden in ("ryu", "ryu os_ken"):
        folder = tmp_path / hidden
        folder.mkdir()
        lines = [f"sys.modules[{name!r}] = None\n" for name in hidden.split()]
        (folder / "sitecustomize.py").write_text("import sys\n" + "".join(lines))
        found[hidden] = {**os.environ, "PYTHONPATH": str(folder)}
    return found


def run(environment: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def test_ryu_is_preferred_where_it_is_installed() -> None:
    if not any((Path(folder) / "ryu").is_dir() for folder in sys.path):
        pytest.skip("Ryu is not installed; tools/setup.sh does")
    assert openflow.library() == "ryu"


def test_the_controller_works_with_os_ken_alone(without: Mapping[str, Mapping[str, str]]) -> None:
    """All that is tested of the app, and real processes of it, whose switches are others' bytes."""
    used = run(without["ryu"], "-c", "from controllers.app import openflow; print(openflow.hub.__name__)")
    assert used.stdout.strip() == "os_ken.lib.hub", used.stderr
    files = ("tests/controllers/app/test_route_keeper.py", "tests/controllers/test_client.py")
    done = run(without["ryu"], "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-3000:]


def test_without_a_library_the_error_says_what_to_install(
    without: Mapping[str, Mapping[str, str]], tmp_path: Path
) -> None:
    task = tmp_path / "task.json"
    words = ("-m", "controllers.app.launcher", "--task", str(task), "--openflow-port", "0", "--rest-port", "0")
    done = run(without["ryu os_ken"], *words)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "no OpenFlow library: this Python has neither ryu nor os_ken; install one: pip install os-ken"
    )
    assert "Traceback" not in done.stderr
