from __future__ import annotations

import os
from pathlib import Path

import pytest

from fabric.errors import EmulationError
from fabric.world.virtual import bytecode


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one package, and an empty cache."""
    root = tmp_path / "project"
    (root / "fabric").mkdir(parents=True)
    (root / "fabric" / "__init__.py").touch()
    (root / "fabric" / "lanes.py").write_text("LANES = 4\n")
    (root / "controllers").mkdir()
    (root / "controllers" / "launcher.py").write_text("def patch_standard_library(): pass\n")
    monkeypatch.setattr(bytecode, "ROOT", root)
    monkeypatch.setattr(bytecode, "LATE", ("no.such.module",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return root


def compiled(project: Path, directory: Path) -> list[str]:
    return sorted(path.name.split(".")[0] for path in (directory / str(project)[1:]).rglob("*.pyc"))


def test_every_module_of_the_project_is_compiled_even_where_python_is_told_not_to(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert compiled(project, bytecode.prepare()) == ["__init__", "lanes", "launcher"]
    assert not list(project.rglob("*.pyc"))


def test_what_a_patched_standard_library_lacks_is_patched_only_for_the_controller(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eventlet takes select.poll away, which Mininet imports: what it imports after that would not be compiled."""
    (project / "controllers" / "app").mkdir()
    patch = "import select\n\n\ndef patch_standard_library():\n    vars(select).pop('poll', None)\n"
    (project / "controllers" / "app" / "launcher.py").write_text(patch)
    (project / "controllers" / "app" / "keeper.py").write_text(
        "import select, by_keeper\nassert not hasattr(select, 'poll')\n"
    )
    (project / "fabric" / "prompt.py").write_text("from select import poll\nimport by_prompt\n")
    for name in ("by_keeper", "by_prompt"):
        (project / f"{name}.py").touch()
    assert {"by_keeper", "by_prompt", "keeper", "prompt"} <= set(compiled(project, bytecode.prepare()))


def test_it_is_done_once_for_each_state_of_the_sources(project: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        bytecode.prepare(said.append)
    assert len(said) == 1
    source = project / "fabric" / "lanes.py"
    os.utime(source, (1, 1))
    bytecode.prepare(said.append)
    assert len(said) == 2


def test_the_state_is_the_same_wherever_the_command_is_called_and_another_with_another_package(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    (packages / "numpy-2.4.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(packages), str(tmp_path / "none")])
    before = bytecode.fingerprint()
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    monkeypatch.chdir(project)
    assert bytecode.fingerprint() == before
    (packages / "numpy-2.4.0.dist-info").rename(packages / "numpy-2.4.1.dist-info")
    assert bytecode.fingerprint() != before


def test_a_project_that_cannot_be_imported_is_told_and_not_taken_for_compiled(project: Path) -> None:
    (project / "fabric" / "lanes.py").write_text("raise ValueError('no lanes')\n")
    for _ in range(2):
        with pytest.raises(EmulationError, match="ValueError: no lanes"):
            bytecode.prepare()
