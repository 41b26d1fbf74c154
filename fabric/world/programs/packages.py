"""Packages that lie in folders which Python does not search, known to this process and to the programs that it starts.

Adding the folder's parent to ``sys.path`` would make its siblings importable, too, under whatever names they have.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

OF_DISTRIBUTION = Path("/usr/lib/python3/dist-packages")
"""Where Debian and Ubuntu put packages for their own Python 3, whichever version that is; a venv has none of them."""


class _Finder(MetaPathFinder):
    """Finds the packages by their folders."""

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a package is; what is inside one is found by its folder, as in any package."""
        folder = self.folders.get(fullname)
        if folder is None:
            return None
        start = Path(folder) / "__init__.py"
        return importlib.util.spec_from_file_location(fullname, start, submodule_search_locations=[folder])


_FINDER = _Finder()


def know_packages(folders: Mapping[str, str]) -> None:
    """Let packages be imported from their folders, unless Python finds others of their names."""
    _FINDER.folders.update(folders)
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)


def folder_of(package: str) -> str | None:
    """Return the folder of a package that was made known; None: it was not."""
    return _FINDER.folders.get(package)


class KnownPackages:
    """The packages known to a process: where this is unpickled, they are from then on."""

    def __init__(self) -> None:
        self.folders = dict(_FINDER.folders)

    def __reduce__(self) -> tuple[object, tuple[dict[str, str]]]:
        return know_packages, (self.folders,)
