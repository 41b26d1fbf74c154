from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabric.emulation import mininet_place
from fabric.errors import EmulationError
from fabric.world.programs import packages

ROOT = Path(__file__).parents[3]
IS_INSTALLED = (Path("/usr/lib/python3/dist-packages") / "mininet" / "__init__.py").is_file()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the distribution's packages are said to be; this Python has no Mininet of its own."""
    monkeypatch.setattr(mininet_place, "NAME", f"mininet_of_{tmp_path.name}")
    monkeypatch.setattr(mininet_place, "OF_DISTRIBUTION", tmp_path)
    monkeypatch.setattr(packages._FINDER, "folders", {})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    return tmp_path


def test_the_distributions_package_is_found_by_a_python_that_does_not_look_there(elsewhere: Path) -> None:
    package = elsewhere / mininet_place.NAME
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "net.py").write_text("VERSION = '2.3.0'\n")
    information = elsewhere / f"{mininet_place.NAME}-2.3.0.egg-info"
    information.mkdir()
    (information / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {mininet_place.NAME}\nVersion: 2.3.0\n")
    assert mininet_place.folder() == package
    assert mininet_place.version() == "2.3.0"
    mininet_place.make_importable()
    module = __import__(f"{mininet_place.NAME}.net")
    assert Path(module.__path__[0]) == package


def test_where_there_is_none_the_package_to_install_is_named(elsewhere: Path) -> None:
    assert mininet_place.folder() is None
    assert mininet_place.version() is None
    with pytest.raises(mininet_place.MininetMissingError, match=f"apt-get install {mininet_place.NAME}"):
        mininet_place.make_importable()


def test_the_error_is_one_of_ours_and_of_pythons() -> None:
    assert issubclass(mininet_place.MininetMissingError, EmulationError)
    assert issubclass(mininet_place.MininetMissingError, ImportError)


@pytest.mark.skipif(not IS_INSTALLED, reason="the package mininet is not installed")
def test_a_venv_without_the_distributions_packages_imports_mininet() -> None:
    program = "import fabric.emulation.build, sys; print(sys.modules['mininet'].__path__[0])"
    done = subprocess.run(
        [sys.executable, "-s", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "/usr/lib/python3/dist-packages/mininet"
