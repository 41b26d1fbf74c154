"""Where this project keeps what it builds on a machine, for good."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path("/var/cache")
"""What root builds, every account may use."""
NAME = "ai-fabric-emulator"


def own() -> Path:
    """Return where this account builds: XDG_CACHE_HOME if set, for root a place that every account can read."""
    if home := os.environ.get("XDG_CACHE_HOME"):
        return Path(home) / NAME
    return (SHARED if os.geteuid() == 0 else Path.home() / ".cache") / NAME


def places() -> tuple[Path, ...]:
    """Return where to look for what is built: this account's place, then the shared one."""
    return tuple(dict.fromkeys((own(), SHARED / NAME)))
