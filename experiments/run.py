"""One run, from its config to its published directory, inside its namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from experiments.captures import captures
from experiments.config import RunConfig
from experiments.congestion import tell_congestion
from experiments.console import ERR, OUT, tell
from experiments.handover import copy_to_user
from experiments.live import bring_up
from experiments.registry import Experiment
from experiments.session import Session
from fabric import world
from fabric.agents import AgentPool
from fabric.errors import ResultError, UsageError
from fabric.fidelity import EXIT_CODE_INVALID, Status, Verdict
from fabric.lanes import plan_lanes
from fabric.margins import closest_checks, cpu_used
from fabric.report import write_report
from fabric.results import Result, ResultWriter, new_directory
from traffic.storage.job import PRELOAD as STORAGE_PRELOAD

PRELOAD = (
    "traffic.hfreduce",
    "traffic.nccl",
    "traffic.background",
    "traffic.blackout",
    "traffic.fan_in",
    "traffic.streams",
    "fabric.telemetry",
    "fabric.faults",
    "fabric.stall_audit",
    *STORAGE_PRELOAD,
)
_CLOSEST = 6
"""How many checks are printed; the report has all."""
_STATUS_STYLES = {Status.FAITHFUL: "bold green", Status.DEGRADED: "bold yellow", Status.INVALID: "bold red"}


def choose_directory(wanted: Path | None, experiment: str) -> Path:
    """Return the absolute path of a run's directory, which must be new. Raises UsageError."""
    directory = (wanted or new_directory(Path("results"), experiment)).absolute()
    if directory.exists():
        raise UsageError(f"--out {directory}: already exists, and results are never overwritten; give a new name")
    if directory.is_relative_to("/run"):
        raise UsageError(f"--out {directory}: /run is private to a run and removed with it; give a path elsewhere")
    return directory


def run_in_world(
    experiment: Experiment, config: RunConfig, resolved: dict[str, Any], directory: Path, wanted_captures: Sequence[str]
) -> int:
    """Play an experiment in this world, publish its directory, print its answer, and return the exit code."""
    draft = ResultWriter(world.RUN_DIR / "result" / directory.name)
    try:
        verdict, summary = _play(experiment, config, resolved, draft, wanted_captures)
    except Exception:
        _save_logs(draft, directory)
        raise
    tell("drawing figures")
    result = Result(draft.directory)
    write_report(result)
    publish(draft.directory, directory)
    _print_answer(experiment, summary, verdict)
    _print_margins(result)
    if experiment.see_also:
        OUT.print(f"see also: {experiment.see_also}", soft_wrap=True, highlight=False)
    OUT.print(f"figures: {directory / 'figures'}", soft_wrap=True, highlight=False)
    OUT.print(f"result: {directory}", soft_wrap=True, highlight=False)
    return EXIT_CODE_INVALID if verdict.status is Status.INVALID else 0


def _play(
    experiment: Experiment,
    config: RunConfig,
    resolved: dict[str, Any],
    draft: ResultWriter,
    wanted_captures: Sequence[str],
) -> tuple[Verdict, dict[str, Any]]:
    fabric = config.fabric()
    lanes = plan_lanes(config.queues, config.queueings_played[0])
    with ExitStack() as stack:
        live = stack.enter_context(bring_up(fabric, lanes, draft.directory / "logs", tell, config.routing))
        stack.enter_context(captures(live.emulation, wanted_captures))
        bar = stack.enter_context(_progress_bar())
        task = bar.add_task("", total=1.0)
        pool = AgentPool(PRELOAD)
        stack.callback(pool.stop)
        session = Session.of(
            config, live, pool, tell, lambda title, done: bar.update(task, description=title, completed=done)
        )
        summary = tell_congestion(session, experiment.run(session, config))
        return session.write(draft, experiment.name, resolved, summary), summary


def _progress_bar() -> Progress:
    return Progress(TextColumn("{task.description:<40}"), BarColumn(), TimeElapsedColumn(), console=ERR, transient=True)


def _save_logs(draft: ResultWriter, directory: Path) -> None:
    """Keep the logs of a run that failed: they say why, and the world's memory goes with it."""
    target = copy_to_user(draft.directory / "logs", directory.with_name(directory.name + ".failed-logs"))
    ERR.print(f"logs: {target}", highlight=False, soft_wrap=True)


def publish(draft: Path, directory: Path) -> None:
    """Move a whole result out of the world's memory: it appears under its name only when complete."""
    if directory.exists():
        raise ResultError(f"{directory}: was created by somebody else during the run; the result is lost, run again")
    copy_to_user(draft, directory.with_name(directory.name + ".partial")).rename(directory)


def _print_answer(experiment: Experiment, summary: dict[str, Any], verdict: Verdict) -> None:
    OUT.print(f"[bold]{experiment.name}[/]: {experiment.question}", soft_wrap=True)
    for described in summary["tables"]:
        table = Table(*described["columns"], title=described["title"], caption=described.get("note"))
        for row in described["rows"]:
            table.add_row(*(str(cell) for cell in row))
        OUT.print(table)
    OUT.print(f"verdict: [{_STATUS_STYLES[verdict.status]}]{verdict.status.value}[/]")
    for reason in verdict.reasons:
        OUT.print(f"  {reason}", soft_wrap=True, highlight=False)


def _print_margins(result: Result) -> None:
    """Print how near the verdict's checks came to their limits, and what the run used of the CPU."""
    for described in (closest_checks(result.verdict, _CLOSEST), cpu_used(result.manifest)):
        if described is not None:
            table = Table(*described.columns, title=described.title)
            for row in described.rows:
                table.add_row(*row)
            OUT.print(table)
