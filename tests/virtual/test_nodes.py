"""Nodes with an inside: packets reach each limit alone to its closed form, and allreduces over GPUs are right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.guest_scripts import run_module

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
HEADERS = 0.035
"""Of frames, headers and acknowledgements beside the data, at most."""


LIMITS = ("PCIe", "peer to peer")
"""What is halved: of each collective what binds it; the others of MOVES are halved in soaks."""


def seen_with(directory: Path, limits: Sequence[str]) -> dict[str, Any]:
    """Return what nodes.seen() saw."""
    report = directory / "report.json"
    run_module("tests.virtual.nodes", str(report), *limits, keep=[directory])
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return seen_with(tmp_path_factory.mktemp("nodes"), LIMITS)


@pytest.fixture(scope="module")
def seen_in_soaks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return seen_with(tmp_path_factory.mktemp("nodes"), [limit for limit in MOVES if limit not in LIMITS])


@pytest.fixture
def seen_of(limit: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What was seen with half of a limit, and before."""
    found: dict[str, Any] = request.getfixturevalue("seen" if limit in LIMITS else "seen_in_soaks")
    return found


def test_each_limit_alone_is_as_its_closed_form_says(seen: dict[str, Any]) -> None:
    for row in seen["limits"]:
        print(f"{row['name']}: {row['measured']:.3f} of {row['closed_form']:.3f} GB/s")
    assert len(seen["limits"]) == 10
    for row in seen["limits"]:
        assert row["measured"] == pytest.approx(row["closed_form"], rel=0.003), row["name"]


MOVES = {
    "PCIe": {"a GPU to its CPU (D2H)", "a CPU to a GPU (H2D)", "g5, g6 to the CPU", "all GPUs to the CPU"},
    "memory": {"all GPUs to the CPU", "the CPU's memory operations"},
    "root port": {"g5, g6 to the CPU", "g5, g6 to the CPU and back", "all GPUs to the CPU"},
    "peer to peer": {"all GPUs of a NIC to the network", "the network to all GPUs of a NIC"},
    "NVLink": {"a GPU to its peer over NVLink"},
}
"""What half of a limit moves; all else stays."""


def of_limit(limit: str, *values: object) -> Any:
    return pytest.param(limit, *values, marks=[] if limit in LIMITS else [pytest.mark.soak], id=limit)


@pytest.mark.parametrize("limit", [of_limit(limit) for limit in MOVES])
def test_half_a_limit_moves_what_it_must_on_packets_and_no_other(seen_of: dict[str, Any], limit: str) -> None:
    before = {row["name"]: row["measured"] for row in seen_of["limits"]}
    after = {row["name"]: row["measured"] for row in seen_of["halved"][limit]["limits"]}
    assert {name for name in before if after[name] != pytest.approx(before[name], rel=0.005)} == MOVES[limit]
    for row in seen_of["halved"][limit]["limits"]:
        assert row["measured"] == pytest.approx(row["closed_form"], rel=0.003), row["name"]


@pytest.mark.parametrize(
    ("limit", "hfreduce", "nccl"),
    [
        of_limit("PCIe", (0.5, 0.85), (0.85, 0.97)),
        of_limit("memory", (0.5, 0.85), (0.99, 1.01)),
        of_limit("root port", (0.5, 0.85), (0.99, 1.01)),
        of_limit("peer to peer", (0.88, 1.12), (0.48, 0.52)),
        of_limit("NVLink", (0.88, 1.12), (0.99, 1.01)),
    ],
)
def test_half_a_limit_moves_the_allreduce_that_uses_it(
    seen_of: dict[str, Any], limit: str, hfreduce: tuple[float, float], nccl: tuple[float, float]
) -> None:
    """HFReduce, here with pairs over NVLink, copies by PCIe, shares a root port and adds in memory, so that each slows
    it, and over two nodes none alone halves it. NCCL's GPUs send to the NIC, so the peer-to-peer limit halves it.

    A limit that does not bind it moves a step of 128 chunks, too: other frames go first. Of the two, by 6 % at most.
    """
    after = seen_of["halved"][limit]
    for name, (least, most) in (("hfreduce", hfreduce), ("nccl", nccl)):
        assert least < after[name]["algbw_Bps"] / seen_of[name]["algbw_Bps"] < most, name
        assert (after[name]["unaccounted"], after[name]["dropped"]) == ({}, {}), name


def test_hfreduce_over_gpus_sends_what_its_algorithm_says(seen: dict[str, Any]) -> None:
    """With NVLink each GPU of a pair gives the CPU half and gets half back, and sends its peer a half twice."""
    sent = seen["hfreduce"]["sent"]
    print(seen["hfreduce"])
    expected = {f"z0h000.g{gpu}:0": 0.5 for gpu in range(8)} | {f"z0h000:{17 + gpu}": 0.5 for gpu in range(8)}
    expected |= {f"z0h000.g{gpu}:1": 1.0 for gpu in range(8)} | {"z0h000:0": 1.0}
    for port, multiple in expected.items():
        assert multiple <= sent[port] <= multiple * (1 + HEADERS) + 0.02, port


def test_gradients_of_a_training_step_are_added_up_as_hfreduce_does(seen: dict[str, Any]) -> None:
    """Each rank checks every element of each sum. What ranks of a node tell each other besides is without data."""
    found = seen["training"]
    print(found)
    assert len(found["buckets"]) >= 2
    expected = {f"z0h000.g{gpu}:0": 0.5 for gpu in range(8)} | {f"z0h000:{17 + gpu}": 0.5 for gpu in range(8)}
    expected |= {f"z0h000.g{gpu}:1": 1.0 for gpu in range(8)} | {"z0h000:0": 1.0}
    for port, multiple in expected.items():
        assert multiple <= found["sent"][port] <= multiple * (1 + HEADERS) + 0.02, port
    alone_s = sum(found["buckets"]) / seen["hfreduce"]["algbw_Bps"]
    assert found["computed_s"] < found["step_s"] < found["computed_s"] + alone_s, "a part of it is hidden"


def test_an_nccl_ring_over_gpus_stays_below_the_peer_to_peer_limit(seen: dict[str, Any]) -> None:
    found = seen["nccl"]
    print(found)
    ranks = 4
    limit_Bps = 9 * 2**30 * ranks / (2 * (ranks - 1))  # noqa: N806 - bytes
    assert 0.3 * limit_Bps < found["algbw_Bps"] < limit_Bps


def test_a_guest_takes_up_as_many_frames_at_once_as_many_nodes_send(seen: dict[str, Any]) -> None:
    """The kernel's own limit, 1,000, dropped frames of 16 nodes, whose connections' timers are due in one moment."""
    assert seen["most_arriving"] >= 1_000_000


@pytest.mark.parametrize("name", ["hfreduce", "nccl", "training"])
def test_no_packet_is_lost_or_unaccounted_for_inside_nodes(seen: dict[str, Any], name: str) -> None:
    found = seen[name]
    assert (found["unaccounted"], found["dropped"], found["retransmissions"]) == ({}, {}, 0)
