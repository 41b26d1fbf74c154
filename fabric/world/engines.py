"""The engines by name, and the one that this process runs in."""

from __future__ import annotations

from typing import Literal

from fabric.errors import UsageError
from fabric.world.engine import Engine
from fabric.world.namespaces import NamespaceEngine
from fabric.world.virtual.guest import in_guest
from fabric.world.virtual_time import VirtualEngine

NAMESPACE = NamespaceEngine()
VIRTUAL = VirtualEngine()
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (NAMESPACE, VIRTUAL)}
EngineName = Literal["namespace", "virtual"]
"""Their names, for type checkers and completion."""


def engine_named(name: str) -> Engine:
    """Return an engine. Raises UsageError."""
    if name not in ENGINES:
        raise UsageError(f"engine {name!r}: does not exist; use one of {', '.join(ENGINES)}")
    return ENGINES[name]


def current_engine() -> Engine:
    """Return the engine that this process runs in, or would run in as it stands."""
    return VIRTUAL if in_guest() else NAMESPACE
