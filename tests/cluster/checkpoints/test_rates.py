"""What nodes can write per second, by closed form."""

from __future__ import annotations

import pytest

from cluster.checkpoints.rates import GIB, Setup, storage_nics_for, whole_bound, write_bound, writers_for

NIC = 25e9


def test_the_writers_nic_or_the_nics_of_storage_bind() -> None:
    for writers, nics, replicas, share, by in (
        (4, 4, 1, 1.0, "the writer's NIC"),
        (4, 8, 2, 1.0, "the writer's NIC"),
        (4, 4, 2, 0.5, "NICs of storage, which take in each byte 2 times"),
        (4, 4, 3, 1 / 3, "NICs of storage, which take in each byte 3 times"),
        (12, 4, 1, 1 / 3, "NICs of storage, which take in each byte"),
    ):
        found = write_bound(Setup(writers, nics, replicas, NIC))
        assert found.node_Bps == pytest.approx(share * NIC)
        assert found.by == by
    both = whole_bound(Setup(4, 8, 2, NIC, copy_Bps=NIC))
    assert both.node_Bps == pytest.approx(NIC / 2)
    assert whole_bound(Setup(4, 8, 2, NIC)) == write_bound(Setup(4, 8, 2, NIC))


def test_ten_gib_per_second_take_so_many_nics_of_storage() -> None:
    wanted = 10 * GIB
    for replicas in (1, 2, 3):
        nics = storage_nics_for(100, replicas, NIC, wanted)
        assert nics is not None
        assert write_bound(Setup(100, nics, replicas, NIC)).node_Bps >= wanted
        assert write_bound(Setup(100, nics - 1, replicas, NIC)).node_Bps < wanted
        most = writers_for(360, replicas, NIC, wanted)
        assert write_bound(Setup(most, 360, replicas, NIC)).node_Bps >= wanted
        assert write_bound(Setup(most + 1, 360, replicas, NIC)).node_Bps < wanted
    assert writers_for(360, 2, NIC, wanted) == 419
    assert storage_nics_for(1, 1, NIC, 2 * NIC) is None
    assert writers_for(360, 1, NIC, 2 * NIC) == 0
