"""Comparison of runs of one experiment: each metric with its relative difference to the first run's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fabric.errors import UsageError
from fabric.measure.verdict import Status
from fabric.measures import Measure, measure_at
from fabric.metrics import is_fraction, unit_of
from fabric.report.promise import promised
from fabric.results import Result
from fabric.units import format_bandwidth, format_change, format_rate, format_size, format_time
from fabric.world.engines import ENGINES

_FORMATS: dict[str, Callable[[float], str]] = {
    "bit/s": format_rate,
    "B/s": format_bandwidth,
    "B": format_size,
    "s": format_time,
}
_TOPOLOGY, _SEED = "topology", "seed"
_NONE = object()
_SHOWN, _SHOWN_CHARACTERS = 8, 40
"""How many settings that differ are listed, and how much of a value."""


@dataclass(frozen=True)
class MetricRow:
    """A metric over the runs; None where a run has none, or where the first run's is missing or zero.

    ``measure``: what it means, if that is declared. ``broken`` says of each run whether its verdict promises more than
    the metric holds beside the exact run.
    """

    name: str
    values: tuple[float | None, ...]
    differences: tuple[float | None, ...]
    broken: tuple[bool, ...] = ()
    measure: Measure | None = None

    @property
    def change(self) -> float:
        """The largest difference to the first run, as a fraction; infinite where there is nothing to divide by: a run
        lacks the metric, or the first run's is zero and another's is not."""
        found = [difference for difference in self.differences if difference is not None]
        known = all(
            value == self.values[0] or difference is not None
            for value, difference in zip(self.values, self.differences, strict=True)
        )
        return max(map(abs, found), default=0.0) if known and None not in self.values else math.inf


@dataclass(frozen=True)
class Comparison:
    """Metrics of several runs of one experiment; ``warnings`` say what else differs between the runs, ``notes`` which
    of them keep what their verdict promises."""

    experiment: str
    runs: tuple[str, ...]
    rows: tuple[MetricRow, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def changed(self, least: float) -> Comparison:
        """Return the comparison with only the metrics that differ by ``least`` (a fraction) or more."""
        rows = tuple(row for row in self.rows if row.change >= least)
        left_out = f"not shown: {len(self.rows) - len(rows)} of {len(self.rows)} metrics, which differ by less than"
        notes = (f"{left_out} {100 * least:g} %",) if len(rows) < len(self.rows) else ()
        return replace(self, rows=rows, notes=(*self.notes, *notes))

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON holds it."""
        return {
            "experiment": self.experiment,
            "runs": list(self.runs),
            "warnings": list(self.warnings),
            "metrics": {
                row.name: {"values": list(row.values), "difference_to_first": list(row.differences), **_meaning(row)}
                for row in self.rows
            },
            "broken_promises": {
                run: [row.name for row in self.rows if row.broken[number]] for number, run in enumerate(self.runs)
            },
        }

    def table(self) -> RenderableType:
        """Return the comparison as a table for the terminal, warnings below."""
        caption = "in brackets: relative to the first run; !: further from the exact run than faithful promises"
        table = Table(title=self.experiment, title_justify="left", caption=caption)
        table.add_column("metric", overflow="fold")
        table.add_column("better")
        for run in self.runs:
            table.add_column(run, justify="right", overflow="fold")
        for row in self.rows:
            better = "" if row.measure is None else row.measure.better.value
            table.add_row(row.name, better, *(_cell(row, number) for number in range(len(row.values))))
        warnings = (Text(f"warning: {warning}", style="yellow") for warning in self.warnings)
        return Group(table, *warnings, *map(Text, self.notes))


def compare(results: Sequence[Result], measures: Sequence[Measure] = ()) -> Comparison:
    """Return the metrics of ``results`` side by side: those that differ most first, and else in the order in which they
    first appear; ``measures``: what they mean.

    Raises UsageError for fewer than two results and for results of different experiments.
    """
    if len(results) < 2:
        raise UsageError(f"compare: got {len(results)} result, needs at least 2; give more directories")
    _refuse_other_experiments(results)
    names = dict.fromkeys(name for result in results for name in _metrics(result))
    exact = [_exact_twin(result, results) for result in results]
    unsorted = (replace(_row(name, results, exact), measure=measure_at(measures, name)) for name in names)
    rows = tuple(sorted(unsorted, key=lambda row: -row.change))
    return Comparison(
        experiment=str(results[0].manifest["experiment"]),
        runs=_labels(results),
        rows=rows,
        warnings=tuple(_warnings(results)),
        notes=tuple(_promises(results, rows, exact)),
    )


def _refuse_other_experiments(results: Sequence[Result]) -> None:
    first = results[0]
    for other in results[1:]:
        if other.manifest["experiment"] != first.manifest["experiment"]:
            raise UsageError(
                f"compare: {first.directory} is of experiment {first.manifest['experiment']!r}, "
                f"{other.directory} of {other.manifest['experiment']!r}; compare runs of one experiment"
            )


def _meaning(row: MetricRow) -> dict[str, str]:
    return {} if row.measure is None else {"meaning": row.measure.meaning, "better": row.measure.better.value}


def _metrics(result: Result) -> dict[str, float]:
    metrics = result.summary.get("metrics", {})
    return {str(name): float(value) for name, value in metrics.items() if isinstance(value, int | float)}


def _labels(results: Sequence[Result]) -> tuple[str, ...]:
    names = [result.directory.name for result in results]
    return tuple(names) if len(set(names)) == len(names) else tuple(str(result.directory) for result in results)


def _row(name: str, results: Sequence[Result], exact: Sequence[Result | None]) -> MetricRow:
    values = tuple(_metrics(result).get(name) for result in results)
    differences = tuple(_difference(value, values[0]) for value in values)
    broken = tuple(_is_broken(name, result, twin) for result, twin in zip(results, exact, strict=True))
    return MetricRow(name, values, differences, broken)


def _is_exact(result: Result) -> bool:
    engine = ENGINES.get(str(result.manifest.get("engine")))
    return engine is not None and engine.is_exact


def _exact_twin(result: Result, results: Sequence[Result]) -> Result | None:
    """Return the exact run that a faithful one is held to: of the same fabric and settings, whatever the seed; None for
    runs that promise nothing, and where there is none."""
    if _is_exact(result) or result.verdict["status"] != Status.FAITHFUL.value:
        return None
    return next((one for one in results if _is_exact(one) and not _differing(result, one)), None)


def _differing(result: Result, other: Result) -> dict[str, str]:
    """Return, by their paths, the settings of a run that differ from another's, with both values in words: all but the
    seed, and those of a topology only if another fabric is made of them."""
    own, others = (_settings(one.config) if (one.directory / "config.yaml").exists() else {} for one in (result, other))
    same_fabric = result.fabric == other.fabric
    found = {
        key: f"{key} {_text(own, key)} ({_text(others, key)})"
        for key in dict.fromkeys([*own, *others])
        if key != _SEED and not (same_fabric and _is_of_topology(key)) and own.get(key, _NONE) != others.get(key, _NONE)
    }
    return found if same_fabric or any(map(_is_of_topology, found)) else {_TOPOLOGY: _TOPOLOGY, **found}


def _settings(value: object, path: str = "") -> dict[str, object]:
    """Return the values of a config by their paths, such as ``queues.lanes.nccl.share`` or ``failures.0.at``."""
    parts: Mapping[Any, object] = {}
    if isinstance(value, Mapping):
        parts = value
    elif isinstance(value, list) and all(isinstance(part, Mapping) for part in value):
        parts = dict(enumerate(value))
    if not parts:
        return {path: value}
    inner = (_settings(part, f"{path}.{key}" if path else str(key)) for key, part in parts.items())
    return {name: one for found in inner for name, one in found.items()}


def _text(settings: Mapping[str, object], key: str) -> str:
    text = str(settings[key]) if key in settings else "not there"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _is_of_topology(key: str) -> bool:
    return key.partition(".")[0] == _TOPOLOGY


def _is_broken(name: str, result: Result, exact: Result | None) -> bool:
    tolerance = promised(name)
    if exact is None or tolerance is None:
        return False
    difference = _difference(_metrics(result).get(name), _metrics(exact).get(name))
    return difference is not None and abs(difference) > tolerance


def _promises(results: Sequence[Result], rows: Sequence[MetricRow], exact: Sequence[Result | None]) -> Iterator[str]:
    """Yield what came of each faithful run's promise, if there is an exact run."""
    count = sum(promised(row.name) is not None for row in rows)
    for number, (label, twin) in enumerate(zip(_labels(results), exact, strict=True)):
        if twin is not None:
            broken = [row.name for row in rows if row.broken[number]]
            kept = f"{label}: {count - len(broken)} of {count} metrics are as near to the exact run as it promises"
            yield kept + (f"; not {', '.join(broken)}" if broken else "")


def _difference(value: float | None, first: float | None) -> float | None:
    if value is None or not first:
        return None
    difference = (value - first) / abs(first)
    return difference if math.isfinite(difference) else None


def _warnings(results: Sequence[Result]) -> Iterator[str]:
    first = results[0]
    for label, other in zip(_labels(results)[1:], results[1:], strict=True):
        for thing, value, of_first in (
            ("topology", other.fabric["name"], first.fabric["name"]),
            ("engine", other.manifest.get("engine"), first.manifest.get("engine")),
            ("seed", other.manifest.get("seed"), first.manifest.get("seed")),
            ("verdict", other.verdict["status"], first.verdict["status"]),
        ):
            if value != of_first:
                yield f"{label}: {thing} is {value}, the first run's is {of_first}"
        is_told = other.fabric["name"] != first.fabric["name"]
        differing = [text for key, text in _differing(other, first).items() if not (is_told and _is_of_topology(key))]
        if differing:
            more = f", and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
            yield f"{label}: settings differ (in brackets, the first run's): {', '.join(differing[:_SHOWN])}{more}"
    for label, result in zip(_labels(results), results, strict=True):
        if result.verdict["status"] == "invalid":
            yield f"{label}: the emulation was invalid; do not use its numbers"


def format_metric(name: str, value: float) -> str:
    """Return a metric as a person reads it; the end of its name says the unit (``_bps``, ``_Bps``, ``_s``, ...)."""
    if is_fraction(name):
        return f"{value:.1%}"
    if (formatted := _FORMATS.get(unit_of(name))) is not None:
        return formatted(value)
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _cell(row: MetricRow, number: int) -> str:
    value, difference = row.values[number], row.differences[number]
    if value is None:
        return "-"
    text = format_metric(row.name, value) + (" !" if row.broken[number] else "")
    return text if number == 0 or difference is None else f"{text} ({format_change(difference)})"
