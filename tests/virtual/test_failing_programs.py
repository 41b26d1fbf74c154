"""Silent hosts, programs and disks that fail on purpose, in virtual time, where programs share processes unless they
fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fabric.model.lanes import Queueing
from tests.guest_scripts import run_module, standing
from tests.root import seen_failures
from tests.virtual.command import TINY

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]

SCRIPT = "tests.root.failing_programs"


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What failing_programs.failures() saw."""
    report = tmp_path_factory.mktemp("failures") / "report.json"
    stands = standing(TINY, Queueing.LANES)
    run_module(SCRIPT, TINY, str(report), keep=[report.parent], groundwork=stands)
    found: dict[str, Any] = json.loads(report.read_text())
    return found


@pytest.mark.parametrize("name", ["silent", "stopped"])
def test_peers_of_a_silent_host_see_neither_fin_nor_rst(seen: dict[str, Any], name: str) -> None:
    seen_failures.peers_hear_nothing(seen, name)


def test_a_host_that_stays_dead_is_missed_once_it_is_up(seen: dict[str, Any]) -> None:
    seen_failures.the_dead_are_missed_once_their_host_is_up(seen)


def test_chains_survive_a_killed_service_and_rot_is_read_elsewhere(seen: dict[str, Any]) -> None:
    seen_failures.chains_survive_a_killed_service(seen)
    seen_failures.rot_is_told_and_read_elsewhere(seen)
    seen_failures.rotten_copies_are_counted(seen)


def test_rows_tell_what_was_done_when_and_the_verdict_what_was_asked_for(seen: dict[str, Any]) -> None:
    seen_failures.rows_tell_it(seen, late_s=1e-3)
