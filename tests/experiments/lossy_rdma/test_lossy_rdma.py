"""Who writes, how queue pairs recover and what fails in each case, and what theory says."""

from __future__ import annotations

import math

import pytest

from experiments.lossy_rdma.cases import IntoOne, OverLoss, over_loss
from experiments.lossy_rdma.config import LossyRdmaConfig, Way
from fabric.errors import ConfigError
from fabric.failures.schedule import LinkState
from fabric.model.lanes import Queueing
from runs.registry import resolve
from topologies.load import load_fabric
from traffic.transport.queue_pairs import Recovery

FABRIC = load_fabric("fat_tree_k4")


def config(*overrides: str) -> LossyRdmaConfig:
    found = resolve("lossy_rdma", list(overrides)).config
    assert isinstance(found, LossyRdmaConfig)
    return found


def test_ways_are_queues_and_recoveries() -> None:
    assert [(way.queueing, way.recovery) for way in Way] == [
        (Queueing.SHARED, Recovery.GO_BACK_N),
        (Queueing.SHARED, Recovery.SELECTIVE_REPEAT),
        (Queueing.LOSSLESS, Recovery.GO_BACK_N),
    ]
    assert config().queue_pairs_of(Way.SELECTIVE_REPEAT).recovery is Recovery.SELECTIVE_REPEAT
    assert config().timeout_s == pytest.approx(1.048576e-3)


def test_only_the_receivers_link_loses_and_for_as_long_as_all_takes() -> None:
    failing = OverLoss(0.25, Way.PFC).failing(FABRIC)
    assert failing is not None
    (event,) = failing.events
    assert (event.at_s, event.state) == (0.0, LinkState(loss_fraction=0.25))
    assert event.target == FABRIC.link_at[FABRIC.nics_of[FABRIC.computes[-1]][0].port]
    assert IntoOne(4, Way.PFC).failing(FABRIC) is None
    assert [one.sink for one in IntoOne(4, Way.PFC).messages(FABRIC, config())] == [FABRIC.computes[-1]] * 4


def test_what_a_loss_costs_is_a_round_trip_or_a_frame_and_now_and_then_a_timeout() -> None:
    """Over 100,000 frames, counted one by one: at one loss in a hundred ten of those that are sent again are lost."""
    played, frame_s, trip_s, frames = config(), 1e-6, 20e-6, 100_000
    back = frames * frame_s + 1000 * trip_s + 2 * 10 * played.timeout_s
    repeat = frames * frame_s + 1000 * frame_s + 10 * played.timeout_s
    for way, took_s in ((Way.GO_BACK_N, back), (Way.PFC, back), (Way.SELECTIVE_REPEAT, repeat)):
        assert over_loss(played, way, 0.01, frame_s, trip_s) == pytest.approx(frames * frame_s / took_s)
    assert math.isclose(over_loss(played, Way.PFC, 0.0, frame_s, trip_s), 1.0)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["transport.kind=tcp"], "transport.kind: tcp has no queue pairs; use verbs"),
        (["queues.flow_control=credit"], "queues.flow_control: credit pauses nobody; use pfc, or change ways"),
        (["losses=[]", "senders=[]"], "losses: none, and no senders"),
        (["senders=[16]"], "senders: 16, and 15 hosts beside the receiver"),
        (["losses=[0.5]"], "losses"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        config(*overrides)
    assert any(said in fault for fault in failed.value.faults), failed.value.faults
