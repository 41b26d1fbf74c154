"""Real cuts, rates and losses on a fabric under traffic: what they do, what they cost, and that all comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_time import Seen, in_real_time
from tests.worlds import SMALL, Command

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("failing_links.py")
LINKS = {"host": 1, "uplink": 1, "switch": 4, "storage": 2}
CUT_S = 0.2


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> Seen:
    """What failing_links.failures() saw."""
    return Seen(lambda: shared_command.play(SMALL, script=SCRIPT))


@pytest.mark.parametrize("target", LINKS)
@in_real_time
def test_a_target_is_cut_for_its_time_and_traffic_comes_back(seen: Seen, target: str) -> None:
    """The injector has read at both ends of each link that carrier had gone, and had come back, or it would have
    failed. Allreduce steps begin and end after it, and so do storage operations, none of which failed."""
    found = seen["cuts"][target]
    print(found)
    assert found["links"] == LINKS[target]
    assert found["changes"] == 2 * LINKS[target]
    assert found["down_s"] == pytest.approx(CUT_S, abs=0.1)
    assert found["after"] >= 1
    assert sum(found["lost_in_cuts"].values()) < 0.2 * found["sent_packets"]
    assert {"read", "write"} <= set(found["operations"]) <= {"read", "write", "retries"}


@pytest.mark.parametrize("target", ["host", "uplink", "switch"])
@in_real_time
def test_a_flow_is_dark_as_long_as_its_path_is_cut(seen: Seen, target: str) -> None:
    found = seen["cuts"][target]
    print(found["blackout_s"], found["down_s"])
    # Shorter by what waits behind the cut when it comes, which still arrives; longer on a machine that is late.
    assert 0.8 * found["down_s"] < found["blackout_s"] < found["down_s"] + 2
    assert found["probes"]["lost"] > 50


def test_a_flow_beside_the_cut_is_not_dark(seen: Seen) -> None:
    assert seen["cuts"]["storage"]["probes"]["lost"] == 0


@pytest.mark.parametrize("target", LINKS)
def test_what_cuts_took_is_booked_on_them_and_nothing_is_unaccounted_for(seen: Seen, target: str) -> None:
    found = seen["cuts"][target]
    print(found["lost_in_cuts"], found["refused"])
    assert found["unaccounted"] == {}
    assert found["conservation"] == "faithful"
    assert sum(found["lost_in_cuts"].values()) > 0


def test_frames_into_dead_ports_are_counted_one_by_one(seen: Seen) -> None:
    """Of what switches are missing, all but what waited in queues has been counted; here the probes that were lost."""
    found = seen["cuts"]["uplink"]
    assert found["refused"] >= found["probes"]["lost"]


def test_no_acknowledged_write_is_lost(seen: Seen) -> None:
    assert seen["checked"] > 10
    assert seen["lost"] == []


@in_real_time
def test_half_the_rate_makes_steps_longer(seen: Seen) -> None:
    """Twice as long on an idle machine; a busy one adds the same to both."""
    print(seen["step_s"])
    assert 1.3 < seen["step_s"]["0.5"] / seen["step_s"]["1"] < 2.5


@in_real_time
def test_a_link_loses_the_fraction_that_it_is_told(seen: Seen) -> None:
    found = seen["loss"]
    assert found["lost"] > 100
    assert found["lost_of_flow"] / found["sent"] == pytest.approx(0.2, abs=0.05)


def test_every_frame_lost_at_random_is_counted(seen: Seen) -> None:
    found = seen["loss"]
    print(found)
    assert found["by_loss"] == found["lost"]
    assert found["unaccounted"] == found["lost_in_cuts"] == {}


def test_a_loss_that_begins_under_load_takes_nothing_that_waits(seen: Seen) -> None:
    found = seen["loss under load"]
    print(found)
    assert found["by_loss"] > 0
    assert found["unaccounted"] == found["lost_in_cuts"] == {}


def test_all_is_as_before_once_links_are_whole(seen: Seen) -> None:
    assert seen["changed"] == []
    assert seen["failures_rows"] == 34
