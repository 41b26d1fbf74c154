"""Settings of the kernel by name."""

from __future__ import annotations

from pathlib import Path


def write_sysctl(name: str, value: int | str) -> bool:
    """Set a sysctl of the current network namespace; return False if this kernel does not have it there."""
    path = Path("/proc/sys") / name
    if not path.exists():
        return False
    path.write_text(str(value))
    return True
