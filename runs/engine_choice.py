"""Which engine plays where no option says it: one rule for the command and for Python."""

from __future__ import annotations

import os
from pathlib import Path

from fabric.errors import ConfigError, UsageError
from fabric.world import cache
from fabric.world.engine import is_marked
from fabric.world.engines import ENGINES, NAMESPACE, VIRTUAL, EngineName, current_engine, engine_named

VARIABLE = "FABRIC_ENGINE"
RULE = (
    f"default: {VARIABLE}, else engine: in ~/.config/{cache.NAME}/config.yaml, else namespace for root and virtual for "
    "all others"
)
"""It in words, for help."""


def chosen_engine() -> EngineName:
    """Return the engine of this process's world, or the one that the account has chosen, or that it can use.

    In this order: the environment's ``FABRIC_ENGINE``, ``engine`` in :func:`own_config`, real time for root, which
    alone can have it, virtual time for all others. Raises UsageError or ConfigError if a choice is none of these.
    """
    if is_marked():
        return _name(current_engine().name)
    if chosen := os.environ.get(VARIABLE, ""):
        try:
            return _name(engine_named(chosen).name)
        except UsageError as error:
            raise UsageError(f"{VARIABLE}: {error}") from error
    if own_config().exists():
        return _of_file(own_config())
    return _name(NAMESPACE.name if os.geteuid() == 0 else VIRTUAL.name)


def own_config() -> Path:
    """Return the file in which an account sets its defaults, such as ``engine: virtual``."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / cache.NAME / "config.yaml"


def _of_file(file: Path) -> EngineName:
    from fabric.config import read_yaml  # What checks configs takes a while to load, and few accounts have a file.

    data = read_yaml(file)
    if unknown := sorted(set(map(str, data)) - {"engine"}):
        raise ConfigError(str(file), [f"{', '.join(unknown)}: unknown; the only key is engine"])
    if data.get("engine") not in ENGINES:
        raise ConfigError(
            str(file), [f"engine: {data.get('engine')!r} does not exist; use one of {', '.join(ENGINES)}"]
        )
    return _name(data["engine"])


def _name(name: str) -> EngineName:
    return "virtual" if name == VIRTUAL.name else "namespace"
