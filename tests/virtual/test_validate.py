"""``fabric validate`` in virtual time, where a busy machine changes nothing and rates are exact."""

from __future__ import annotations

import json

import pytest

from tests.virtual.command import VirtualCommand

SIZES = ("leaves_per_zone=1", "spines_per_zone=1", "compute=4", "storage=1", "switch_ports=6")
EXITS = ("inter_zone.switches=1", "inter_zone.links_per_zone=1")
pytestmark = pytest.mark.guest
TINY = ["fire_flyer_2_small_200g", *(word for size in (*SIZES, *EXITS) for word in ("--set", size))]


def test_a_fabric_in_order_passes_every_test_at_its_true_rate(command: VirtualCommand) -> None:
    done = command.run("validate", *TINY, "--json")
    print(done.stdout)
    answer = json.loads(done.stdout)
    assert answer["faults"] == []
    assert [test["outcome"] for test in answer["tests"]] == ["passed"] * 6
    links = answer["tests"][2]["figures"]
    assert links["slowest_fraction_of_rate"] == pytest.approx(1, abs=0.012)
    assert links["lost_frames"] == 0
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param("link z0l00-z0s00 rate 0.5", "too slow", marks=pytest.mark.soak),
        ("link z0l00-z0s00 loss 0.01", "loses frames"),
    ],
)
def test_one_fault_is_found_and_nothing_else(command: VirtualCommand, fault: str, kind: str) -> None:
    done = command.run("validate", *TINY, "--quick", "--json", "--fault", fault)
    print(done.stdout)
    (found,) = json.loads(done.stdout)["faults"]
    assert (found["kind"], found["name"]) == (kind, "z0l00:4--z0s00:1")
    assert done.returncode == 1


@pytest.mark.parametrize(
    "settings",
    [
        ("nic_rate=800 Gbit/s", "uplink_rate=800 Gbit/s", "reference_nic_rate=800 Gbit/s"),
        ("queues.lanes.other.limit=48 KiB",),
    ],
    ids=["fast", "small queues"],
)
def test_queues_that_refuse_frames_are_no_fault_of_a_link(command: VirtualCommand, settings: tuple[str, ...]) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    done = command.run("validate", "head_of_line_200g", *words, "--quick", "--json")
    print(done.stdout)
    answer = json.loads(done.stdout)
    assert answer["faults"] == []
    assert answer["tests"][2]["figures"]["lost_frames"] == 0
    assert done.returncode == 0
