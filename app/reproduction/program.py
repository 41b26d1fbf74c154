"""Which program a kept run is of: its version, and what its sources say."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from app.sweeps.identity import sources_digest

_ROOT = Path(__file__).resolve().parents[2]
_DIGITS = 8


def program_name(root: Path = _ROOT) -> str:
    """Return a name such as ``0.1.0-1e30ed72`` for what plays runs: two that differ in a source that decides figures
    have two names.

    What published setups ask for is in the keys of their runs, and how numbers are compared decides none of them; so
    this package does not count.
    """
    return f"{metadata.version('ai-fabric-emulator')}-{sources_digest(root)[:_DIGITS]}"
