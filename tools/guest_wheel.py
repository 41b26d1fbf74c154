"""Packs an exported guest kernel into a wheel, so that a package index can hold it."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fabric.errors import EmulationError
from fabric.world.virtual.kernel_fetch import PACKAGE, wheel_version

BUILD_TIMEOUT_S = 300
_MODULE = PACKAGE.replace("-", "_")
_PROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{package}"
version = "{version}"
description = "The guest kernel of ai-fabric-emulator's virtual engine; fabric virtual fetch installs it"
license = "GPL-2.0-only"
license-files = ["*.txt"]

[tool.setuptools]
packages = ["{module}"]
package-data = {{ {module} = ["*.tar.gz"] }}
"""
_PLATFORM = "[bdist_wheel]\nplat_name = linux_{machine}\n"


def write_wheel(archive: Path, licences: list[Path], directory: Path) -> Path:
    """Write a wheel that holds an archive and texts about its licence into a directory; return it. Raises
    EmulationError."""
    with tempfile.TemporaryDirectory(prefix="fabric-wheel-") as name:
        project = Path(name)
        module = project / _MODULE
        module.mkdir()
        (module / "__init__.py").write_text('"""Holds a guest kernel."""\n')
        shutil.copyfile(archive, module / archive.name)
        for text in licences:
            shutil.copyfile(text, project / text.name)
        project_file = _PROJECT.format(package=PACKAGE, version=wheel_version(), module=_MODULE)
        (project / "pyproject.toml").write_text(project_file)
        (project / "setup.cfg").write_text(_PLATFORM.format(machine=platform.machine()))
        _build(project, directory)
    return next(directory.glob(f"{_MODULE}-*.whl"))


def _build(project: Path, directory: Path) -> None:
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(project)]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise EmulationError(f"building the kernel's wheel failed with {done.returncode}:\n{done.stderr[-1500:]}")
