"""The runs that a sweep asks for, checked before any is started."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from app.sweeps.config import FigureConfig, SweepConfig
from app.sweeps.identity import KERNEL, deciding_parts, differing, run_key
from fabric.config import files_noted, setting
from fabric.errors import ConfigError, UsageError
from fabric.world.engines import engine_named
from runs.definition import Experiment
from runs.launching.spec import Prepared, RunSpec, prepare, texts_in
from topologies.load import BuiltFabric

PLAN = "sweep.json"
"""What a sweep is, in its directory."""
_SAME = "install the same program, and give it the same files"


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep: ``key`` is the name of its directory, ``point`` what it has of the grid, by axis; ``spec`` is
    without a directory. ``parts``: digests of what decides its figures beside its config, by name; ``plain_key``: its
    key without these, which is the same whatever program plays it."""

    key: str
    point: Mapping[str, Any]
    spec: RunSpec
    parts: Mapping[str, str] = field(default_factory=dict)
    plain_key: str = ""

    @property
    def seed(self) -> int:
        """Its seed."""
        assert self.spec.seed is not None
        return self.spec.seed

    def command(self, directory: Path) -> list[str]:
        """Return the command that runs it into a directory."""
        spec = replace(self.spec, directory=directory, draws=False)
        return [str(Path(sys.executable).with_name("fabric")), "run", *spec.words(), "--expect-key", self.key]


@dataclass(frozen=True)
class SweepPlan:
    """All runs of a sweep, point by point, seed by seed. ``memory_bytes``: what each may need of a machine's;
    ``foreign_folder``: of an experiment that does not come with the program."""

    name: str
    experiment: str
    engine: str
    axes: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    figures: tuple[FigureConfig, ...]
    memory_bytes: int
    foreign_folder: Path | None = None

    def text_of(self, axis: str, value: Any) -> str:
        """Return a value of an axis as a person reads it, see :func:`value_text`; as YAML if another one reads alike,
        such as ``true`` and ``'True'``."""
        return self._texts[axis, repr(value)]

    @cached_property
    def _texts(self) -> dict[tuple[str, str], str]:
        values = {(axis, repr(value)): value for run in self.runs for axis, value in run.point.items()}
        alike = Counter((axis, value_text(value)) for (axis, _), value in values.items())
        return {
            (axis, name): value_text(value) if alike[axis, value_text(value)] == 1 else _as_yaml(value)
            for (axis, name), value in values.items()
        }

    @property
    def points(self) -> list[list[PlannedRun]]:
        """The runs that differ only in their seeds, together."""
        found: dict[str, list[PlannedRun]] = {}
        for run in self.runs:
            found.setdefault(repr(run.point), []).append(run)
        return list(found.values())


def plan_sweep(name: str, config: SweepConfig) -> SweepPlan:
    """Return the runs that a sweep's file asks for. Raises ConfigError or UsageError for the first point that cannot be
    run, and says which it is."""
    base = RunSpec(
        config.experiment,
        config.settings,
        engine=config.engine,
        rate=config.rate,
        memory_bytes=config.memory,
        draws=False,
    )
    return plan_runs(name, from_anywhere(base), config.grid, config.all_seeds, config.figures)


def from_anywhere(spec: RunSpec) -> RunSpec:
    """Return a spec whose experiment and topology have absolute paths if they are files: it may be run elsewhere."""
    experiment, settings = spec.experiment, dict(spec.settings)
    if Path(experiment).exists():
        experiment = str(Path(experiment).absolute())
    if isinstance(settings.get("topology"), str) and Path(settings["topology"]).is_file():
        settings["topology"] = str(Path(settings["topology"]).absolute())
    return replace(spec, experiment=experiment, settings=settings)


def plan_runs(
    name: str,
    base: RunSpec,
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
    figures: Sequence[FigureConfig] = (),
) -> SweepPlan:
    """Return the runs of a spec at every point of a grid, with every seed. Raises ConfigError, UsageError."""
    if base.guests != 1:
        several = "the runs of a study have a core each, and one guest; let it be 1"
        raise UsageError(f"guests {base.guests}: {several}")
    engine = engine_named(base.engine)
    runs: list[PlannedRun] = []
    experiments: dict[str, Experiment] = {}
    memory_bytes = 0
    kernel = engine.kernel()
    built: BuiltFabric | None = None  # Most grids have one topology.
    for point in _points(grid):
        spec = replace(base, settings={**base.settings, **point})
        with files_noted() as read:
            prepared = _prepared(replace(spec, seed=seeds[0]), point, built)
        built = prepared.resolved.built
        parts = _parts(prepared, read)
        experiments[prepared.experiment.name] = prepared.experiment
        memory_bytes = max(memory_bytes, engine.memory_taken_bytes(prepared.guest))
        for seed in seeds:
            asked = (prepared.resolved.data, seed, engine.name, kernel, base.memory_bytes)
            key, plain_key = run_key(*asked, parts), run_key(*asked)
            runs.append(PlannedRun(key, point, replace(spec, seed=seed), {KERNEL: kernel, **parts}, plain_key))
    if twice := _same_twice(runs):
        raise ConfigError(name, [f"grid: {twice}: are the same run; give each a setting of its own"])
    kind = next(iter(experiments.values()))
    axes = tuple(grid)
    return SweepPlan(name, kind.name, engine.name, axes, tuple(runs), tuple(figures), memory_bytes, kind.foreign_folder)


def _parts(prepared: Prepared, read: Sequence[Path]) -> dict[str, str]:
    """Return the digests of what decides a run's figures beside its config. Raises ConfigError."""
    resolved = prepared.resolved
    # All that the YAML files of an experiment and its topology say is in the config; others are named by texts in that.
    read = [path for path in (*read, *resolved.built.files) if path.suffix not in (".yaml", ".yml")]
    try:
        return deciding_parts(texts_in(resolved.data), read, resolved.experiment.foreign_folder)
    except OSError as error:
        raise ConfigError(str(error.filename), [f"cannot be read: {error.strerror}; give a file that can"]) from error


def require_same(spec: RunSpec, key: str, parts: Mapping[str, str] | None = None) -> None:
    """Raise UsageError if a run would not be the one of this key on this machine, with what differs: its kernel, the
    program, a file that its config names. ``parts``: those of the run that is meant; None: as its sweep's directory has
    them, if it is there."""
    seed = spec.seed if spec.seed is not None else prepare(spec, ()).config.seed
    (here,) = plan_runs("here", replace(spec, directory=None), {}, [seed]).runs
    if here.key == key:
        return
    if parts is None:
        parts = {} if spec.directory is None else parts_kept(spec.directory.absolute().parents[1], key)
    where, kernel = os.uname().nodename, engine_named(spec.engine).kernel()
    why = "; ".join(differing(parts, here.parts)) if parts else f"it has the kernel {kernel}"
    raise UsageError(f"{where}: would run {here.key} instead of {key}: {why or 'its config is another'}: {_SAME}")


def parts_kept(directory: Path, key: str) -> dict[str, str]:
    """Return the parts of a run as its sweep's directory has them; none if that is not there, or older."""
    try:
        runs = json.loads((directory / PLAN).read_text())["runs"]
        return next((dict(run["parts"]) for run in runs if run["key"] == key), {})
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _prepared(spec: RunSpec, point: Mapping[str, Any], built: BuiltFabric | None) -> Prepared:
    try:
        return prepare(spec, sys.argv, built)
    except ConfigError as error:
        where = f"{error.source}, {point_text(point)}" if point else error.source
        raise ConfigError(where, error.faults) from error


def _same_twice(runs: Sequence[PlannedRun]) -> str | None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        if run.key in seen:
            return f"{point_text(seen[run.key].point)} and {point_text(run.point)}"
        seen[run.key] = run
    return None


def point_text(point: Mapping[str, Any]) -> str:
    """Return a point as a person reads it: ``background.load 0.2, queueings lanes``."""
    return ", ".join(f"{axis} {value_text(value)}" for axis, value in point.items())


def value_text(value: Any) -> str:
    """Return a value of an axis as a person reads it; a list of one as that one."""
    if isinstance(value, list):
        return "+".join(map(value_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {value_text(inner)}" for key, inner in value.items())
    return str(value)


def _as_yaml(value: Any) -> str:
    return setting("", value).removeprefix("=")


def command_lines(runs: Sequence[PlannedRun], directory_of: Callable[[str], Path]) -> list[str]:
    """Return the command of each run, as a line for a shell."""
    return [shlex.join(run.command(directory_of(run.key))) for run in runs]
