"""Where a run finds what of the machine it needs."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/run/fabric/cgroup")
"""Where a world finds the machine's control groups: see :func:`fabric.world.inside.set_up`."""
