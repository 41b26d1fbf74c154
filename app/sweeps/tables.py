"""What all runs of a sweep say: one table of runs, and one of medians with intervals."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from app.sweeps.planning import PlannedRun, SweepPlan
from app.sweeps.store import Store
from fabric.estimates import LEAST_FOR_CONFIDENCE, estimate_columns, is_median_known
from fabric.measure.verdict import Status
from fabric.metrics import least_name, unit_of
from fabric.results import Result

FAILED, MISSING = "failed", "missing"
"""What stands for a verdict of a run that has none."""
LEFT_OUT = frozenset({Status.INVALID.value, FAILED, MISSING})
"""Verdicts whose runs no average includes."""
FACTS = ("run", "seed", "verdict", "reasons")
"""The columns of the table of runs before the axes and the metrics."""
_VALUES = ("unit", "median", "low", "high", "runs", "left_out", "without", "low_to_high")
INTERVAL, RANGE = "95 % interval", "range of the runs"
"""What is from ``low`` to ``high``: of few runs there is no interval that is sure to 95 %."""


def runs_table(plan: SweepPlan, store: Store) -> pd.DataFrame:
    """Return a row per planned run: its key, seed, verdict and reasons; a column per axis, as text unless
    all its values are numbers; and a column per metric, by its path. What a run did not measure is missing.

    It has nothing that is not the runs' own, so it is the same wherever they were run.
    """
    numbers = {axis for axis in plan.axes if all(_is_number(run.point[axis]) for run in plan.runs)}
    rows = [_row(plan, run, store, numbers) for run in plan.runs]
    columns = [*FACTS, *plan.axes]
    metrics = sorted({name for row in rows for name in row} - set(columns))
    return pd.DataFrame(rows, columns=[*columns, *metrics])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _row(plan: SweepPlan, run: PlannedRun, store: Store, numbers: Collection[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.key, "seed": run.seed, "reasons": ""}
    row |= {axis: value if axis in numbers else plan.text_of(axis, value) for axis, value in run.point.items()}
    if not store.is_finished(run.key):
        error = store.error(run.key)
        return row | {"verdict": MISSING if error is None else FAILED, "reasons": error or ""}
    result = Result(store.run_directory(run.key))
    row |= {"verdict": result.verdict["status"], "reasons": "; ".join(map(str, result.verdict["reasons"]))}
    return row | {str(found["path"]): float(found["value"]) for found in result.metrics.to_dict("records")}


def metric_columns(plan: SweepPlan, runs: pd.DataFrame) -> list[str]:
    """Return the columns of a table of runs that are metrics."""
    return [str(name) for name in runs.columns[len(FACTS) + len(plan.axes) :]]


def believed(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table of runs that count."""
    return runs[~runs["verdict"].isin(LEFT_OUT)]


def medians_table(plan: SweepPlan, runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per point and metric: its unit, the median over seeds, from where to where its 95 % interval is, or
    of fewer than six runs these are, how many runs it is of, how many were left out, since they are invalid, failed or
    missing, and how many count and are ``without`` it: what they lack, such as the time of something that never
    happened, may be what went badly."""
    metrics = metric_columns(plan, runs)
    rows = [row for _, group in _by_point(plan, runs) for row in _medians(plan, group, metrics)]
    return pd.DataFrame(rows, columns=[*plan.axes, "metric", *_VALUES])


def _by_point(plan: SweepPlan, runs: pd.DataFrame) -> Iterator[tuple[Any, pd.DataFrame]]:
    if not plan.axes:
        yield (), runs
        return
    yield from runs.groupby(list(plan.axes), sort=False)


def _medians(plan: SweepPlan, group: pd.DataFrame, metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    point = {axis: group[axis].iloc[0] for axis in plan.axes}
    counted = with_least(believed(group)[list(metrics)].astype(float))
    metrics = [str(name) for name in counted.columns]
    table = counted.to_numpy()
    for present in _alike(table):
        columns = [number for number, mask in present]
        rows = present[0][1]
        for number, found in zip(columns, estimate_columns(table[np.ix_(rows, columns)]), strict=True):
            name = metrics[number]
            numbers = [found.median, found.low, found.high, found.values]
            others = [len(group) - len(counted), len(counted) - found.values]
            values = [*numbers, *others, span_words(found.values)]
            yield point | {"metric": name} | dict(zip(_VALUES, [unit_of(name), *values], strict=True))


def span_words(runs: int) -> str:
    """Return what the span beside a median of so many runs is; nothing of a single one."""
    return INTERVAL if runs >= LEAST_FOR_CONFIDENCE else RANGE if runs > 1 else ""


def with_least(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of runs so that each column can be averaged, a run per row.

    What some runs know exactly and others as the least that it can be (``p99_at_least_s``) is of all of them. It stands
    under the name of what is known if the median is, however large the others are; else under that of the least.
    Without the latter the runs of a congested fabric would be left out, which have the largest values.
    """
    found = metrics.copy()
    for known in metrics.columns:
        least = least_name(str(known))
        if least not in metrics or metrics[least].isna().all():
            continue
        exact = metrics[known]
        values = exact.fillna(metrics[least])
        present = values.notna()
        is_known = is_median_known(values[present].tolist(), exact[present].notna().tolist())
        found[known], found[least] = (values, np.nan) if is_known else (np.nan, values)
    return found


def _alike(table: Any) -> list[list[tuple[int, Any]]]:
    """Return the columns that have values in the same rows, together, with these rows; those with none are left out."""
    found: dict[bytes, list[tuple[int, Any]]] = {}
    for number in range(table.shape[1]):
        mask = ~np.isnan(table[:, number])
        if mask.any():
            found.setdefault(mask.tobytes(), []).append((number, np.flatnonzero(mask)))
    return list(found.values())


_AXIS = re.compile(r"\{([^{}]+)\}")


def at_point(path: str, point: Mapping[str, Any]) -> str:
    """Return the path of a metric in which ``{axis}`` stands for a point's own value of the axis."""
    return _AXIS.sub(lambda match: str(point.get(match[1], match[0])), path)


def write_tables(store: Store, runs: pd.DataFrame, medians: pd.DataFrame) -> list[Path]:
    """Write both tables; return the files."""
    directory = store.directory
    files = [directory / name for name in ("runs.parquet", "runs.csv", "medians.csv")]
    for file in files:
        partial = file.with_name(file.name + ".partial")
        frame = medians if file.stem == "medians" else runs
        if file.suffix == ".parquet":
            frame.to_parquet(partial, index=False, compression="zstd")
        else:
            frame.to_csv(partial, index=False)
        partial.replace(file)
    return files
