"""The directory that a run writes, and how to read it again.

::

    manifest.json       format_version, experiment, experiment_folder (null for one of ours), engine, seed, verdict
                        {status, reasons, checks with their margins by phase}, phases, versions, machine, cpu (seconds
                        that each phase used), notes with their values, full_queues, repeatable_with (same values, seed
                        and config: same figures; null if nothing promises that)
    config.yaml         the resolved config
    fabric.json         the fabric: nodes, links with rates and tiers
    summary.json        the answers: tables as they are shown, with their numbers; metrics by their paths; of a study
                        its cases, whose figures are drawn of these (:mod:`fabric.records.figure_forms`); notes beside
                        the verdict, if there are any: what may void a study, and what of the answers could not be
                        written
    samples/*.parquet   what was measured, see :mod:`fabric.tables`
    set_aside/          what jobs measured in attempts at phases that do not count, as the manifest's ``set_aside``
                        lists them, with why; in ``samples`` are those that count
    figures/            what ``fabric plot`` draws from the above
    logs/               the logs of the controller and of Open vSwitch
    cost.json           what the run cost the machine: seconds of wall time (``setup_s`` until the first phase,
                        ``phases_s`` in phases, ``wall_s`` in all) and ``memory_bytes``. Alone in a file of its own:
                        the others are the same, byte for byte, where a run can be repeated

Times (:data:`TIME_COLUMNS`) are seconds since the run's time origin. Counters are cumulative.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fabric.config import read_yaml, yaml_of
from fabric.errors import ConfigError, ResultError
from fabric.measures import Measure
from fabric.metrics import metrics_frame
from fabric.tables import TABLES, Table

if TYPE_CHECKING:
    import pandas as pd

COST_FILE = "cost.json"
REPORT_NAME = "report.html"
FORMAT_VERSION = 2
"""Of what is written. Format 1 had no table ``metrics``, for its metrics are in ``summary.json`` alone, and no column
``job``."""
READABLE_VERSIONS = (1, 2)
UNFINISHED = ".partial"
"""Ends the name of a run's directory that is not whole yet; a number follows where one of this name was left behind."""
_UNFINISHED = re.compile(re.escape(UNFINISHED) + r"(\.\d+)?$")

TIME_COLUMNS = (
    "at_s", "started_s", "ended_s", "due_s", "due_end_s", "asked_s", "done_s", "began_s", "failed_s", "resumed_s",
    "halted_s", "ready_s",
)  # fmt: skip
"""Columns that hold times since the run's time origin."""


@dataclass(frozen=True)
class Phase:
    """A period of a run with one queueing, one routing and one set of traffic; figures and tables refer to it by
    name.

    Its load plays for a part of it: from when all jobs of the whole phase had begun until the first job was told to
    halt. What is under way then still ends in the phase. None, in results of before: nobody knows.
    """

    name: str
    title: str
    queueing: str
    started_s: float
    ended_s: float
    routing: str = ""
    loaded_from_s: float | None = None
    loaded_until_s: float | None = None

    @property
    def load_s(self) -> tuple[float, float]:
        """From when to when its load played; the whole phase, if nobody knows."""
        from_s, until_s = self.loaded_from_s, self.loaded_until_s
        return (self.started_s if from_s is None else from_s, self.ended_s if until_s is None else until_s)


class ResultWriter:
    """Writes one run's directory. Files appear under their name only when complete. ``own_tables``: those that its
    experiment adds to :data:`fabric.tables.TABLES`."""

    def __init__(self, directory: Path, own_tables: Mapping[str, Table] = MappingProxyType({})) -> None:
        self.directory = directory
        self.tables: Mapping[str, Table] = {**TABLES, **own_tables}
        for part in ("samples", "figures", "logs"):
            (directory / part).mkdir(parents=True, exist_ok=True)

    def write_json(self, name: str, value: object) -> None:
        """Write ``value`` as ``name``."""
        self._replace(self.directory / name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def write_yaml(self, name: str, value: object) -> None:
        """Write ``value`` as ``name``."""
        self._replace(self.directory / name, yaml_of(value))

    def write_table(self, name: str, frame: pd.DataFrame, folder: str = "samples") -> None:
        """Write a table, of what counts or of what was ``set_aside``. Raises ResultError if it is none of this
        result's, or its columns are not those promised."""
        if name not in self.tables:
            raise ResultError(f"table {name}: is not declared; give it to the experiment's tables")
        dtypes = self.tables[name].dtypes
        if list(frame.columns) != list(dtypes):
            raise ResultError(f"table {name}: has columns {list(frame.columns)}, promised {list(dtypes)}")
        path = self.directory / folder / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        frame.astype(dtypes).to_parquet(partial, index=False, compression="zstd")
        partial.replace(path)

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text)
        partial.replace(path)


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

    @property
    def name(self) -> str:
        """The name of its directory: while the run is being finished, the one that it will have."""
        return _UNFINISHED.sub("", self.directory.resolve().name)

    @property
    def shown_path(self) -> str:
        """Its directory as a user may type it, with the name that it has once the run is finished."""
        path = self.directory.resolve().with_name(self.name)
        return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)

    def require_own_files(self) -> None:
        """Raise ResultError, before anything is written into the directory, if a link is there: a run makes none, and
        what one leads to, in a result that may be anybody's, would be written over."""
        places = (self.directory, self.directory / "figures")
        for path in (path for place in places if place.is_dir() for path in sorted(place.iterdir())):
            if path.is_symlink():
                raise ResultError(f"{path}: is a link, and what it leads to could be written over; remove it")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.directory / name
        try:
            value: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise ResultError(f"{path}: is missing; {self.directory} is not a finished run's directory") from error
        except (OSError, ValueError, RecursionError) as error:  # Not JSON, not UTF-8, or not for any reader.
            raise ResultError(f"{path}: is not JSON ({error}); the run may have been cut off") from error
        if not isinstance(value, dict):
            raise ResultError(f"{path}: holds a {type(value).__name__}, not an object; it is not a finished run's")
        return value

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config that was run. Raises ResultError if it is missing."""
        path = self.directory / "config.yaml"
        if not path.exists():
            raise ResultError(f"{path}: is missing; {self.directory} is not a finished run's directory")
        try:
            return read_yaml(path)
        except ConfigError as error:
            raise ResultError(str(error)) from error

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
    def notes(self) -> list[str]:
        """What a reader should know beside the verdict (:mod:`fabric.records.notes`), a line each."""
        return [str(note) for note in self.summary.get("notes", ())]

    @cached_property
    def cost(self) -> Mapping[str, float]:
        """Seconds of wall time and bytes of memory by their names; empty if the run did not measure them."""
        return self._json(COST_FILE) if (self.directory / COST_FILE).exists() else {}

    @property
    def scale(self) -> float:
        """The rate of the NICs that the fabric stands for, over the rate of the emulated NICs."""
        return float(self.fabric["reference_nic_rate_bps"]) / float(self.fabric["nic_rate_bps"])

    @property
    def known_tables(self) -> Mapping[str, Table]:
        """The tables that its run may have written, by name."""
        return TABLES

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What its metrics mean, as far as it is known."""
        return ()

    @property
    def tables(self) -> Mapping[str, Table]:
        """The tables that its run has rows of, by name."""
        return {name: table for name, table in self.known_tables.items() if self._has_rows(name)}

    def _has_rows(self, name: str) -> bool:
        import pyarrow.parquet as pq

        path = self.directory / "samples" / f"{name}.parquet"
        return path.exists() and pq.read_metadata(path).num_rows > 0

    def table(self, name: str) -> pd.DataFrame:
        """Return a table; with no rows if the run did not write it. Raises ResultError for a name of none."""
        path = self.directory / "samples" / f"{name}.parquet"
        if name not in self.known_tables:
            raise ResultError(self._no_table(name, path))
        table = self.known_tables[name]
        return table.of_today(_read(path)) if path.exists() else table.empty()

    def _no_table(self, name: str, path: Path) -> str:
        """Return why there is no such table."""
        if path.exists():
            who = "only its experiment, or the kind of job that wrote it, knows"
            return f"table {name!r}: {who} what {path} means, and it is missing; read the file"
        return f"table {name!r}: does not exist; there are {', '.join(self.known_tables)}"

    @property
    def metrics(self) -> pd.DataFrame:
        """The answers as numbers, a row per metric: ``phase``, ``job``, ``name``, ``unit``, ``value``, ``path``.

        Infinite values are not in them, and what a run did not measure has no row.
        """
        if self.manifest["format_version"] == 1:
            values = {path: one for path, one in self.summary.get("metrics", {}).items() if not isinstance(one, bool)}
            return metrics_frame(values).astype(TABLES["metrics"].dtypes)
        return self.table("metrics")


def _read(path: Path) -> pd.DataFrame:
    """Read a file of rows in this thread alone: with threads of pyarrow, one process in forty of a busy machine ended
    by SIGABRT after its last line ("terminate called without an active exception")."""
    import pyarrow.parquet as pq  # As pandas, not before: to print an answer takes neither.

    with pq.ParquetFile(path, pre_buffer=False) as file:
        frame: pd.DataFrame = file.read(use_threads=False).to_pandas(use_threads=False)
        return frame


def new_directory(base: Path, experiment: str) -> Path:
    """Return the path of a fresh directory for a run under ``base``: the experiment, the time (UTC), and four random
    digits, for runs that start in the same second."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return base / f"{experiment}-{stamp}-{secrets.token_hex(2)}"
