"""A NIC that pauses its switch, in a small case: what it takes, for how long, and what a watchdog cures."""

from __future__ import annotations

import json

import pytest

from tests.virtual.command import VirtualCommand

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]
SETTINGS = ("pauses=[off, 0.3 ms, ever]", "watchdogs=[off, 0.1 ms]", "warm_up=0.3 ms", "measured=0.7 ms")


@pytest.fixture(scope="module")
def found(shared_command: VirtualCommand) -> dict[str, dict[str, float]]:
    summary = shared_command.play("pfc_storm", SETTINGS) / "summary.json"
    metrics: dict[str, float] = json.loads(summary.read_text())["metrics"]
    found: dict[str, dict[str, float]] = {}
    for path, value in metrics.items():
        phase, _, name = path.partition(".")
        found.setdefault(phase, {})[name] = value
    return found


def test_a_nic_that_pauses_for_ever_takes_more_than_its_own_streams(found: dict[str, dict[str, float]]) -> None:
    still, watched = found["pause_3600_watchdog_off"], found["pause_3600_watchdog_0p0001"]
    assert still["taken_fraction"] > 4 / 32, "two streams go to it, and two come from it"
    assert watched["taken_fraction"] == pytest.approx(4 / 32)
    assert (still["drops_packets"], watched["drops_packets"] > 0) == (0, True)


def test_a_watchdog_gives_others_back_what_the_pause_took(found: dict[str, dict[str, float]]) -> None:
    none, still, watched = (found[f"pause_{name}"]["others_bps"] for name in NAMES)
    assert still < 0.9 * none
    assert watched > still


def test_a_pause_takes_others_for_as_long_as_it_lasts(found: dict[str, dict[str, float]]) -> None:
    none, still, a_while = (found[f"pause_{name}_watchdog_off"]["others_bps"] for name in ("off", "3600", "0p0003"))
    assert still < a_while < none
    assert found["pause_0p0003_watchdog_off"]["drops_packets"] == 0


NAMES = ("off_watchdog_off", "3600_watchdog_off", "3600_watchdog_0p0001")
