"""Whether this program's packages are its own: others have the same names, and pip writes one over the other.

PyPI's ``fabric``, a library for SSH, is the best known. This module needs nothing that could be overwritten, so that it
can say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("fabric", "topologies", "controllers", "traffic", "cluster", "runs", "experiments", "app")
MARK = "# A package of ai-fabric-emulator (app/whose_packages.py)."
"""In the first file of each, which whoever writes over any writes over, too."""
_OURS = "ai-fabric-emulator"
_HOME = Path(__file__).resolve().parents[1]


def why_not_ours(home: Path = _HOME, path: Sequence[str] | None = None) -> str | None:
    """Return which package is another distribution's, and what to do; None: all are this program's.

    ``home``: where this program's packages are; ``path``: where Python looks for packages, None: wherever it does.
    """
    found = next(_faults(home, path), None)
    if found is None:
        return None
    name, where = found
    others = list(_distributions_with(name, path))
    whose = f"; {' and '.join(others)} has it, too" if others else ""
    remove = f"pip uninstall {' '.join(others)}" if others else f"remove whatever else has a package {name!r}"
    return (
        f"the package {name!r} {where}, and not that of {_OURS}{whose}. pip lets one write over the other: {remove}; "
        "then install this program again (pip install --force-reinstall --no-deps, from its folder or wheel), or give "
        "each an environment of its own (python3 -m venv)"
    )


def _faults(home: Path, path: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Yield each package that is not ours, and what is there."""
    for name in PACKAGES:
        first = home / name / "__init__.py"
        if not _is_marked(first):
            yield name, f"in {first.parent} is another's" if first.is_file() else f"has lost {first}"
            continue
        spec = find_spec(name) if path is None else PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None and not _is_marked(Path(spec.origin)):
            yield name, f"that Python finds is {spec.origin}"


def _is_marked(first: Path) -> bool:
    """Return whether a package's first file is this program's, or a copy of it that someone works on."""
    try:
        return MARK in first.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _distributions_with(name: str, path: Sequence[str] | None) -> Iterator[str]:
    """Yield the distributions that have a package of this name, without this program's."""
    for one in metadata.distributions() if path is None else metadata.distributions(path=list(path)):
        other = one.metadata["Name"]
        if other and other != _OURS and any(str(file) == f"{name}/__init__.py" for file in one.files or ()):
            yield other
