"""The runs that a sweep asks for, checked before any is started."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from experiments.launching.spec import Prepared, RunSpec, prepare
from experiments.sweeps.config import FigureConfig, SweepConfig
from experiments.sweeps.identity import run_key
from fabric.errors import ConfigError, UsageError
from fabric.world.engines import engine_named
from runs.definition import Experiment
from topologies.load import BuiltFabric


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep: ``key`` is the name of its directory, ``point`` what it has of the grid, by axis; ``spec`` is
    without a directory."""

    key: str
    point: Mapping[str, Any]
    spec: RunSpec

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
    experiment = config.experiment
    if Path(experiment).exists():
        experiment = str(Path(experiment).absolute())  # It may be run from elsewhere.
    settings = dict(config.settings)
    if isinstance(settings.get("topology"), str) and Path(settings["topology"]).is_file():
        settings["topology"] = str(Path(settings["topology"]).absolute())
    base = RunSpec(
        experiment, settings, engine=config.engine, rate=config.rate, memory_bytes=config.memory, draws=False
    )
    return plan_runs(name, base, config.grid, config.all_seeds, config.figures)


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
        prepared = _prepared(replace(spec, seed=seeds[0]), point, built)
        built = prepared.resolved.built
        experiments[prepared.experiment.name] = prepared.experiment
        memory_bytes = max(memory_bytes, engine.memory_taken_bytes(prepared.guest))
        for seed in seeds:
            key = run_key(prepared.resolved.data, seed, engine.name, kernel, base.memory_bytes)
            runs.append(PlannedRun(key, point, replace(spec, seed=seed)))
    if twice := _same_twice(runs):
        raise ConfigError(name, [f"grid: {twice}: come to the same run; give each another setting"])
    kind = next(iter(experiments.values()))
    axes = tuple(grid)
    return SweepPlan(name, kind.name, engine.name, axes, tuple(runs), tuple(figures), memory_bytes, kind.foreign_folder)


def require_same(spec: RunSpec, key: str) -> None:
    """Raise UsageError if a run would not be the one of this key on this machine: it has another kernel, or another
    version of the program with other defaults."""
    seed = spec.seed if spec.seed is not None else prepare(spec, ()).config.seed
    (here,) = plan_runs("here", replace(spec, directory=None), {}, [seed]).runs
    if here.key != key:
        where, kernel = os.uname().nodename, engine_named(spec.engine).kernel()
        raise UsageError(f"{where}: would run {here.key} instead; it has the kernel {kernel}: install the same program")


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


def command_lines(runs: Sequence[PlannedRun], directory_of: Callable[[str], Path]) -> list[str]:
    """Return the command of each run, as a line for a shell."""
    return [shlex.join(run.command(directory_of(run.key))) for run in runs]
