"""What a run of the frontier says: numbers from rows of the counted time alone, the claim in words, the figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from experiments.dcqcn_frontier.cases import Alone, Setting
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from experiments.dcqcn_frontier.experiment import EXPERIMENT
from experiments.dcqcn_frontier.reference import P99, READ, beside_reference
from experiments.dcqcn_frontier.study import STUDY, cases
from fabric.metrics import by_path, least_name, metrics_of
from fabric.results import Phase
from fabric.tables import TABLES
from runs.counted_operations import counted_s
from runs.launching.run_result import RunResult
from runs.registry import resolve
from runs.session import Session
from runs.study import Found, Outcome, Played
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_result
from tests.experiments.studies import study_result
from tests.rows import table_of
from traffic.collectives.step_numbers import algbw_in

CONFIG = cast(
    DcqcnFrontierConfig,
    resolve("dcqcn_frontier", ["grid.profiles=[paper]", "grid.thresholds=[1]", "warm_up=1", "phase_time=3"])[1],
)
FABRIC = CONFIG.fabric()
CASES = cases(CONFIG)
PLAYING = [one for one in CASES if not isinstance(one, Alone)]
SIZE = 10**9


def outcome(name: str, began_s: float = 10.0) -> Any:
    return SimpleNamespace(phase=Phase(name, name, "lossless", began_s, began_s + 3))


def step(phase: str, started_s: float, took_s: float) -> list[Any]:
    return [phase, "hfreduce", 0, 4, SIZE, started_s, started_s + took_s]


def read(phase: str, started_s: float, took_s: float, size: int = SIZE) -> list[Any]:
    return [phase, "storage", "read", "z0h000", "st001", size, started_s, started_s + took_s, 0]


def steps_table(rows: list[list[Any]]) -> pd.DataFrame:
    return table_of("steps", rows).astype(TABLES["steps"].dtypes)


def operations_table(rows: list[list[Any]]) -> pd.DataFrame:
    return table_of("operations", rows).astype(TABLES["operations"].dtypes)


def test_steps_that_ended_while_tcp_warmed_up_do_not_count() -> None:
    steps = steps_table([step("a", 10.5, 0.5), step("a", 11.0, 0.25), step("a", 12.0, 0.75)])
    assert algbw_in(steps, *counted_s(outcome("a").phase, 1.0)) == pytest.approx(2 * SIZE / 1.0)
    assert algbw_in(steps[:0], *counted_s(outcome("none").phase, 1.0)) == 0.0


def test_a_step_longer_than_the_counted_time_counts_by_its_part_inside() -> None:
    """A set of DCQCN's parameters that made one step last for all of it ended the whole run."""
    phase = outcome("a").phase
    from_s, until_s = phase.started_s + 1.0, phase.load_s[1]
    longer = step("a", from_s - 0.5, until_s - from_s + 1.0)
    assert algbw_in(steps_table([longer]), from_s, until_s) == pytest.approx(SIZE / (until_s - from_s + 1.0))
    quick = step("a", from_s, 0.5)
    mixed = steps_table([step("a", from_s - 0.5, 0.5), quick, step("a", from_s + 0.5, until_s - from_s)])
    counted = SIZE + SIZE * (1 - 0.5 / (until_s - from_s))
    assert algbw_in(mixed, from_s, until_s) == pytest.approx(counted / (until_s - from_s))


def got_of(rows: list[list[Any]]) -> Mapping[str, float]:
    name = PLAYING[0].name
    tables = {"operations": operations_table([[name, *row[1:]] for row in rows]), "steps": steps_table([])}
    tables |= {name: TABLES[name].empty() for name in ("ports", "stalls")}
    session = cast(Session, SimpleNamespace(table=tables.__getitem__))
    metrics = STUDY.metrics_of(Played(session, CONFIG, PLAYING[0], outcome(name), {}))
    return Outcome(PLAYING[0], metrics).values


def test_reads_count_with_their_part_of_the_counted_time_and_p99_is_of_those_that_began_in_it() -> None:
    """The last of them ends when the load plays no more, and the slowest are among such."""
    found = got_of([read("a", 10.2, 0.5), read("a", 10.5, 1.0), read("a", 12.0, 0.25), read("a", 12.8, 0.8)])
    assert found[READ] == pytest.approx((0.5 + 1 + 0.25) * SIZE / 2.0)
    assert found[P99] == pytest.approx(0.8)
    assert (got_of([])[READ], got_of([])[least_name(P99)]) == (0.0, 0.0)


def test_a_point_at_which_reads_failed_reaches_no_part_of_the_references_p99() -> None:
    failed = [["a", "storage", "read_failed", "z0h000", "st001", SIZE, 12.0, 14.0, 3]]
    found = got_of([read("a", 11.5, 0.1), *failed])
    assert (found[least_name(P99)], P99 in found) == (2.0, False)


def stalls_table(began_s: dict[str, float]) -> pd.DataFrame:
    """Return a lane that stalls for 1 s of each phase without congestion control, and for 0.1 s of the others."""
    rows = [
        (began + at_s, "a:1", "lossless", 0, int(1e9 * at_s * (1.0 if name.startswith("line") else 0.1)), 0, 0)
        for name, began in began_s.items()
        for at_s in (0.0, 1.0)
    ]
    return table_of("stalls", rows).astype(TABLES["stalls"].dtypes)


def session_of(step_s: dict[str, float]) -> tuple[Session, dict[str, pd.DataFrame]]:
    """Return a run in which an allreduce of each phase takes so long, and a read 0.1 s."""
    began_s = {case.name: 10.0 * place for place, case in enumerate(CASES)}
    tables = {"ports": TABLES["ports"].empty(), "stalls": stalls_table(began_s)}
    tables["steps"] = steps_table([step(name, began + 1, step_s.get(name, 0.2)) for name, began in began_s.items()])
    tables["operations"] = operations_table([read(name, began + 1.5, 0.1) for name, began in began_s.items()])
    kept: dict[str, pd.DataFrame] = {}
    fake = SimpleNamespace(
        live=SimpleNamespace(fabric=FABRIC),
        phases=[outcome(name, began) for name, began in began_s.items()],
        table=tables.__getitem__,
        keep_frame=kept.__setitem__,
    )
    return cast(Session, fake), kept


def summary_of(step_s: dict[str, float], cuts: int = 7) -> dict[str, Any]:
    session, _ = session_of(step_s)
    return summarized(session, CASES, cuts)


def summarized(session: Session, playing: Sequence[Setting], cuts: int = 0) -> dict[str, Any]:
    return STUDY.summarize(session, CONFIG, playing, {one.name: {"cuts": cuts} for one in playing})


def with_dcqcn() -> list[Setting]:
    return [point for point in PLAYING if point.profile]


SLOW = {point.name: 0.5 + place / 10 for place, point in enumerate(with_dcqcn())}


def test_the_answer_says_whether_the_claim_holds_and_what_would_end_it() -> None:
    held, failed = summary_of(SLOW), summary_of({})
    assert [claim["holds"] for claim in held["claims"].values()] == [True, True]
    assert held["answer"].startswith("In one lossless lane the paper's claim holds: 0 of 2 sets of DCQCN's parameters")
    assert "gives 40% of the allreduce and 100% of the reads of lanes without congestion control" in held["answer"]
    assert "It would fail with one of 60.0% of allreduce bandwidth, not 10%." in held["answer"]
    assert held["answer"].endswith("Lanes without congestion control give each program its share of the links.")
    assert [claim["holds"] for claim in failed["claims"].values()] == [False, False]
    assert "In lossless lanes the paper's claim does not hold: 2 of 2 sets" in failed["answer"]
    assert "and 2 of these keep ports from standing still" in failed["answer"]


def test_every_point_has_its_row_and_its_metrics() -> None:
    summary = summary_of(SLOW)
    kinds, rows = summary["tables"]
    assert len(rows.words) == len(PLAYING)
    assert {len(row) for row in rows.words} == {len(rows.columns)}
    assert {len(row) for row in kinds.words} == {len(kinds.columns)}
    name = with_dcqcn()[0].name
    assert by_path(summary["metrics"])[f"{name}.hfreduce.algbw_Bps"] == pytest.approx(SIZE / 0.5)
    assert by_path(summary["metrics"])[f"{name}.cuts"] == 7
    assert f"{name}.storage.read_Bps" in {one.path for one in summary["metrics"] if one.job == "storage"}
    assert by_path(summary["metrics"])["lossless_lanes.claim_holds"] == 1.0
    assert by_path(summary["metrics"])["lossless.suiting_points"] == 0.0
    assert undeclared("dcqcn_frontier", summary["metrics"]) == []


def test_points_are_a_table_with_their_parameters() -> None:
    session, kept = session_of({})
    summarized(session, CASES)
    rows = kept["points"].set_index("phase")
    assert list(kept["points"].columns) == list(EXPERIMENT.load_tables()["points"].columns)
    assert rows.loc["dcqcn_paper_t1_i10_lossless", "increase_period_s"] == pytest.approx(5.5e-6)
    assert pd.isna(rows.loc["line_lossless", "kmin_bytes"])


def test_stalls_are_told_over_those_without_congestion_control_in_the_same_queueing() -> None:
    stalled = {"line_lossless": 4.0, "dctcp_lossless": 1.0, "line_lossless_lanes": 0.0, "dctcp_lossless_lanes": 1.0}
    found = [
        Outcome(point, metrics_of(point.name, "", {"stalled_s": stalled[point.name]}))
        for point in PLAYING
        if point.name in stalled
    ]
    told = {one.case.name: beside_reference(Found(session_of({})[0], CONFIG, found), one) for one in found}
    assert told == {
        "line_lossless": {"relative_stalls": 1.0},
        "dctcp_lossless": {"relative_stalls": 0.25},
        "line_lossless_lanes": {},
        "dctcp_lossless_lanes": {},
    }


def without(table: str, phases: Iterable[str], instead: list[list[Any]] | None = None) -> dict[str, Any]:
    """Return the summary of a run in which phases have no rows of a table, or others."""
    session, _ = session_of({})
    tables = {name: session.table(name) for name in ("steps", "operations", "ports", "stalls")}
    rows = tables[table]
    tables[table] = rows[~rows["phase"].isin(list(phases))]
    if instead:
        tables[table] = pd.concat([tables[table], operations_table(instead)])
    fake = SimpleNamespace(
        live=session.live, phases=session.phases, table=tables.__getitem__, keep_frame=lambda name, frame: None
    )
    return summarized(cast(Session, fake), CASES)


def test_a_point_at_which_a_program_got_nothing_suits_nothing_and_the_others_are_told() -> None:
    summary = without("steps", ["dctcp_lossless"])
    assert (
        "at 1 of 8 points, the first dctcp, one lossless lane: they suit nothing; raise phase_time"
        in (summary["answer"])
    )
    assert len(summary["claims"]) == 2


@pytest.mark.parametrize("phase", ["line_lossless_lanes", "hfreduce_alone"])
def test_where_what_is_compared_with_got_nothing_no_claim_is_made(phase: str) -> None:
    summary = without("steps", [phase])
    assert summary["claims"] == {}
    assert summary["answer"].startswith("Nothing to compare with: of ")
    assert "raise phase_time" in summary["answer"]


def test_where_reads_failed_at_every_point_that_works_the_answer_says_that_their_p99_is_not_known() -> None:
    names = [point.name for point in with_dcqcn()]
    session, _ = session_of({})
    began_s = {one.phase.name: one.phase.started_s for one in session.phases}
    failed = [
        row
        for name in names
        for row in (
            read(name, began_s[name] + 1.5, 0.1),
            [name, "storage", "read_failed", "z0h000", "st001", SIZE, began_s[name] + 1.5, began_s[name] + 2.0, 3],
        )
    ]
    summary = without("operations", names, failed)
    assert "at a p99 that is not known" in summary["answer"]
    assert "What tolerance would change that is not known, as its read p99 is not." in summary["answer"]
    kinds, _ = summary["tables"]
    assert ["unknown", "unknown (read p99)"] in [[row[7], row[9]] for row in kinds.words]
    assert "lossless.nearest_fraction" not in by_path(summary["metrics"])


def test_without_a_reference_nothing_is_claimed() -> None:
    session, _ = session_of({})
    summary = summarized(session, [one for one in CASES if isinstance(one, Alone) or one.control != "line"])
    assert summary["claims"] == {}
    assert "play the queueing lossless_lanes" in summary["answer"]


def points_drawn(result: RunResult) -> dict[str, list[list[float]]]:
    """Return the points of the first panel, and the lines of programs alone."""
    (figure,) = (spec.draw(result) for spec in EXPERIMENT.load_figures())
    assert figure is not None
    reads, late = figure.subfigs[1].axes
    assert (reads.get_xlabel(), late.get_xlabel()) == ("storage reads (GB/s)", "p99 of storage reads")
    alone = [line.get_xydata().tolist() for line in reads.lines if line.get_linestyle() == ":"]  # type: ignore[union-attr]
    dots = {str(found.get_label()): np.asarray(found.get_offsets()).tolist() for found in reads.collections}
    return {**dots, "alone": alone}


def test_the_trade_off_is_drawn_of_the_cases_and_of_a_result_from_before_they_were_listed(tmp_path: Path) -> None:
    summary = summary_of(SLOW)
    found = points_drawn(study_result(tmp_path / "result", EXPERIMENT, summary))
    assert {"line, lossless lanes", "dcqcn, one lossless lane", "alone"} <= found.keys()
    by_name = by_path(summary["metrics"])
    points = [
        {
            "group": one.format("{control}, {queueing}"),
            "values": {
                "read_GBps": by_name[f"{one.name}.{READ}"] / 1e9,
                "algbw_GBps": by_name[f"{one.name}.hfreduce.algbw_Bps"] / 1e9,
                "read_p99_s": by_name[f"{one.name}.{P99}"],
            },
        }
        for one in PLAYING
    ]
    alone = {"algbw_GBps": by_name["hfreduce_alone.hfreduce.algbw_Bps"] / 1e9,
             "read_GBps": by_name[f"storage_alone.{READ}"] / 1e9}  # fmt: skip
    before = {"trade_off": {"points": points, "alone": alone}}
    earlier = points_drawn(own_result(tmp_path / "earlier", EXPERIMENT, summary=before))
    assert earlier.keys() == found.keys()
    for name, at in earlier.items():
        assert np.ravel(at) == pytest.approx(np.ravel(found[name]))
