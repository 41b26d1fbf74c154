"""What the validation's storage test makes of what clients found, without a fabric."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from app.validation.bench import Bench
from app.validation.load import StorageTest, _Stress
from topologies.load import load_fabric
from traffic.storage.client.verification import Verification

FABRIC = load_fabric("fire_flyer_2_small")


def faults_of(verified: Verification, known: tuple[str, ...] = ()) -> list[str]:
    bench = cast(Bench, SimpleNamespace(fabric=FABRIC, faults=known, late=()))
    result = StorageTest(bench)._result(_Stress(1000, 1000, 0, 0.9, 0.9, verified))
    assert f"{verified.checked} replicas of acknowledged writes read back" in " ".join(result.measured)
    return [str(fault) for fault in result.faults]


def test_a_write_that_is_lost_is_a_fault_whatever_else_is_known() -> None:
    for known in ((), ("a link is dark",)):
        (fault,) = faults_of(Verification(9, ("chunk 3",)), known)
        assert "an acknowledged write was lost: chunk 3" in fault


@pytest.mark.parametrize(("known", "count"), [((), 1), (("a link is dark",), 0)])
def test_a_write_out_of_reach_is_not_called_lost_and_a_known_fault_explains_it(
    known: tuple[str, ...], count: int
) -> None:
    faults = faults_of(Verification(9, (), ("chunk 3",)), known)
    assert len(faults) == count
    assert not any("lost" in fault for fault in faults)


def test_all_in_order_is_no_fault() -> None:
    assert faults_of(Verification(9)) == []
