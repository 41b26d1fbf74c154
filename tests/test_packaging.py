"""What the package says of itself: versions, what it depends on, and whose terms it is under."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.whose_packages import PACKAGES

ROOT = Path(__file__).parent.parent
IMPORTED_AS = {
    "os-ken": "os_ken",
    "pyyaml": "yaml",
    "jinja2": "jinja2",
    "werkzeug": "werkzeug",
    "ml-dtypes": "ml_dtypes",
    "prometheus-client": "prometheus_client",
    "pytest-timeout": None,
    "pytest-xdist": "xdist",
}
"""Names of modules that are other than those of their packages; None: it is used without being imported."""
NOT_IMPORTED = {
    "setuptools": "Mininet and Ryu take distutils from it",
    "plotly": "its script is read",
    "types-pyyaml": "types",
    "pandas-stubs": "types",
    "mypy": "a command",
    "ruff": "a command",
    "build": "a command",
    "ipykernel": "a notebook's kernel, a process of its own",
    "nbclient": "only where it is installed",
    "furo": "named in docs/conf.py",
    "myst-parser": "named in docs/conf.py",
    "sphinx": "a command",
}
GPL = "SPDX-License-Identifier: GPL-2.0"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements(project: dict[str, Any]) -> Iterator[Requirement]:
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(one for extra in extras for one in extra)]:
        yield Requirement(text)


def pins() -> dict[str, str]:
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#"))
    found: dict[str, str] = {}
    for line in lines:
        name, version = line.split("==")
        assert canonicalize_name(name) not in found, f"{name} is pinned twice"
        found[canonicalize_name(name)] = version
    return found


def test_the_package_states_ranges_and_the_set_up_takes_one_version_of_each(project: dict[str, Any]) -> None:
    pinned = pins()
    for one in requirements(project):
        assert not any(part.operator in ("==", "===", "~=") for part in one.specifier), one
        assert one.specifier.contains(pinned[canonicalize_name(one.name)]), f"{one} against constraints.txt"


def test_what_ryu_is_built_by_is_pinned() -> None:
    assert tuple(map(int, pins()["wheel"].split("."))) < (0, 46), "later ones have no bdist_wheel"
    script = (ROOT / "tools" / "setup.sh").read_text()
    steps = (" -c constraints.txt wheel pbr", " setuptools==66.1.1", " --no-deps ryu", " -c constraints.txt setuptools")
    places = [script.index(step) for step in steps]
    assert places == sorted(places), "what builds Ryu comes right before it, and what it needs is not that of others"
    assert "--system-site-packages" not in script, "the distribution's packages would count as installed"


def test_nothing_is_asked_for_that_nothing_imports(project: dict[str, Any]) -> None:
    folders = (*PACKAGES, "tests", "docs")
    text = "\n".join(path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py"))
    for one in requirements(project):
        name = canonicalize_name(one.name)
        module = IMPORTED_AS.get(name, name)
        if module is not None and name not in NOT_IMPORTED:
            assert re.search(rf"^\s*(import|from) {module}\b", text, re.MULTILINE), f"{one}: no module imports {module}"


def test_the_citation_is_of_this_version(project: dict[str, Any]) -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"].split(" AND ")
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in project["authors"]]


def test_the_texts_of_all_licences_are_there_and_go_with_the_package(project: dict[str, Any]) -> None:
    assert project["license"] == "Apache-2.0 AND GPL-2.0-only"
    assert set(project["license-files"]) == {"LICENSE", "LICENSES/*.txt", "NOTICE"}
    assert (ROOT / "LICENSES/Apache-2.0.txt").read_text() == (ROOT / "LICENSE").read_text()
    assert "Version 2, June 1991" in (ROOT / "LICENSES/GPL-2.0-only.txt").read_text()
    assert "Linux-syscall-note" in (ROOT / "LICENSES/Linux-syscall-note.txt").read_text()


def reuse_entries() -> Iterator[tuple[str, str]]:
    """Yield each pattern of REUSE.toml with its licence."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    for one in tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]:
        paths = one["path"] if isinstance(one["path"], list) else [one["path"]]
        yield from ((path, one["SPDX-License-Identifier"]) for path in paths)


def test_every_file_that_says_gpl_is_listed_as_such() -> None:
    listed = {
        path
        for pattern, licence in reuse_entries()
        if licence.startswith("GPL-2.0-only")
        for path in ROOT.glob(pattern.replace("/**", "/**/*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    folders = (*PACKAGES, "tests", "docs")
    found = (
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".c", ".h", ".inc", ".patch")
    )
    says = {path for path in found if GPL in path.read_text()} | {ROOT / "fabric/kernel/Kbuild"}
    assert says
    assert says <= listed
    assert not [path for path in listed if "SPDX-License-Identifier: Apache" in path.read_text()]


def test_the_notice_names_what_is_under_the_gpl() -> None:
    notice = (ROOT / "NOTICE").read_text()
    for pattern, licence in reuse_entries():
        if "GPL" in licence:
            assert pattern.removesuffix("**").removesuffix("vl_abi.h") in notice
