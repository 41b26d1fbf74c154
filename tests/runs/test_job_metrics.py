"""What ports sent, marked and held, from made-up samples."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from fabric.model.identity import Role
from fabric.model.network import Port
from fabric.tables import TABLES
from runs.job_metrics import marked_packets, sent_over_time, unevenness
from tests.rows import table_of
from topologies.load import load_fabric

FABRIC = load_fabric("fat_tree_k4")


def ports_of(*rows: tuple[float, str, str, int, int]) -> pd.DataFrame:
    """Rows of at_s, port, lane, sent_bytes, marked_packets."""
    full = [(at, port, lane, sent, 0, 0, 0, marked) for at, port, lane, sent, marked in rows]
    return table_of("ports", full).astype(TABLES["ports"].dtypes)


def test_the_unevenness_is_of_the_leaf_whose_busiest_uplink_stands_out_most() -> None:
    first, second = (FABRIC.uplinks_of(leaf) for leaf in FABRIC.with_role(Role.LEAF)[:2])
    sent = {first[0]: 300, first[1]: 100, second[0]: 50, second[1]: 50}
    rows = [(at, str(port), "shared", at * size, 0) for port, size in sent.items() for at in (0, 1)]
    assert unevenness(FABRIC, ports_of(*rows), (0.0, 1.0)) == pytest.approx(300 / 200)
    assert math.isnan(unevenness(FABRIC, ports_of(), (0.0, 1.0)))


def test_marks_are_those_between_samples_of_all_ports_and_lanes() -> None:
    rows = ports_of(*((at, "a:1", lane, 0, 10 * at) for at in (0, 1, 2) for lane in ("storage", "other")))
    assert marked_packets(rows, (0.5, 2.0)) == 2 * 10


def test_what_a_port_sent_is_of_all_its_lanes_sample_by_sample() -> None:
    port = Port(FABRIC.computes[0], 0)
    rows = [(at, str(port), lane, 100 * at, 0) for at in (0, 1, 2) for lane in ("storage", "other")]
    found = sent_over_time(ports_of(*rows, (1, "a:1", "other", 7, 0)), port, (1.0, 2.0))
    assert found.to_dict() == {1.0: 200, 2.0: 400}
