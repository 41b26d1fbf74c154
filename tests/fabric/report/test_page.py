from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fabric.report.omissions import omissions
from fabric.report.page import format_cell, render_page, write_report
from fabric.results import Result
from fabric.tables import TABLES
from tests.synthetic_result import Recipe, write_result
from topologies.load import load_fabric

SCALE = load_fabric("fire_flyer_2_small").scale
MakeResult = Callable[..., Result]


class _Page(HTMLParser):
    """Collects what a page refers to, in itself or not, and which elements it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.within: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = [value or "" for name, value in attrs if name in ("src", "href", "data", "srcset")]
        self.within += [value[1:] for value in found if value.startswith("#")]
        self.references += [value for value in found if not value.startswith("#")]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def test_page_refers_to_nothing_outside_and_has_no_script(drawn_result: Result) -> None:
    text = (drawn_result.directory / "report.html").read_text()
    page = _Page(text)
    assert not re.search(r"https?://|url\(|@import", text)
    assert {"script", "link", "iframe"}.isdisjoint(page.tags)
    assert page.references
    assert all(reference.startswith("data:image/") for reference in page.references)


@pytest.mark.parametrize("ending", ["", ".partial", ".partial.2"])
def test_page_names_the_directory_that_its_run_will_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """The page is written before the directory has its name: what it says is copied from it into a terminal later."""
    result = Result(write_result(tmp_path / "my results" / f"run{ending}", Recipe(fabric="fire_flyer_2_tiny")))
    monkeypatch.chdir(tmp_path)
    text = unescape(render_page(result))
    assert ".partial" not in text
    assert "result run." in text
    assert "<code>fabric view 'my results/run'</code>" in text
    monkeypatch.chdir(tmp_path / "my results")
    assert "<code>fabric view run</code>" in render_page(result)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert f"fabric view '{tmp_path}/my results/run'" in unescape(render_page(result))


def test_contents_lead_to_every_table_and_figure(drawn_result: Result) -> None:
    page = _Page((drawn_result.directory / "report.html").read_text())
    assert set(page.within) == set(page.ids)
    assert {"results", "table-1", "figures", "timeline", "not-modelled", "run"} <= set(page.within)


def test_checks_that_passed_are_folded_and_others_are_not(
    make_result: MakeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(name: str, status: str) -> dict[str, object]:
        return {"name": name, "status": status, "text": f"{name} is so"}

    checks = [check("one", "faithful"), check("two", "degraded"), check("three", "faithful")]
    monkeypatch.setattr("tests.synthetic_result.CHECKS", checks)
    text = render_page(make_result(seed=8))
    folded = text.partition("<summary>2 checks passed</summary>")[2].partition("</details>")[0]
    assert ("one is so" in folded, "three is so" in folded, "two is so" in folded) == (True, True, False)
    assert "two is so" in text
    monkeypatch.setattr("tests.synthetic_result.CHECKS", checks[:1])
    text = render_page(make_result(seed=9))
    assert "<summary>All 1 check passed</summary>" in text


def test_figures_are_embedded_whole_with_captions(drawn_result: Result) -> None:
    text = (drawn_result.directory / "report.html").read_text()
    encoded = _Page(text).references[0].partition("base64,")[2]
    assert base64.b64decode(encoded) == (drawn_result.directory / "figures" / "timeline.svg").read_bytes()
    assert text.count("<figcaption>") == len(_Page(text).references)


def test_verdict_stands_before_the_results_with_its_reasons(make_result: MakeResult) -> None:
    text = render_page(make_result(verdict={"status": "degraded", "reasons": ["lateness 4 ms, limit 3 ms"]}))
    assert text.index("<strong>degraded</strong>") < text.index("lateness 4 ms, limit 3 ms") < text.index("<h2>Results")


def test_checks_of_the_emulation_are_told_with_their_limits(make_result: MakeResult) -> None:
    text = render_page(make_result())
    assert "<h3>Checks of the emulation</h3>" in text
    assert "lateness_p99_s is 0.0018" in text


def test_tables_of_the_experiment_are_rendered_and_escaped(make_result: MakeResult) -> None:
    text = render_page(make_result())
    assert "<h3>Median algbw of allreduce</h3>" in text
    assert "<td>0.25 MB/s</td>" in text
    assert '<td class="number">0.28</td>' in text
    assert "&lt;b&gt;not bold&lt;/b&gt;" in text


def test_what_the_run_leaves_out_is_told(make_result: MakeResult) -> None:
    result = make_result()
    page = unescape(render_page(result))
    assert all(f"<li>{text}</li>" in page for text in omissions(result))


def test_config_seed_versions_and_machine_are_told(make_result: MakeResult) -> None:
    text = render_page(make_result(seed=31337))
    for part in (
        "topology: fire_flyer_2_small",
        "31337",
        "openvswitch",
        "2 cores",
        f"rates 1 : {SCALE:,.0f} of 200 Gbit/s",
    ):
        assert part in text


def test_an_experiments_own_figures_follow_the_standard_ones(make_result: MakeResult) -> None:
    result = make_result()
    result.summary["captions"] = {"recovery": "How long until flows went around the cut."}
    (result.directory / "figures" / "recovery.png").write_bytes(b"\x89PNG")
    assert "How long until flows went around the cut." in render_page(result)


def test_a_result_with_nothing_measured_has_a_page(make_result: MakeResult) -> None:
    result = make_result(without=tuple(TABLES))
    result.summary.clear()
    (result.directory / "config.yaml").unlink()
    text = write_report(result).read_text()
    assert "<h1>storage_interference</h1>" in text
    assert "<h2>Figures" not in text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.123456, "0.1235"), (123456.7, "123,457"), (12000, "12,000"), ("a", "a")]
)
def test_cells_are_written_for_people(value: object, text: str) -> None:
    assert format_cell(value) == text


def test_a_report_says_the_oversubscription_of_its_fabric(tmp_path: Path) -> None:
    result = Result(write_result(tmp_path / "result", Recipe(fabric="fire_flyer_2_small")))
    assert "<dt>oversubscription</dt>" in "".join(render_page(result).split("\n"))
    assert "1 : 1 at the worst leaf" in render_page(result)
    del result.fabric["oversubscription"]
    assert "oversubscription" not in render_page(result)
