"""Published setups: what their files say, and what is made of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.cli import main
from experiments.commands.reproduce import _plan
from experiments.reproduction.comparing import compare
from experiments.reproduction.computed import COMPUTED
from experiments.reproduction.config import CaseConfig, all_cases, resolved
from experiments.reproduction.page import draw, write_page
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


RUNS = [{"a.speed": 1.0}, {"a.speed": 1.1}, {"a.speed": 1.2}]
COMPARED: dict[str, tuple[dict[str, Any], bool, float | None]] = {
    "near theory": ({"theory": 1.08, "tolerance": 0.05}, True, 1.1 / 1.08 - 1),
    "far from theory": ({"theory": 2.0}, False, -0.45),
    "theory counts, not what was published": ({"theory": 1.1, "published": 3}, True, 0.0),
    "near what was published": ({"published": 1.1}, True, 0.0),
    "under a bound": ({"at_most": 1.2}, True, None),
    "over a bound": ({"at_most": 1.0}, False, None),
    "near theory, over the bound": ({"at_most": 1.0, "theory": 1.1}, False, 0.0),
    "scaled": ({"published": 1100, "scale": 1000}, True, 0.0),
}


@pytest.mark.parametrize(("number", "is_within", "off"), COMPARED.values(), ids=list(COMPARED))
def test_a_number_is_within_its_tolerance_or_not(number: dict[str, Any], is_within: bool, off: float | None) -> None:
    (found,) = compare("x", case(**number), RUNS)
    assert found.is_within is is_within
    assert found.off == (None if off is None else pytest.approx(off))


def test_theory_may_be_a_metric_of_the_same_runs() -> None:
    (found,) = compare("x", case(theory_metric="a.ideal"), [{"a.speed": 2.0, "a.ideal": 4.0}])
    assert (found.theory, found.off, found.is_within) == (4.0, -0.5, False)


def test_a_number_that_no_run_has_is_not_within() -> None:
    (found,) = compare("x", case(theory=1), [])
    assert not found.is_within
    assert found.cells == ["speed", "-", "1", "-", "-", "not measured"]


def test_its_row_has_published_theory_and_ours_with_the_interval() -> None:
    (found,) = compare("x", case(theory=1.1, at_most=9, unit="us"), RUNS)
    assert found.cells == ["speed (us)", "≤ 9", "1.1", "1.1 [1, 1.2]", "+0.0%", "within"]


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"numbers": [{"name": "a", "metric": "b"}]}, "needs something to compare with"),
    ({"numbers": [{"name": "a", "metric": "b", "theory": 1, "theory_metric": "c"}]}, "theory_metric: keep one"),
    ({"not_yet": "because"}, "needs one of run, computed, not_yet"),
    ({"computed": None, "not_yet": "because"}, "numbers: are what a case that can be run has"),
    ({"read": "perhaps"}, "read: "),
]


@pytest.mark.parametrize(("change", "words"), FAULTS)
def test_a_file_with_a_fault_is_refused(change: dict[str, Any], words: str) -> None:
    data = case(theory=1).model_dump() | change
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
    assert "0 of 1 numbers are within their tolerance" in page
    assert '<td class="outside">OUTSIDE</td>' in page
    assert "speed: it is slow." in page
    assert "a &lt;book&gt;" in page
    assert (waiting.not_yet or "") in page
    (axes,) = [axes for part in draw(cases, numbers).subfigs for axes in part.axes]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["mine", "speed"]
    assert axes.lines[0].get_marker() == "D", "45 % is beyond the axis"


def test_the_command_says_which_setups_there_are_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    assert "htsim_incast" in capsys.readouterr().out
    assert main(["reproduce", "htsim_incst"]) == 2
    assert "did you mean 'htsim_incast'?" in capsys.readouterr().err


def test_a_setup_that_is_only_computed_needs_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "switch_counts", "--out", str(tmp_path)]) == 0
    assert "3 of 3 numbers are within their tolerance" in capsys.readouterr().out
    assert (tmp_path / "index.html").exists()


def test_titles_and_reasons_are_whole_sentences() -> None:
    for name, one in CASES.items():
        assert one.title.count("(") == one.title.count(")"), name
        assert one.not_yet is None or one.not_yet == one.not_yet.strip(), name
