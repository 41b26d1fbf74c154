"""The directory that a run writes, and how to read it again.

::

    manifest.json       format_version, experiment, engine, seed, verdict {status, reasons, checks with their margins by
                        phase}, phases, versions, machine, cpu (seconds that each phase used), full_queues,
                        repeatable_with (same values, seed and config: same figures; null if nothing promises that)
    config.yaml         the resolved config
    fabric.json         the fabric: nodes, links with rates and tiers
    summary.json        the answers: tables as they are shown, metrics by their paths
    samples/*.parquet   what was measured, see TABLES
    figures/            what ``fabric plot`` draws from the above
    logs/               the logs of the controller and of Open vSwitch

Times (:data:`TIME_COLUMNS`) are seconds since the run's time origin. Counters are cumulative.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fabric.errors import ResultError
from fabric.metrics import metrics_frame

FORMAT_VERSION = 2
"""Of what is written. Format 1 had no table ``metrics``, for its metrics are in ``summary.json`` alone, and no column
``job``."""
READABLE_VERSIONS = (1, 2)

TIME_COLUMNS = (
    "at_s", "started_s", "ended_s", "due_s", "asked_s", "done_s", "began_s", "failed_s", "resumed_s", "carrier_s",
    "returned_s", "port_s", "planned_s", "installed_s", "packet_s",
)  # fmt: skip
"""Columns that hold times since the run's time origin."""
TABLES: dict[str, dict[str, str]] = {
    "ports": {
        "at_s": "float64",
        "port": "category",
        "lane": "category",
        "sent_bytes": "int64",
        "sent_packets": "int64",
        "drops_packets": "int64",
        "backlog_bytes": "int64",
    },
    "stalls": {
        "at_s": "float64",
        "port": "category",
        "lane": "category",
        "stalls": "int64",
        "stalled_ns": "int64",
        "buffered_bytes": "int64",
        "most_buffered_bytes": "int64",
    },
    "waits": {
        "at_s": "float64",
        "port": "category",
        "lane": "category",
        "input_port": "category",
        "input_lane": "category",
        "waiting_bytes": "int64",
    },
    "stalled_time": {
        "phase": "category",
        "port": "category",
        "peer": "category",
        "lane": "category",
        "stalls": "int64",
        "stalled_s": "float64",
        "stalled_fraction": "float64",
        "worst_fraction": "float64",
    },
    "congestion_trees": {
        "phase": "category",
        "at_s": "float64",
        "interval_s": "float64",
        "root_port": "category",
        "root_lane": "category",
        "kind": "category",
        "ports": "int64",
        "depth": "int64",
        "hosts": "int64",
        "waiting_bytes": "int64",
    },
    "flow_stalls": {
        "phase": "category",
        "service_level": "category",
        "host": "category",
        "peer": "category",
        "delivered_bytes": "int64",
        "active_s": "float64",
        "slowed_s": "float64",
        "own_s": "float64",
        "rate_bps": "float64",
        "idle_bps": "float64",
        "root_port": "category",
        "root_lane": "category",
        "victim": "bool",
    },
    "machine": {
        "at_s": "float64",
        "cpu_busy_fraction": "float64",
        "switch_cpu_fraction": "float64",
        "lateness_s": "float64",
        "host_lateness_s": "float64",
        "input_queue_bytes": "int64",
        "input_wait_s": "float64",
        "softnet_drops": "int64",
        "softnet_backlog": "int64",
        "softnet_squeezed": "int64",
        "clock_offset_s": "float64",
    },
    "cores": {
        "at_s": "float64",
        "core": "int64",
        "busy_fraction": "float64",
        "niced_fraction": "float64",
        "switch_fraction": "float64",
    },
    "flows": {
        "at_s": "float64",
        "phase": "category",
        "job": "category",
        "service_level": "category",
        "host": "category",
        "peer": "category",
        "rtt_s": "float64",
        "retransmissions": "int64",
        "bytes_acked": "int64",
    },
    "jobs": {
        "phase": "category",
        "job": "category",
        "service_level": "category",
        "started_s": "float64",
        "ended_s": "float64",
    },
    "steps": {
        "phase": "category",
        "job": "category",
        "service_level": "category",
        "step": "int64",
        "ranks": "int64",
        "size_bytes": "int64",
        "started_s": "float64",
        "ended_s": "float64",
    },
    "operations": {
        "phase": "category",
        "job": "category",
        "service_level": "category",
        "operation": "category",
        "host": "category",
        "peer": "category",
        "size_bytes": "int64",
        "started_s": "float64",
        "ended_s": "float64",
        "retries": "int64",
    },
    "failures": {
        "phase": "category",
        "link": "category",
        "up": "bool",
        "rate_fraction": "float64",
        "loss_fraction": "float64",
        "due_s": "float64",
        "asked_s": "float64",
        "done_s": "float64",
        "waiting_packets": "int64",
    },
    "blackouts": {
        "phase": "category",
        "flow": "category",
        "began_s": "float64",
        "ended_s": "float64",
        "lost_packets": "int64",
    },
    "probes": {
        "phase": "category",
        "flow": "category",
        "period_s": "float64",
        "sent_packets": "int64",
        "lost_packets": "int64",
        "reordered_packets": "int64",
        "duplicated_packets": "int64",
        "longest_gap_s": "float64",
        "clock_steps": "int64",
    },
    "restarts": {
        "phase": "category",
        "job": "category",
        "service_level": "category",
        "step": "int64",
        "failed_s": "float64",
        "resumed_s": "float64",
        "reason": "category",
    },
    "controller": {
        "phase": "category",
        "at_s": "float64",
        "kind": "category",
        "details": "category",
    },
    "cuts": {
        "phase": "category",
        "routing": "category",
        "cut": "int64",
        "place": "category",
        "target": "category",
        "duration_s": "float64",
        "asked_s": "float64",
        "carrier_s": "float64",
        "port_s": "float64",
        "planned_s": "float64",
        "installed_s": "float64",
        "packet_s": "float64",
        "returned_s": "float64",
        "flows": "int64",
        "stall_s": "float64",
        "slowest_read_s": "float64",
        "slowest_write_s": "float64",
        "retries": "int64",
    },
    "cut_flows": {
        "phase": "category",
        "routing": "category",
        "cut": "int64",
        "place": "category",
        "flow": "category",
        "crosses": "bool",
        "blackout_s": "float64",
        "lost_packets": "int64",
    },
    "metrics": {
        "phase": "category",
        "job": "category",
        "name": "category",
        "unit": "category",
        "value": "float64",
    },
    "days": {
        "phase": "category",
        "routing": "category",
        "duration_s": "float64",
        "day": "int64",
        "cuts": "int64",
        "goodput_lost": "float64",
        "blackout_s": "float64",
    },
}
"""The columns of each table, with their dtypes; :mod:`fabric.table_columns` has their units and meanings."""


@dataclass(frozen=True)
class Phase:
    """A period of a run with one queueing, one routing and one set of traffic; figures and tables refer to it by
    name."""

    name: str
    title: str
    queueing: str
    started_s: float
    ended_s: float
    routing: str = ""


class ResultWriter:
    """Writes one run's directory. Files appear under their name only when complete."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for part in ("samples", "figures", "logs"):
            (directory / part).mkdir(parents=True, exist_ok=True)

    def write_json(self, name: str, value: object) -> None:
        """Write ``value`` as ``name``."""
        self._replace(self.directory / name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def write_yaml(self, name: str, value: object) -> None:
        """Write ``value`` as ``name``."""
        self._replace(self.directory / name, yaml.safe_dump(value, sort_keys=False))

    def write_table(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table of :data:`TABLES`. Raises ResultError if its columns are not those promised."""
        columns = TABLES[name]
        if list(frame.columns) != list(columns):
            raise ResultError(f"table {name}: has columns {list(frame.columns)}, promised {list(columns)}")
        path = self.directory / "samples" / f"{name}.parquet"
        partial = path.with_suffix(".partial")
        frame.astype(columns).to_parquet(partial, index=False, compression="zstd")
        partial.replace(path)

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text)
        partial.replace(path)


def empty_table(name: str) -> pd.DataFrame:
    """Return a table of :data:`TABLES` with no rows."""
    return pd.DataFrame({column: pd.Series(dtype=kind) for column, kind in TABLES[name].items()})


class Result:
    """A run's directory, read. Raises ResultError if there is none, or if this version cannot read its format."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = self._json("manifest.json")
        version = self.manifest.get("format_version")
        if version not in READABLE_VERSIONS:
            readable = " and ".join(map(str, READABLE_VERSIONS))
            raise ResultError(f"{directory}: format_version {version}, this program reads {readable}; update it")
        self.fabric = self._json("fabric.json")
        self.summary = self._json("summary.json")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.directory / name
        try:
            value: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise ResultError(f"{path}: is missing; {self.directory} is no finished run's directory") from error
        except json.JSONDecodeError as error:
            raise ResultError(f"{path}: is not JSON ({error}); the run may have been cut off") from error
        return value

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config that was run. Raises ResultError if it is missing."""
        path = self.directory / "config.yaml"
        if not path.exists():
            raise ResultError(f"{path}: is missing; {self.directory} is no finished run's directory")
        config: dict[str, Any] = yaml.safe_load(path.read_text())
        return config

    @property
    def phases(self) -> list[Phase]:
        """The phases, in order."""
        return [Phase(**phase) for phase in self.manifest["phases"]]

    @property
    def verdict(self) -> Mapping[str, Any]:
        """``status`` and ``reasons``."""
        verdict: Mapping[str, Any] = self.manifest["verdict"]
        return verdict

    @property
    def scale(self) -> float:
        """The rate of the NICs that the fabric stands for, over the rate of the emulated NICs."""
        return float(self.fabric["reference_nic_rate_bps"]) / float(self.fabric["nic_rate_bps"])

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of :data:`TABLES`; with no rows if the run did not write it. Raises ResultError for a name of
        none."""
        if name not in TABLES:
            raise ResultError(f"table {name!r}: does not exist; there are {', '.join(TABLES)}")
        path = self.directory / "samples" / f"{name}.parquet"
        return _of_this_format(name, pd.read_parquet(path)) if path.exists() else empty_table(name)

    @property
    def metrics(self) -> pd.DataFrame:
        """The answers as numbers, a row per metric: ``phase``, ``job``, ``name``, ``unit``, ``value``.

        Infinite values are not in them, and what a run did not measure has no row.
        """
        if self.manifest["format_version"] == 1:
            return metrics_frame(self.summary.get("metrics", {})).astype(TABLES["metrics"])
        return self.table("metrics")


def _of_this_format(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the columns of today: in format 1, each service level was one job."""
    if "job" in TABLES[name] and "job" not in frame:
        frame = frame.assign(job=frame["service_level"])[list(TABLES[name])]
    return frame


def new_directory(base: Path, experiment: str) -> Path:
    """Return the path of a fresh directory for a run under ``base``: the experiment, the time (UTC), and four random
    digits, for runs that start in the same second."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return base / f"{experiment}-{stamp}-{secrets.token_hex(2)}"
