"""``fabric reproduce``: published setups beside theory and ours.

Exit code 1: a number is outside of theory, or was not measured; 4: one is outside of what was published, and none of
theory."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from app.commands.study import TallyDisplay, naming_kept_runs, print_left_out
from app.reproduction.comparing import COLUMNS, Compared, compare, exit_code, told
from app.reproduction.computed import COMPUTED
from app.reproduction.config import CaseConfig, all_cases
from app.sweeps.identity import program_name
from app.sweeps.local import LocalExecutor
from app.sweeps.planning import SweepPlan, plan_runs
from app.sweeps.store import Store
from app.sweeps.study import Findings, collect, run_missing
from app.sweeps.tables import believed, metric_columns
from fabric.config import unknown_key
from fabric.errors import UsageError
from fabric.units import parse_size_bytes
from runs.console import OUT, tell
from runs.launching.spec import RunSpec

_SEEDS, _QUICK_SEEDS = 6, 1
_COMPUTED_SEEDS = 6
_DEFAULT_OUT = Path("results/reproduce")
_CASE = "case"
_RUNS = "runs"
"""Below the page: a sweep of all that was run by each version of the program."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric reproduce``."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the setups (default: all)")
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK_SEEDS} seed per run instead of {_SEEDS}")
    parser.add_argument("--list", action="store_true", help="list the setups, and why some cannot be run")
    parser.add_argument("--jobs", type=int, metavar="N", help="how many runs at a time (default: as many as fit)")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=_DEFAULT_OUT,
        help=f"where the page and its runs go (default: {_DEFAULT_OUT})",
    )
    parser.set_defaults(command=reproduce)


def reproduce(options: argparse.Namespace, _: list[str]) -> int:
    """Run what is missing of published setups, and write them all on a page."""
    cases = _chosen(options.names)
    if options.list:
        _print_list(cases)
        return 0
    store = Store(options.out / _RUNS / program_name())
    findings = _run(cases, _QUICK_SEEDS if options.quick else _SEEDS, store, options.jobs)
    numbers = [number for name, case in cases.items() for number in compare(name, case, _metrics(name, case, findings))]
    _print_numbers(cases, numbers)
    if findings is not None:
        print_left_out(findings)
    from app.reproduction.page import write_page  # What draws takes a second to load.

    OUT.print(f"page: {write_page(cases, numbers, options.out)}", soft_wrap=True, highlight=False)
    return exit_code(numbers)


def _chosen(names: list[str]) -> dict[str, CaseConfig]:
    """Return the setups that are asked for. Raises UsageError for one that does not exist."""
    cases = all_cases()
    if unknown := [name for name in names if name not in cases]:
        raise UsageError(f"{unknown_key(unknown[0], cases)} (fabric reproduce --list)")
    return {name: case for name, case in cases.items() if not names or name in names}


def _run(cases: dict[str, CaseConfig], seeds: int, store: Store, jobs: int | None) -> Findings | None:
    """Run what is missing of the setups that need runs; None if none does."""
    plan = _plan(cases, seeds)
    if plan is None:
        return None
    with naming_kept_runs(store, "the same command"), TallyDisplay() as display:
        run_missing(plan, store, LocalExecutor(jobs), display.show, tell)
    return collect(plan, store)


def _plan(cases: dict[str, CaseConfig], seeds: int) -> SweepPlan | None:
    runs, memory_bytes = [], 0
    for name, case in _largest_first(cases):
        if case.run is not None:
            memory = parse_size_bytes(case.run.memory)
            base = RunSpec(case.run.experiment, case.run.settings, engine="virtual", memory_bytes=memory, draws=False)
            plan = plan_runs(name, base, {}, range(1, seeds + 1))
            runs += [replace(run, point={_CASE: name}) for run in plan.runs]
            memory_bytes = max(memory_bytes, plan.memory_bytes)
    if not runs:
        return None
    return SweepPlan("reproduce", "published setups", "virtual", (_CASE,), tuple(runs), (), memory_bytes)


def _largest_first(cases: dict[str, CaseConfig]) -> list[tuple[str, CaseConfig]]:
    """Return the setups by the memory of their runs: large ones take long, and one that began last would end alone."""
    return sorted(cases.items(), key=lambda one: -parse_size_bytes(one[1].run.memory) if one[1].run else 0)


def _metrics(name: str, case: CaseConfig, findings: Findings | None) -> list[dict[str, float]]:
    """Return the metrics of a case's runs that can be believed, or of what is computed."""
    if case.computed is not None:
        return [COMPUTED[case.computed](seed) for seed in range(_COMPUTED_SEEDS)]
    if findings is None or case.run is None:
        return []
    rows = believed(findings.runs)
    rows = rows[rows[_CASE] == name]
    found = rows[metric_columns(findings.plan, findings.runs)]
    return [{str(key): float(value) for key, value in row.dropna().items()} for _, row in found.iterrows()]


def _print_list(cases: dict[str, CaseConfig]) -> None:
    table = Table("name", "what", "numbers", "cannot be run yet, since it")
    for name, case in cases.items():
        table.add_row(name, case.title, str(len(case.numbers) or "-"), case.not_yet or "")
    OUT.print(table)


def _print_numbers(cases: dict[str, CaseConfig], numbers: list[Compared]) -> None:
    for name, case in cases.items():
        own = [number for number in numbers if number.case == name]
        if own:
            table = Table(*COLUMNS, title=f"{name}: {case.title}")
            for number in own:
                table.add_row(*number.cells)
            OUT.print(table)
    waiting = [name for name, case in cases.items() if case.not_yet]
    for words in told(numbers):
        OUT.print(words, highlight=False, soft_wrap=True)
    if waiting:
        OUT.print(f"not yet: {', '.join(waiting)} (--list says why)", highlight=False, soft_wrap=True)
