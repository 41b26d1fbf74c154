"""A result as people meet it: at a prompt, in a notebook, and by the names of its metrics and figures."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

import experiments
from app.whose_packages import PACKAGES
from experiments import RunSpec, load
from fabric.errors import ResultError
from fabric.world.engines import ENGINES, EngineName
from runs.launching.run_result import RunResult
from tests.synthetic_result import Recipe, write_result

ROOT = Path(__file__).parents[3]
METRICS = {"lanes.hfreduce.algbw_Bps": 5e5, "shared.hfreduce.algbw_Bps": 2.5e5, "lanes.read.p99_s": 0.25}


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    recipe = Recipe(
        "fire_flyer_2_tiny",
        "isolation",
        verdict={"status": "degraded", "reasons": ["degraded: a core <0> was busy"]},
        metrics=METRICS,
        summary={"answer": "Steps take 2 times as long & reads <1 ms."},
        without=("ports", "stalls", "waits", "flows", "machine"),
    )
    return load(write_result(tmp_path / "result", recipe))


def test_a_result_says_what_it_is(result: RunResult) -> None:
    phases = "5 phases (hfreduce_alone, storage_alone, mixed_shared, mixed_lanes, ...)"
    assert repr(result) == f"<RunResult isolation, degraded, seed 7, engine namespace, {phases}, {result.directory}>"
    assert result.answer == "Steps take 2 times as long & reads <1 ms."


def test_a_metric_is_read_by_the_name_that_files_have_for_it(result: RunResult) -> None:
    assert {path: result.metric(path) for path in METRICS} == METRICS
    assert result.metrics.set_index("path")["value"].to_dict() == METRICS


def test_an_unknown_metric_is_refused_with_the_nearest(result: RunResult) -> None:
    with pytest.raises(ResultError, match=r"^metric 'lanes.hfreduce.algbw_bps': does not exist; did you mean lanes"):
        result.metric("lanes.hfreduce.algbw_bps")
    with pytest.raises(ResultError, match=r"^metric 'x': does not exist; there are lanes\.hfr.* in result\.metrics"):
        result.metric("x")


def test_a_notebook_shows_a_figure_as_an_image(result: RunResult) -> None:
    """Without ``%matplotlib inline``, which asks the figure for nothing."""
    shown = result.figure("steps")._repr_png_()  # type: ignore[attr-defined]
    assert shown.startswith(b"\x89PNG")
    assert len(shown) > 5000


def test_tables_are_those_that_the_run_has_rows_of(result: RunResult) -> None:
    assert not {"ports", "machine", "kv_requests"} & set(result.tables)
    assert set(result.tables) < set(result.known_tables)
    assert result.tables
    assert all(len(result.table(name)) for name in result.tables)
    assert result.table("ports").empty, "it may be asked for"


def test_figures_that_an_earlier_version_cannot_show_are_refused_by_name(result: RunResult) -> None:
    assert set(result.not_drawn) == {"isolation", "port_shares"}
    why = "its summary lists no cases, as those of earlier versions do not; run the experiment again"
    assert set(result.not_drawn.values()) == {why}
    with pytest.raises(ResultError, match=f"has nothing to show in the figure 'port_shares': {why}"):
        result.figure("port_shares")


def test_figures_have_names_before_and_after_they_are_drawn(result: RunResult) -> None:
    before = result.figures
    assert {"timeline", "busiest_port", "steps"} <= set(before)
    assert not set(before) & set(result.not_drawn)
    result.figure("steps")
    result.draw_all()
    drawn = {path.stem for path in (result.directory / "figures").glob("*.svg")}
    assert drawn < set(before)
    assert result.figures == before


def test_a_report_with_the_main_figure_only_says_how_to_have_the_others(result: RunResult) -> None:
    page = result.write_report(main_figure_only=True).read_text()
    assert [path.stem for path in (result.directory / "figures").glob("*.svg")] == ["side_by_side"]
    assert page.count("<figure ") == 1
    later = "drawn, into this page too, by <code>fabric report"
    assert later in page
    whole = result.write_report().read_text()
    assert whole.count("<figure ") > 1
    assert later not in whole


class Page(HTMLParser):
    """What is open at the end, and what is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [] if tag == "img" else [tag]
        self.loaded += [str(value)[:11] for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_notebook_shows_answer_verdict_figure_and_metrics(result: RunResult) -> None:
    (result.directory / "figures").mkdir(exist_ok=True)
    (result.directory / "figures" / "side_by_side.svg").write_text("<svg/>")
    html = result._repr_html_()
    page = Page(html)
    assert page.open == []
    assert page.loaded == ["data:image/"], "it needs no other file"
    assert base64.b64encode(b"<svg/>").decode() in html
    assert "Steps take 2 times as long &amp; reads &lt;1 ms." in html
    assert "a core &lt;0&gt; was busy" in html
    assert ">degraded</span>" in html
    assert "lanes.hfreduce.algbw_Bps" in html
    assert "<script" not in html
    coloured = re.findall(r"(?:background|[^-]color):([^;\"]+)", html)
    assert "#fff" in coloured, "the badge and the figure's paper have colours of their own"
    assert set(coloured) - {"#fff", "inherit"} == {re.search(r"background:(#\w+);color:#fff", html)[1]}  # type: ignore[index]


def test_a_result_without_figures_is_shown(tmp_path: Path) -> None:
    bare = load(write_result(tmp_path / "bare", Recipe("fire_flyer_2_tiny", without=ALL_TABLES)))
    assert Page(bare._repr_html_()).loaded == []


ALL_TABLES = ("ports", "stalls", "waits", "machine", "flows", "steps", "rank_steps", "operations", "jobs")


def test_completion_offers_what_there_is() -> None:
    assert {"RunSpec", "launch", "load"} <= set(dir(experiments))
    assert get_args(EngineName) == tuple(ENGINES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_says_that_it_has_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(("user", "engine"), [(0, "namespace"), (1000, "virtual")])
def test_the_usual_engine_is_one_that_the_user_can_have(
    monkeypatch: pytest.MonkeyPatch, user: int, engine: str
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert RunSpec("isolation").engine == engine
    assert RunSpec("isolation", engine="namespace").engine == "namespace", "a choice stays what it is"
