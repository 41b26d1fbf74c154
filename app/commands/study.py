"""A sweep on the terminal: the live table while it goes on, and what it found."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.live import Live
from rich.table import Table

from app.sweeps.local import Launch
from app.sweeps.planning import SweepPlan
from app.sweeps.store import Store
from app.sweeps.study import Findings, Show
from app.sweeps.tables import LEFT_OUT, at_point, believed
from app.sweeps.tally import COLUMNS, Tally
from fabric.measures import Measure, measure_at
from fabric.metrics import least_name
from fabric.report.compare import format_metric
from runs.console import ERR, OUT, print_tables, tell
from runs.launching.launcher import launch
from runs.launching.run_result import RunResult

_REFRESHES_PER_S = 2
_FAILURES_SHOWN = 5
_HEADLINES = 4


class TallyDisplay:
    """The live table; where there is no terminal, a line whenever a run has begun or ended."""

    def __init__(self) -> None:
        self._tally: Tally | None = None
        self._last: list[str] = []
        self._lock = threading.Lock()
        self._live = Live(console=ERR, refresh_per_second=_REFRESHES_PER_S, get_renderable=self._table)

    def __enter__(self) -> TallyDisplay:
        if ERR.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if ERR.is_terminal:
            self._live.stop()

    def show(self, tally: Tally) -> None:
        """Show how far it is."""
        self._tally = tally
        *counts, left = tally.cells(time.monotonic())
        if not ERR.is_terminal and counts != self._last:
            self._last = counts
            tell(", ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, [*counts, left], strict=True)))

    def _table(self) -> Table:
        table = Table(*COLUMNS)
        if self._tally is not None:
            table.add_row(*self._tally.cells(time.monotonic()))
        return table


@contextmanager
def study_display(plan: SweepPlan, store: Store, live_port: int | None) -> Iterator[tuple[Launch, Show]]:
    """Yield what plays runs here, and what is shown how far the study is, for the time of a block. ``live_port``: of a
    page that shows both, 0: any that is free; None: without one."""
    with TallyDisplay() as display:
        if live_port is None:
            yield launch, display.show
            return
        from app.commands.watching import tell_address  # What pages need takes a second to load.
        from app.sweeps.live_page import StudyPages
        from fabric.report.view.serving import serving

        pages = StudyPages(plan, store)

        def show(tally: Tally) -> None:
            pages.show(tally)
            display.show(tally)

        with serving(pages.answer, live_port) as address:
            tell_address(address, "until all runs have ended", has_metrics=False)
            yield pages.play, show


@contextmanager
def naming_kept_runs(store: Store, how: str) -> Iterator[None]:
    """Say, if a block is interrupted, where the runs are that had ended, and ``how`` to go on."""
    try:
        yield
    except KeyboardInterrupt:
        tell(f"runs that had ended are kept in {store.directory}; {how} plays the others")
        raise


def print_findings(findings: Findings) -> None:
    """Print each setting with how many of its runs count, what failed, and where the tables are."""
    plan = findings.plan
    verdicts = dict(zip(findings.runs["run"], findings.runs["verdict"], strict=True))
    kinds = list(dict.fromkeys(verdicts.values()))
    table = Table(*plan.axes, "runs", *kinds, title=f"{plan.name}: {plan.experiment}, engine {plan.engine}")
    for runs in plan.points:
        counts = [sum(verdicts[run.key] == kind for run in runs) for kind in kinds]
        point = [plan.text_of(axis, value) for axis, value in runs[0].point.items()]
        table.add_row(*point, str(len(runs)), *map(_count, counts))
    OUT.print(table)
    print_left_out(findings)
    if headlines := headlines_of(findings):
        print_tables([headlines])
    for path in findings.files:
        OUT.print(f"table: {path}", soft_wrap=True, highlight=False)


def headlines_of(findings: Findings) -> dict[str, Any] | None:
    """Return the medians of what the sweep's figures draw, or of the first metrics of its runs, a row per setting; None
    if no run counts."""
    plan, medians = findings.plan, findings.medians
    if medians.empty:
        return None
    rows = {(*(str(row[axis]) for axis in plan.axes), str(row["metric"])): row for row in medians.to_dict("records")}
    asked = list(dict.fromkeys(figure.y for figure in plan.figures))
    names = asked or [str(name) for name in findings.summaries[0].get("metrics", {})]  # type: ignore[attr-defined]
    shown = names[:_HEADLINES]
    measures = _measures_of(findings)
    table = []
    for runs in plan.points:
        point = {axis: plan.text_of(axis, value) for axis, value in runs[0].point.items()}
        paths = [at_point(name, point) for name in shown]
        found = [rows.get((*point.values(), path)) or rows.get((*point.values(), least_name(path))) for path in paths]
        table.append([*point.values(), *(_median_text(row, measures) for row in found)])
    note = "median, and in brackets its 95 % interval, or of fewer than six runs their range; all: medians.csv"
    return {"title": "Medians", "columns": [*plan.axes, *shown], "rows": table, "note": note}


def _measures_of(findings: Findings) -> Sequence[Measure]:
    """Return the measures of the first run that counts; none if no run does."""
    first = next(iter(believed(findings.runs)["run"]), None)
    return () if first is None else RunResult(findings.store.run_directory(str(first))).measures


def _median_text(row: Mapping[Any, Any] | None, measures: Sequence[Measure]) -> str | None:
    if row is None:
        return None
    name = str(row["metric"])
    shown = ("median", "low", "high") if row["runs"] > 1 else ("median",)
    median, *ends = (format_metric(name, float(row[key])) for key in shown)
    measure = measure_at(measures, name)
    at_least = "> " if measure is not None and measure.is_least else ""
    without = f", {row['without']} without" if row["without"] else ""
    return f"{at_least}{median}" + (f" [{', '.join(ends)}]" if ends else "") + without


def _count(count: int) -> str:
    return str(count) if count else ""


def print_left_out(findings: Findings) -> None:
    """Print why runs are left out of averages."""
    out = findings.runs[findings.runs["verdict"].isin(LEFT_OUT)]
    for _, row in out.head(_FAILURES_SHOWN).iterrows():
        why = str(row["reasons"]).splitlines()
        text = f"left out: {row['run']}, {row['verdict']}: {why[0] if why else 'not run'}"
        OUT.print(text, soft_wrap=True, highlight=False)
    if len(out) > _FAILURES_SHOWN:
        OUT.print(f"left out: {len(out) - _FAILURES_SHOWN} more; runs.csv says why")
