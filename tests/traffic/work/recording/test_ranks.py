"""Which rank each process of a recording belongs to."""

from __future__ import annotations

import pytest

from fabric.errors import TrafficError
from tests.traffic.work.recording.recorded import Made, told
from traffic.work.recording.ranks import ranks_of


def ranks(*processes: Made, hosts: tuple[str, ...] = ("h0", "h1")) -> tuple[list[int], list[str]]:
    return ranks_of([one.records() for one in processes], hosts)


def test_fabric_exec_tells_ranks_and_a_server_in_the_background_comes_last() -> None:
    assert ranks(told(0), told(1), Made(3)) == ([0, 1, 2], ["h0", "h1", "h3"])
    assert ranks(told(0), told(1), Made(1)) == ([0, 1, 1], ["h0", "h1"])


def test_a_rank_that_sent_nothing_has_a_place() -> None:
    assert ranks(told(0), told(2), hosts=("h0", "h1", "h2")) == ([0, 2], ["h0", "h1", "h2"])


def test_a_launcher_counts_more_than_what_its_daemons_have_inherited() -> None:
    """mpirun and its daemon have RANK and FABRIC_HOST of the host on which mpirun was started."""
    inherited = {"FABRIC_HOST": "h0", "RANK": "0"}
    mpirun, daemon = Made(0, inherited), Made(1, inherited)
    jobs = [Made(host, inherited | {"OMPI_COMM_WORLD_RANK": str(rank)}) for rank, host in enumerate((1, 1, 0))]
    assert ranks(mpirun, daemon, *jobs) == ([2, 0, 0, 1, 2], ["h1", "h1", "h0"])


def test_torchruns_agents_belong_to_the_first_rank_of_their_host() -> None:
    agents = [told(0), told(1)]
    workers = [Made(host, {"RANK": str(rank), "GROUP_RANK": str(host)}) for rank, host in enumerate((0, 0, 1, 1))]
    assert ranks(*agents, *workers) == ([0, 2, 0, 1, 2, 3], ["h0", "h0", "h1", "h1"])


@pytest.mark.parametrize("rank", ["-1", "x", "100000"])
def test_what_is_no_rank_is_refused(rank: str) -> None:
    with pytest.raises(TrafficError, match=rf"job \(process 100 on h0\): PMI_RANK='{rank}' is not a rank; .* 0 to 99,"):
        ranks(Made(0, {"PMI_RANK": rank}))
