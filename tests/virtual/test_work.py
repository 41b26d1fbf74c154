"""Graphs of work in virtual time: steps take what their closed forms say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.guest_scripts import run_module
from tests.virtual.work import (
    BACKWARD_S,
    BUCKET_BYTES,
    FILE_BYTES,
    FORWARD_S,
    HALF_S,
    MESSAGE_BYTES,
    MICRO_BATCHES,
    STAGES,
)

pytestmark = [pytest.mark.guest, pytest.mark.timeout(2400)]
NIC_BPS = 200e9
HEADERS = 1.06
"""Frames' headers and acknowledgements beside the data, and how long a packet travels."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What work.seen() saw."""
    report = tmp_path_factory.mktemp("work") / "report.json"
    run_module("tests.virtual.work", str(report), keep=[report.parent])
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_a_message_takes_its_bytes_over_the_rate_of_a_nic(seen: dict[str, Any]) -> None:
    wire_s = MESSAGE_BYTES * 8 / NIC_BPS
    assert all(wire_s < took < wire_s * HEADERS for took in seen["message"]["steps"]), wire_s


def test_a_step_in_which_communication_overlaps_is_shorter_by_what_it_hides(seen: dict[str, Any]) -> None:
    bucket_s = 2 * 3 / 4 * BUCKET_BYTES * 8 / NIC_BPS
    for took in seen["overlapped"]["steps"]:
        assert 2 * HALF_S + bucket_s < took < 2 * HALF_S + bucket_s * HEADERS
    for took in seen["serial"]["steps"]:
        assert 2 * HALF_S + 2 * bucket_s < took < 2 * HALF_S + 2 * bucket_s * HEADERS


def test_the_bubble_of_a_pipeline_is_that_of_its_closed_form(seen: dict[str, Any]) -> None:
    whole_s = (MICRO_BATCHES + STAGES - 1) * (FORWARD_S + BACKWARD_S)
    for took in seen["pipeline"]["steps"]:
        assert took == pytest.approx(whole_s, rel=1e-4)


def test_a_file_takes_its_bytes_over_the_rate_of_a_nic(seen: dict[str, Any]) -> None:
    wire_s = FILE_BYTES * 8 / NIC_BPS
    print(f"steps: {seen['files']['steps']}, at line rate {wire_s}")
    assert all(wire_s < took < wire_s * 1.2 for took in seen["files"]["steps"])
