"""A result as metrics for Prometheus: OpenMetrics 1.0, or the text format that came before it.

Families::

    fabric_run                      info: run, experiment, engine, seed, version
    fabric_run_verdict              a state per verdict
    fabric_run_<cost>_<unit>        what the run cost this machine, see cost.json
    fabric_<metric>_<unit>          a gauge per name of a metric: phase, job, path (its name in summary.json)
    fabric_port_sent_bytes          counters per port and lane at the end of the run, of lanes that sent or dropped
    fabric_port_dropped_packets
    fabric_port_marked_packets      only if the run marked any; so are further counters of ports that have a label
    fabric_port_idle_lanes          how many lanes neither sent nor dropped, and have no counters

Each sample has the label ``run``, so that files of several runs may lie in one directory of node_exporter.
node_exporter's textfile collector and ``promtool check metrics`` read the older format only: they refuse the types
info and stateset. ``promtool tsdb create-blocks-from openmetrics`` needs a timestamp per sample, which node_exporter
refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fabric.errors import ResultError
from fabric.measure.verdict import Status
from fabric.measures import Measure, measure_named
from fabric.metrics import unit_end, without_unit
from fabric.results import Result
from fabric.tables import TABLES, Column

if TYPE_CHECKING:
    from prometheus_client import Metric

_PREFIX = "fabric_"
_RUN = f"{_PREFIX}run"
UNIT_NAMES = {
    "_bps": "bits_per_second",
    "_Bps": "bytes_per_second",
    "_bytes": "bytes",
    "_packets": "packets",
    "_fraction": "ratio",
    "_per_s": "per_second",
    "_s": "seconds",
}
"""OpenMetrics' name of a unit, by the end of a metric's name (:data:`fabric.metrics.UNITS`)."""
_ALWAYS = ("sent_bytes", "drops_packets")
"""Counters of ports that are there even where they are 0: a lane of which both are is idle."""
_NAMES = {"drops_packets": "dropped_packets"}
"""Names of counters that are not those of their columns."""


def openmetrics(result: Result, *, timestamps: bool = False) -> str:
    """Return a result in OpenMetrics' text format, version 1.0.

    ``timestamps``: each sample has the date of the run. Raises ResultError if the result has two metrics of one path,
    or if it has no date and timestamps are asked for.
    """
    return encoded(_families(result, _date(result) if timestamps else None))


def encoded(families: Iterable[Metric]) -> str:
    """Return families in OpenMetrics' text format, version 1.0."""
    from prometheus_client.openmetrics.exposition import generate_latest

    found = list(families)
    text: bytes = generate_latest(SimpleNamespace(collect=lambda: found))  # type: ignore[no-untyped-call]
    return text.decode()


def prometheus_text(result: Result) -> str:
    """Return a result in Prometheus' text format, version 0.0.4: info and states are gauges. Raises ResultError if the
    result has two metrics of one path."""
    from prometheus_client.exposition import generate_latest

    found = list(_families(result, None))
    return generate_latest(SimpleNamespace(collect=lambda: found)).decode()


def _date(result: Result) -> float:
    """Return the date of the run, in seconds since 1970."""
    text = result.manifest.get("started_at")
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError as error:
        raise ResultError(
            f"{result.directory}: manifest.json has no date of the run (started_at: {text}); omit --timestamps"
        ) from error


def _families(result: Result, at: float | None) -> Iterator[Metric]:
    """Yield the families of a result, each with a name of its own."""
    first = [*_run_families(result, at), *port_families(result.name, port_totals(result.table("ports")), at)]
    yield from first
    yield from _metric_families(result, at, taken={name for family in first for name in _names_of(family)})


def _names_of(family: Metric) -> Iterator[str]:
    """Yield the names that a family takes: its own, and those of its samples."""
    yield family.name
    yield from dict.fromkeys(sample.name for sample in family.samples)


# The run -------------------------------------------------------------------------------------------------------------


def _run_families(result: Result, at: float | None) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    manifest = result.manifest
    about = {name: str(manifest.get(name, "")) for name in ("experiment", "engine", "seed")}
    version = str(manifest.get("versions", {}).get("project", ""))
    yield info_family(result.name, {**about, "version": version}, at)
    yield verdict_family(result.name, str(result.verdict["status"]), at)
    for name, value in result.cost.items():
        stem, unit = _split(name)
        cost = GaugeMetricFamily(f"{_RUN}_{stem}", f"Cost of the run: {name}.", labels=["run"], unit=unit)
        cost.add_metric([result.name], float(value), timestamp=at)
        yield cost


def info_family(run: str, about: Mapping[str, str], at: float | None = None) -> Metric:
    """Return the family that describes a run."""
    from prometheus_client.metrics_core import InfoMetricFamily

    info = InfoMetricFamily(_RUN, "A run of the AI fabric emulator.", labels=["run"])
    info.add_metric([run], dict(about), timestamp=at)
    return info


def verdict_family(run: str, status: str, at: float | None = None) -> Metric:
    """Return the verdict on a run, a state each."""
    from prometheus_client.metrics_core import StateSetMetricFamily

    verdict = StateSetMetricFamily(f"{_RUN}_verdict", "How far the run can be believed.", labels=["run"])
    verdict.add_metric([run], {one.value: one.value == status for one in Status}, timestamp=at)
    return verdict


def measure_family(measure: Measure, run: str, values: Mapping[str, float], label: str, grows: bool = False) -> Metric:
    """Return the values of a declared measure by a label of theirs, such as the states of jobs; without one, a number.
    ``grows``: they are counters."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    stem, unit = _split(re.sub(r"\.<\w+>", "", measure.name))
    labels = ["run", label] if label else ["run"]
    kind = CounterMetricFamily if grows else GaugeMetricFamily
    family = kind(f"{_PREFIX}{stem}", _sentence(measure.meaning), labels=labels, unit=unit)
    for name, value in values.items():
        family.add_metric([run, name] if label else [run], float(value))
    return family


# Ports ---------------------------------------------------------------------------------------------------------------


def port_families(run: str, totals: pd.DataFrame, at: float | None = None) -> Iterator[Metric]:
    """Yield a family per column of a port's lanes: counters, and gauges, which a result has none of. ``totals``: as of
    :func:`port_totals`."""
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    if totals.empty:
        return
    is_idle = (totals[list(_ALWAYS)] == 0).all(axis=1)
    busy = totals[~is_idle]
    for column, described in {**TABLES["ports"].labelled, **TABLES["stalls"].labelled}.items():
        if column not in busy or (column not in _ALWAYS and described.grows and not busy[column].any()):
            continue
        name, unit = _split(_NAMES.get(column, column))
        kind = CounterMetricFamily if described.grows else GaugeMetricFamily
        text = _sentence(f"{described.meaning}; per lane of a port")
        family = kind(f"{_PREFIX}port_{name}", text, labels=["run", "port", "lane"], unit=unit)
        for port, lane, value in busy[["port", "lane", column]].itertuples(index=False):
            family.add_metric([run, str(port), str(lane)], int(value), timestamp=at)
        yield family
    text = "Lanes of ports that have neither sent nor dropped anything, and have no counters here."
    idle = GaugeMetricFamily(f"{_PREFIX}port_idle_lanes", text, labels=["run"])
    idle.add_metric([run], int(is_idle.sum()), timestamp=at)
    yield idle


def _counters() -> dict[str, Column]:
    """Return the columns of ``ports`` that are counters with a label."""
    return {name: column for name, column in TABLES["ports"].labelled.items() if column.grows}


def port_totals(ports: pd.DataFrame) -> pd.DataFrame:
    """Return what each port and lane has counted by the end of a run, from a table ``ports``: a row per port and lane.

    A counter that went down began anew, as where phases have other queues: what it had counted before is kept.
    """
    columns = [column for column in _counters() if column in ports]
    if ports.empty:
        return ports[["port", "lane", *columns]]
    keys = ports.groupby(["port", "lane"], observed=True, sort=True).ngroup().to_numpy()
    order = np.lexsort((ports["at_s"].to_numpy(), keys))
    values, keys = ports[columns].to_numpy(np.int64)[order], keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    grown = np.diff(values, axis=0, prepend=0)
    grown = np.where(grown < 0, values, grown)
    grown[starts] = values[starts]
    named = ports[["port", "lane"]].iloc[order[starts]].reset_index(drop=True)
    totals = pd.DataFrame(np.add.reduceat(grown, starts, axis=0), columns=columns)
    return pd.concat([named, totals], axis=1)


# Metrics -------------------------------------------------------------------------------------------------------------


def _metric_families(result: Result, at: float | None, taken: set[str]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    metrics = result.metrics
    if len(twice := metrics.loc[metrics["path"].duplicated(), "path"]):
        raise ResultError(f"{result.directory}: has two metrics {twice.iloc[0]}; the result is damaged, run it again")
    metrics = metrics.assign(name=metrics["name"].astype(str))
    stems = _own_names(sorted(metrics["name"].unique()), taken)
    for name, rows in metrics.groupby("name", sort=False):
        stem, unit = stems[str(name)]
        measure = measure_named(result.measures, str(name))
        text = f"Metric {name} of the result." if measure is None else _sentence(measure.meaning)
        labels = ["run", "phase", "job", "path"]
        family = GaugeMetricFamily(f"{_PREFIX}{stem}", text, labels=labels, unit=unit)
        for phase, job, path, value in rows[["phase", "job", "path", "value"]].itertuples(index=False):
            family.add_metric([result.name, str(phase), str(job), str(path)], float(value), timestamp=at)
        yield family


def _own_names(names: Iterable[str], taken: set[str]) -> dict[str, tuple[str, str]]:
    """Return a stem and a unit for each name of a metric, no two the same: a number follows what is taken already."""
    found: dict[str, tuple[str, str]] = {}
    used = set(taken)
    for name in names:
        stem, unit = _split(name)
        choices = (f"{stem}_{number}" if number > 1 else stem for number in range(1, len(used) + 2))
        own = next(one for one in choices if _whole(one, unit) not in used)
        used.add(_whole(own, unit))
        found[name] = own, unit
    return found


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _whole(stem: str, unit: str) -> str:
    return f"{_PREFIX}{stem}_{unit}" if unit else f"{_PREFIX}{stem}"


def _split(name: str) -> tuple[str, str]:
    """Return a metric's name without its unit, made of what OpenMetrics allows, and OpenMetrics' name of the unit."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", without_unit(name)), UNIT_NAMES.get(unit_end(name), "")
