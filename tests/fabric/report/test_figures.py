from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fabric.errors import ResultError, UsageError
from fabric.model.encoding import fabric_as_json
from fabric.records import palette
from fabric.report.figures import (
    FIGURES,
    congestion,
    data,
    draw_all,
    draw_topology,
    ports,
    side_by_side,
    stalled,
    style,
    timeline,
    topology,
)
from fabric.report.figures.machine import machine, verdict_limits
from fabric.report.figures.style import provenance
from fabric.results import Phase, Result
from fabric.tables import TABLES
from tests.figure_axes import axis_faults, precision_faults
from tests.rows import table_of, whole
from tests.synthetic_result import congested_ports
from topologies.load import load_fabric

MakeResult = Callable[..., Result]
SLOW_TO_DRAW = ("ports", "stalls", "waits", "flows", "operations")
PHASE = Phase("p", "A phase", "lanes", 10.0, 20.0)
LINKS = {
    "z0l00:1": data.Direction("z0l00:1", "z0h000:0", 8_000_000, "access", "leaf → host"),
    "z0l00:2": data.Direction("z0l00:2", "z0h001:0", 8_000_000, "access", "leaf → host"),
}


def ports_table(*rows: tuple[float, str, str, int, int]) -> pd.DataFrame:
    """Rows of at_s, port, lane, sent_bytes, backlog_bytes."""
    full = [(at, port, lane, sent, 0, 0, backlog, 0) for at, port, lane, sent, backlog in rows]
    return table_of("ports", full)


def flows_table(*rows: tuple[float, str, str, str, int]) -> pd.DataFrame:
    """Rows of at_s, service_level, host, peer, bytes_acked."""
    full = [(at, PHASE.name, level, host, peer, 0.001, 0, acked) for at, level, host, peer, acked in rows]
    return table_of("flows", full)


def test_utilisation_is_the_bits_of_all_lanes_over_seconds_and_rate() -> None:
    ports = ports_table(
        (10.0, "z0l00:1", "storage", 1_000, 0),
        (14.0, "z0l00:1", "storage", 1_001_000, 0),
        (10.0, "z0l00:1", "hfreduce", 0, 0),
        (14.0, "z0l00:1", "hfreduce", 2_000_000, 0),
    )
    # 3,000,000 bytes in 4 s are 6 Mbit/s of 8.
    assert data.utilisation(ports, LINKS, PHASE) == {"z0l00:1": pytest.approx(0.75)}


def test_utilisation_leaves_out_samples_of_other_phases() -> None:
    ports = ports_table(
        (5.0, "z0l00:1", "storage", 0, 0),
        (10.0, "z0l00:1", "storage", 50_000_000, 0),
        (20.0, "z0l00:1", "storage", 51_000_000, 0),
        (25.0, "z0l00:1", "storage", 99_000_000, 0),
    )
    assert data.utilisation(ports, LINKS, PHASE) == {"z0l00:1": pytest.approx(0.1)}


def test_a_counter_that_starts_anew_counts_on_from_zero() -> None:
    assert data.increments(np.array([5.0, 9.0, 2.0, 3.0])).tolist() == [4.0, 2.0, 1.0]


def test_lane_rates_sum_ports_and_leave_out_silent_lanes() -> None:
    rows = []
    for at in (10.0, 11.0, 12.0):
        rows += [(at, port, "storage", int((at - 10) * 500_000), 0) for port in LINKS]
        rows.append((at, "z0l00:1", "nccl", 7, 0))
    rates = data.lane_rates(ports_table(*rows), PHASE, LINKS)
    assert list(rates.by_name_bps) == ["storage"]
    assert rates.by_name_bps["storage"] == pytest.approx([8e6, 8e6])
    assert rates.at_s == pytest.approx([0.5, 1.5])


def test_lane_rates_join_ports_that_were_read_at_different_times() -> None:
    early = [(10.0 + number, "z0l00:1", "storage", number * 1_000_000, 0) for number in range(6)]
    late = [(10.4 + number, "z0l00:2", "storage", number * 1_000_000, 0) for number in range(6)]
    rates = data.lane_rates(ports_table(*early, *late), PHASE, LINKS)
    assert rates.by_name_bps["storage"][1:-1] == pytest.approx([16e6] * 3)


def test_service_level_rates_keep_parallel_connections_of_a_pair_apart() -> None:
    rows = []
    for second in range(3):
        rows.append((10.0 + second, "storage", "st000", "z0h000", second * 1_000))
        rows.append((10.0 + second, "storage", "st000", "z0h000", 1_000_000 + second * 2_000))
    rates = data.service_level_rates(flows_table(*rows), TABLES["operations"].empty(), PHASE)
    assert rates.by_name_bps["storage"] == pytest.approx([24_000, 24_000])


def test_background_flows_deliver_evenly_over_their_time_however_short() -> None:
    rows = [("p", "other", "flow", "z0h000", "z0h001", 1_000_000, 12.0, 14.0, 0)]
    operations = table_of("operations", rows)
    rates = data.service_level_rates(flows_table(), operations, PHASE)
    during = rates.by_name_bps["other"][(rates.at_s > 2.3) & (rates.at_s < 3.7)]
    assert during == pytest.approx([4e6] * len(during))
    assert rates.by_name_bps["other"][rates.at_s > 4.3].sum() == 0


def test_busiest_port_is_that_of_the_highest_utilisation_over_all_phases() -> None:
    ports = ports_table(
        (10.0, "z0l00:1", "storage", 0, 0),
        (20.0, "z0l00:1", "storage", 1_000_000, 0),
        (10.0, "z0l00:2", "storage", 0, 0),
        (20.0, "z0l00:2", "storage", 2_000_000, 0),
    )
    assert data.busiest_port(ports, LINKS, [PHASE]) == "z0l00:2"
    assert data.busiest_port(TABLES["ports"].empty(), LINKS, [PHASE]) is None


def test_queue_map_adds_lanes_and_tells_what_it_leaves_out() -> None:
    ports = ports_table(
        (10.0, "z0l00:1", "storage", 0, 100),
        (10.0, "z0l00:1", "nccl", 0, 50),
        (11.0, "z0l00:1", "storage", 0, 0),
        (11.0, "z0l00:1", "nccl", 0, 30),
        (10.0, "z0l00:2", "storage", 0, 20),
        (11.0, "z0l00:2", "storage", 0, 0),
    )
    found = data.queue_map(ports, LINKS, limit=1)
    assert found is not None
    assert [row.port for row in found.rows] == ["z0l00:1"]
    assert found.depth_bytes.tolist() == [[150.0, 30.0]]
    assert (found.left_out, found.left_out_queued) == (1, 1)


def test_queue_map_leaves_out_ports_that_never_queued() -> None:
    rows = [(10.0, "z0l00:1", "storage", 0, 100), (10.0, "z0l00:2", "storage", 0, 0)]
    found = data.queue_map(ports_table(*rows), LINKS)
    assert found is not None
    assert [row.port for row in found.rows] == ["z0l00:1"]
    assert (found.left_out, found.left_out_queued) == (1, 0)
    assert data.queue_map(ports_table(rows[1]), LINKS) is None


def test_queue_map_groups_ports_by_the_way_a_packet_takes(make_result: MakeResult) -> None:
    result = make_result()
    found = data.queue_map(result.table("ports"), data.directions(result.fabric))
    assert found is not None
    assert len(found.rows) == 40
    assert found.left_out == 144 - 40
    order = [data.kind_order(row.kind) for row in found.rows]
    assert order == sorted(order)


LOADED = replace(PHASE, loaded_from_s=11.0, loaded_until_s=14.0)
"""The same phase, whose load played for three seconds of it."""


def test_latencies_are_of_operations_of_one_kind_that_began_while_the_load_played() -> None:
    rows = [
        ("p", "storage", "read", "st000", "z0h000", 1, 10.0, 10.1, 0),
        ("p", "storage", "read", "st000", "z0h000", 1, 11.0, 11.5, 0),
        ("p", "storage", "read", "st000", "z0h000", 1, 12.0, 12.25, 1),
        ("p", "storage", "read", "st000", "z0h000", 1, 13.0, float("nan"), 0),
        ("p", "storage", "read", "st000", "z0h000", 1, 13.5, 19.5, 0),
        ("p", "storage", "read", "st000", "z0h000", 1, 14.5, 14.6, 0),
        ("p", "storage", "write", "st000", "z0h000", 1, 13.0, 19.0, 0),
        ("q", "storage", "read", "st000", "z0h000", 1, 13.0, 19.0, 0),
    ]
    table = table_of("operations", rows)
    found = data.latencies(table, "read", LOADED)
    assert (found.taken_s.tolist(), found.never, found.p99_s) == ([0.25, 0.5, 6.0], 0, 6.0)
    assert len(data.latencies(table, "read", PHASE).taken_s) == 5, "of a result of before nobody knows when it played"


def test_of_operations_that_failed_a_distribution_lacks_their_part_and_it_may_have_no_99th_percentile() -> None:
    done = [("p", "storage", "read", "st000", "z0h000", 1, 12.0, 12.0 + number / 100, 0) for number in range(1, 99)]
    failed = [("p", "storage", "read_failed", "st000", "z0h000", 1, 12.0, 12.1, 3)] * 2
    found = data.latencies(table_of("operations", [*done, *failed]), "read", LOADED)
    assert (found.never, found.p99_s) == (2, None)
    assert found.fractions[-1] == pytest.approx(0.98)
    one_less = data.latencies(table_of("operations", [*done, failed[0]]), "read", LOADED)
    assert one_less.p99_s is None
    assert data.latencies(table_of("operations", done), "read", LOADED).p99_s == pytest.approx(0.98)


def test_utilisation_is_of_the_time_in_which_the_load_played() -> None:
    """A link that is full for three seconds of ten is full, not used by three parts of ten."""
    times_s = [10.0 + half / 2 for half in range(21)]
    sent = (1_000_000 * np.clip(np.array(times_s) - 11, 0, 3)).astype(int).tolist()
    ports = ports_table(*((at, "z0l00:1", "storage", size, 0) for at, size in zip(times_s, sent, strict=True)))
    assert data.utilisation(ports, LINKS, LOADED) == {"z0l00:1": pytest.approx(1.0)}
    assert data.utilisation(ports, LINKS, PHASE) == {"z0l00:1": pytest.approx(0.3)}


def test_algbw_is_size_over_time() -> None:
    rows = [("p", "hfreduce", 0, 12, 3_000_000, 1.0, 3.0), ("p", "nccl", 0, 12, 3_000_000, 1.0, 2.0)]
    table = table_of("steps", rows)
    duration, algbw = data.step_times(table, "hfreduce", PHASE)
    assert duration.tolist() == [2.0]
    assert algbw.tolist() == [1_500_000.0]


def test_utilisation_of_a_whole_result_is_what_it_was_made_with(make_result: MakeResult) -> None:
    result = make_result()
    links = data.directions(result.fabric)
    shares = data.utilisation(result.table("ports"), links, result.phases[3])
    assert len(shares) == 144
    assert {round(shares[port], 3) for port in shares if links[port].tier == "access"} == {0.95}
    assert {round(shares[port], 3) for port in shares if links[port].tier == "uplink"} == {0.475}


def test_every_figure_is_drawn_as_png_and_as_well_formed_svg(drawn_result: Result) -> None:
    paths = sorted((drawn_result.directory / "figures").iterdir())
    assert {path.name for path in paths} == {f"{spec.name}.{kind}" for spec in FIGURES for kind in ("png", "svg")}
    for path in paths:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")


def test_axes_have_words_and_units(make_result: MakeResult) -> None:
    result = make_result(fabric="fire_flyer_2_tiny")
    drawn = {spec.name: figure for spec in FIGURES if (figure := spec.draw(result)) is not None}
    assert {name: faults for name, one in drawn.items() if (faults := axis_faults(one) + precision_faults(one))} == {}
    assert len(drawn) >= len(FIGURES) - 3


def test_limits_of_the_machine_are_those_of_the_verdicts_checks(make_result: MakeResult) -> None:
    limits = verdict_limits(make_result(without=("ports", "flows")).verdict)
    assert limits["lateness_s"] == {"degraded": 0.005, "invalid": 0.025}
    assert verdict_limits({"status": "faithful", "reasons": []}) == {}


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        (("ports",), {"busiest_port", "queue_depth", "topology", "congestion_trees", "tree_sizes", "stalled_time"}),
        (("flows",), set()),
        (("steps",), {"steps"}),
        (("operations",), {"storage_latency"}),
        (("jobs",), {"timeline"}),
        (("machine",), {"machine"}),
        (("stalls",), {"congestion_trees", "tree_sizes", "stalled_time"}),
        (tuple(TABLES), {spec.name for spec in FIGURES} - {"side_by_side"}),
    ],
)
def test_figures_without_samples_are_left_out(
    make_result: MakeResult, without: tuple[str, ...], missing: set[str]
) -> None:
    result = make_result(without=without, fabric="fire_flyer_2_tiny")
    drawn = {spec.name for spec in FIGURES if spec.draw(result) is not None}
    assert drawn == {spec.name for spec in FIGURES} - missing


def test_jobs_of_one_level_have_rates_of_their_own() -> None:
    def rows(job: str, rate: int) -> list[tuple[object, ...]]:
        return [(at, PHASE.name, job, "other", "a", "x", 0.001, 0, rate * (at - 10)) for at in (10.0, 11.0, 12.0)]

    flows = table_of("flows", [*rows("ring", 1_000), *rows("tree", 3_000)])
    rates = data.job_rates(flows, TABLES["operations"].empty(), PHASE)
    assert {job: values.tolist() for job, values in rates.by_name_bps.items()} == {
        "ring": pytest.approx([8_000, 8_000]),
        "tree": pytest.approx([24_000, 24_000]),
    }


def test_the_timeline_has_a_row_per_job_a_bar_per_window_and_its_bandwidth(make_result: MakeResult) -> None:
    result = make_result(fabric="fire_flyer_2_tiny")
    figure = timeline.timeline(result)
    assert figure is not None
    rows = figure.findobj(Axes)
    assert [row.get_ylabel() for row in rows] == ["hfreduce\n(Mbit/s)", "storage\n(Mbit/s)"]
    areas, bars = (
        [np.asarray(path.vertices, dtype=float) for path in drawn.get_paths()] for drawn in rows[1].collections
    )
    assert [(bar[:, 0].min(), bar[:, 0].max()) for bar in bars] == [pytest.approx((2, 6)), pytest.approx((7, 9))]
    delivered_mbps = 0.45 * 8 * result.fabric["nic_rate_bps"] / 1e6  # Of each of 8 NICs, see PHASES.
    assert areas[0][:, 1].max() == pytest.approx(delivered_mbps, rel=0.01)
    result.summary["timeline"] = []
    assert timeline.timeline(result) is None


def change(result: Result, name: str, to: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    to(result.table(name)).to_parquet(result.directory / "samples" / f"{name}.parquet")


def test_a_job_that_delivers_nothing_that_is_measured_has_no_scale_in_the_timeline(make_result: MakeResult) -> None:
    result = make_result(fabric="fire_flyer_2_tiny")
    figure = timeline.timeline(result)
    assert figure is not None
    assert len(figure.findobj(Axes)[0].get_yticks()) > 0
    assert figure.findobj(Axes)[-1].get_xlabel().endswith("; areas: delivered]")
    for table in ("flows", "operations"):
        (result.directory / "samples" / f"{table}.parquet").unlink(missing_ok=True)
    figure = timeline.timeline(result)
    assert figure is not None
    assert [row.get_yticks().tolist() for row in figure.findobj(Axes)] == [[], []]
    assert figure.findobj(Axes)[-1].get_xlabel().endswith("[bars: when the job played]")


def test_what_is_always_0_and_not_judged_has_no_panel_of_the_machine(make_result: MakeResult) -> None:
    result = make_result(fabric="fire_flyer_2_tiny", without=SLOW_TO_DRAW)
    assert machine_panels(result) == 4
    change(result, "machine", lambda table: table.assign(cpu_busy_fraction=0.0))
    assert machine_panels(result) == 4, "its limits are drawn"
    checks = [check for check in result.verdict["checks"] if check["name"] != "cpu_busy_fraction"]
    result.verdict["checks"][:] = checks
    assert machine_panels(result) == 3


def machine_panels(result: Result) -> int:
    figure = machine(result)
    assert figure is not None
    return len(figure.findobj(Axes))


def test_a_link_that_sends_little_is_drawn_to_the_scale_of_what_it_sends(make_result: MakeResult) -> None:
    result = make_result(fabric="fire_flyer_2_tiny")
    links = data.directions(result.fabric)
    port = data.busiest_port(result.table("ports"), links, result.phases)
    assert port is not None
    rate_bps = links[port].rate_bps
    change(result, "ports", lambda table: table.assign(sent_bytes=table["sent_bytes"] // 20))
    assert top_of_busiest_port(result) == pytest.approx(1.05 * rate_bps), "shares are of the whole link"
    del result.summary["lane_shares"]
    assert 0 < top_of_busiest_port(result) < 0.1 * rate_bps


def top_of_busiest_port(result: Result) -> float:
    figure = ports.port_throughput(result)
    assert figure is not None
    return float(figure.findobj(Axes)[0].get_ylim()[1])


def test_little_use_of_a_link_is_not_told_as_none() -> None:
    assert [ports.percent(share) for share in (0.0, 0.0021, 0.0456, 0.456)] == ["0%", "0.21%", "4.6%", "46%"]


def test_queueings_are_set_side_by_side_only_where_a_summary_does(make_result: MakeResult) -> None:
    result = make_result()
    figure = side_by_side.side_by_side(result)
    assert figure is not None
    shown = [text.get_text() for axes in figure.findobj(Axes) for text in axes.texts]
    assert shown == ["0.5", "0.25", "2,125", "0"]
    del result.summary["side_by_side"]
    assert side_by_side.side_by_side(result) is None


def test_trees_are_drawn_on_the_topology_with_an_arrow_for_every_port_and_red_roots(drawn_result: Result) -> None:
    figure = congestion.trees_on_topology(drawn_result)
    assert figure is not None
    still = congested_ports(load_fabric("fire_flyer_2_small"))
    panels = figure.findobj(Axes)
    title = panels[0].get_title(loc="left")
    assert "root z0l00:1 storage; 9 hosts blocked" in title
    assert f"1 tree, the largest with {len(still) + 1} ports" in title
    colours = [to_hex(arrow.get_edgecolor()) for arrow in panels[0].patches]
    assert len(colours) == len(still) + 1
    assert colours.count(congestion.ROOT_COLOUR.lower()) == 1


def test_sizes_of_trees_and_stalled_time_are_rows_over_the_time_of_the_phase(drawn_result: Result) -> None:
    still = congested_ports(load_fabric("fire_flyer_2_small"))
    sizes, stood = congestion.tree_sizes(drawn_result), stalled.stalled_map(drawn_result)
    assert sizes is not None
    assert stood is not None
    (panel, _), (map_panel, _) = (figure.subfigs[1].axes for figure in (sizes, stood))
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["z0l00:1 → z0h000"]
    assert np.nanmax(np.asarray(panel.collections[0].get_array())) == len(still) + 1
    labels = [tick.get_text() for tick in map_panel.get_yticklabels()]
    assert len(labels) == len(still)
    cells = np.asarray(map_panel.collections[0].get_array(), dtype=float)
    shares = np.nanmax(cells[~np.isnan(cells).all(axis=1)], axis=1)  # Lines with the names of groups are empty.
    assert sorted(set(shares.round(3))) == [0.3, 0.5, 0.7]
    assert map_panel.get_xlim()[1] == pytest.approx(10.0)


def test_trees_of_a_large_fabric_are_drawn_too(make_result: MakeResult) -> None:
    assert congestion.trees_on_topology(make_result(fabric="two_hundred_hosts")) is not None


def test_every_figure_says_topology_scale_queueing_and_seed(drawn_result: Result) -> None:
    text = provenance(drawn_result)
    for part in (
        "fire_flyer_2_small",
        f"rates 1 : {load_fabric('fire_flyer_2_small').scale:,.0f} of 200 Gbit/s",
        "queueing: lanes, shared, lossless_lanes",
        "seed 7",
    ):
        assert part in text
    for path in (drawn_result.directory / "figures").glob("*.svg"):
        assert f"<!-- {text} -->" in path.read_text()


def test_figures_of_an_invalid_run_carry_a_watermark_and_the_reasons(
    make_result: MakeResult, drawn_result: Result
) -> None:
    verdict = {"status": "invalid", "reasons": ["CPU busy 97 %, limit 90 %"]}
    invalid = make_result(verdict=verdict, without=SLOW_TO_DRAW)
    drawn = [path for path in draw_all(invalid) if path.suffix == ".svg"]
    assert len(drawn) >= 2
    for path in drawn:
        assert "<!-- INVALID -->" in path.read_text()
        assert "<!-- verdict: CPU busy 97 %, limit 90 % -->" in path.read_text()
    good = list((drawn_result.directory / "figures").glob("*.svg"))
    assert good
    assert not any("INVALID" in path.read_text() for path in good)


def test_a_result_of_another_format_is_refused(make_directory: Callable[..., Path]) -> None:
    with pytest.raises(ResultError, match="format_version 0, this program reads 1"):
        Result(make_directory(format_version=0))


def test_small_fabric_is_drawn_with_every_name(tmp_path: Path) -> None:
    fabric = load_fabric("fire_flyer_2_small")
    draw_topology(fabric_as_json(fabric), tmp_path / "small.svg")
    text = (tmp_path / "small.svg").read_text()
    assert all(f"<!-- {node.name} -->" in text or f"<!-- {node.name}, NIC 1 -->" in text for node in fabric.nodes)


def test_large_fabric_is_drawn_with_counts_and_few_lines(tmp_path: Path) -> None:
    fabric = fabric_as_json(load_fabric("fire_flyer_2"))
    layout = topology.lay_out(fabric)
    assert not layout.detailed
    assert layout.groups["z0l00"] == {"compute": 15, "storage": 5}
    halves = topology.segments(fabric, layout, None)
    assert len(halves) == 2 * (80 + 1600 + 40)  # A line a leaf for its hosts; every uplink and inter-zone link.
    draw_topology(fabric, tmp_path / "large.svg")
    assert (tmp_path / "large.svg").stat().st_size < 1_500_000


def test_each_half_of_a_link_shows_what_its_near_end_sends() -> None:
    fabric = fabric_as_json(load_fabric("fire_flyer_2_small"))
    layout = topology.lay_out(fabric)
    halves = topology.segments(fabric, layout, {"z0l00:5": 0.9, "z0s00:1": 0.2})
    busy, idle = halves[-1], halves[-2]
    assert (busy.start, busy.utilisation) == (layout.of_switch["z0l00"], 0.9)
    assert (idle.start, idle.utilisation) == (layout.of_switch["z0s00"], 0.2)
    assert busy.end == idle.end


def test_parallel_links_are_lines_beside_each_other() -> None:
    fabric = fabric_as_json(load_fabric("dual_tor_small"))
    layout = topology.lay_out(fabric)
    halves = topology.segments(fabric, layout, {"z0l00:5": 0.9})
    between = [half for half in halves if half.start == layout.of_switch["z0l00"] and half.end[1] > half.start[1]]
    ports = {half.ports for half in between}
    uplinks = [link for link in fabric["links"] if link["tier"] != "access" and "z0l00" in link["a"] + link["b"]]
    assert len(between) == len(uplinks) == 4
    assert all(len(found) == 1 for found in ports)
    assert len({half.end for half in between}) == 4
    assert [half.ports for half in halves if half.utilisation == 0.9] == [("z0l00:5",)]


def test_each_nic_of_a_host_with_several_is_named(tmp_path: Path) -> None:
    draw_topology(fabric_as_json(load_fabric("rail_optimised_small")), tmp_path / "rails.svg")
    text = (tmp_path / "rails.svg").read_text()
    assert all(f"<!-- z0h000, NIC {number} -->" in text for number in range(4))


def test_a_switch_that_failed_and_a_link_that_was_cut_are_crossed_out(make_result: MakeResult) -> None:
    result = make_result()
    of_leaf = [(link["a"], link["b"]) for link in result.fabric["links"] if "z0l00:" in link["a"] + " " + link["b"]]
    other = next((one["a"], one["b"]) for one in result.fabric["links"] if one["a"].startswith("z0l01:"))
    cut = {port for ends in [*of_leaf, other] for port in ends}
    assert topology.failed_switches(result.fabric, cut) == {"z0l00"}
    axes = Figure().add_subplot()
    topology.draw_on(axes, result.fabric, {}, cut)
    found: list[Any] = axes.findobj(PathCollection)
    crosses = [one for one in found if to_hex(one.get_edgecolor()[0]).upper() == palette.FAILURE]
    middles, switches = sorted(crosses, key=lambda one: float(one.get_sizes()[0]))
    assert np.asarray(switches.get_offsets()).tolist() == [list(topology.lay_out(result.fabric).of_switch["z0l00"])]
    assert len(np.asarray(middles.get_offsets())) == 1


def test_the_map_of_a_phase_says_what_was_cut_in_it(make_result: MakeResult, monkeypatch: pytest.MonkeyPatch) -> None:
    result = make_result()
    link = next(one for one in result.fabric["links"] if one["a"].startswith("z0l01:"))
    name = f"{link['a']}--{link['b']}"
    row = {"phase": result.phases[0].name, "kind": "link", "target": name, "link": name, "up": False, "done_s": 1.0}
    tables = {name: result.table(name) for name in ("ports", "failures")} | {
        "failures": whole("failures", pd.DataFrame([row]))
    }
    monkeypatch.setattr(result, "table", tables.__getitem__)
    figure = ports.topology_use(result)
    assert figure is not None
    words = [
        text.get_text() for panel in figure.findobj(Axes) for text in panel.texts if "crossed out" in text.get_text()
    ]
    assert words == ["crossed out: 1 link cut for some of the time"]


def test_a_group_of_hosts_is_as_busy_as_its_busiest() -> None:
    fabric = fabric_as_json(load_fabric("fire_flyer_2"))
    layout = topology.lay_out(fabric)
    halves = topology.segments(fabric, layout, {"z0l00:1": 0.3, "z0l00:2": 0.7})
    assert [half.utilisation for half in halves if half.utilisation is not None] == [0.7]


def test_unknown_format_is_refused_with_those_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.bmp'; use one of \.svg, \.png, \.pdf"):
        draw_topology(fabric_as_json(load_fabric("fire_flyer_2_small")), tmp_path / "a.bmp")


def test_a_rate_of_which_there_is_one_sample_is_seen() -> None:
    """A line of one point is none."""
    marked = []
    for samples in (1, 50):
        rates = data.Rates(np.arange(samples, dtype=np.float64), {"storage": np.full(samples, 2e13)})
        body = Figure().subfigures(squeeze=False)[0, 0]
        (panel,) = ports.rate_panels(body, [(PHASE, rates)])
        (line,) = panel.get_lines()
        marked.append(line.get_marker())
        assert panel.yaxis.get_major_formatter()(2e13) == "20 Tbit/s"
    assert marked == ["o", "None"]


OWN_LEVELS = ("reduce", "gather", "alltoall", "pipeline", "gold", "silver", "bronze", "rpc", "kv", "inference")


def test_levels_and_lanes_of_a_run_have_colours_of_their_own_and_usual_ones_theirs(make_result: MakeResult) -> None:
    lanes: dict[str, object] = {name: {} for name in ("storage", *OWN_LEVELS)}
    result = make_result(config={"queues": {"lanes": lanes, "service_levels": {"bulk": 5}}}, without=("ports", "flows"))
    with style.framed(result, "title", 4, 3):
        drawn = {name: style.level_colour(name) for name in (*palette.LANES, *OWN_LEVELS, "bulk")}
    assert len(set(drawn.values())) == len(drawn)
    assert {name: drawn[name] for name in palette.LANES} == palette.LANES
    again = palette.lane_colours(style.level_names(result))
    assert {name: again[name] for name in drawn} == drawn, "the page that looks into runs has the same colours"


def test_colours_are_of_the_run_that_is_drawn(make_result: MakeResult) -> None:
    results = [
        make_result(config={"queues": {"lanes": {name: {} for name in names}}}, without=("ports", "flows"))
        for names in (["silver", "gold"], ["silver", "bronze", "gold"])
    ]
    colours = []
    for result in results:
        with style.framed(result, "title", 4, 3):
            colours.append(style.level_colour("gold"))
    assert colours == list(palette.OWN_LANES[:2])
