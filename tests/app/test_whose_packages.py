"""Where another distribution has written over a package of this program, the command says so, and what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.whose_packages import MARK, PACKAGES, why_not_ours
from fabric.world.virtual import bytecode

HOME = Path(__file__).parents[2]


def installed(site: Path, *without: str) -> Path:
    """Lay out packages as an installation has them, each with nothing but its first file."""
    for name in PACKAGES:
        (site / name).mkdir(parents=True)
        if name not in without:
            (site / name / "__init__.py").write_text(f"{MARK}\n")
    return site


def distribution(site: Path, name: str, package: str) -> None:
    folder = site / f"{name}-3.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 3.2\n")
    (folder / "RECORD").write_text(f"{package}/__init__.py,,\n{package}/config.py,,\n")


def test_guests_get_the_bytecode_of_all_packages() -> None:
    """The engine stands below the application, and lists them itself."""
    assert bytecode.PACKAGES == PACKAGES


def test_all_packages_of_this_checkout_are_its_own() -> None:
    assert why_not_ours() is None


def test_what_wrote_over_a_package_is_named_with_what_to_do(tmp_path: Path) -> None:
    site = installed(tmp_path)
    assert why_not_ours(site, [str(site)]) is None
    (site / "fabric" / "__init__.py").write_text("from .connection import Connection\n")
    distribution(site, "fabric", "fabric")
    told = why_not_ours(site, [str(site)])
    assert told is not None
    whose = f"the package 'fabric' in {site / 'fabric'} is another's, and not that of ai-fabric-emulator"
    assert told.startswith(whose)
    assert "fabric has it, too. pip lets one write over the other: pip uninstall fabric; then install" in told
    assert "pip install --force-reinstall --no-deps" in told


def test_a_package_that_went_with_another_distribution_is_named(tmp_path: Path) -> None:
    site = installed(tmp_path, "cluster")
    told = why_not_ours(site, [str(site)])
    assert told is not None
    assert told.startswith(f"the package 'cluster' has lost {site / 'cluster' / '__init__.py'}, and not")


def test_a_package_that_python_finds_elsewhere_is_named(tmp_path: Path) -> None:
    """As beside a checkout that is installed in place."""
    site, other = installed(tmp_path / "ours"), tmp_path / "theirs"
    (other / "runs").mkdir(parents=True)
    (other / "runs" / "__init__.py").touch()
    told = why_not_ours(site, [str(other), str(site)])
    assert told is not None
    assert told.startswith(f"the package 'runs' that Python finds is {other / 'runs' / '__init__.py'}, and not")
    assert "remove whatever else has a package 'runs'" in told


OVER = {
    "written over": {"fabric/__init__.py": "from .connection import C\n", "fabric/config.py": "class Config: 0\n"},
    "written over, and it works": {"fabric/__init__.py": "", "fabric/config.py": "class Config: 0\n"},
    "gone with it": {"fabric/__init__.py": None, "fabric/config.py": None},
}


@pytest.mark.parametrize("files", OVER.values(), ids=list(OVER))
@pytest.mark.parametrize("words", [["topo", "show", "fire_flyer_2_tiny"], ["doctor"]], ids=lambda words: words[0])
def test_a_command_says_so_and_has_no_traceback(tmp_path: Path, files: dict[str, str | None], words: list[str]) -> None:
    for package in PACKAGES:
        left_out = shutil.ignore_patterns("__pycache__", "kernel", "page", "virtual", "storage", "cases")
        shutil.copytree(HOME / package, tmp_path / package, ignore=left_out)
    for name, text in files.items():
        (tmp_path / name).unlink() if text is None else (tmp_path / name).write_text(text)
    first = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    run = f"{first}; from app.cli import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: the package 'fabric' "), done.stderr
    assert "pip install --force-reinstall" in done.stderr
