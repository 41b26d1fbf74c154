"""How much memory this machine has available."""

from __future__ import annotations

from pathlib import Path

from fabric.errors import UsageError

_MEMINFO = Path("/proc/meminfo")


def available_bytes(meminfo: str | None = None) -> int:
    """Return how much memory programs can have without others losing theirs. Raises UsageError if the kernel does not
    say. ``meminfo``: its words; by default those of now."""
    for line in (meminfo or _MEMINFO.read_text()).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise UsageError(f"{_MEMINFO}: has no MemAvailable; this needs Linux 3.14 or newer")
