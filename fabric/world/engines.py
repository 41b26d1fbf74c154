"""The engines by name, and the one that this process runs in."""

from __future__ import annotations

import os
from typing import Literal

from fabric.errors import UsageError
from fabric.world.engine import Engine
from fabric.world.namespaces import NamespaceEngine
from fabric.world.virtual.guest import in_guest
from fabric.world.virtual_time import VirtualEngine

NAMESPACE = NamespaceEngine()
VIRTUAL = VirtualEngine()
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (NAMESPACE, VIRTUAL)}
DEFAULT: Engine = NAMESPACE
EngineName = Literal["namespace", "virtual"]
"""Their names, for type checkers and completion."""


def engine_named(name: str) -> Engine:
    """Return an engine. Raises UsageError."""
    if name not in ENGINES:
        raise UsageError(f"engine {name!r}: does not exist; use one of {', '.join(ENGINES)}")
    return ENGINES[name]


def usable_engine() -> EngineName:
    """Return the name of the engine that can run for this user: real time needs root."""
    return "namespace" if os.geteuid() == 0 else "virtual"


def current_engine() -> Engine:
    """Return the engine that this process runs in, or would run in as it stands."""
    return VIRTUAL if in_guest() else NAMESPACE
