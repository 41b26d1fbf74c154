"""``python -m runs.launching.finish PARENT RECORDED DIRECTORY HOW``: makes a run's directory.

It draws the figure that answers most and writes the report after the run, on the machine itself: in a guest all that
computes takes longer, and the fabric's hosts hold memory. Ends with the process ``PARENT``; stdout has a line per event
(:mod:`runs.launching.events`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from fabric.errors import FabricError, ResultError
from fabric.world.isolation.processes import die_with
from runs.handover import hand_over
from runs.launching.events import EventLines, Note, failure_of

UNDRAWN = "undrawn:"
"""What stands for ``HOW`` if nothing is drawn; else the folder of an experiment that does not come with the program,
or nothing."""
DRAWING = Note("drawing the answer's figure")


def main(parent: str, recorded: str, directory: str, how: str) -> int:
    """Draw, unless told not to, publish, and return the exit code."""
    die_with(int(parent))
    lines = EventLines(sys.stdout.buffer)
    try:
        if how != UNDRAWN:
            from runs.launching.run_result import RunResult  # It takes as long to load as all else together.

            lines.report(DRAWING)
            RunResult(Path(recorded), Path(how) if how else None).write_report(main_figure_only=True)
        publish(Path(recorded), Path(directory))
    except FabricError as error:
        lines.report(failure_of(error))
        return error.exit_code
    return 0


def publish(recorded: Path, directory: Path) -> None:
    """Give a whole result its name, which it has only from then on, and its user. Raises ResultError if it is taken."""
    hand_over(recorded)
    if directory.exists():
        raise ResultError(f"{directory}: was created by somebody else during the run")
    recorded.rename(directory)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
