"""Jobs over the real fabric: storage that loses a service, and sums that divide by nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds import Command

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def seen(shared_command: Command) -> dict[str, Any]:
    """What scenarios.jobs() saw."""
    return shared_command.play("jobs")


def test_a_killed_storage_service_loses_no_acknowledged_write(seen: dict[str, Any]) -> None:
    storage = seen["storage"]
    print(storage)
    assert storage["before"]["write"] > 10
    assert storage["checked"] > 10
    assert storage["lost"] == []


def test_reads_and_writes_go_on_from_the_chains_other_targets(seen: dict[str, Any]) -> None:
    storage = seen["storage"]
    assert storage["before"]["read"] > 10
    assert storage["after"]["read"] > 10
    assert storage["after"]["write"] > 0


def test_sums_of_odd_ranks_and_chunks_that_do_not_divide_are_right(seen: dict[str, Any]) -> None:
    assert seen["sums"] == 4


def test_a_wrong_number_is_found_in_the_sum(seen: dict[str, Any]) -> None:
    assert "the sum is not to be trusted" in seen["wrong_sum"]
    assert "rank" in seen["wrong_sum"]
