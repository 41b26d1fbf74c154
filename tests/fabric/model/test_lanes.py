"""Service levels and lanes: who waits where, and which configs cannot be."""

from __future__ import annotations

import functools
import operator
from typing import Any

import pytest

from fabric.config import checked
from fabric.errors import ConfigError
from fabric.model.lanes import (
    DATA_LEVELS,
    SERVICE_LEVELS,
    LaneConfig,
    QueueConfig,
    Queueing,
    ServiceLevel,
    level_of_dscp,
    plan_lanes,
)

ALL = ["hfreduce", "nccl", "storage", "other", "control"]


def lane(share: float, *levels: str, **options: Any) -> dict[str, Any]:
    return {"share": share, "service_levels": list(levels), **options}


def faults_of(lanes: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        checked(QueueConfig, {"lanes": lanes}, "queues.yaml")
    return list(refused.value.faults)


@pytest.mark.parametrize(
    ("level", "dscp", "tos"),
    [
        (ServiceLevel.OTHER, 0, 0x00),
        (ServiceLevel.STORAGE, 8, 0x20),  # CS1
        (ServiceLevel.NCCL, 16, 0x40),  # CS2
        (ServiceLevel.HFREDUCE, 24, 0x60),  # CS3, iperf3 -S 0x60
        (ServiceLevel.CONTROL, 48, 0xC0),  # CS6
    ],
)
def test_a_service_level_is_a_class_selector(level: ServiceLevel, dscp: int, tos: int) -> None:
    assert (level.dscp, level.tos) == (dscp, tos)
    assert level_of_dscp(dscp) == level


def test_the_table_above_has_every_service_level() -> None:
    assert len(SERVICE_LEVELS) == 5


@pytest.mark.parametrize("dscp", [1, 7, 25, 32, 40, 46, 63])
def test_a_dscp_that_is_no_service_levels_means_other(dscp: int) -> None:
    assert level_of_dscp(dscp) == ServiceLevel.OTHER


OWN = {"tensor": 10, "pipeline": 12}
OWN_LANES = {
    "training": lane(0.4, "hfreduce", "nccl", "other", "storage"),
    "tensor": lane(0.3, "tensor"),
    "pipeline": lane(0.2, "pipeline"),
    "control": lane(0.1, "control"),
}


def with_own(**changed: Any) -> QueueConfig:
    """Return queues with two service levels of a config's own. Raises ConfigError."""
    return checked(QueueConfig, {"service_levels": OWN, "lanes": OWN_LANES, **changed}, "queues")


def test_service_levels_of_a_config_have_lanes_as_the_built_in_ones_have() -> None:
    config = with_own()
    tensor, pipeline = config.levels[-2:]
    assert [(level.label, level.dscp, level.tos) for level in (tensor, pipeline)] == [
        ("tensor", 10, 40),
        ("pipeline", 12, 48),
    ]
    assert config.data_levels == (*DATA_LEVELS, tensor, pipeline)
    plan = plan_lanes(config, Queueing.LANES)
    names = [plan.lane_of(level).name for level in (tensor, pipeline, ServiceLevel.NCCL)]
    assert names == ["tensor", "pipeline", "training"]
    assert plan.lane_of_label("pipeline").name == "pipeline"
    assert plan_lanes(config, Queueing.SHARED).lane_of(tensor).name == "shared"
    assert level_of_dscp(10, plan.levels) == tensor
    assert level_of_dscp(10) == ServiceLevel.OTHER


@pytest.mark.parametrize(
    ("levels", "fault"),
    [
        ({**OWN, "nccl": 14}, "'nccl' is built in"),
        ({**OWN, "expert": 8}, "expert: DSCP 8 is storage's"),
        ({**OWN, "expert": 12}, "expert: DSCP 12 is pipeline's"),
        ({**OWN, "expert": 56}, "expert: DSCP 56 is management's"),
        ({**OWN, "expert": 64}, "63"),
        ({**OWN, "Expert": 14}, "Expert"),
        ({**OWN, "expert": 14}, "'expert' is mapped to 0 lanes"),
        ({"tensor": 10}, "'pipeline' does not exist"),
    ],
)
def test_a_service_level_that_cannot_be_is_refused(levels: dict[str, int], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        with_own(service_levels=levels)


def test_a_port_has_fifteen_lanes_at_most() -> None:
    lanes = {f"lane{number}": lane(0.01) for number in range(15)}
    with pytest.raises(ConfigError, match="16; a port has 15 at most"):
        with_own(lanes={"all": lane(0.5, *ALL, *OWN), **lanes})


def test_one_shared_queue_takes_every_service_level_and_the_whole_link() -> None:
    plan = plan_lanes(QueueConfig(shared_limit=100_000), Queueing.SHARED)
    (only,) = plan.lanes
    assert (only.name, only.number, only.share, only.ceiling, only.limit_bytes) == ("shared", 1, 1.0, 1.0, 100_000)
    assert all(plan.lane_of(level) is only for level in SERVICE_LEVELS)
    assert not only.is_control


def test_lanes_are_numbered_as_the_config_lists_them() -> None:
    config = QueueConfig(
        lanes={
            "training": LaneConfig(share=0.6, ceiling=0.9, limit=50_000, service_levels=["hfreduce", "nccl"]),
            "rest": LaneConfig(share=0.3, service_levels=["other", "storage"]),
            "acks": LaneConfig(share=0.1, service_levels=["control"]),
        }
    )
    plan = plan_lanes(config, Queueing.LANES)
    assert [(found.number, found.name, found.share, found.ceiling, found.limit_bytes) for found in plan.lanes] == [
        (1, "training", 0.6, 0.9, 50_000),
        (2, "rest", 0.3, 1.0, 256 * 1024),
        (3, "acks", 0.1, 1.0, 256 * 1024),
    ]
    assert plan.lane_of(ServiceLevel.NCCL).name == "training"
    assert plan.lane_of(ServiceLevel.STORAGE).name == "rest"
    assert [found.name for found in plan.lanes if found.is_control] == ["acks"]


def test_a_lane_that_control_shares_with_data_is_not_ahead_of_data() -> None:
    config = QueueConfig(lanes={"all": LaneConfig(share=1, service_levels=ALL)})
    assert not plan_lanes(config, Queueing.LANES).lanes[0].is_control


def test_by_default_each_kind_of_traffic_has_a_lane_and_shares_fill_the_link() -> None:
    plan = plan_lanes(QueueConfig(), Queueing.LANES)
    assert len({plan.lane_of(level).name for level in SERVICE_LEVELS}) == len(SERVICE_LEVELS)
    assert sum(found.share for found in plan.lanes) == pytest.approx(1)
    assert set(DATA_LEVELS) == set(SERVICE_LEVELS) - {ServiceLevel.CONTROL}


def test_a_lane_is_found_by_name() -> None:
    plan = plan_lanes(QueueConfig(), Queueing.LANES)
    assert plan.named("nccl") is plan.lane_of(ServiceLevel.NCCL)
    with pytest.raises(KeyError, match=r"^'nvlink'$"):
        plan.named("nvlink")


@pytest.mark.parametrize(
    ("lanes", "fault"),
    [
        (
            {"a": lane(0.7, "hfreduce", "nccl"), "b": lane(0.4, "storage", "other", "control")},
            "shares add up to 1.100, above 1; lower some",
        ),
        ({"a": lane(0.5, *ALL, ceiling=0.4)}, "a: ceiling 0.4 is below share 0.5; raise it"),
        (
            {"a": lane(0.5, *ALL), "b": lane(0.5, "nccl")},
            "service level 'nccl' is mapped to 2 lanes; map it to exactly one",
        ),
        ({"a": lane(0.5, *ALL, "nccl")}, "service level 'nccl' is mapped to 2 lanes; map it to exactly one"),
        (
            {"a": lane(0.5, "hfreduce", "nccl", "storage", "other")},
            "service level 'control' is mapped to 0 lanes; map it to exactly one",
        ),
        (
            {"a": lane(0.5, *ALL, "gossip")},
            "service level 'gossip' does not exist; use control, hfreduce, nccl, other, storage, or add it to "
            "service_levels with a DSCP",
        ),
    ],
)
def test_lanes_that_cannot_be_are_refused(lanes: dict[str, Any], fault: str) -> None:
    assert faults_of(lanes) == [fault]


def test_all_faults_of_lanes_are_told_at_once() -> None:
    faults = faults_of(
        {"a": lane(0.9, "hfreduce", "nccl", "x", ceiling=0.5), "b": lane(0.9, "nccl", "storage", "other")}
    )
    assert faults == [
        "shares add up to 1.800, above 1; lower some; "
        "a: ceiling 0.5 is below share 0.9; raise it; "
        "service level 'x' does not exist; use control, hfreduce, nccl, other, storage, or add it to service_levels "
        "with a DSCP; "
        "service level 'control' is mapped to 0 lanes; map it to exactly one; "
        "service level 'nccl' is mapped to 2 lanes; map it to exactly one"
    ]


def test_shares_that_add_up_to_one_in_floating_point_are_good() -> None:
    tenths = {f"lane{number}": lane(0.1, *(ALL if number == 0 else [])) for number in range(10)}
    shares = [found.share for found in checked(QueueConfig, {"lanes": tenths}, "test").lanes.values()]
    assert functools.reduce(operator.add, shares) != 1  # From Python 3.12 on, sum() makes up for what is rounded.


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("share", 0, "lanes.a.share: Input should be greater than 0 (got 0)"),
        ("share", 1.5, "lanes.a.share: Input should be less than or equal to 1 (got 1.5)"),
        ("share", float("nan"), "lanes.a.share: Input should be a finite number (got nan)"),
        ("share", "half", "lanes.a.share: Input should be a valid number (got 'half')"),
        ("limit", "0 B", "lanes.a.limit: Input should be greater than 0 (got '0 B')"),
        (
            "limit",
            "256 kb",
            "lanes.a.limit: '256 kb': unknown unit 'kb' of a size; use one of B, KB, MB, GB, KiB, MiB, GiB",
        ),
        ("limits", 1, "lanes.a.limits: unknown key; did you mean 'lanes.a.limit'?"),
    ],
)
def test_a_faulty_value_of_a_lane_is_told_with_its_path(key: str, value: Any, fault: str) -> None:
    assert faults_of({"a": {**lane(0.5, *ALL), key: value}}) == [fault]


def shares_of(**lanes: dict[str, Any]) -> dict[str, float]:
    config: dict[str, dict[str, Any]] = {name: {**values, "service_levels": [name]} for name, values in lanes.items()}
    config["other"] = config.get("other", {"share": 0.05, "service_levels": []})
    named = {level for lane in config.values() for level in lane["service_levels"]}
    rest = [level.label for level in SERVICE_LEVELS if level.label not in named]
    config["other"] = {**config["other"], "service_levels": ["other", *(level for level in rest if level != "other")]}
    plan = plan_lanes(QueueConfig.model_validate({"lanes": config}), Queueing.LANES)
    return plan.promised_shares(4214)


def test_what_shares_leave_of_a_link_goes_to_control_first() -> None:
    assert shares_of(hfreduce={"share": 0.5}, storage={"share": 0.25}, control={"share": 0.05}) == pytest.approx(
        {"hfreduce": 0.5, "storage": 0.25, "control": 0.2, "other": 0.05}
    )


def test_what_control_may_not_have_goes_to_the_others_by_their_shares() -> None:
    found = shares_of(hfreduce={"share": 0.4}, storage={"share": 0.15}, control={"share": 0.1, "ceiling": 0.1})
    assert found == pytest.approx({"hfreduce": 0.6, "storage": 0.225, "control": 0.1, "other": 0.075})


def test_what_one_lane_may_not_have_goes_to_the_rest() -> None:
    found = shares_of(hfreduce={"share": 0.4, "ceiling": 0.5}, storage={"share": 0.15}, nccl={"share": 0.1})
    assert found == pytest.approx({"hfreduce": 0.5, "storage": 0.25, "nccl": 0.5 / 3, "other": 0.25 / 3})
