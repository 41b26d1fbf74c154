"""Python's own distutils for the libraries that still ask for it.

Mininet and Ryu compare version numbers by it. Where setuptools is installed its own comes in its place, with 130
modules: 0.3 s of CPU in each process, and several times that in a guest. Python 3.12 has no other.
"""

from __future__ import annotations

import contextlib
import importlib
import sys

ENVIRONMENT = {"SETUPTOOLS_USE_DISTUTILS": "stdlib"} if sys.version_info < (3, 12) else {}
"""Lets processes find Python's own from their start on."""


def load_pythons_distutils() -> None:
    """Load Python's own ``distutils.version``, if there is one, so that whoever imports it later gets that one."""
    before = list(sys.meta_path)
    sys.meta_path[:] = [finder for finder in before if type(finder).__module__ != "_distutils_hack"]
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("distutils.version")
    finally:
        sys.meta_path[:] = before
