"""What commands have in common that bring a fabric up: how they go on in namespaces or a guest of their own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NoReturn

from rich.text import Text

from controllers.planning.planner import routing_faults
from controllers.routing import Routing
from fabric.config import files_noted
from fabric.errors import ConfigError, UsageError
from fabric.model.lanes import Queueing
from fabric.model.network import Fabric, Link
from fabric.queueing import lossless, red
from fabric.world import engines, inside
from fabric.world.engine import Ask, Engine, Front, Guest
from fabric.world.virtual.guest import directories_named, directories_of
from fabric.world.virtual.memory import described, needed_bytes
from fabric.world.virtual.watch import GuestTime
from runs.config import queue_faults, queues_of, require_engine_for_jitter, split_fabric_settings
from runs.console import ERR, tell
from topologies.load import load_fabric


def links_down(fabric: Fabric, names: Sequence[str]) -> list[Link]:
    """Return the links plugged into the named ports. Raises UsageError for a name that is not a port of the fabric."""
    found = []
    for name in names:
        port = fabric.port_named(name)
        if port is None:
            example = next(iter(fabric.link_at))
            raise UsageError(f"--down {name}: {fabric.name} has no such port; write a port like {example}")
        found.append(fabric.link_at[port])
    return found


def fabric_of(options: argparse.Namespace) -> Fabric:
    """Return the fabric that a command names, with its settings. Raises ConfigError.

    ``options`` keeps the files that it is in, for :func:`enter_world`.
    """
    with files_noted() as options.files:
        return load_fabric(options.topology, split_fabric_settings(options.overrides)[0])


def require_queueing(fabric: Fabric, options: argparse.Namespace) -> None:
    """Refuse, before a world is made, a queueing that cannot run in it, and a routing that is not made for the fabric.

    In a world, that has been asked."""
    if inside.is_inside():
        return
    queueing, queues = Queueing(options.queueing), queues_of(options.overrides)
    engine = engines.ENGINES[options.engine]
    lossless.require(engine, queueing)
    red.require(engine, queues, queueing)
    require_engine_for_jitter(engine, queues)
    routing = Routing.model_validate({"policy": options.routing, "repair": options.repair})
    if faults := [*routing_faults(fabric, routing), *queue_faults(queues, [queueing], fabric)]:
        raise ConfigError(fabric.name, faults)


def enter_world(
    arguments: list[str],
    options: argparse.Namespace,
    fabric: Fabric | None,
    *,
    ask: Ask | None = None,
    words: Iterable[str] = (),
    front: Front | None = None,
) -> None:
    """Go on in a new world, unless this is one; a guest sees the directories of the host that ``words`` name, and those
    of the files that :func:`fabric_of` has read. ``front``: how it is reached otherwise than by ``ask``, and its
    groundwork."""
    if not inside.is_inside():
        read, shared = (getattr(options, name, ()) for name in ("files", "share"))
        keep = (*directories_of(read), *directories_named(words), *shared)
        guest = replace(_guest_for(options, fabric), keep=keep)
        imports = ("app.commands.top_parser", options.command.__module__, "fabric.emulation.build")
        front = replace(front or Front(), imports=imports)
        front = front if ask is None else replace(front, ask=ask)
        command = [sys.executable, "-m", getattr(options, "entry", ("app.cli",))[0], *arguments]
        _enter(command, engines.ENGINES[options.engine], guest, front)
    inside.set_up()


def _guest_for(options: argparse.Namespace, fabric: Fabric | None) -> Guest:
    """Return the guest that a command's options ask for, if it is to run in one. Raises UsageError if it cannot do."""
    guest = Guest(seed=getattr(options, "seed", 1), memory_bytes=options.memory)
    needed, subject = (0, "it") if fabric is None else (needed_bytes(fabric), described(fabric))
    return engines.ENGINES[options.engine].guest_for(guest, needed, subject)


def _enter(command: list[str], engine: Engine, guest: Guest, front: Front) -> NoReturn:
    """Go on in namespaces or a guest of the run's own, showing how virtual time passes until a line is asked for."""
    if engine.has_terminal:
        engine.enter(command, guest, Front())
    passed = ""
    with ERR.status("booting the guest") as status:

        def show(time: GuestTime) -> None:
            nonlocal passed
            passed = str(time)
            status.update(Text(passed, "dim"))

        def ask_undisturbed() -> str | None:
            status.stop()
            assert ask is not None
            return ask()

        ask = front.ask
        front = replace(front, progress=show, ask=ask_undisturbed if ask else None, tell=tell)
        try:
            engine.enter(command, guest, front)
        finally:
            if passed:
                tell(passed)
