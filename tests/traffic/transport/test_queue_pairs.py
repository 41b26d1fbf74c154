"""Ports, labels and timeouts of queue pairs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from traffic.transport.queue_pairs import MOST_LABELS, QueuePairConfig, udp_source_port


@pytest.mark.parametrize(
    ("label", "own", "peer", "port"),
    [
        (0, 17, 18, 0xC000 | 306),
        (0, 18, 17, 0xC000 | 306),
        (0, 0x11A, 0xABC, 0xD337),
        (0, 0x123456, 0xFEDCBA, 0xD78E),
        (1, 17, 18, 0xC001),
        (MOST_LABELS, 17, 18, 0xFFFF),
        (0x4000, 17, 18, 0xC001),
    ],
)
def test_source_ports_are_those_of_linux(label: int, own: int, peer: int, port: int) -> None:
    """``rdma_get_udp_sport`` of include/rdma/ib_verbs.h, worked out by hand; both directions have the same."""
    assert udp_source_port(label, own, peer) == port


@pytest.mark.parametrize(
    ("asked", "exponent"), [("4.096 us", 1), ("8.192 us", 1), ("9 us", 2), ("67 ms", 14), ("1 ms", 8), ("8800 s", 31)]
)
def test_timeouts_are_rounded_up_to_what_verbs_have(asked: str, exponent: int) -> None:
    assert QueuePairConfig.model_validate({"ack_timeout": asked}).timeout_exponent == exponent


def test_labels_are_drawn_by_who_meets_and_are_few_if_asked_for() -> None:
    config = QueuePairConfig(flow_labels=4)
    drawn = [config.flow_label(f"10.0.0.1:{port} to 10.0.0.2:80") for port in range(200)]
    assert {*drawn} == {1, 2, 3, 4}
    assert drawn == [config.flow_label(f"10.0.0.1:{port} to 10.0.0.2:80") for port in range(200)]
    assert QueuePairConfig().flow_label("whoever") == 0


def test_more_labels_than_ports_are_refused() -> None:
    with pytest.raises(ValidationError, match="flow_labels"):
        QueuePairConfig(flow_labels=MOST_LABELS + 1)
