"""What ``fabric topo list`` says of the topologies that come with the project is what building them gives."""

from __future__ import annotations

import pytest

from topologies.listing import Listed, described, listed
from topologies.load import builtin_names, load_fabric

LISTED = {one.name: one for one in listed()}
LARGE = {"next_generation_32768", "dgx_a100_10000"}
"""Building them takes seconds each; their files say their counts."""
MOST_CHARACTERS = 180


def test_all_are_listed() -> None:
    assert list(LISTED) == builtin_names()


@pytest.mark.parametrize("name", [name for name in builtin_names() if name not in LARGE])
def test_sizes_are_those_of_the_fabric(name: str) -> None:
    fabric = load_fabric(name)
    sizes = (len(fabric.hosts), len(fabric.switches), fabric.nic_rate_bps)
    assert LISTED[name] == Listed(name, *sizes, described(name))


def test_sizes_of_large_ones_are_those_of_their_sources() -> None:
    assert (LISTED["next_generation_32768"].hosts, LISTED["next_generation_32768"].switches) == (32_768 // 8, 768)
    assert (LISTED["dgx_a100_10000"].hosts, LISTED["dgx_a100_10000"].switches) == (10_000 // 8, 1320)


@pytest.mark.parametrize("name", builtin_names())
def test_every_file_begins_with_a_sentence_that_says_what_it_is(name: str) -> None:
    words = described(name)
    assert 20 < len(words) < MOST_CHARACTERS
    assert words[-1] in ".?"
    assert "#" not in words
