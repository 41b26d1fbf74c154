"""How an experiment's name, its folder or a YAML file becomes a checked config."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fabric.config import checked, checked_with_settings, read_yaml, with_overrides
from fabric.errors import ConfigError, ResultError, UsageError
from fabric.model.network import Fabric
from fabric.suggestions import nearest
from fabric.world.programs import packages
from runs import known_folders
from runs.catalogue import EXPERIMENTS as EXPERIMENTS
from runs.catalogue import defined
from runs.config import RunConfig, split_topology_setting, with_whole_topology
from runs.definition import DEFINITION, Experiment
from topologies.load import BuiltFabric, built


def _elsewhere(folder: Path) -> Experiment:
    """Return the experiment of a folder that is not ours: a package by the folder's name, which programs in hosts know,
    too. Raises ConfigError."""
    package = folder.name
    if not package.isidentifier():
        raise ConfigError(str(folder), ["its name is not a Python package's; rename the folder"])
    if not (folder / "__init__.py").is_file():
        raise ConfigError(str(folder), [f"has {DEFINITION} and no __init__.py; add one, it may be empty"])
    known = importlib.util.find_spec(package)
    if known is None:
        packages.know_packages({package: str(folder)})
    elif (other := packages.folder_of(package)) not in (None, str(folder)):
        raise ConfigError(str(folder), [f"has the name of {other}, which is loaded; load it in another process"])
    elif list(known.submodule_search_locations or ()) != [str(folder)]:
        raise ConfigError(str(folder), [f"has the name of the Python package {package!r}; rename the folder"])
    return defined(package, folder)


def experiment_of(manifest: Mapping[str, Any], result: Path, named: Path | None = None) -> Experiment:
    """Return the experiment that a result is of, by the manifest in its directory. ``named``: the folder of the
    experiment, named by who reads the result; without it, only a folder that this user has run is loaded
    (:mod:`runs.known_folders`).

    Raises ResultError, which says why the experiment is missing, and UsageError for another folder than the result's.
    """
    name, folder = manifest.get("experiment"), manifest.get("experiment_folder")
    if named is not None:
        return _named(named, name)
    if folder is None and isinstance(name, str) and name in EXPERIMENTS:
        return EXPERIMENTS[name]
    if folder is None:
        raise ResultError(f"this program has no experiment {name}")
    path = Path(str(folder))
    if why := known_folders.why_not(path, result):
        raise ResultError(why)
    return _loaded(path)


def _named(folder: Path, name: object) -> Experiment:
    folder = folder.resolve()
    if folder.name != name:
        raise UsageError(f"--experiment-folder {folder}: is not the folder of the experiment {name}; name that")
    return _loaded(folder)


def _loaded(folder: Path) -> Experiment:
    if not (folder / DEFINITION).is_file():
        raise ResultError(f"{folder} is gone, or is not an experiment's folder any more")
    try:
        experiment = _elsewhere(folder)
        experiment.load_tables()
        return experiment
    except ConfigError as error:
        raise ResultError(str(error)) from error
    except Exception as error:  # Somebody's own code; without it, the rest of the result is still good.
        raise ResultError(f"{folder} cannot be loaded: {type(error).__name__}: {error}") from error


class Resolved(NamedTuple):
    """An experiment with its checked config. ``data``: all of that config as JSON has it, for a file or another process
    (:func:`restored`); ``built``: its fabric."""

    experiment: Experiment
    config: RunConfig
    data: dict[str, Any]
    built: BuiltFabric

    @property
    def fabric(self) -> Fabric:
        """The fabric of its topology."""
        return self.built.fabric


def resolve(name_or_path: str, overrides: Iterable[str], before: BuiltFabric | None = None) -> Resolved:
    """Return an experiment with its checked config and its fabric, which is ``before`` if the topology is the same.

    It is named, or it is the folder of one anywhere, or a YAML file that names one. Raises ConfigError with every
    fault, those of the topology included.
    """
    path = Path(name_or_path)
    others: dict[str, Experiment] = {}
    if name_or_path in EXPERIMENTS:
        path = EXPERIMENTS[name_or_path].file
    elif (path / DEFINITION).is_file():
        other = _elsewhere(path.resolve())
        others, path = {other.name: other}, other.file
    elif not path.is_file():
        raise _unknown(name_or_path)
    return _resolve_data(read_yaml(path), str(path), overrides, others, before)


def restored(name: str, foreign_folder: Path | None, data: Mapping[str, Any]) -> Resolved:
    """Return what :func:`resolve` did in another process of this run, by its ``data``. Every value is checked for what
    it is, and the fabric is built; that they fit each other is known. Raises ConfigError."""
    source = f"the config of {name}"
    experiment = _elsewhere(foreign_folder) if foreign_folder is not None else EXPERIMENTS[name]
    config = checked(experiment.load_config(), data, source)
    return Resolved(experiment, config, dict(data), built(config.topology, f"{source}: topology"))


def _unknown(name_or_path: str) -> ConfigError:
    """Return the error for a name that is neither an experiment's nor a file's."""
    near = nearest(name_or_path, EXPERIMENTS)
    hint = f"did you mean {near!r}? " if near else ""
    others = "fabric list shows all; a YAML file or the folder of an experiment will do, too"
    return ConfigError(f"unknown experiment {name_or_path!r}", [f"{hint}({others})"])


def _experiment_in(data: Mapping[str, Any], source: str, others: Mapping[str, Experiment]) -> Experiment:
    """Return the experiment that a file names."""
    name = data.get("experiment")
    if not isinstance(name, str) or not (name in others or name in EXPERIMENTS):
        known = ", ".join(dict.fromkeys([*EXPERIMENTS, *others]))
        raise ConfigError(source, [f"experiment: {name!r} does not exist; use one of {known}"])
    return others[name] if name in others else EXPERIMENTS[name]


def _resolve_data(
    data: dict[str, Any],
    source: str,
    overrides: Iterable[str],
    others: Mapping[str, Experiment],
    before: BuiltFabric | None = None,
) -> Resolved:
    """Do that with what a file says; ``others``: experiments by name that go before ours."""
    experiment = _experiment_in(data, source, others)
    if experiment.foreign_folder is not None:
        # A fault of either is found before anything starts. Tests load ours, which takes as long as all else here.
        experiment.load_run(), experiment.load_tables()
    check = _Check(experiment.load_config(), source, before)

    def applied(data: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
        whole, single = split_topology_setting(settings)
        return with_overrides(with_whole_topology(with_overrides(data, whole), source), single)

    config = checked_with_settings(check, data, list(overrides), applied=applied)
    assert check.built is not None
    return Resolved(experiment, config, config.model_dump(mode="json", by_alias=True), check.built)


class _Check:
    """Checks a config with its topology, whose fabric it keeps. Raises ConfigError with every fault of both."""

    def __init__(self, kind: type[RunConfig], source: str, before: BuiltFabric | None) -> None:
        self._kind = kind
        self._source = source
        self.built = before

    def __call__(self, raw: dict[str, Any]) -> RunConfig:
        config = None
        faults: list[str] = []
        try:
            config = checked(self._kind, raw, self._source)
        except ConfigError as error:
            faults += error.faults
        try:
            self.built = built(raw["topology"], self._source, self.built)
        except ConfigError as error:
            faults += [f"topology: {fault}" for fault in error.faults]
        else:
            fabric = self.built.fabric
            config = None if config is None else config.settled(fabric)
            faults += config.faults(fabric) if config is not None else []
        if faults or config is None:
            raise ConfigError(self._source, faults)
        return config
