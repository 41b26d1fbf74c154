"""Two topologies side by side, against the paper's Table III."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from topologies.compare import PAPER_PRICES, priced, render


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


def test_both_stand_in_a_table_of_80_columns() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(render(priced("fire_flyer_2"), priced("dgx_superpod_140")))
    for part in ("fire_flyer_2", "dgx_superpod_140", "164", "1.34", "350"):
        assert part in out.getvalue()
