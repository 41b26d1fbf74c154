"""``python -m runs.launching.enter ENGINE PARENT GUEST``: goes on as the program that plays a run.

It does so in the run's own namespaces or guest, and ends with the process ``PARENT`` that started it. On stdin is a
line, its groundwork, and then what is for that program (:mod:`runs.launching.playing`); stdout has a line per event
(:mod:`runs.launching.events`).
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from fabric.errors import FabricError
from fabric.world.engine import Front, Groundwork, Guest
from fabric.world.engines import engine_named
from fabric.world.isolation.processes import die_with
from fabric.world.virtual.meeting import Meeting
from runs.launching.events import EventLines, Note, failure_of

IMPORTS = ("runs.launching.play", "runs.study", "fabric.emulation.build", "pyarrow.parquet")
"""What most runs need, also what they import late."""


def guest_as_text(guest: Guest) -> str:
    """Return a guest as an argument of this program."""
    return json.dumps(asdict(guest) | {"keep": [*map(str, guest.keep)]})


def groundwork_as_line(groundwork: Groundwork) -> bytes:
    """Return a groundwork as the first line on this program's stdin."""
    return json.dumps(asdict(groundwork)).encode() + b"\n"


def _guest(text: str) -> Guest:
    values = json.loads(text)
    meeting = None if values["meeting"] is None else Meeting(**values["meeting"])
    return Guest(**values | {"keep": tuple(map(Path, values["keep"])), "meeting": meeting})


def _first_line() -> bytes:
    """Return the first line on stdin, and leave what follows to the program that this one goes on as."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as unbuffered:
        return unbuffered.readline()


def main(engine: str, parent: str, guest: str) -> int:
    """Enter, and return the exit code if that fails."""
    die_with(int(parent))
    lines = EventLines(sys.stdout.buffer)

    def tell(text: str) -> None:
        lines.report(Note(text))

    groundwork = Groundwork(**json.loads(_first_line()))
    front = Front(lines.report, tell=tell, stdout=lines, gives=True, imports=IMPORTS, groundwork=groundwork)
    try:
        engine_named(engine).enter([sys.executable, "-m", "runs.launching.playing"], _guest(guest), front)
    except FabricError as error:
        lines.report(failure_of(error))
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
