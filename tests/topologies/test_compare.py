"""Two topologies side by side, against the paper's Table III."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from fabric.errors import ConfigError
from topologies.compare import PAPER_PRICES, priced, priced_of, render
from topologies.load import read_topology


@pytest.mark.parametrize("name", PAPER_PRICES)
def test_prices_by_keys_are_the_papers_within_five_percent(name: str) -> None:
    found = priced(name)
    network, servers = PAPER_PRICES[name]
    assert found.network_price == pytest.approx(network, rel=0.05)
    nodes = 1250  # The paper's count; Fire-Flyer 2 is built with 1,200 here.
    assert found.server_price is not None
    assert found.server_price * nodes / found.summary.compute == pytest.approx(servers, rel=0.001)


def test_the_paper_saves_forty_percent_of_the_network() -> None:
    ours, theirs = priced("fire_flyer_2"), priced("three_layer_1600")
    assert (ours.summary.switches, theirs.summary.switches) == (122, 200)
    assert ours.network_price is not None
    assert theirs.network_price is not None
    assert 1 - ours.network_price / theirs.network_price == pytest.approx(0.4, abs=0.03)


def test_a_topology_without_prices_has_none() -> None:
    found = priced("next_generation_32768_small")
    assert (found.network_price, found.server_price, found.total_price) == (None, None, None)


def test_a_part_costs_its_share_of_the_whole() -> None:
    part, whole = priced("dgx_a100_nodes"), priced("dgx_a100_10000")
    assert part.price_per_node == whole.price_per_node == pytest.approx(23_000 / 1250, rel=0.001)
    assert part.server_price == pytest.approx(4 * 15.2)
    assert priced("fire_flyer_2_nodes").price_per_node == pytest.approx(9 + 122 * 3 / 1200)


@pytest.mark.parametrize(
    ("prices", "says"),
    [
        (
            {"as_in": "dgx_a100_nodes"},
            "prices.as_in: dgx_a100_nodes has no prices of its own; name a topology that has",
        ),
        ({"as_in": "dgx_a100_1000"}, "no such topology file or builtin; did you mean 'dgx_a100_10000'"),
        ({"as_in": "dgx_a100_10000", "node": 3.0}, "prices: as in 'dgx_a100_10000', and of its own; leave either out"),
    ],
)
def test_a_price_has_one_source(prices: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        priced_of({**read_topology("dgx_a100_nodes"), "prices": prices}, "test")


@pytest.fixture
def storage_only(tmp_path: Path) -> str:
    """Return a file of a topology that has prices and no compute nodes."""
    path = tmp_path / "storage_only.yaml"
    data = {**read_topology("storage_zone_small"), "compute": 0, "prices": {"switch": 3.0, "node": 2.0}}
    path.write_text(yaml.safe_dump(data))
    return str(path)


def test_a_topology_without_compute_nodes_has_no_price_per_node(storage_only: str) -> None:
    found = priced(storage_only)
    assert found.total_price == 3.0 * found.summary.switches
    assert found.price_per_node is None


def test_prices_cannot_be_those_of_a_topology_without_compute_nodes(storage_only: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("storage_only.yaml has no compute nodes, which cost the same")):
        priced_of({**read_topology("dgx_a100_nodes"), "prices": {"as_in": storage_only}}, "test")


def test_a_bisection_that_is_not_known_stands_beside_one_that_is() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(render(priced("fire_flyer_2"), priced("dgx_a100_10000")))
    (line,) = [line for line in out.getvalue().splitlines() if "bisection" in line]
    assert "160 Tbit/s" in line
    assert line.count(" - ") == 2


def test_both_stand_in_a_table_of_80_columns() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(render(priced("fire_flyer_2"), priced("dgx_superpod_140")))
    for part in ("fire_flyer_2", "dgx_superpod_140", "164", "1.34", "350"):
        assert part in out.getvalue()
