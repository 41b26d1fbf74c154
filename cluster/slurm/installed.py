"""What of Slurm is missing here, and which packages have it."""

from __future__ import annotations

import os
import shutil

PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmstepd": "slurmd",
    "sbatch": "slurm-client",
    "srun": "slurm-client",
    "scontrol": "slurm-client",
    "scancel": "slurm-client",
}
"""Slurm's programs, each with Debian's package of it."""
INSTALL = "apt-get install slurmctld slurmd slurm-client munge"
_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


def search_path() -> str:
    """Return where programs are looked for: daemons are not on every user's path."""
    return os.environ.get("PATH", "") + _SBIN


def missing() -> list[str]:
    """Return which of Slurm's programs are not installed."""
    return [name for name in PACKAGES if shutil.which(name, path=search_path()) is None]


def why_no_slurm() -> str:
    """Return why Slurm cannot be the engine here; nothing if it can."""
    if lacking := missing():
        return f"Slurm is not installed (no {', '.join(lacking)}); install it (Debian: {INSTALL}), or use engine own"
    return ""
