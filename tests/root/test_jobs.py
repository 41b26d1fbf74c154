"""Jobs over the real fabric: storage that loses a service, and sums that divide by nothing."""

from __future__ import annotations

import pytest

from tests.real_time import Seen, in_real_time
from tests.worlds import Command

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> Seen:
    """What scenarios.jobs() saw."""
    return Seen(lambda: shared_command.play("jobs"))


def test_a_killed_storage_service_loses_no_acknowledged_write(seen: Seen) -> None:
    print(seen["storage"])
    assert seen["storage"]["lost"] == []


@in_real_time
def test_reads_and_writes_go_on_from_the_chains_other_targets(seen: Seen) -> None:
    storage = seen["storage"]
    assert storage["checked"] > 10
    assert min(storage["before"].values()) > 10
    assert storage["after"]["read"] > 10
    assert storage["after"]["write"] > 0


def test_sums_of_odd_ranks_and_chunks_that_do_not_divide_are_right(seen: Seen) -> None:
    assert seen["sums"] == 4


def test_a_wrong_number_is_found_in_the_sum(seen: Seen) -> None:
    assert "the result is not to be trusted" in seen["wrong_sum"]
    assert "rank" in seen["wrong_sum"]
