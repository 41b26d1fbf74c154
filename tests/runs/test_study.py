"""Cases of a grid, their tables, and the summary of a study, from made-up rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from fabric.config import Strict
from fabric.errors import ConfigError, ResultError
from fabric.metrics import Metric, metrics_of
from fabric.model.lanes import Queueing
from fabric.records.cells import Quantity
from fabric.records.conservation import Conservation
from fabric.results import Phase
from runs.case_tables import Answer, CaseTable, Column, case_table, columns, over_theory, say
from runs.cases import Case, axis
from runs.definition import Experiment
from runs.measures import PACKETS
from runs.registry import EXPERIMENTS
from runs.side_by_side import SideBySide
from runs.study import (
    Found,
    Jobs,
    Outcome,
    Part,
    Played,
    Point,
    Question,
    SameJobs,
    Study,
    medians,
    of_job,
    over_repeats,
    packet_numbers,
)


@dataclass(frozen=True)
class Together(Case, name="{queueing}_together", title="together", alone={"read": "{queueing}_reads"}):
    queueing: Queueing = axis("queueings")


@dataclass(frozen=True)
class Reads(Case, name="{queueing}_{load}_rts_{limit}_{number}", title="{limit}, {queueing}{note}, run {number}"):
    queueing: Queueing = axis("queueings")
    load: float = axis("loads", words="{:.0%}".format)
    limit: int | None = axis("limits", words=lambda n: "no limit" if n is None else f"{n} at once")
    number: int = axis("repeats")

    @property
    def note(self) -> str:
        return " (hard)" if self.load > 0.4 else ""


CONFIG = SimpleNamespace(
    queueings=[Queueing.LANES, Queueing.LOSSLESS_LANES], loads=[0.25, 0.5], limits=[None, 2], repeats=3
)


def test_a_grid_has_every_combination_the_last_axis_first() -> None:
    cases = Reads.grid(CONFIG)
    assert len(cases) == len({one.name for one in cases}) == 2 * 2 * 2 * 3
    assert [one.name for one in cases[:4]] == [
        "lanes_0p25_rts_off_1", "lanes_0p25_rts_off_2", "lanes_0p25_rts_off_3", "lanes_0p25_rts_2_1",
    ]  # fmt: skip
    assert cases[-1].title == "2 at once, lossless lanes (hard), run 3"
    assert cases[0].settings == {"queueing": "lanes", "load": "25%", "limit": "no limit", "number": "1"}
    assert "." not in "".join(one.name for one in cases), "a dot ends a phase's name in paths of metrics"


def outcome(case: Reads, **values: float) -> Outcome[Reads]:
    return Outcome(case, metrics_of(case.name, "", values))


def test_words_of_cells_follow_from_units_and_what_nobody_measured_is_a_dash() -> None:
    case = Reads(Queueing.LANES, 0.5, None, 1)
    known = outcome(case, a_s=0.0015, a_Bps=2e9, a_bps=3e6, a_bytes=2048.0, drops_packets=1234.0)
    least = outcome(case, a_at_least_s=2.0)
    columns = (
        Column("in", "queueing"), Column("note", "note"), Column("time", "a_s"), Column("rate", "a_Bps"),
        Column("bits", "a_bps"), Column("size", "a_bytes"), Column("dropped", "drops_packets"),
        Column("GB/s", "a_Bps", ".3g in GB/s"), Column("share", lambda one: one["a_Bps"] / 4e9, ".1%"),
        Column("text", lambda one: None),
    )  # fmt: skip
    rows = case_table("T", [known, least], columns).words
    assert rows[0] == ["lanes", " (hard)", "1.5 ms", "2.000 GB/s", "3 Mbit/s", "2 KiB", "1,234", "2", "50.0%", "-"]
    assert rows[1] == ["lanes", " (hard)", "> 2 s", *["-"] * 7]


def test_a_part_of_a_case_is_compared_with_it_alone() -> None:
    case = Together(Queueing.LANES)
    numbers = metrics_of("", "read", {"p99_s": 2.0, "rate_Bps": 10.0, "failed": 1})
    alone: Outcome[Case] = Outcome(Reads.grid(CONFIG)[0], numbers)
    numbers = metrics_of("", "read", {"p99_at_least_s": 6.0, "rate_Bps": 5.0})
    beside: Outcome[Case] = Outcome(case, numbers, others={"lanes_reads": alone})
    one, nothing = Part("read", beside), Part("write", beside)
    assert (one.case, one["rate_Bps"], one["alone.rate_Bps"]) == (case, 5.0, 10.0)
    assert [one.alone("read.p99_s") for one in (case, alone.case)] == ["lanes_reads", ""]
    assert (case.alone("write.p99_s"), case.alone()) == ("", "")
    assert (one.times("rate_Bps").words, one.times("rate_Bps", ".0%").words) == ("0.50 x", "50%")
    assert one.times("p99_s").words == "> 3.00 x", "what is but a least is at least so many times that alone"
    assert (one.is_measured, nothing.is_measured, nothing.times("rate_Bps").words) == (True, False, "-")
    ratios = case_table("T", [one], "time {p99_s / alone}, rate {rate_Bps / alone|.0%}, of {rate_Bps / alone.rate_Bps}")
    assert ratios.words == [["> 3.00 x", "50%", "0.50 x"]]
    columns = [Column("time", "p99_s"), Column("alone", "alone.p99_s"), Column("failed", "failed", otherwise=0)]
    assert case_table("T", [one, Part("read", alone)], columns).words == [["> 6 s", "2 s", "0"], ["2 s", "-", "1"]]
    assert say(beside, "{read.rate_Bps / alone|.0%}, {write.rate_Bps / alone|.0% or an unknown part}") == (
        "50%, an unknown part"
    )
    assert case_table("T", [one], "of {part}, lost {lost|or 0}, late {late|or nobody}").words == [
        ["read", "0", "nobody"]
    ]


def test_repeats_have_medians_of_those_that_have_a_number() -> None:
    cases = Reads.grid(SimpleNamespace(queueings=[Queueing.LANES], loads=[0.5], limits=[2], repeats=3))
    found = [outcome(one, rate_Bps=rate) for one, rate in zip(cases, (3.0, 9.0, 4.0), strict=True)]
    found[2] = outcome(cases[2], rate_Bps=4.0, rare_s=7.0)
    (together,) = over_repeats(found, "{queueing} {limit}")
    assert (together["rate_Bps"], together["rare_s"], together.each("rate_Bps")) == (4.0, 7.0, [3.0, 9.0, 4.0])
    assert case_table(
        "T", [together], [Column("at once", "limit"), Column("rate", "rate_Bps", ".1f in B/s")]
    ).words == [["2 at once", "4.0"]]
    assert len(over_repeats(found, "{number}")) == 3


def measured(played: Played[Reads, Any]) -> list[Metric]:
    values = {"ends": float(len(played.rows("operations", "mine"))), **played.packets(), **played.counted}
    return metrics_of(played.case.name, "mine", values, is_named_by_job=False)


def beside_first(found: Found[Reads, Any], one: Outcome[Reads]) -> dict[str, float]:
    return {"over_first": one["ends"] / found.outcomes[0]["ends"]}


STUDY: Study[Reads, Any] = Study(
    title="A study",
    cases=Reads.grid,
    measure=measured,
    aside=beside_first,
    answer=lambda found: f"{len(found.outcomes)} cases",
    tables=lambda found: [
        case_table("All", found.outcomes, [Column("ends", "ends"), Column("over", "over_first", ".1f")]),
        case_table("None", [], [Column("x", "x")]),
    ],
    over_cases=lambda found: [Metric("all", "", "cases", len(found.outcomes))],
    more=lambda found: {"own": 1},
)


def test_a_summary_has_what_each_case_came_to_and_what_figures_need() -> None:
    cases = Reads.grid(SimpleNamespace(queueings=[Queueing.LANES], loads=[0.5], limits=[2], repeats=2))
    names = [cases[0].name, cases[1].name, cases[1].name]
    rows = pd.DataFrame({"phase": [*names, names[0]], "job": [*["mine"] * 3, "others"]})
    counted = SimpleNamespace(dropped_by_queues=5, retransmissions=6, timeouts=7)
    phases = [SimpleNamespace(phase=Phase(one.name, one.title, "lanes", 0, 1), conservation=counted) for one in cases]
    session: Any = SimpleNamespace(
        phases=phases,
        table={"operations": rows}.__getitem__,
        live=SimpleNamespace(fabric=None),
    )
    summary = STUDY.summarize(session, None, cases, {cases[1].name: {"cuts": 3.0}})
    assert (summary["title"], summary["answer"], summary["own"]) == ("A study", "2 cases", 1)
    assert [one.path for one in summary["metrics"]][-2:] == ["lanes_0p5_rts_2_2.cuts", "all.cases"]
    assert [table.title for table in summary["tables"]] == ["All"], "one without rows says nothing"
    assert summary["tables"][0].words == [["1", "1.0"], ["2", "2.0"]]
    assert summary["cases"][1] == {
        "phase": "lanes_0p5_rts_2_2", "title": "2 at once, lanes (hard), run 2",
        "settings": {"queueing": "lanes", "load": "50%", "limit": "2 at once", "number": "2"},
        "aside": {"cuts": 3.0, "over_first": 2.0},
    }  # fmt: skip
    assert packet_numbers(phases[0], "timeouts") == {"timeouts": 7.0}  # type: ignore[arg-type]


def test_columns_may_be_said_in_a_text_with_their_values_behind_their_heads() -> None:
    mine = columns("in {queueing}, GB/s, of all {a_Bps|.1f in GB/s}, p99 {a_s}")
    assert mine == [Column("in", "queueing"), Column("GB/s, of all", "a_Bps", ".1f in GB/s"), Column("p99", "a_s")]
    assert columns("in {queueing|once}, failed {a|or 0}, of {b|.0f or 1}") == [
        Column("in", "queueing", is_once=True), Column("failed", "a", otherwise=0), Column("of", "b", ".0f", False, 1)
    ]  # fmt: skip
    one = outcome(Reads(Queueing.LANES, 0.5, None, 1), a_s=2.0, a_Bps=3e9)
    table = case_table("T", [one], ["in {queueing}", Column("one", lambda _: 1), "p99 {a_s}"])
    assert (table.columns, table.words) == (["in", "one", "p99"], [["lanes", "1", "2 s"]])
    with pytest.raises(AssertionError, match="ends with a head, and no value"):
        columns("in {queueing}, p99")


def test_a_part_has_its_own_numbers_and_one_without_a_name_all() -> None:
    one = Outcome(Reads.grid(CONFIG)[0], [], {"use.a.mean": 1.0, "use.b.mean": 2.0})
    assert (Part("use.b", one)["mean"], Part("use.c", one).is_measured) == (2.0, False)
    assert Part("", one).values == one.values


@dataclass(frozen=True)
class Writes(Case, name="written_{place}", title="{place} written"):
    place: int = axis(lambda _: [1, 2])


def test_a_further_question_sees_its_own_cases_alone_and_is_silent_without_them() -> None:
    asked = Question[Any, Any](
        kinds=Writes,
        measure=lambda played: {"size_bytes": 2048.0 * played.case.place},
        aside=lambda found, one: {"of_all": one["size_bytes"] / sum(other["size_bytes"] for other in found.outcomes)},
        over_cases=lambda found: [Metric("all", "", "written", len(found.outcomes))],
        answer=lambda found: f"{len(found.outcomes)} written.",
        points=lambda _, one: [Point({"part": "half"}, {"half_bytes": one["size_bytes"] / 2})] if one.aside else [],
        tables=(CaseTable("Written", "size {size_bytes}, share {of_all|.0%}"),),
        more=lambda found: {"written": True},
    )
    study = Study[Any, Any](
        title="Both", cases=lambda _: (), measure=lambda _: {"cases": 1.0}, answer=lambda found: "Played.",
        further=(asked,),
    )  # fmt: skip
    session: Any = SimpleNamespace(phases=[], live=SimpleNamespace(fabric=None))
    read = Reads.grid(SimpleNamespace(queueings=[Queueing.LANES], loads=[0.5], limits=[2], repeats=1))
    both = study.summarize(session, None, [*read, *Writes.grid(None)])
    assert both["answer"] == "Played. 2 written."
    assert [one.path for one in both["metrics"]] == [
        "lanes_0p5_rts_2_1.cases", "written_1.cases", "written_1.size_bytes", "written_2.cases", "written_2.size_bytes",
        "all.written",
    ]  # fmt: skip
    assert [(table.title, table.words) for table in both["tables"]] == [
        ("Written", [["2 KiB", "33%"], ["4 KiB", "67%"]])
    ]
    assert [(one["phase"], one["settings"]["part"], one["aside"]["half_bytes"]) for one in both["cases"]] == [
        ("written_1", "half", 1024.0), ("written_2", "half", 2048.0)
    ]  # fmt: skip
    alone = study.summarize(session, None, read)
    assert (alone["answer"], alone["tables"], "written" in alone) == ("Played.", [], False)


def test_a_case_s_failures_are_its_phase_s_and_its_policy_is_the_fabric_s(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr("runs.study.schedule_failures", lambda lines, fabric, seed: SimpleNamespace(events=lines))
    monkeypatch.setattr("runs.study.play_case", lambda *args: done.append((args[4] and args[4].events, args[5])))
    session: Any = SimpleNamespace(
        use_routing=lambda routing, label: done.append((routing, label)), use_queueing=done.append,
        live=SimpleNamespace(fabric=None),
    )  # fmt: skip
    routing = SimpleNamespace(model_copy=lambda update: update["policy"].name)
    config: Any = SimpleNamespace(queueing=Queueing.LANES, routing=routing, seed=1)
    for lines in (["cut"], []):
        case: Any = SimpleNamespace(
            in_config=lambda own: own, policy=SimpleNamespace(name="ecmp"), failures=lines, format="{}".format
        )
        Jobs(lambda *_: [], fails="lines")(session, config, case)
    assert done == [
        ("ecmp", "ecmp"),
        Queueing.LANES,
        (["cut"], "lines"),
        ("ecmp", "ecmp"),
        Queueing.LANES,
        (None, "lines"),
    ]


class Limits(Strict):
    at_once: int | None = 8
    of: int = 1


class OwnConfig(Strict):
    queueing: Queueing = Queueing.SHARED
    limits: tuple[int, ...] = (1, 2)
    loads: tuple[float, ...] = (0.5,)
    phase_time: float = 3.0
    storage: Limits = Limits()


@dataclass(frozen=True)
class Set(Case, name="{limit}_{load}", title="{limit} at {load}"):
    limit: int = axis("limits", sets="storage.at_once")
    load: float = axis("loads", words="{:.0%}".format, sets=lambda load: {"storage.of": int(10 * load)})


def test_values_stand_for_keys_of_the_config_that_a_case_plays_with() -> None:
    config = OwnConfig()
    own = [one.in_config(config).storage for one in Set.grid(config)]
    assert own == [Limits(at_once=1, of=5), Limits(at_once=2, of=5)]
    assert config.storage == Limits(), "the config itself is as it was"
    plain = SimpleNamespace(queueings=[Queueing.LANES], loads=[0.5], limits=[2], repeats=1)
    assert Reads.grid(plain)[0].in_config(config) is config


def test_jobs_are_made_of_the_case_s_own_config_and_play_as_long_as_a_key_says(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(
        "runs.study.play_case",
        lambda session, case, jobs, length, schedule, key: done.append((case.name, jobs, length)),
    )
    session: Any = SimpleNamespace(use_queueing=done.append, phases=[], live=SimpleNamespace(fabric=None))
    study = Study[Set, OwnConfig](
        title="Jobs",
        cases=Set.grid,
        play=Jobs(
            lambda session, own, case: [own.storage],
            lasts="phase_time",
            prepare=lambda session, own, case: done.append(own.storage.at_once),
        ),
        measure=of_job("mine", lambda played: {"limit": played.case.limit}),
        answer=lambda found: "",
        tables=(),
    )
    summary = study(session, OwnConfig())
    assert done[:3] == [1, Queueing.SHARED, ("1_0p5", [Limits(at_once=1, of=5)], 3.0)]
    assert [(one.path, one.job) for one in summary["metrics"]] == [("1_0p5.limit", "mine"), ("2_0p5.limit", "mine")]


def found_of(*values: dict[str, float]) -> Found[Reads, Any]:
    cases = Reads.grid(SimpleNamespace(queueings=[Queueing.LANES], loads=[0.25, 0.5], limits=[None, 2], repeats=1))
    made = [outcome(case, **of_case) for case, of_case in zip(cases, values, strict=False)]
    return Found(SimpleNamespace(), None, made)  # type: ignore[arg-type]


def test_a_text_says_what_a_table_would() -> None:
    one = found_of({"rate_Bps": 2.5e9, "p99_at_least_s": 2.0}).outcomes[0]
    assert say(one, "{limit}: {rate_Bps}, {rate_Bps|.1f GB/s}, {p99_s}, {none_s}") == (
        "no limit: 2.500 GB/s, 2.5 GB/s, > 2 s, -"
    )


def test_rows_are_parts_of_cases_or_what_has_names_and_a_cell_has_several_numbers() -> None:
    found = found_of({"rate_Bps": 1e9, "all": 4.0}, {"all": 2.0})
    parts = CaseTable(
        "Parts",
        (
            "of {part}, all {all}, half {half}",
            Column("both", "{half|.0f} of {all|.0f}, {limit}"),
            Column("lost", "lost", otherwise="N/A"),
        ),
        parts=lambda found, one: [Point({"part": name}, {"half": one["all"] / 2}) for name in ("a", "b")],
        having="rate_Bps",
    ).of(found)
    assert parts.words == [[name, "4", "2", "2 of 4, no limit", "N/A"] for name in ("a", "b")]
    both = parts.rows[0][3]
    assert isinstance(both, tuple) and [one.value for one in both if isinstance(one, Quantity)] == [2.0, 4.0]
    named = CaseTable("Rows", "what {what}, time {time_s}, x {x|.1f}", rows=lambda _: [
        {"what": "a", "time_s": 0.002, "x": None}, {"what": "b", "time_s": math.nan, "x": 2}]).of(found)  # fmt: skip
    assert named.words == [["a", "2 ms", "-"], ["b", "-", "2.0"]]


def test_an_answer_is_said_case_by_case_and_group_by_group() -> None:
    found = found_of({"rate_Bps": 1e9}, {}, {"rate_Bps": 3e9}, {"rate_Bps": 4e9})
    answer = Answer("Rates are {}.", each="{limit} {rate_Bps|.0f GB/s}", having="rate_Bps", otherwise="Nothing.")
    assert answer(found) == "Rates are no limit 1 GB/s, no limit 3 GB/s, 2 at once 4 GB/s."
    assert replace(answer, by="at {load}")(found) == (
        "Rates are at 25%: no limit 1 GB/s; at 50%: no limit 3 GB/s, 2 at once 4 GB/s."
    )
    assert answer(found_of({}, {})) == "Nothing."


def test_a_table_is_a_value_whose_parts_may_hang_on_what_was_found() -> None:
    found = found_of({"rate_Bps": 1e9}, {"rate_Bps": 2e9})
    table = CaseTable(
        lambda found: f"{len(found.outcomes)} cases",
        [Column("at", "{load}, {limit}"), Column("rate", "rate_Bps", ".0f GB/s")],
        note="read",
        rows=lambda found: found.outcomes[1:],
    ).of(found)
    assert (table.title, table.words, table.note) == ("2 cases", [["25%, 2 at once", "2 GB/s"]], "read")


def test_an_experiment_of_a_study_has_its_parts_in_its_folder() -> None:
    own = Experiment.of_study(
        "/own/mine/experiment.py", "What?", "MineConfig", run="study:run_mine", see_also="fabric x"
    )
    assert (own.name, own.config, own.study) == ("mine", "mine.config:MineConfig", "mine.study:STUDY")
    assert (own.run, own.see_also) == ("mine.study:run_mine", "fabric x")
    assert EXPERIMENTS["incast"].study == "experiments.incast.study:STUDY"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "run: is missing; name one, or a study"),
        ({"study": "tests.runs.test_study:CONFIG"}, "study: tests.runs.test_study:CONFIG is not a runs.study.Study"),
        (
            {"study": "tests.runs.test_study:STUDY"},
            "study: tests.runs.test_study:STUDY has no play",
        ),
    ],
)
def test_an_experiment_without_a_run_is_refused(parts: dict[str, str], words: str) -> None:
    experiment = Experiment(Path(__file__).parent, "What?", "a:B", **parts)
    with pytest.raises(ConfigError, match=words):
        experiment.load_run()
    if parts.get("study", "").endswith("CONFIG"):
        with pytest.raises(ResultError, match=r"is not a runs\.study\.Study"):
            experiment.load_figures()


def test_every_count_of_packets_is_one_that_conservation_has() -> None:
    outcome: Any = SimpleNamespace(conservation=Conservation(8, 0, 0, 3, 0, 0, {}, 0, retransmissions=2, timeouts=1))
    counts = {
        "sent_packets": 8,
        "drops_packets": 3,
        "retransmissions": 2,
        "timeouts": 1,
        "overtaking": 0,
        "sent_twice": 0,
    }
    assert packet_numbers(outcome, *(measure.name for measure in PACKETS)) == counts


@dataclass(frozen=True)
class First(Case, name="first", title="first"):
    queueing: Queueing = axis(lambda _: [Queueing.LOSSLESS])


@dataclass(frozen=True)
class Second(Case, name="{queueing}_{number}", title="{queueing}, {number}"):
    queueing: Queueing = axis(lambda _: [Queueing.LANES, Queueing.SHARED])
    number: int = axis(lambda _: [1, 2])


class Grower:
    """A job of which only the name counts, and how often it closed."""

    name, closed = "grower", 0

    def start(self) -> None:
        self.closed -= 1

    def close(self) -> None:
        self.closed += 1


def test_the_same_jobs_play_all_grids_in_the_order_asked_for_and_are_told_as_they_stand() -> None:
    done: list[Any] = []
    session: Any = SimpleNamespace(
        use_queueing=done.append,
        run_phase=lambda name, title, jobs, length: done.append((name, jobs[0].closed, length)),
        tell=lambda text: None,
        phases=[],
        live=SimpleNamespace(fabric=None),
    )
    job: Any = Grower()
    study = Study[Any, OwnConfig](
        title="Same",
        cases=(First, Second),
        play=SameJobs(lambda session, config: [job], lasts="storage.of", behind=lambda *_: {"own": job.closed}),
        order=lambda config, case: case.queueing is Queueing.LOSSLESS,
        measure=lambda played: {"a_bps": 30.0, "drops_packets": 1.0, **played.counted},
        theory=lambda found, one: {"a_bps": 40.0},
        answer=Answer(
            lambda found: f"{len(found.outcomes)}: {{}}.", each=lambda row: f"{over_theory(row, 'a_bps'):.0%}"
        ),
        tables=(CaseTable("T", "in {queueing}, a {a_bps}, theory {a_in_theory_bps}", rows=medians("{queueing}")),),
        side_by_side=SideBySide(medians("{queueing}"), {"A": "a_bps"}, "bit/s", per=10.0),
    )
    summary = study(session, OwnConfig(storage=Limits(of=7)))
    assert [one[0] for one in done if isinstance(one, tuple)] == ["lanes_1", "lanes_2", "shared_1", "shared_2", "first"]
    assert {one[1:] for one in done if isinstance(one, tuple)} == {(-1, 7)}, "they play while they are started"
    assert (summary["own"], job.closed) == (-1, 0)
    assert [one["phase"] for one in summary["cases"]][:2] == ["first", "lanes_1"]
    assert summary["answer"] == "5: 75%, 75%, 75%, 75%, 75%."
    assert summary["tables"][0].words[1] == ["lanes", "30 bit/s", "40 bit/s"]
    assert summary["side_by_side"] == {
        "unit": "bit/s", "queueings": ["lossless", "lanes", "shared"], "drops_packets": [1.0] * 3,
        "panels": [{"title": "A", "values": [3.0] * 3, "theory": [4.0] * 3}],
    }  # fmt: skip


def test_what_grows_while_a_case_plays_is_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter((5, 9))
    monkeypatch.setattr("runs.study.play_case", lambda *_: None)
    session: Any = SimpleNamespace(use_queueing=lambda _: None)
    play = Jobs(lambda *_: [], counts={"cuts": lambda: next(counts)})
    assert play(session, OwnConfig(), First(Queueing.LANES)) == {"cuts": 4}


def test_side_by_side_with_what_is_alone_are_bounds_where_only_these_are_known() -> None:
    alone: Outcome[Case] = Outcome(First(Queueing.LANES), metrics_of("p", "read", {"p99_s": 2.0, "rate_Bps": 10.0}))
    numbers = metrics_of("p", "read", {"p99_at_least_s": 6.0, "failed": 2})
    rows = [Outcome[Case](Together(Queueing.LANES), numbers, others={"lanes_reads": alone})] * 2
    panels = {"reads": "read.p99_s", "rates": "read.rate_Bps"}
    side = SideBySide(lambda _: rows, panels, is_over_alone=True, without_end=("read.failed",))
    said = side.of(None)
    assert said["panels"] == [
        {"title": "reads", "values": [3.0, 3.0], "at_least": [True, True], "unit": "times alone (2 s), less is better"}
    ], "of rates nothing is known"
    assert (said["alone"], said["flows_without_end"]) == (1.0, [2.0, 2.0])
