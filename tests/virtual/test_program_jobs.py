"""Users' programs as jobs of an experiment, in a guest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.program_jobs import played, steered, verify

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run shows whose queues mark and whose hosts have RDMA; a third pair of programs chooses DCQCN."""
    directory = tmp_path_factory.mktemp("programs")
    marking = {"kmin": 25_000, "kmax": 100_000, "pmax": 0.1}
    return played(directory, "virtual", steered(directory), verbs=True, **{"queues.marking": marking})


def test_programs_come_and_go_and_use_their_lanes(seen: dict[str, Any]) -> None:
    rows = [row for row in seen["rows"] if row[0] != "steered"]
    verify({**seen, "rows": rows}, slack_s=0.01, said="done /sys/class/infiniband/mlx5_0")


def test_programs_that_choose_dcqcn_once_connected_have_it_and_hear_of_marks(seen: dict[str, Any]) -> None:
    assert seen["dcqcn"]["marking"]["kmin"] == 25_000
    assert seen["dcqcn"]["counted"]["flows"] == 2 * 2, "two ends, alone and together"
    assert seen["dcqcn"]["counted"]["flows_without_ecn"] == 0
