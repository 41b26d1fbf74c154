"""``python task.py DIRECTORY SHARE SEED``: what runs in place of ``fabric run``, with its exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

from runs.launching.spec import RunSpec
from tests.app.sweeps.plain_runs import SHARE, play

INVALID_SEED, FAILING_SEED = 2, 3


def main(directory: str, share: str, seed: int) -> int:
    if seed == FAILING_SEED:
        print("a rank died", file=sys.stderr)
        return 1
    spec = RunSpec("isolation", {SHARE: float(share)}, seed=seed, directory=Path(directory))
    play(spec, lambda event: None, "invalid" if seed == INVALID_SEED else "faithful")
    return 3 if seed == INVALID_SEED else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
