"""Which program a kept run is of: its version, and what its sources say."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).parent
_PACKAGES = ("fabric", "topologies", "controllers", "traffic", "cluster", "runs", "experiments")
_DIGITS = 8


def program_name(root: Path = _ROOT) -> str:
    """Return a name such as ``0.1.0-1e30ed72`` for what plays runs: two that differ in a source have two names.

    What published setups ask for is in the keys of their runs, and how numbers are compared decides none of them; so
    this package does not count.
    """
    digest = hashlib.sha256()
    for source in _sources(root):
        digest.update(f"{source.relative_to(root)}\0".encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return f"{metadata.version('ai-fabric-emulator')}-{digest.hexdigest()[:_DIGITS]}"


def _sources(root: Path) -> list[Path]:
    ours = _HERE.relative_to(_ROOT)
    return sorted(
        path
        for package in _PACKAGES
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ours not in path.relative_to(root).parents
    )
