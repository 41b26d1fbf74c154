"""A run's files: its tables, and the manifest, which has the facts that a reader needs to judge it and to repeat it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any, Protocol

from fabric.emulation import mininet_place
from fabric.errors import ResultError
from fabric.measure.cores import usable_cores
from fabric.measure.verdict import Verdict
from fabric.measures import Measure
from fabric.metrics import by_path, metrics_frame, sifted
from fabric.model.encoding import fabric_as_json
from fabric.records.calibration import LinkCalibration
from fabric.records.notes import Note
from fabric.records.summary_table import SummaryTable, plain
from fabric.results import FORMAT_VERSION, ResultWriter
from fabric.world.engine import started_at
from fabric.world.engines import current_engine
from runs.kinds import tables_of_jobs
from runs.notes import notes_of
from runs.session import Session
from traffic import congestion_control
from traffic.dcqcn import PROFILES, as_json

_LIBRARIES = ("eventlet", "numpy", "scapy", "pandas")
_OF_OPENFLOW = ("ryu", "os-ken")
"""The first that is installed is used."""
_WRITTEN_APART = ("metrics", "tables")


class Recorded(Protocol):
    """An experiment, as its record has it."""

    @property
    def in_manifest(self) -> Mapping[str, str | None]:
        """What the manifest says of it."""

    def load_measures(self) -> Sequence[Measure]:
        """Return the measures that it declares."""


def write_run(
    run: Session,
    writer: ResultWriter,
    experiment: Recorded,
    config: dict[str, Any],
    summary: dict[str, Any],
    command: Sequence[str],
) -> Verdict:
    """Write the run's files and return its verdict.

    ``experiment``: what is asked of it; ``command``: by what the run was asked for.
    """
    verdict = run.judge()
    metrics, _ = sifted(summary.get("metrics", ()))
    own = summary.get("notes", [])
    told = [*(own if isinstance(own, list | tuple) else [own]), *notes_of(run, metrics, experiment.load_measures())]
    notes = [one for one in told if isinstance(one, Note)]
    if told:
        summary = {**summary, "notes": [one.words if isinstance(one, Note) else one for one in told]}
    run.keep_frame("metrics", metrics_frame(metrics))
    write_samples(run, writer)
    writer.write_yaml("config.yaml", config)
    writer.write_json("fabric.json", fabric_as_json(run.live.fabric))
    writer.write_json("summary.json", summary_as_json(summary))
    writer.write_json("manifest.json", _manifest(run, experiment.in_manifest, verdict, notes, command))
    return verdict


def write_samples(run: Session, writer: ResultWriter) -> None:
    """Write the run's tables as they are; those of kinds of jobs only if one has written rows. Raises ResultError if
    one is not as promised."""
    of_jobs = tables_of_jobs()
    for name in writer.tables:
        rows = run.table(name)
        if name not in of_jobs or not rows.empty:
            writer.write_table(name, rows)
        if not (aside := run.aside.table(name)).empty:
            writer.write_table(name, aside, "set_aside")


def summary_of(returned: object) -> Mapping[str, Any]:
    """Return what an experiment's ``run`` returned; if not a mapping, a summary that says so: all was measured by
    then."""
    if isinstance(returned, Mapping):
        return returned
    return {"notes": [f"no summary: the experiment's run returned a {type(returned).__name__}, not a dictionary"]}


def summary_as_json(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an experiment returned as ``summary.json`` has it: metrics by their paths, tables with their parts.

    What cannot be written, such as a metric that is not finite or a table with a cell too many, is left out, and
    ``notes`` name it: a run is not lost for a fault of what is said about it.
    """
    metrics, notes = sifted(summary.get("metrics", ()))
    tables = []
    for one in summary.get("tables", ()):
        try:
            tables.append(SummaryTable.of(one).as_json())
        except ResultError as error:
            notes.append(f"left out: {error}")
    told: dict[str, Any] = {}
    for key, value in summary.items():
        try:
            told[key] = value if key in _WRITTEN_APART else plain(value, key)
        except ResultError as error:
            notes.append(f"left out: {error}")
    noted = {"notes": [*told.pop("notes", ()), *notes]} if notes else {}
    return {**told, "metrics": by_path(metrics), "tables": tables, **noted}


def _manifest(
    run: Session, experiment: Mapping[str, str | None], verdict: Verdict, notes: Sequence[Note], command: Sequence[str]
) -> dict[str, Any]:
    """Return the manifest of a run that has ended; ``command``: by what it was asked for."""
    fabric = run.live.fabric
    return {
        "format_version": FORMAT_VERSION,
        **experiment,
        "engine": current_engine().name,
        "seed": run.settings.seed,
        "repeatable_with": current_engine().repeatable_with(),
        "started_at": started_at(),
        "command": list(command),
        "datapath": run.live.emulation.datapath.value,
        "scale": fabric.scale,
        "sample_period_s": run.settings.sample_period_s,
        "verdict": verdict.as_json(),
        "notes": [one.as_json() for one in notes],
        "phases": [vars(outcome.phase) for outcome in run.phases],
        "set_aside": [vars(attempt) for attempt in run.attempts.set_aside],
        "calibration": {
            queueing: [_calibration_as_json(one) for one in found] for queueing, found in run.calibrations.items()
        },
        "conservation": {outcome.phase.name: vars(outcome.conservation) for outcome in run.phases},
        "cpu": {one.phase.name: one.used.cpu.as_json() for one in run.phases if one.used.cpu is not None},
        "full_queues": {one.phase.name: [vars(full) for full in one.full_queues] for one in run.phases},
        "setup": {"built_s": run.live.built_s, "ready_s": run.live.ready_s, "rules": run.live.plan.rule_count},
        "congestion_control": run.controls,
        "congestion_control_by_phase": {one.phase.name: dict(one.controls) for one in run.phases},
        "dcqcn": _dcqcn(run),
        "machine": machine_facts(),
        "versions": versions(),
    }


def _dcqcn(run: Session) -> dict[str, Any] | None:
    """Return the parameters of DCQCN in numbers, and what it has counted in this run; None: nobody used it, neither
    traffic of ours nor a user's program by its own choice."""
    counted = congestion_control.counted()
    is_chosen = congestion_control.DCQCN in run.settings.congestion_control.values()
    if not is_chosen and not (counted and counted["flows"]):
        return None
    fabric, config = run.live.fabric, run.settings.dcqcn
    return {
        "profile": config.profile,
        "source": PROFILES[config.profile].source,
        "scaling": config.scaling_on(fabric).value,
        "parameters": as_json(config.parameters(fabric)),
        "marking": None if run.queues.marking is None else run.queues.marking.model_dump(),
        "counted": counted,
    }


def _calibration_as_json(one: LinkCalibration) -> dict[str, Any]:
    return {**vars(one), "rate_error": one.rate_error, "worst_share_error": one.worst_share_error}


def machine_facts() -> dict[str, Any]:
    """Return the facts about the machine that a reader needs to judge a result."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(usable_cores()),
        "load_average": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    """Return the versions of the software that made a result."""
    found = {"python": platform.python_version(), "project": metadata.version("ai-fabric-emulator")}
    if (mininet := mininet_place.version()) is not None:
        found["mininet"] = mininet
    for name in _OF_OPENFLOW:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
            break
    return found | {name: metadata.version(name) for name in _LIBRARIES}
