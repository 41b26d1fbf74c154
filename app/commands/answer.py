"""A result's answer, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from fabric.measure.verdict import EXIT_CODE_INVALID, Status
from fabric.report.cost import cost_table
from fabric.report.margins import closest_checks, cpu_used
from fabric.results import REPORT_NAME, Result
from runs.console import OUT, print_tables
from runs.definition import Experiment

_CLOSEST = 6
"""How many checks are printed; the report has all."""
_USUAL = 1
"""How many tables are printed unless all are asked for."""
_STATUS_STYLES = {Status.FAITHFUL: "bold green", Status.DEGRADED: "bold yellow", Status.INVALID: "bold red"}


def print_answer(result: Result, experiment: Experiment, *, verbose: bool = False) -> int:
    """Print the answer in a sentence, the verdict and where the rest is, then the first table; return the exit code.
    ``verbose``: all tables, the margins to the limits of the verdict, and the cost."""
    OUT.print(Text.assemble((experiment.name, "bold"), f": {experiment.question}"), soft_wrap=True)
    status = Status(result.verdict["status"])
    if answer := result.summary.get("answer"):
        OUT.print(Text.assemble(("answer:", "bold"), f" {answer}"), soft_wrap=True)
    for note in result.notes:
        OUT.print(f"note: {note}", soft_wrap=True, highlight=False)
    OUT.print(Text.assemble("verdict: ", (status.value, _STATUS_STYLES[status])))
    for reason in result.verdict["reasons"]:
        OUT.print(f"  {reason}", soft_wrap=True, highlight=False)
    report, draw = _report(result), f"fabric report {result.directory}"
    OUT.print(f"report: {report or f'none yet; to draw it: {draw}'}", soft_wrap=True, highlight=False)
    if report:
        OUT.print(f"all figures: {draw}", soft_wrap=True, highlight=False)
    OUT.print(f"to look inside: fabric view {result.directory}", soft_wrap=True, highlight=False)
    if experiment.see_also:
        OUT.print(f"see also: {experiment.see_also}", soft_wrap=True, highlight=False)
    _print_tables(result, verbose)
    return exit_code_of(result)


def _print_tables(result: Result, verbose: bool) -> None:
    """Print the first table, or all and what the verdict and the run's cost stand on; say how many are left out."""
    tables = result.summary["tables"]
    print_tables(tables if verbose else tables[:_USUAL])
    if verbose:
        _print_margins(result)
    elif len(tables) > _USUAL:
        left_out = len(tables) - _USUAL
        words = "1 more table" if left_out == 1 else f"{left_out} more tables"
        OUT.print(f"{words}: in the report, and here with -v", highlight=False)


def answer_as_json(result: Result, experiment: Experiment) -> dict[str, Any]:
    """Return what a program wants to know of a run; everything else is in its directory."""
    report = _report(result)
    return {
        "experiment": experiment.name,
        "question": experiment.question,
        "answer": result.summary.get("answer"),
        "verdict": {"status": result.verdict["status"], "reasons": list(result.verdict["reasons"])},
        "metrics": result.summary.get("metrics", {}),
        "notes": result.notes,
        "directory": str(result.directory),
        "report": None if report is None else str(report),
    }


def exit_code_of(result: Result) -> int:
    """Return exit code 3 if the verdict is `invalid`, else 0."""
    return EXIT_CODE_INVALID if Status(result.verdict["status"]) is Status.INVALID else 0


def _report(result: Result) -> Path | None:
    """Return the page of a result; None if it has not been drawn."""
    path = result.directory / REPORT_NAME
    return path if path.is_file() else None


def _print_margins(result: Result) -> None:
    """Print how near the verdict's checks came to their limits, what the run used of the CPU, and its cost."""
    tables = (closest_checks(result.verdict, _CLOSEST), cpu_used(result.manifest), cost_table(result))
    # Their notes are for the report, where a reader has the time.
    print_tables(vars(table) | {"note": None} for table in tables if table is not None)
