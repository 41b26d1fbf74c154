"""``fabric run --repeat N``: the same run with several seeds, and what they say together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.text import Text

from app.commands.study import naming_kept_runs, print_left_out, study_display
from app.sweeps.config import MOST_REPEATS, SEEDS
from app.sweeps.local import LocalExecutor
from app.sweeps.merging import has_numbers, merged_tables
from app.sweeps.planning import plan_runs
from app.sweeps.store import Store
from app.sweeps.study import Findings, collect, run_missing
from fabric.errors import UsageError
from fabric.estimates import LEAST_FOR_CONFIDENCE
from fabric.records.notes import few_seeds
from fabric.results import new_directory
from runs.console import OUT, print_tables, tell
from runs.definition import Experiment
from runs.launching.spec import RunSpec, prepare

_OF_BEFORE = (
    "runs of an earlier version have no numbers beside the words of their tables, so tables cannot be merged; metrics "
    "are. To have tables, too, repeat with another --out"
)


def check_repeats(repeats: int) -> None:
    """Raise UsageError if ``--repeat`` names too few runs for an interval."""
    if repeats < 2:
        raise UsageError(f"--repeat {repeats}: must be 2 or more; omit it for a single run")
    if repeats > MOST_REPEATS:
        raise UsageError(f"--repeat {repeats}: must be {MOST_REPEATS:,} at most; play them by fabric sweep")


def repeat(spec: RunSpec, repeats: int, jobs: int | None, live_port: int | None = None) -> int:
    """Run a spec with several seeds and print its tables with medians and intervals. ``live_port``: of a page of the
    runs while they play, 0: any that is free; None: without one.

    Returns 1 if a run failed, 3 if none can be believed. Raises UsageError, ConfigError.
    """
    check_repeats(repeats)
    if spec.captures:
        raise UsageError("--capture: is for a single run; omit --repeat, or --capture")
    if spec.sflow is not None:
        raise UsageError("--sflow: is for a single run; omit --repeat, or --sflow")
    prepared = prepare(replace(spec, directory=None), ())
    first = prepared.config.seed
    if first + repeats > SEEDS:
        raise UsageError(
            f"--repeat {repeats}: from --seed {first} on there are {SEEDS - first} seeds; lower one of them"
        )
    plan = plan_runs(
        f"{prepared.experiment.name}, {repeats} repeats",
        replace(spec, directory=None, draws=False),
        {},
        range(first, first + repeats),
    )
    store = Store(spec.directory or new_directory(Path("results"), f"{prepared.experiment.name}-repeats"))
    again = f"the same command with --out {store.directory}"
    with naming_kept_runs(store, again), study_display(plan, store, live_port) as (play, show):
        run_missing(plan, store, LocalExecutor(jobs, play), show, tell)
    findings = collect(plan, store)
    _print(findings, prepared.experiment.question)
    if spec.draws:
        _draw(findings, prepared.experiment)
    store.hand_over()
    return findings.exit_code


def _print(findings: Findings, question: str) -> None:
    summaries, total = findings.summaries, len(findings.runs)
    OUT.print(Text.assemble((findings.plan.experiment, "bold"), f": {question}"), soft_wrap=True)
    if all(map(has_numbers, summaries)):
        print_tables(table.as_json() for table in merged_tables(summaries))
    else:
        OUT.print(f"note: {_OF_BEFORE}", soft_wrap=True, highlight=False)
    counts = findings.runs["verdict"].value_counts()
    OUT.print(f"runs: {total}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    print_left_out(findings)
    if len(summaries) >= LEAST_FOR_CONFIDENCE:
        OUT.print(f"in tables: the median of {len(summaries)} runs, and its 95 % bootstrap interval", highlight=False)
    elif len(summaries) > 1:
        OUT.print(f"in tables: the median of {len(summaries)} runs, and their range", highlight=False)
    for note in few_seeds(len(summaries)):
        OUT.print(f"note: {note.words}", soft_wrap=True, highlight=False)
    for path in findings.files:
        OUT.print(f"table: {path}", soft_wrap=True, highlight=False)


def _draw(findings: Findings, experiment: Experiment) -> None:
    from app.sweeps.figures import draw_repeats  # What draws takes a second to load.

    summaries = findings.summaries
    if not summaries:
        return
    directory, own = findings.store.directory / "figures", experiment.load_repeated_figures()
    for path in draw_repeats(findings.plan, findings.runs, summaries, directory, own):
        OUT.print(f"figure: {path}", soft_wrap=True, highlight=False)
