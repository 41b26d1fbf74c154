"""Samples as rows of tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fabric.measure.frames import cores_frame, machine_frame, ports_frame
from fabric.measure.sampling import CORES, MACHINE, Series
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.queueing.counters import COUNTERS
from fabric.tables import TABLES
from fabric.world.datapath import Datapath
from topologies.load import load_fabric

SMALL = load_fabric("fire_flyer_2_small")
LANES = plan_lanes(QueueConfig(), Queueing.LANES)
HOST, LEAF = SMALL.nics[0].port, SMALL.ports_of[SMALL.switches[0]][0]


def series(counters: dict[tuple[int, int, int], list[tuple[int, ...]]], machine: list[dict[str, Any]]) -> Series:
    """Return a series from each queue's counters (in the order of COUNTERS; the last may lack) sample by sample."""
    keys = list(counters)
    width = len(COUNTERS.names or ())
    full = {key: [(*row, *[0] * (width - len(row))) for row in rows] for key, rows in counters.items()}
    samples = np.array([[full[key][sample] for key in keys] for sample in range(len(machine))], COUNTERS)
    rows = np.zeros(len(machine), MACHINE)
    for place, values in enumerate(machine):
        for name, value in values.items():
            rows[name][place] = value
    return Series(keys, samples, rows)


TWO_SAMPLES = [{"at": 100.0}, {"at": 100.5}]


def test_each_sample_of_each_queue_is_a_row() -> None:
    taken = series(
        {
            (0, 1000, 1): [(10, 1, 0, 0, 0), (5_000_000_000, 7, 2, 300, 4, 6)],
            (0, 1000, 3): [(20, 2, 0, 0, 0), (21, 3, 0, 0, 0)],
            (1, 10, 1): [(30, 3, 0, 0, 0), (31, 4, 1, 50, 1)],
        },
        TWO_SAMPLES,
    )
    frame = ports_frame(taken, {(0, 1000): LEAF, (1, 10): HOST}, LANES, origin=90.0)
    names = ["at_s", "port", "lane", "sent_bytes", "sent_packets", "drops_packets", "backlog_bytes", "marked_packets"]
    assert frame[names].to_numpy().tolist() == [
        [10.0, "z0l00:1", "hfreduce", 10, 1, 0, 0, 0],
        [10.0, "z0l00:1", "storage", 20, 2, 0, 0, 0],
        [10.0, "z0h000:0", "hfreduce", 30, 3, 0, 0, 0],
        [10.5, "z0l00:1", "hfreduce", 5_000_000_000, 7, 4, 300, 6],
        [10.5, "z0l00:1", "storage", 21, 3, 0, 0, 0],
        [10.5, "z0h000:0", "hfreduce", 31, 4, 1, 50, 0],
    ]
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == TABLES["ports"].dtypes


def test_queues_of_interfaces_that_are_no_ports_are_left_out() -> None:
    taken = series({(0, 1000, 1): [(1, 1, 0, 0, 0)] * 2, (0, 7, 1): [(9, 9, 9, 9, 9)] * 2}, TWO_SAMPLES)
    frame = ports_frame(taken, {(0, 1000): LEAF}, LANES, origin=0.0)
    assert frame["port"].tolist() == ["z0l00:1"] * 2
    assert frame["sent_bytes"].tolist() == [1, 1]


def test_the_same_interface_number_in_two_namespaces_is_two_ports() -> None:
    taken = series({(0, 10, 1): [(1, 1, 0, 0, 0)] * 2, (1, 10, 1): [(2, 2, 0, 0, 0)] * 2}, TWO_SAMPLES)
    frame = ports_frame(taken, {(0, 10): LEAF, (1, 10): HOST}, LANES, origin=0.0)
    assert frame.groupby("port", observed=True)["sent_bytes"].first().to_dict() == {"z0h000:0": 2, "z0l00:1": 1}


def test_the_machine_is_told_as_fractions_since_the_last_sample() -> None:
    taken = series(
        {},
        [
            {"at": 100.0, "cpu_busy": 50.0, "switch_cpu": 5.0, "lateness": 0.3, "softnet_drops": 2},
            {"at": 100.5, "cpu_busy": 50.4, "switch_cpu": 5.25, "lateness": 0.001, "softnet_drops": 2},
            {"at": 102.5, "cpu_busy": 50.6, "switch_cpu": 5.35, "lateness": 0.002, "softnet_drops": 9},
        ],
    )
    frame = machine_frame(replace(taken, core_numbers=(2, 3, 5, 7)), origin=100.0)
    assert list(frame.columns) == list(TABLES["machine"].columns)
    assert frame["at_s"].tolist() == [0.5, 2.5]
    assert frame["cpu_busy_fraction"].tolist() == pytest.approx([0.8 / 4, 0.1 / 4])
    assert frame["switch_cpu_fraction"].tolist() == pytest.approx([0.5, 0.05])
    assert frame["lateness_s"].tolist() == [0.001, 0.002]
    assert frame["softnet_drops"].tolist() == [2, 9]


def test_each_core_is_format_apart() -> None:
    readings = np.zeros((3, 2), CORES)
    readings["busy"] = [[10, 20], [10.25, 20], [10.75, 20.1]]
    readings["switch"] = [[1, 0], [1.2, 0], [1.2, 0.05]]
    taken = replace(series({}, TWO_SAMPLES), core_numbers=(0, 3), cores_at=np.array([5.0, 5.25, 5.75]), cores=readings)
    frame = cores_frame(taken, origin=5.0)
    assert list(frame.columns) == list(TABLES["cores"].columns)
    assert frame["at_s"].tolist() == [0.25, 0.25, 0.75, 0.75]
    assert frame["core"].tolist() == [0, 3, 0, 3]
    assert frame["busy_fraction"].tolist() == pytest.approx([1.0, 0, 1.0, 0.2])
    assert frame["switch_fraction"].tolist() == pytest.approx([0.8, 0, 0, 0.1])


def test_switches_that_stand_still_are_told_from_what_waits_and_what_ports_were_handed() -> None:
    """One packet of the ten that wait is dropped at a switch's port; a host's own port says nothing of switches."""
    waiting = enumerate([0, 10, 10, 9, 0])
    machine = [{"at": 100 + place / 20, "input_queue": packets * 9024} for place, packets in waiting]
    of_switch: list[tuple[int, ...]] = [
        (0, 5, 0, 0, 0),
        (0, 7, 1, 0, 0),
        (0, 8, 0, 0, 0),
        (0, 8, 0, 0, 1),
        (0, 17, 0, 0, 1),
    ]
    of_host: list[tuple[int, ...]] = [(0, 100 * place, 0, 0, 0) for place in range(5)]
    taken = series({(0, 1000, 1): of_switch, (1, 10, 1): of_host}, machine)
    assert machine_frame(taken, 100.0, frame_bytes=4214)["input_wait_s"].tolist() == pytest.approx([0.1, 0.05, 0, 0])
    assert machine_frame(taken, 100.0)["input_wait_s"].tolist() == [0, 0, 0, 0]
    in_kernel = [row | {"softnet_backlog": row["input_queue"] // 9024, "input_queue": 0} for row in machine]
    taken = series({(0, 1000, 1): of_switch, (1, 10, 1): of_host}, in_kernel)
    waits = machine_frame(taken, 100.0, 4214, Datapath.KERNEL)["input_wait_s"]
    assert waits.tolist() == pytest.approx([0.1, 0.05, 0, 0])


def test_one_sample_says_nothing_of_the_machine() -> None:
    taken = series({}, [{"at": 1.0}])
    assert machine_frame(taken, origin=0.0).empty
    assert cores_frame(taken, origin=0.0).empty
