"""Published setups: what their files say, and what is made of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.commands import reproduce
from app.commands.reproduce import _plan
from app.reproduction import computed
from app.reproduction.comparing import COLUMNS, compare, exit_code, told
from app.reproduction.computed import COMPUTED
from app.reproduction.config import CaseConfig, all_cases, resolved
from app.reproduction.page import draw, write_page
from app.sweeps.identity import program_name
from app.sweeps.store import Store
from fabric.config import checked
from fabric.errors import ConfigError
from fabric.world.virtual_time import VirtualEngine

CASES = all_cases()


def case(**number: Any) -> CaseConfig:
    data = {
        "title": "A title", "source": "a <book>", "link": "https://example.org", "read": "at the source",
        "computed": "switch_counts", "numbers": [{"name": "speed", "metric": "a.speed", **number}],
    }  # fmt: skip
    return checked(CaseConfig, data, "case.yaml")


def test_every_setup_has_a_source_and_can_be_run_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualEngine, "kernel", lambda self: "linux-6.1-a-b")
    assert len(CASES) >= 20
    assert sum(len(one.numbers) for one in CASES.values()) >= 20
    assert all(one.link.startswith("https://") for one in CASES.values())
    plan = _plan(CASES, 2)  # Every one of them is checked with its fabric.
    assert plan is not None
    assert {run.point["case"] for run in plan.runs} == {name for name, one in CASES.items() if one.run}
    memory = [run.spec.memory_bytes or 0 for run in plan.runs]
    assert memory == sorted(memory, reverse=True), "the largest are begun first"
    assert {one.computed for one in CASES.values() if one.computed} <= COMPUTED.keys()


def test_computed_numbers_are_those_that_cases_name() -> None:
    for one in CASES.values():
        if one.computed == "switch_counts":
            found = COMPUTED[one.computed](0)
            assert {number.metric for number in one.numbers} <= found.keys()
            assert [number.is_within for number in compare("x", one, [found])] == [True] * len(one.numbers)


def test_switch_counts_are_those_of_one_computation_for_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    before = COMPUTED["switch_counts"](0)
    monkeypatch.setattr(computed, "load_fabric", lambda name: pytest.fail(f"{name} is built once more"))
    other = COMPUTED["switch_counts"](1)
    assert other == before
    other.clear()
    assert COMPUTED["switch_counts"](2) == before, "who gets them may change them"


RUNS = [{"a.speed": 1.0}, {"a.speed": 1.1}, {"a.speed": 1.2}]
COMPARED: dict[str, tuple[dict[str, Any], bool | None, bool | None]] = {
    "near theory": ({"theory": 1.08, "tolerance": 0.05}, True, None),
    "far from theory": ({"theory": 2.0}, False, None),
    "near theory, far from what was published": ({"theory": 1.1, "published": 3}, True, False),
    "theory's tolerance is not that of what was published": (
        {"theory": 1.5, "tolerance": 0.3, "published": 1.5},
        True,
        False,
    ),
    "near what was published": ({"published": 1.1}, None, True),
    "10 % off unless said otherwise": ({"published": 1.2}, None, True),
    "farther off": ({"published": 1.25}, None, False),
    "with the source's own error": ({"published": 1.25, "published_tolerance": 0.2}, None, True),
    "an exact number": ({"published": 1.1001, "published_tolerance": 0}, None, False),
    "under a bound": ({"at_most": 1.2}, None, True),
    "at a bound": ({"at_most": 1.1}, None, True),
    "over a bound": ({"at_most": 1.0}, None, False),
    "a bound is not widened by theory's tolerance": ({"at_most": 1.09, "theory": 1.1, "tolerance": 0.3}, True, False),
    "in a range": ({"at_least": 1, "at_most": 2}, None, True),
    "below a range": ({"at_least": 1.5, "at_most": 2}, None, False),
    "scaled": ({"published": 1100, "scale": 1000}, None, True),
}


@pytest.mark.parametrize(("number", "theory", "published"), COMPARED.values(), ids=list(COMPARED))
def test_a_number_is_judged_beside_theory_and_beside_what_was_published(
    number: dict[str, Any], theory: bool | None, published: bool | None
) -> None:
    (found,) = compare("x", case(**number), RUNS)
    assert (None if found.by_theory is None else found.by_theory.is_within) is theory
    assert (None if found.by_published is None else found.by_published.is_within) is published
    assert found.is_within is (theory is not False and published is not False)


def test_how_far_off_is_told_from_each() -> None:
    (found,) = compare("x", case(theory=1.0, published=2.2), RUNS)
    assert [one.off for one in found.judgements] == [pytest.approx(0.1), pytest.approx(-0.5)]


def test_theory_may_be_a_metric_of_the_same_runs() -> None:
    (found,) = compare("x", case(theory_metric="a.ideal"), [{"a.speed": 2.0, "a.ideal": 4.0}])
    assert found.by_theory is not None
    assert (found.theory, found.by_theory.off, found.is_within) == (4.0, -0.5, False)


@pytest.mark.parametrize("number", [{"theory": 1}, {"theory_metric": "a.ideal"}, {"published": 1}, {"at_most": 1}])
def test_a_number_that_no_run_has_is_not_within(number: dict[str, Any]) -> None:
    (found,) = compare("x", case(**number), [])
    assert not found.is_within
    assert "not measured" in found.cells
    assert exit_code([found]) == 1


def test_its_row_has_published_theory_and_ours_with_the_interval_and_both_verdicts() -> None:
    (found,) = compare("x", case(theory=1.1, at_most=1, unit="us"), RUNS)
    assert found.cells == ["speed (us)", "≤ 1", "1.1 ± 5 %", "1.1 [1, 1.2]", "within: 0.0%", "OUTSIDE: +10.0%"]
    (found,) = compare("x", case(at_least=1, at_most=2), RUNS)
    assert found.cells == ["speed", "1 to 2", "-", "1.1 [1, 1.2]", "-", "within: -45.0%"]
    (found,) = compare("x", case(published=1.0, published_tolerance=0), RUNS)
    assert found.cells == ["speed", "1", "-", "1.1 [1, 1.2]", "-", "OUTSIDE: +10.0%"]
    assert len(found.cells) == len(COLUMNS)


def test_how_many_are_within_is_told_of_each_and_by_the_exit_code() -> None:
    (both,) = compare("x", case(theory=1.1, published=1.1), RUNS)
    (theory,) = compare("x", case(theory=1.1, at_most=1), RUNS)
    (neither,) = compare("x", case(theory=2), RUNS)
    assert [exit_code(list(some)) for some in ((both,), (both, theory), (both, theory, neither))] == [0, 4, 1]
    assert told([both, theory, neither]) == [
        "2 of 3 numbers with a theory are within their tolerance of it",
        "1 of 2 numbers that are published are within what was published, 0 of 1 bounds among them",
    ]


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"numbers": [{"name": "a", "metric": "b"}]}, "needs something to compare with"),
    ({"numbers": [{"name": "a", "metric": "b", "theory": 1, "theory_metric": "c"}]}, "theory_metric: keep one"),
    ({"numbers": [{"name": "a", "metric": "b", "published": 1, "at_most": 2}]}, "published and at_most: keep one"),
    ({"numbers": [{"name": "a", "metric": "b", "at_least": 1, "published": 2}]}, "at_least: is the lower end"),
    ({"numbers": [{"name": "a", "metric": "b", "at_least": 3, "at_most": 2}]}, "at_least: is the lower end"),
    ({"numbers": [{"name": "a", "metric": "b", "published": 1, "tolerance": 0.1}]}, "set published_tolerance"),
    ({"numbers": [{"name": "a", "metric": "b", "at_most": 1, "published_tolerance": 0.1}]}, "a bound has none"),
    ({"not_yet": "because"}, "needs one of run, computed, not_yet"),
    ({"computed": None, "not_yet": "because"}, "numbers: are what a case that can be run has"),
    ({"read": "perhaps"}, "read: "),
]


@pytest.mark.parametrize(("change", "words"), FAULTS)
def test_a_file_with_a_fault_is_refused(change: dict[str, Any], words: str) -> None:
    data = case(theory=1).model_dump(exclude_unset=True) | change
    with pytest.raises(ConfigError, match=words):
        checked(CaseConfig, data, "case.yaml")


LIKE: dict[str, dict[str, Any]] = {
    "first": {"run": {"experiment": "replay", "memory": "6 GiB", "settings": {"seed": 1, "mtu": 9000}}},
    "second": {"run": {"like": "first", "settings": {"mtu": 1500}}, "title": "Second"},
    "third": {"run": {"like": "second"}},
    "fourth": {"run": {"like": "none"}},
    "computed": {"computed": "switch_counts"},
    "fifth": {"run": {"like": "computed"}},
}


def test_a_setup_is_run_like_another_but_for_its_own_settings() -> None:
    expected = {"experiment": "replay", "memory": "6 GiB", "settings": {"seed": 1, "mtu": 1500}}
    assert resolved("second", LIKE) == {"run": expected, "title": "Second"}
    assert resolved("first", LIKE) == LIKE["first"]


@pytest.mark.parametrize("name", ["third", "fourth", "fifth"])
def test_a_setup_cannot_be_like_one_without_a_run_of_its_own(name: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.like: .* has no run of its own"):
        resolved(name, LIKE)


def test_the_page_has_every_number_the_gaps_and_what_cannot_be_run_yet(tmp_path: Path) -> None:
    waiting = next(one for one in CASES.values() if one.not_yet)
    cases = {"mine": case(theory=2, gap="it is slow"), "later": waiting}
    numbers = compare("mine", cases["mine"], RUNS)
    page = write_page(cases, numbers, tmp_path).read_text()
    assert "0 of 1 numbers with a theory are within their tolerance of it." in page
    assert '<td class="outside">OUTSIDE: -45.0%</td><td>-</td>' in page
    assert "speed: it is slow." in page
    assert "a &lt;book&gt;" in page
    assert (waiting.not_yet or "") in page
    theory, published = [axes for part in draw(numbers).subfigs for axes in part.axes]
    assert [text.get_text() for text in theory.get_yticklabels()] == ["mine"]
    assert theory.lines[0].get_marker() == "D", "45 % is beyond the axis"
    assert len(published.lines) == 1, "the line at 0, and nothing else"


def test_the_figure_has_a_row_for_each_setup_however_many_numbers_it_has() -> None:
    numbers = [one for name, own in CASES.items() for one in compare(name, own, [{}])]
    assert len(draw(numbers).subfigs[1].axes[0].get_yticklabels()) == 0, "nothing was measured"
    known = {number.config.metric: number.config.published or number.config.at_most or 1.0 for number in numbers}
    measured = [one for name, own in CASES.items() for one in compare(name, own, [known])]
    figure = draw(measured)
    drawn = {number.case for number in measured if any(one.off is not None for one in number.judgements)}
    assert {text.get_text() for text in figure.subfigs[1].axes[0].get_yticklabels()} == drawn
    assert figure.get_size_inches()[1] < 16


def test_the_command_says_which_setups_there_are_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    assert "htsim_incast" in capsys.readouterr().out
    assert main(["reproduce", "htsim_incst"]) == 2
    assert "did you mean 'htsim_incast'?" in capsys.readouterr().err


def test_a_setup_that_is_only_computed_needs_no_run_and_runs_would_lie_by_the_program_that_plays_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An update compared what was published with runs of the version before, and said within."""
    asked: list[Path] = []
    run = reproduce._run

    def noted(cases: Any, seeds: int, store: Store, jobs: Any) -> Any:
        asked.append(store.directory)
        return run(cases, seeds, store, jobs)

    monkeypatch.setattr(reproduce, "_run", noted)
    assert main(["reproduce", "switch_counts", "--out", str(tmp_path)]) == 0
    assert "3 of 3 numbers that are published are within what was published" in capsys.readouterr().out
    assert (tmp_path / "index.html").exists()
    assert asked == [tmp_path / "runs" / program_name()]
    assert not asked[0].exists()


def test_runs_of_another_program_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    for package in ("fabric", "app/reproduction"):
        (tmp_path / package).mkdir(parents=True)
    source = tmp_path / "fabric" / "a.py"
    source.write_text("a = 1\n")
    before = program_name(tmp_path)
    (tmp_path / "app" / "reproduction" / "page.py").write_text("how it looks decides no figure")
    (tmp_path / "fabric" / "__pycache__").mkdir()
    (tmp_path / "fabric" / "__pycache__" / "a.pyc").write_text("compiled")
    assert program_name(tmp_path) == before
    source.write_text("a = 2\n")
    assert program_name(tmp_path) != before
    source.rename(source.with_name("b.py"))
    assert program_name(tmp_path) not in (before, program_name())


def test_titles_and_reasons_are_whole_sentences() -> None:
    for name, one in CASES.items():
        assert one.title.count("(") == one.title.count(")"), name
        assert one.not_yet is None or one.not_yet == one.not_yet.strip(), name
