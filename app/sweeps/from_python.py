"""A sweep from Python: every combination of settings with every seed, as one long frame."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from app.sweeps.config import SweepConfig
from app.sweeps.executor import Executor
from app.sweeps.local import LocalExecutor
from app.sweeps.planning import SweepPlan, from_anywhere, plan_runs
from app.sweeps.store import Store
from app.sweeps.study import Findings, collect, run_missing
from app.sweeps.tables import FACTS, LEFT_OUT, metric_columns
from app.sweeps.tally import COLUMNS, Tally
from fabric.config import checked
from fabric.errors import UsageError
from fabric.metrics import unit_of
from runs.console import tell
from runs.launching.notebook import Line, notebook_display
from runs.launching.spec import RunSpec

_ESTIMATES = ["median", "low", "high", "runs"]


def sweep(
    spec: RunSpec,
    axes: Mapping[str, Sequence[Any]],
    *,
    seeds: int | Sequence[int] = 1,
    workers: int | None = None,
    directory: Path | str | None = None,
    executor: Executor | None = None,
) -> pd.DataFrame:
    """Play ``spec`` at every combination of values of ``axes``, with every seed, and return what all runs say.

    ``axes``: values by key of the config, as in a sweep's ``grid``. ``seeds``: how many, counted from 1, or which.
    ``workers``: how many runs at a time, at most; None: as many as cores and memory take. ``directory``: of the sweep,
    by default ``results/sweep-EXPERIMENT``; runs that are finished there are not played again. ``executor``: what plays
    them, in place of this machine: one of :mod:`app.sweeps.slurm` or :mod:`app.sweeps.ray_cluster`.

    The frame has a row per run and metric: a column per axis, ``seed``, ``run``, ``verdict``, ``reasons``, ``metric``,
    ``unit``, ``value``, and of the same setting's runs that count ``median``, ``low``, ``high`` and ``runs``: from low
    to high is the 95 % interval, of fewer than six runs their range. A run that failed has one row without a metric,
    and is reported on stderr as it fails.

    Raises ConfigError or UsageError before any run starts if one of them cannot be played.
    """
    plan = _planned(spec, axes, seeds)
    store = Store(Path(directory) if directory is not None else Path("results") / f"sweep-{plan.experiment}")
    if executor is None:
        executor = LocalExecutor(workers)
    elif workers is not None:
        raise UsageError(f"workers {workers}: is for this machine; give it to the executor")
    run_missing(plan, store, executor, _display(plan), tell)
    findings = collect(plan, store)
    store.hand_over()
    return long_frame(findings)


def _planned(spec: RunSpec, axes: Mapping[str, Sequence[Any]], seeds: int | Sequence[int]) -> SweepPlan:
    if spec.directory is not None:
        raise UsageError(f"directory {spec.directory}: is of one run; give sweep() a directory of its own")
    if spec.seed is not None:
        raise UsageError(f"seed {spec.seed}: give seeds to sweep(), e.g. seeds=[{spec.seed}]")
    name = f"sweep-{Path(spec.experiment).stem}"
    grid = {axis: list(values) for axis, values in axes.items()}
    wanted = seeds if isinstance(seeds, int) else list(seeds)
    asked = {"experiment": spec.experiment, "settings": dict(spec.settings), "grid": grid, "seeds": wanted}
    config = checked(SweepConfig, asked, "sweep()")
    return plan_runs(name, replace(from_anywhere(spec), draws=False), config.grid, config.all_seeds)


def _display(plan: SweepPlan) -> Callable[[Tally], None]:
    """Return what shows a sweep's progress below the notebook cell that plays it; elsewhere it shows nothing."""
    display = notebook_display()
    if display is None:
        return lambda tally: None
    handle = display(Line(f"{plan.name}: {len(plan.runs)} runs"), display_id=True)

    def show(tally: Tally) -> None:
        cells = zip(COLUMNS, tally.cells(time.monotonic()), strict=True)
        handle.update(Line(f"{plan.name}: " + ", ".join(f"{name} {cell}" for name, cell in cells)))

    return show


def long_frame(findings: Findings) -> pd.DataFrame:
    """Return the runs of a sweep, a row per run and metric, each with the estimates of its setting."""
    facts, axes = [*FACTS], [*findings.plan.axes]
    metrics = metric_columns(findings.plan, findings.runs)
    rows = findings.runs.melt([*facts, *axes], metrics, "metric", "value").dropna(subset="value")
    rows["unit"] = [unit_of(str(name)) for name in rows["metric"]]
    estimates = findings.medians[[*axes, "metric", *_ESTIMATES]]
    frame = rows.merge(estimates, how="left", on=[*axes, "metric"])
    silent = findings.runs[~findings.runs["run"].isin(frame["run"]) & findings.runs["verdict"].isin(LEFT_OUT)]
    columns = [*axes, "seed", "run", "verdict", "reasons", "metric", "unit", "value", *_ESTIMATES]
    return pd.concat([frame, silent[[*facts, *axes]]], ignore_index=True).reindex(columns=columns)
