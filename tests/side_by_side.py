"""How files of tests are handed out to workers (``pytest -n 5 --dist loadfile``).

Worlds in real time wait most of their time, but what they see must not be of a crowded machine; guests compute all the
time, and in virtual time nothing is late. So two workers bring worlds up, two guests, which are niced: they take what
the worlds leave. A fifth begins with all other files, which wait for sockets or take no time: kept for the end, they
would leave the machine idle.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_MARKED = re.compile(r"^pytestmark = (?:\[[^\]]*?)?pytest\.mark\.(root|guest)\b", re.MULTILINE)


class Kind(Enum):
    """What all tests of a file bring up."""

    WORLD = "root"
    GUEST = "guest"
    NEITHER = ""


@cache
def kind_of(path: Path) -> Kind:
    """Return what the tests of a file bring up, as its ``pytestmark`` says."""
    found = _MARKED.search(path.read_text())
    return Kind(found[1]) if found else Kind.NEITHER


LONGEST = (
    "root/test_validate.py",
    "docs/test_tutorials.py",
    "virtual/test_several_guests.py",
    "virtual/test_sensitivity.py",
    "vl/test_congestion.py",
    "controllers/app/test_real_failures.py",
    "virtual/test_commands.py",
    "virtual/test_lossless_links.py",
    "virtual/test_nodes.py",
    "vl/test_virtual_lanes.py",
)
"""Files below tests/ that take minutes, longest first: begun last, they would keep one worker busy when the others are
done."""
WORKERS_OF_WORLDS, WORKERS_OF_OTHERS = (0, 2), (4,)
WORLDS_FIRST = (Kind.WORLD, Kind.GUEST, Kind.NEITHER)
GUESTS_FIRST = (Kind.GUEST, Kind.NEITHER)
OTHERS_FIRST = (Kind.NEITHER, Kind.GUEST)
WAITING = "tests/traffic/"
"""Where the files are that bring nothing up and wait for sockets."""


def _place(scope: str) -> tuple[int, bool]:
    """Return how early a file is to begin, lowest first."""
    longest = next((place for place, name in enumerate(LONGEST) if scope.endswith(name)), len(LONGEST))
    return longest, not scope.startswith(WAITING)


class SideBySide(LoadFileScheduling):  # type: ignore[misc] # xdist has no types for it.
    """Each worker gets the next file of the kind that it takes first, and is shut down when there is none for it."""

    def _kinds_for(self, node: WorkerController) -> tuple[Kind, ...]:
        number = int(node.gateway.id.removeprefix("gw"))
        alone = all(other is node or other.shutting_down for other in self.nodes)  # Its like may have crashed.
        if number in WORKERS_OF_WORLDS or alone:
            return WORLDS_FIRST
        return OTHERS_FIRST if number in WORKERS_OF_OTHERS else GUESTS_FIRST

    def _next_for(self, node: WorkerController) -> str | None:
        root: Path = self.config.rootpath
        queue = sorted(self.workqueue, key=_place)
        for kind in self._kinds_for(node):
            for scope in queue:
                if kind_of(root / scope) is kind:
                    return str(scope)
        return None

    def _assign_work_unit(self, node: WorkerController) -> None:
        if (scope := self._next_for(node)) is not None:
            self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._pending_of(self.assigned_work[node]) > 1 or node.shutting_down:
            return  # It has not come to the end of its file (``tests/handed_files.py``).
        if self._next_for(node) is not None:
            self._assign_work_unit(node)
        else:
            node.shutdown()
