"""The page in a real browser: what it shows is what the Parquet files say."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from selenium import webdriver

from fabric.report.view.answers import ResultPages
from fabric.report.view.document import write_page
from fabric.report.view.model import View, Ways, view_of
from fabric.report.view.serving import serving
from fabric.results import Phase, Result
from tests.browser import Browser, needs_browser, tab
from tests.full_fabric_result import write_full_result
from tests.synthetic_result import Recipe, write_result
from tests.waiting import until

pytestmark = needs_browser
NOTE = "medians of few values: of 4 steps of train"


def one_way(phase: Phase, flows: Any) -> list[tuple[tuple[str, ...], ...]]:
    """Return the NIC of each flow's host as its only way."""
    return [((f"{flow.host}:0",),) for flow in flows]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> View:
    recipe = Recipe(summary={"notes": [NOTE]})
    directory = write_result(tmp_path_factory.mktemp("result") / "one", recipe)
    return view_of(Result(directory), Ways(one_way))


@pytest.fixture(scope="module")
def window(view: View, tmp_path_factory: pytest.TempPathFactory, chromium: webdriver.Chrome) -> Iterator[Browser]:
    path = tmp_path_factory.mktemp("page") / "view.html"
    assert write_page([view], path) == []
    with tab(chromium) as found:
        found.open(path.as_uri())
        yield found


@pytest.fixture(autouse=True)
def _no_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "window" in request.fixturenames:
        assert request.getfixturevalue("window").errors() == []


def test_the_notes_beside_the_verdict_are_shown(window: Browser) -> None:
    window.run("fabricView.choose(null)")
    assert f"note: {NOTE}" in window.run("return document.getElementById('panel').textContent")


def slide(window: Browser, at_s: float) -> None:
    """Move the slider as a user does."""
    window.run(
        "const s = document.getElementById('slider'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input', {bubbles: true}))",
        at_s,
    )


def look_at(window: Browser, name: str) -> None:
    """Search for a port, a node or a job, as a user does."""
    window.run(
        "const s = document.getElementById('search'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('change', {bubbles: true}))",
        name,
    )


def shown(window: Browser, lane: str) -> dict[str, Any]:
    """Return what the table of a port says of a lane: what was sampled, as whole numbers, and the metrics."""
    found: dict[str, Any] = window.run(
        "const row = document.querySelector(`#numbers tr[data-lane='${arguments[0]}']`);"
        "return {...row.dataset, ...Object.fromEntries([...row.children].filter(c => c.dataset.metric)"
        ".map(c => [c.dataset.metric, Number(c.dataset.value)]))}",
        lane,
    )
    return found


def at_random(frame: pd.DataFrame, phase: Phase, count: int) -> pd.DataFrame:
    inside = frame[frame["at_s"].between(phase.started_s, phase.ended_s)]
    return inside.sample(count, random_state=random.Random(phase.name).randrange(2**32))


@pytest.mark.parametrize("queueing", ["shared", "lanes", "lossless_lanes"])
def test_values_shown_are_the_samples(window: Browser, view: View, queueing: str) -> None:
    phase = next(one for one in view.phases if one.queueing == queueing)
    ports, stalls = (view.result.table(name) for name in ("ports", "stalls"))
    for row in at_random(ports, phase, 20).to_dict("records"):
        slide(window, row["at_s"])
        look_at(window, row["port"])
        found = shown(window, row["lane"])
        for column in ("sent_bytes", "sent_packets", "drops_packets", "backlog_bytes"):
            assert int(found[_attribute(column)]) == row[column], (row, column)
        assert found["backlog"] == row["backlog_bytes"]
        same = stalls[
            (stalls["at_s"] == row["at_s"]) & (stalls["port"] == row["port"]) & (stalls["lane"] == row["lane"])
        ]
        for stalled in same.to_dict("records"):
            assert int(found["stalledNs"]) == stalled["stalled_ns"]


def _attribute(column: str) -> str:
    head, *rest = column.split("_")
    return head + "".join(part.capitalize() for part in rest)


def test_rates_are_growth_since_the_sample_before(window: Browser, view: View) -> None:
    ports = view.result.table("ports")
    rows = ports[(ports["port"] == "z0h001:0") & (ports["lane"] == "hfreduce")].sort_values("at_s")
    before, after = rows.iloc[4], rows.iloc[5]
    slide(window, after["at_s"])
    look_at(window, "z0h001:0")
    expected = 8 * (after["sent_bytes"] - before["sent_bytes"]) / (after["at_s"] - before["at_s"])
    assert shown(window, "hfreduce")["rate"] == pytest.approx(expected)


def test_the_slider_moves_colours(window: Browser, view: View) -> None:
    """Storage sends nothing while HFReduce plays alone, and 40 % of a link in the incast."""
    of_storage = "fabricView.maps[0].values[fabricView.first.run.portOf.get('z0h001:0')]"
    window.run("const s = document.getElementById('lane'); fabricView.laneChoice = 'storage'; fabricView.render()")
    picture = "return document.querySelector('.map canvas').toDataURL()"
    slide(window, 5.0)
    nothing, pale = window.run(f"return {of_storage}"), window.run(picture)
    slide(window, 49.0)
    assert nothing == 0
    assert window.run(f"return {of_storage}") == pytest.approx(0.4 * 5e6, rel=0.01)
    assert window.run(picture) != pale
    window.run("fabricView.laneChoice = ''; fabricView.render()")


def test_clicking_a_half_of_a_link_shows_its_port(window: Browser) -> None:
    window.run("fabricView.choose(null)")
    x, y = window.run(
        "const map = fabricView.maps[0], port = map.run.portOf.get('z0l01:1');"
        "const box = map.canvas.getBoundingClientRect();"
        "const i = map.scene.halves.findIndex(half => half.ports[0] === port), p = map.placed;"
        "return [box.left + (p.xs[i] + 2 * p.xe[i]) / 3, box.top + (p.ys[i] + 2 * p.ye[i]) / 3]"
    )
    window.run(
        "const target = document.elementFromPoint(arguments[0], arguments[1]);"
        "for (const kind of ['pointerdown', 'click']) target.dispatchEvent("
        "new PointerEvent(kind, {clientX: arguments[0], clientY: arguments[1], bubbles: true}))",
        x,
        y,
    )
    assert window.run("return document.querySelector('#panel h2').textContent").startswith("z0l01:1 → ")
    assert window.run("return document.querySelectorAll('#numbers tbody tr').length") == 5
    window.wait("document.querySelector('#charts-box [data-drawn]')", "the charts")


def drawn_chart(window: Browser, port: str) -> dict[str, Any]:
    """Return the traces, axes and lines of a port's charts, and the words below them."""
    window.run("fabricView.choose(null)")
    look_at(window, port)
    window.wait("document.querySelector('#charts-box [data-drawn]')", "the charts")
    found: dict[str, Any] = window.run(
        "const plot = document.querySelector('#charts-box [data-drawn]'), {layout} = plot;"
        "return {traces: plot.data.map(t => ({name: t.name, axis: t.yaxis, y: [...t.y], x: [...t.x]})),"
        "titles: Object.keys(layout).filter(k => /^[xy]axis/.test(k)).map(k => layout[k].title.text),"
        "lines: (layout.shapes || []).map(s => [s.line.dash, s.y0]),"
        "words: document.querySelector('#charts-box > p.soft').textContent}"
    )
    return found


def test_charts_have_units_the_links_rate_and_the_lanes_shares(window: Browser, view: View) -> None:
    slide(window, 35.0)
    found = drawn_chart(window, "z0l01:1")
    assert set(found["titles"]) == {"time in the run, s", "rate, Mbit/s", "backlog, KiB"}
    assert found["lines"] == [["dash", 5.0], ["dot", pytest.approx(0.40 * 5)], ["dot", pytest.approx(0.35 * 5)]]
    assert "what each lane is promised" in found["words"]


def test_charts_fold_what_is_nothing(window: Browser) -> None:
    slide(window, 35.0)
    found = drawn_chart(window, "z0l01:1")
    assert {trace["name"] for trace in found["traces"]} == {"hfreduce", "storage"}
    assert {trace["axis"] for trace in found["traces"]} == {"y", "y2"}
    assert "none in this phase: drops" in found["words"]
    assert "sent nothing: nccl, other, control" in found["words"]


def test_one_queue_has_no_shares(window: Browser) -> None:
    slide(window, 24.0)
    found = drawn_chart(window, "z0l01:1")
    assert [dash for dash, _ in found["lines"]] == ["dash"]


def test_many_samples_are_joined_the_mean_of_rates_and_the_most_of_backlogs(window: Browser) -> None:
    joined = window.run(
        "const at = Float64Array.from({length: 600}, (_, i) => i / 10), spans = spansOf(at);"
        "return [spans.every, spans.x.length, spans.x[0], spans.width_s, meanIn(Float64Array.of(NaN, 1, 3)),"
        "mostIn(Float64Array.of(1, 5, 2))]"
    )
    assert joined == [10, 60, pytest.approx(0.45), pytest.approx(1.0), 2, 5]


def test_the_root_of_the_tree_and_its_victims_follow_the_slider(window: Browser) -> None:
    row = "fabricView.first.run.meta.findings[0].rows[0]"
    assert window.run(f"return {row}.port") == "z0l00:1"
    window.run(f"return fabricView.follow({row})")
    slide(window, 50.0)
    tree = window.run(
        "const t = fabricView.treeIn(fabricView.first), {ports} = fabricView.first.run.fabric;"
        "const names = set => [...set].map(p => ports[p]);"
        "return {roots: names(t.roots), members: t.members.size, hosts: t.hosts.size}"
    )
    assert tree == {"roots": ["z0l00:1"], "members": 13, "hosts": 9}
    slide(window, 5.0)
    assert window.run("return fabricView.treeIn(fabricView.first)") is None
    assert "no tree with this root" in window.run("return document.getElementById('panel').textContent")


def test_a_job_lights_its_flows_ways(window: Browser, view: View) -> None:
    slide(window, 5.0)
    look_at(window, "hfreduce")
    names = window.run("return [...fabricView.litIn(fabricView.first)].map(p => fabricView.first.run.fabric.ports[p])")
    flows = view.result.table("flows")
    assert set(names) == {f"{host}:0" for host in flows[flows["job"] == "hfreduce"]["host"]}
    assert len(names) > 10
    assert "steps in this phase: 20" in window.run("return document.getElementById('panel').textContent")


def test_two_phases_side_by_side_share_the_slider(window: Browser, view: View) -> None:
    window.run("return fabricView.showMain('0/2').then(() => fabricView.showBeside('0/3'))")
    first, second = view.phases[2], view.phases[3]
    slide(window, first.started_s + 4.0)
    times = window.run("return [fabricView.first, fabricView.second].map(v => v.phase.arrays.at[v.sample])")
    assert times == pytest.approx([first.started_s + 4.0, second.started_s + 4.0])
    assert not window.run("return document.querySelectorAll('.map')[1].hidden")
    window.run("return fabricView.showMain('0/')")
    assert window.run("return document.querySelectorAll('.map')[1].hidden")


def test_a_part_of_a_name_lists_what_has_it(window: Browser) -> None:
    look_at(window, "Z0H00")
    panel = "return document.querySelector('#panel').textContent"
    rows = "return [...document.querySelectorAll('#panel tr.leads td:first-child')].map(cell => cell.textContent)"
    assert "names with Z0H00" in window.run(panel)
    assert {"z0h000", "z0h000:0", "z0h009"} <= set(window.run(rows))
    window.run("document.querySelector('#panel tr.leads').click()")
    assert window.run("return document.querySelector('#panel h2').textContent") == "z0h000"
    look_at(window, "Z0L01:1")
    assert window.run("return document.querySelector('#panel h2').textContent").startswith("z0l01:1 → ")
    look_at(window, "hfred")
    assert window.run("return fabricView.chosen") == {"kind": "job", "job": "hfreduce"}


def test_phases_without_room_for_their_titles_have_numbers_and_a_legend(window: Browser, view: View) -> None:
    legend = "return [...document.querySelectorAll('#phases button')].map(one => one.textContent)"
    try:
        window.driver.set_window_size(700, 900)
        window.wait("!document.getElementById('phases').hidden", "the legend of phases")
        assert window.run(legend) == [f"{number} {one.title}" for number, one in enumerate(view.phases, 1)]
        slide(window, 25.0)
        shown = window.run("return document.querySelector('#phases .shown').textContent")
        assert shown == f"3 {view.phases[2].title}"
        window.run("document.querySelectorAll('#phases button')[3].click()")
        assert window.run("return fabricView.first.phase.number") == 3
    finally:
        window.driver.set_window_size(1500, 950)
    window.wait("document.getElementById('phases').hidden", "the phases to have their titles")


@pytest.mark.parametrize("width", [800, 1400])
def test_nothing_is_cut_off(window: Browser, width: int) -> None:
    beyond = (
        "['search', 'help', 'theme', 'verdict', 'metric', 'beside', 'legend', 'play', 'now'].filter(id => {"
        "const box = document.getElementById(id).getBoundingClientRect();"
        "return box.left < 0 || box.right > innerWidth || box.bottom > innerHeight || box.width === 0})"
    )
    before = window.run("return innerWidth")
    try:
        window.driver.set_window_size(width, 900)
        window.wait(f"innerWidth !== {before}", f"a window {width} wide")
        until(lambda: window.run(f"return {beyond}.length === 0"), "a page of which nothing is cut off", limit_s=20)
        assert window.run(f"return {beyond}") == []
    finally:
        window.driver.set_window_size(1500, 950)


def test_the_page_opens_where_it_says_why(view: View, tmp_path: Path, chromium: webdriver.Chrome) -> None:
    path = tmp_path / "view.html"
    write_page([view], path)
    with tab(chromium) as window:
        window.open(path.as_uri())
        assert window.run("return fabricView.time") == view.opening.at_s
        assert view.opening.why in window.run("return document.getElementById('opening').textContent")


def test_links_within_a_row_are_bows(tmp_path: Path, chromium: webdriver.Chrome) -> None:
    """Straight, they would lie on each other and on the nodes between their ends."""
    topology = tmp_path / "ring.yaml"
    topology.write_text(RING)
    view = view_of(Result(write_result(tmp_path / "ring", Recipe(fabric=str(topology)))))
    path = tmp_path / "view.html"
    write_page([view], path)
    with tab(chromium) as window:
        window.open(path.as_uri())
        bows = window.run(
            "const map = fabricView.maps[0], {ports} = map.run.fabric, {ys, ye} = map.placed;"
            "return Object.fromEntries(map.scene.halves.map((half, i) => [ports[half.ports[0]], ys[i] - ye[i]])"
            ".filter((_, i) => map.scene.halves[i].bow))"
        )
        within = {end for link in view.result.fabric["links"] for end in (link["a"], link["b"]) if _is_flat(link)}
        assert set(bows) == within
        assert min(bows.values()) > 18
        longest, shortest = bows[_end_of(view, "z0l00", "z0l02")], bows[_end_of(view, "z0l00", "z0l01")]
        assert longest > shortest
        port = _end_of(view, "z0l00", "z0l02")
        hit = window.run(
            "const map = fabricView.maps[0], {ports} = map.run.fabric, {xe, ye, xs, ys} = map.placed;"
            "const i = map.scene.halves.findIndex(half => ports[half.ports[0]] === arguments[0]);"
            "const on = map.hit((xs[i] + 3 * xe[i]) / 4, ye[i] + 0.06 * (ys[i] - ye[i]));"
            "return ports[on.half.ports[0]]",
            port,
        )
        assert hit == port
        assert window.errors() == []


RING = """
name: ring_small
builder: free_form
nodes: {st000: storage}
links: [z0h000-z0l00, st000-z0l00, z0h001-z0l01, z0h002-z0l02, z0l00-z0l01, z0l01-z0l02, z0l02-z0l00, z0l00-z0s00,
  z0l01-z0s00, z0l02-z0s00]
nic_rate: 10 Mbit/s
uplink_rate: 10 Mbit/s
mtu: 4200
reference_nic_rate: 10 Mbit/s
"""
"""Three leaves that have links to each other, beside those to a spine."""


def _is_flat(link: dict[str, Any]) -> bool:
    return all(link[end].startswith("z0l") for end in ("a", "b"))


def _end_of(view: View, node: str, peer: str) -> str:
    """Return the port of a node whose link leads to another."""
    ends = [(link["a"], link["b"]) for link in view.result.fabric["links"]]
    pairs = ends + [(b, a) for a, b in ends]
    return next(str(a) for a, b in pairs if a.startswith(f"{node}:") and b.startswith(f"{peer}:"))


def test_keys_step_and_search_says_what_there_is_not(window: Browser) -> None:
    slide(window, 5.0)
    before = window.run("return fabricView.first.sample")
    window.run("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))")
    assert window.run("return fabricView.first.sample") == before + 1
    look_at(window, "z9h999")
    assert "no port, node or job z9h999" in window.run("return document.getElementById('search').validationMessage")
    window.run("document.activeElement.blur()")  # Headless, the bubble stays, and is drawn anew all the time.


def test_two_runs_served_and_drawn_in_dark(view: View, tmp_path: Path, chromium: webdriver.Chrome) -> None:
    other = view_of(Result(write_result(tmp_path / "other", Recipe(seed=8))))
    with serving(ResultPages([view, other]).answer) as address, tab(chromium) as window:
        window.open(address)
        window.run("return fabricView.showMain('0/2').then(() => fabricView.showBeside('1/2'))")
        window.run("document.getElementById('theme').click()")
        assert window.run("return document.documentElement.dataset.theme") == "dark"
        assert "other: " in window.run("return document.querySelectorAll('figcaption')[1].textContent")
        look_at(window, "z0l00:1")
        window.wait("document.querySelector('#charts-box [data-drawn]')", "the charts")
        assert window.errors() == []


def test_the_whole_fabric_is_grouped_thinned_and_opened_up(tmp_path: Path, chromium: webdriver.Chrome) -> None:
    view = view_of(Result(write_full_result(tmp_path / "full")))
    path = tmp_path / "view.html"
    limit_bytes = 10_000_000
    notes = write_page([view], path, limit_bytes)
    assert notes[0].startswith("thinned: this page has 1 of ")
    assert path.stat().st_size <= limit_bytes
    with tab(chromium) as window:
        window.open(path.as_uri())
        assert window.run(
            "return [fabricView.maps[0].scene.blocks.length, fabricView.maps[0].scene.halves.length]"
        ) == [80, 3280]
        assert "thinned" in window.run("return document.getElementById('notes').textContent")
        slide(window, 46.0)
        window.run("fabricView.openNode('z0l10')")
        assert window.run("return fabricView.maps[0].scene.halves.length") == 80
        assert window.errors() == []
