"""Faults by rate come back to the tables that they are from, and are lines of a config."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import chi2, kstest, poisson

from cluster.faults.classes import DAY_S, Effect, FaultTable, Unit, fault_table
from cluster.faults.drawing import Lemons, Units, draw_faults, lemon_nodes
from cluster.faults.entries import AGAIN_S, configs, entries, while_alive
from cluster.faults.published import NAMES, gpu_errors, hardware_failures, published, table_of
from fabric.errors import ConfigError
from fabric.failures.config import schedule_failures
from topologies.load import load_fabric

MACHINE = {Unit.NODE: 1250, Unit.LINK: 3200, Unit.STORAGE: 180, Unit.SWITCH: 122}
TOTALS = {
    # Events, and the mean time between faults of the whole machine in hours (24 x days / events).
    "fire_flyer_2": (292, 15.04),
    "fire_flyer_2_gpu_errors": (12970, 0.675),
    "llama3": (419, 3.09),
    "rsc1": (6.50, 3.69),
    "rsc2": (2.34, 10.26),
}


def machine_of(table: FaultTable) -> Units:
    own = {
        Unit.NODE: table.nodes,
        Unit.LINK: table.links,
        Unit.STORAGE: table.storage_nodes,
        Unit.SWITCH: table.switches,
    }
    return Units.numbered({unit: count or 1 for unit, count in own.items()})


def test_the_tables_have_the_papers_sums() -> None:
    assert set(TOTALS) == set(NAMES)
    for name, (events, hours) in TOTALS.items():
        table = published(name)
        assert sum(one.events for one in table.classes) == pytest.approx(events)
        assert table.mtbf_s(table.nodes) / 3600 == pytest.approx(hours, rel=2e-3), name
    assert hardware_failures()["network"] == 89
    xids = gpu_errors()
    assert sum(xids.values()) == 12970
    assert xids["nvlink", 74] / 12970 == pytest.approx(0.4257, abs=1e-4), "the paper's share of Xid 74"


def test_the_mean_time_between_faults_is_in_inverse_proportion_to_the_nodes() -> None:
    """What the papers, or those who read them, say of other sizes."""
    fire_flyer_2, rsc1 = published("fire_flyer_2"), published("rsc1")
    assert 1000 * fire_flyer_2.per_node_day() == pytest.approx(1.28, abs=0.005)
    assert fire_flyer_2.mtbf_s(64) / 3600 == pytest.approx(294, abs=0.5)
    assert 1000 * published("llama3").per_node_day() == pytest.approx(3.8, abs=0.02)
    assert rsc1.mtbf_s(2048) / 3600 == pytest.approx(1.80, abs=0.005), "RSC-1's projection for 16,384 GPUs"


def test_as_many_of_each_class_come_as_its_table_has() -> None:
    """Each of 1,000 counts lies where a Poisson variable of that mean lies but once in ten million times, over all
    seeds the mean is the table's, and counts spread as Poisson's do."""
    for name in ("fire_flyer_2", "llama3"):
        table = published(name)
        units = machine_of(table)
        counts = np.array(
            [
                [sum(fault.name == one.name for fault in faults) for one in table.classes]
                for faults in (draw_faults(table, units, table.days, seed) for seed in range(40))
            ]
        )
        for events, column in zip((one.events for one in table.classes), counts.T, strict=True):
            low, high = poisson.interval(1 - 1e-7, events)
            assert low <= column.min() and column.max() <= high, (name, events)
            low, high = poisson.interval(1 - 1e-4, events * len(column))
            assert low <= column.sum() <= high, (name, events)
        expected = np.array([one.events for one in table.classes])
        spread = float(((counts - expected) ** 2 / expected).sum())
        assert 1e-4 < chi2.sf(spread, counts.size) < 1 - 1e-4, name


def test_times_between_faults_are_exponential_with_the_mean_of_the_nodes_in_question() -> None:
    table = published("rsc1")
    units = Units.numbered({Unit.NODE: 2048})
    faults = draw_faults(table, units, 1500, seed=3)
    for nodes in (2048, 256):
        names = set(units.nodes[:nodes])
        gaps = np.diff([fault.at_s for fault in faults if fault.target in names])
        assert kstest(gaps, "expon", args=(0, table.mtbf_s(nodes))).pvalue > 1e-3, nodes


def test_the_same_seed_gives_the_same_faults_and_another_class_changes_none() -> None:
    table = published("fire_flyer_2")
    units = Units.numbered(MACHINE)
    faults = draw_faults(table, units, 30, seed=1)
    assert faults == draw_faults(table, units, 30, seed=1) != draw_faults(table, units, 30, seed=2)
    assert list(faults) == sorted(faults, key=lambda fault: fault.at_s)
    shorter = table.model_copy(update={"classes": table.classes[:2]})
    names = {one.name for one in shorter.classes}
    assert draw_faults(shorter, units, 30, seed=1) == tuple(fault for fault in faults if fault.name in names)


def test_a_machine_has_as_many_faults_as_it_has_units() -> None:
    """Cuts go with links where a table counts them, else with nodes; of what a machine does not have none fail."""
    table = published("fire_flyer_2")
    network = next(one for one in table.classes if one.name == "network")
    assert table.expected(network, {**MACHINE, Unit.LINK: 320}, table.days) == pytest.approx(8.9)
    unknown = table.model_copy(update={"links": None})
    assert unknown.expected(network, {**MACHINE, Unit.NODE: 125}, table.days) == pytest.approx(8.9)
    few = draw_faults(table, Units.numbered({Unit.NODE: 1250}), 183, seed=1)
    assert not [fault for fault in few if fault.effect is Effect.LINK_CUT]


def test_lemons_fail_more_often_while_a_class_stays_as_frequent() -> None:
    table, lemons = published("rsc1"), Lemons(share=0.02, factor=50)
    units = Units.numbered({Unit.NODE: 1000})
    faults = draw_faults(table, units, 365, 5, lemons)
    low, high = poisson.interval(1 - 1e-4, 6.5 * 365)
    assert low <= len(faults) <= high
    names = {units.nodes[place] for place in lemon_nodes(1000, lemons, 5)}
    share = sum(fault.target in names for fault in faults) / len(faults)
    assert share == pytest.approx(20 * 50 / (20 * 50 + 980), abs=0.03)
    with pytest.raises(ValueError, match="0 < share < 1"):
        Lemons(0.0, 2)


OWN = """
source: mine
nodes: 4
storage_nodes: 2
switches: 6
links: 40
days: 10
classes:
  - {name: error, events: 2000, effect: gpu_error, cause: "Xid 79: GPU has fallen off the bus"}
  - {name: silent, events: 2000, effect: silent, for: 5 s}
  - {name: wrong, events: 2000, effect: corruption}
  - {name: slow, events: 2000, effect: slow_nic, rate: 0.25, for: 1 s}
  - {name: cut, events: 2000, effect: link_cut, for: 200 ms}
  - {name: storage, events: 2000, effect: storage_down, for: 3 s}
  - {name: rot, events: 2000, effect: wrong_data}
  - {name: switch, events: 2000, effect: switch_down, for: 1 s}
"""


def test_every_effect_is_a_line_of_a_config_that_a_fabric_takes(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(OWN)
    fabric = load_fabric("fire_flyer_2_tiny")
    faults = draw_faults(table_of(str(path)), Units.of(fabric), 0.2, seed=1)
    assert {fault.effect for fault in faults} == set(Effect)
    lines = entries(faults)
    one = {fault.name: line for fault, line in zip(faults, lines, strict=True)}
    assert one["error"].items() >= {"effect": "kill"}.items() and "for" not in one["error"]
    assert one["wrong"].items() >= {"effect": "kill"}.items() and "for" not in one["wrong"]
    assert one["slow"].items() >= {"rate": 0.25, "for": 1.0}.items()
    assert one["rot"].items() >= {"effect": "rot", "chunks": 1}.items()
    checked = configs(faults)
    for config in checked:  # One by one: together they may hit what has failed already.
        assert schedule_failures([config], fabric, seed=1)
    assert [config.at for config in checked] == [round(fault.at_s, 9) for fault in faults]


def test_a_platform_is_told_errors_of_gpus_by_their_xid() -> None:
    units = Units.numbered(MACHINE)
    drawn = draw_faults(published("llama3"), units, 54, seed=1)
    for fault, line in zip(drawn, entries(drawn, 100, on_platform=True), strict=True):
        xids = {"gpu": 79, "gpu_hbm3": 94, "gpu_sram": 95, "gpu_system_processor": 119, "gpu_thermal": 79}
        if fault.effect is Effect.GPU_ERROR and fault.name in xids:
            assert {key: line[key] for key in line if key != "at"} == {"gpu": fault.target, "xid": xids[fault.name]}
        elif fault.effect in (Effect.GPU_ERROR, Effect.CORRUPTION):
            assert line.items() >= {"process": fault.target, "effect": "restart", "for": AGAIN_S}.items()
        else:
            assert line["silent"] == fault.target
    causes = {one.name: one.known_xid for one in published("fire_flyer_2_gpu_errors").classes}
    assert causes == {f"xid_{xid}": xid for _, xid in gpu_errors()}


def test_nothing_hits_programs_that_were_killed_before() -> None:
    """Ten nodes with all kinds of faults: a run takes what is left."""
    fabric = load_fabric("fire_flyer_2_tiny")
    table = fault_table(yaml.safe_load(OWN), "own")
    drawn = draw_faults(table, Units.of(fabric), 0.5, seed=1)
    kept = while_alive(drawn)
    assert len(kept) < len(drawn) and {fault.effect for fault in kept} == set(Effect)
    assert schedule_failures(configs(kept), fabric, seed=1)
    with pytest.raises(ConfigError, match="has killed programs"):
        schedule_failures(configs(drawn), fabric, seed=1)


def test_what_is_repaired_ends() -> None:
    def lines(**more: object) -> list[dict[str, object]]:
        classes = [
            {"name": "host", "events": 6, "effect": "silent", **more},
            {"name": "store", "events": 6, "effect": "storage_down", "for": "1 min", **more},
            {"name": "bit", "events": 6, "effect": "wrong_data", **more},
        ]
        table = fault_table({"source": "mine", "nodes": 4, "days": 1, "storage_nodes": 2, "classes": classes}, "mine")
        units = Units(tuple("abcd"), (), ("s0", "s1"))
        return entries(while_alive(draw_faults(table, units, 1.0, seed=1)))

    def durations(found: list[dict[str, object]]) -> set[tuple[object, object]]:
        return {(str(line.get("disk") or line["silent"])[0], line.get("for")) for line in found}

    letters = {("a", 600.0), ("b", 600.0), ("c", 600.0), ("d", 600.0)}
    assert durations(lines(repair="10 min")) <= {*letters, ("s", 60.0), ("s", None)}
    assert {line.get("for") for line in lines() if line.get("silent") in list("abcd")} == {DAY_S}
    assert {line.get("for") for line in lines(repair=0) if line.get("silent") in list("abcd")} == {None}


def test_a_year_must_be_made_shorter_for_a_config() -> None:
    table = published("rsc2")
    faults = draw_faults(table, Units.numbered({Unit.NODE: 100}), 365, seed=1)
    with pytest.raises(ConfigError, match=r"a config's times end at .*; take a shorter time, or raise 'faster' \(1\)"):
        entries(faults)
    lines = entries(faults, faster=1000)
    assert lines[-1]["at"] == pytest.approx(faults[-1].at_s / 1000)
    with pytest.raises(ConfigError, match="but a config has 3 at most"):
        entries(faults, faster=1000, most=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"effect": "melts"}, "classes.0.effect"),
        ({"events": -1}, "classes.0.events"),
        ({"rate": 0.1}, "it is for slow_nic"),
        ({"xid": 79}, "it is for gpu_error"),
        ({"evnts": 1}, "events"),
    ],
)
def test_a_wrong_table_is_refused_by_the_name_of_its_key(change: dict[str, object], words: str) -> None:
    data = {
        "source": "mine",
        "nodes": 1,
        "days": 1,
        "classes": [{"name": "a", "events": 1, "effect": "silent", **change}],
    }
    with pytest.raises(ConfigError, match=words):
        fault_table(data, "own")


def test_names_and_classes_that_are_not_there_are_named() -> None:
    with pytest.raises(ConfigError, match="'llama4': no such table; use 'fire_flyer_2'"):
        table_of("llama4")
    twice = {"name": "a", "events": 1, "effect": "silent"}
    with pytest.raises(ConfigError, match="a: more than one class has this name"):
        fault_table({"source": "mine", "nodes": 1, "days": 1, "classes": [twice, twice]}, "own")
    assert DAY_S == 86400
