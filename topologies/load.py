"""Loads a verified fabric from a YAML file, a builtin name or a mapping."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric.config import Strict, checked, checked_with_settings, files_noted, read_yaml, with_overrides
from fabric.errors import ConfigError
from fabric.model.network import Fabric
from topologies import containerlab_files, fat_tree, free_form, zoned_fat_tree
from topologies.containerlab_files import is_lab
from topologies.htsim_files import SUFFIX, read_topology_file
from topologies.keys import Outline

_HERE = Path(__file__).parent
_BUILDERS: dict[str, tuple[type[Strict], Callable[[Any], Fabric], Callable[[Any], Outline]]] = {
    "zoned_fat_tree": (zoned_fat_tree.ZonedFatTreeSpec, zoned_fat_tree.build, zoned_fat_tree.outline),
    "fat_tree": (fat_tree.FatTreeSpec, fat_tree.build, fat_tree.outline),
    "free_form": (free_form.FreeFormSpec, free_form.build, free_form.outline),
}
"""By name: what checks a topology's keys, what builds it, and what tells how large it is."""


def builtin_names() -> list[str]:
    """Return the names of the topologies that come with the project."""
    return sorted(path.stem for path in _HERE.glob("*.yaml"))


def topology_path(name_or_path: str) -> Path:
    """Return the file of a builtin topology's name or of a path. Raises ConfigError if there is neither."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    builtin = _HERE / f"{path.stem}.yaml"
    if path.parent in (Path(), Path("topologies")) and builtin.is_file():
        return builtin
    near = difflib.get_close_matches(path.stem, builtin_names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "fabric topo list shows the builtin ones"
    raise ConfigError(name_or_path, [f"no such topology file or builtin; {hint}"])


def read_topology(name_or_path: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Return the raw mapping of a topology file, ours, containerlab's or htsim's, with ``a.b=value`` overrides applied.
    Raises ConfigError for what is none."""
    path = topology_path(name_or_path)
    if path.suffix == SUFFIX:
        return with_overrides(read_topology_file(path), overrides)
    data = read_yaml(path)
    return with_overrides(containerlab_files.topology_of(data, str(path)) if is_lab(data, path) else data, overrides)


def load_fabric(name_or_path: str, overrides: Iterable[str] = ()) -> Fabric:
    """Return the fabric of a topology file or builtin name. Raises ConfigError with every fault."""
    source = str(topology_path(name_or_path))
    return checked_with_settings(lambda raw: fabric_of(raw, source), read_topology(name_or_path), list(overrides))


def spec_of(data: Mapping[str, Any], source: str) -> Strict:
    """Return the keys of a topology, checked one by one. Raises ConfigError with every fault; ``source`` prefixes
    each."""
    builder = data.get("builder")
    if not isinstance(builder, str) or builder not in _BUILDERS:
        raise ConfigError(source, [f"builder: {builder!r} does not exist; use one of {', '.join(_BUILDERS)}"])
    return checked(_BUILDERS[builder][0], data, source)


def fabric_of(data: Mapping[str, Any], source: str) -> Fabric:
    """Return the fabric that a mapping describes. Raises ConfigError with every fault; ``source`` prefixes each."""
    spec = spec_of(data, source)
    try:
        return _BUILDERS[data["builder"]][1](spec)
    except ConfigError as error:
        raise ConfigError(source, error.faults) from error


@dataclass(frozen=True)
class BuiltFabric:
    """A fabric with the mapping that it was built of, and the files that the builder read beside it (kinds of nodes):
    whoever builds it again, such as a guest, must see them."""

    topology: Mapping[str, Any]
    fabric: Fabric
    files: tuple[Path, ...]


def built(topology: Mapping[str, Any], source: str, before: BuiltFabric | None = None) -> BuiltFabric:
    """Return the fabric that a mapping describes; ``before`` if that was built of an equal one: a thousand hosts take
    a tenth of a second. Raises ConfigError as :func:`fabric_of`."""
    if before is not None and repr(before.topology) == repr(topology):  # 1 == True, and only one may be a number.
        return before
    with files_noted() as files:
        fabric = fabric_of(topology, source)
    return BuiltFabric(topology, fabric, tuple(files))


def outline_of(data: Mapping[str, Any], source: str) -> Outline:
    """Return how large the fabric that a mapping describes is, without building it where its builder
    can. Raises ConfigError for keys that are wrong; whether it can be wired is not asked."""
    spec = spec_of(data, source)
    return _BUILDERS[data["builder"]][2](spec)
