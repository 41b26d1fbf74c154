"""Which algorithm and NICs a rank takes, by size, variables and interfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.errors import TrafficError
from fabric.model.lanes import ServiceLevel
from traffic.collectives.collective import Layout
from traffic.collectives.listing import COLLECTIVES
from traffic.torch_backend import own_place as own_place_module
from traffic.torch_backend.choice import Choice, by_size
from traffic.torch_backend.own_place import nics_of, own_options, own_place

FAST = 200 * 10**9


@pytest.mark.parametrize(
    ("collective", "ranks", "size_bytes", "nic_bps", "algorithm"),
    [
        ("allreduce", 64, 1 << 20, FAST, "tree"),
        ("allreduce", 64, 1 << 30, FAST, "ring"),
        ("allreduce", 64, 1 << 20, FAST // 1000, "ring"),
        ("allreduce", 2, 8, FAST, "ring"),
        ("reduce", 64, 1 << 10, FAST, "tree"),
        ("all_gather", 64, 1 << 10, FAST, "ring"),
        ("gather", 8, 1 << 10, FAST, "direct"),
    ],
)
def test_trees_are_for_few_bytes_over_many_ranks(
    collective: str, ranks: int, size_bytes: int, nic_bps: int, algorithm: str
) -> None:
    assert by_size(COLLECTIVES[collective], Layout(ranks), size_bytes, nic_bps) == algorithm


def test_nccls_variables_are_taken() -> None:
    assert Choice.from_environment({}) == Choice()
    chosen = Choice.from_environment({"NCCL_ALGO": "Tree", "NCCL_MIN_NCHANNELS": "4"})
    assert (chosen.algorithm, chosen.channels) == ("tree", 4)


@pytest.mark.parametrize("environment", [{"NCCL_ALGO": "NVLS"}, {"NCCL_MIN_NCHANNELS": "0"}])
def test_what_is_not_known_is_refused_by_name(environment: dict[str, str]) -> None:
    with pytest.raises(TrafficError, match="=".join(*environment.items())):
        Choice.from_environment(environment)


def test_a_gpu_has_the_interface_of_its_number() -> None:
    assert nics_of(["lo", "eth0", "gpu0", "gpu5", "nvl5"], 5) == ["gpu5"]
    assert nics_of(["eth0", "eth10", "eth2", "lo"], 1) == ["eth2", "eth10", "eth0"]
    assert nics_of(["eth0", "lo"], 7) == ["eth0"]
    assert nics_of(["lo"], 0) == []


def test_the_slowest_nic_of_a_rank_is_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_place_module, "_INTERFACES", tmp_path)
    monkeypatch.setattr(own_place_module, "_address_of", {"eth0": "10.0.0.1", "eth1": "10.0.0.2"}.get)
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "lo"), (2, "eth0"), (3, "eth1"), (4, "eth2")])
    for name, speed in (("eth0", "200000"), ("eth1", "100000"), ("eth2", "10")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    assert own_place({"FABRIC_HOST": "a"}).nic_bps == FAST // 2, "eth2 has no address"
    (tmp_path / "eth1" / "speed").write_text("-1\n")
    assert own_place({"FABRIC_HOST": "a"}).nic_bps == FAST
    (tmp_path / "eth0" / "speed").unlink()
    assert own_place({"FABRIC_HOST": "a"}).nic_bps is None


def test_without_a_fabric_a_rank_is_where_its_master_is_reached() -> None:
    assert own_place({"MASTER_ADDR": "127.0.0.1"}).nics == ("127.0.0.1",)


def test_packets_are_in_nccls_lane_unless_another_is_asked_for() -> None:
    assert own_options({}).level is ServiceLevel.NCCL
    assert own_options({"FABRIC_TOS": str(ServiceLevel.STORAGE.tos)}).level.tos == ServiceLevel.STORAGE.tos
