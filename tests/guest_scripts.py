"""Scripts and modules of the tests, run in guests."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from controllers.routing import Routing
from fabric.model.lanes import QueueConfig, Queueing
from fabric.world.engine import Front, Groundwork, Guest
from fabric.world.engines import VIRTUAL
from fabric.world.virtual import bytecode
from fabric.world.virtual.guest import DEFAULT_MEMORY_BYTES, GIB, Channels, GuestMachine, Surroundings, run_in_guest
from fabric.world.virtual.joining import TOGETHER
from fabric.world.virtual.together import Member, Share, run_together
from fabric.world.virtual.watch import Limits
from runs.groundwork import groundwork_of
from runs.launching.enter import IMPORTS
from topologies.load import load_fabric

ROOT = Path(__file__).parents[1]


def share_bytecode(place: Path) -> None:
    """Let an empty cache of ours, which ``XDG_CACHE_HOME`` will name, have the modules that are compiled already: to
    import all of the project once more takes ten times as long as a guest's start."""
    compiled = bytecode.prepare().parent
    place.mkdir(parents=True, exist_ok=True)
    (place / compiled.name).symlink_to(compiled)


def run_script(
    script: Path, *arguments: str, keep: Sequence[Path] = (), memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> str:
    """Run a script as the first program of a guest and return what it prints; it fails if the script does.

    Its modules come compiled, as those of commands do: guests do not hang on what else has been compiled meanwhile.
    """
    stdout = io.BytesIO()
    code = run_in_guest(
        [sys.executable, str(script), *arguments],
        GuestMachine(1, memory_bytes),
        Surroundings(keep, os.environ | {"PYTHONPATH": str(ROOT), "FABRIC_WORLD": "1"}, bytecode.prepare()),
        Channels(stdout),
    )
    words = stdout.getvalue().decode()
    assert code == 0, f"{script.name} ended with {code} in the guest: {words}"
    return words


def run_module(module: str, *arguments: str, keep: Sequence[Path] = (), groundwork: Groundwork | None = None) -> str:
    """Run a module as the program of a guest, as commands run theirs, and return what it prints; fails if the module
    does.

    Its guest is forked of the one that commands' guests are forked of, with what runs import, and, with a
    ``groundwork``, of one whose fabric stands: the module has that by ``bring_up``.
    """
    stdout = io.BytesIO()
    front = Front(stdout=stdout, imports=IMPORTS, groundwork=groundwork)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setenv("PYTHONPATH", str(ROOT))
        VIRTUAL.enter([sys.executable, "-m", module, *arguments], Guest(1, tuple(keep)), front)
    words = stdout.getvalue().decode()
    assert ended.value.code == 0, f"{module} ended with {ended.value.code} in the guest: {words}"
    return words


def standing(topology: str, queueing: Queueing, overrides: Sequence[str] = ()) -> Groundwork:
    """Return the groundwork of modules that bring such a fabric up, with the usual queues and routes."""
    return groundwork_of(load_fabric(topology, overrides), QueueConfig(), queueing, Routing(), is_measured=False)


def run_script_in_guests(
    script: Path, *arguments: str, guests: int, lookahead_ns: int = 1000, limits: Limits | None = None
) -> str:
    """Run a script as the program of each of several guests that play together; return what that of guest 0 prints."""
    stdout = io.BytesIO()

    def run(member: Member) -> int:
        return run_in_guest(
            [sys.executable, str(script), *arguments],
            GuestMachine(1 + member.together.number, GIB // 2, limits or Limits(), companion=member),
            Surroundings(
                environment=os.environ | {"PYTHONPATH": str(ROOT), "FABRIC_WORLD": "1"},
                bytecode=bytecode.prepare(),
                handed={TOGETHER: member.together.encoded()},
            ),
            Channels(stdout if member.together.number == 0 else io.BytesIO()),
        )

    code = run_together(Share(guests, tuple(range(guests)), lookahead_ns), run)
    words = stdout.getvalue().decode()
    assert code == 0, f"{script.name} ended with {code} in guest 0: {words}"
    return words
