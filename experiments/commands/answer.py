"""A result's answer, printed."""

from __future__ import annotations

from experiments.run.console import OUT, print_tables
from experiments.run.definition import Experiment
from fabric.measure.verdict import EXIT_CODE_INVALID, Status
from fabric.report.cost import cost_table
from fabric.report.margins import closest_checks, cpu_used
from fabric.results import Result

_CLOSEST = 6
"""How many checks are printed; the report has all."""
_STATUS_STYLES = {Status.FAITHFUL: "bold green", Status.DEGRADED: "bold yellow", Status.INVALID: "bold red"}


def print_answer(result: Result, experiment: Experiment) -> int:
    """Print the tables, the verdict and where the rest is; return the exit code."""
    status = Status(result.verdict["status"])
    OUT.print(f"[bold]{experiment.name}[/]: {experiment.question}", soft_wrap=True)
    print_tables(result.summary["tables"])
    OUT.print(f"verdict: [{_STATUS_STYLES[status]}]{status.value}[/]")
    for reason in result.verdict["reasons"]:
        OUT.print(f"  {reason}", soft_wrap=True, highlight=False)
    _print_margins(result)
    if experiment.see_also:
        OUT.print(f"see also: {experiment.see_also}", soft_wrap=True, highlight=False)
    folder = result.directory / "figures"
    figures = folder if any(folder.iterdir()) else f"none yet; to draw them: fabric report {result.directory}"
    OUT.print(f"figures: {figures}", soft_wrap=True, highlight=False)
    OUT.print(f"to look inside: fabric view {result.directory}", soft_wrap=True, highlight=False)
    OUT.print(f"result: {result.directory}", soft_wrap=True, highlight=False)
    return EXIT_CODE_INVALID if status is Status.INVALID else 0


def _print_margins(result: Result) -> None:
    """Print how near the verdict's checks came to their limits, what the run used of the CPU, and its cost."""
    tables = (closest_checks(result.verdict, _CLOSEST), cpu_used(result.manifest), cost_table(result))
    # Their notes are for the report, where a reader has the time.
    print_tables(vars(table) | {"note": None} for table in tables if table is not None)
