"""How long frames waited for the switches: only what samples prove."""

from __future__ import annotations

import numpy as np
import pytest

from fabric.measure.input_wait import least_waits_s, waiting_packets


def waits(waiting: list[int], switched: list[int], period_s: float = 0.05) -> list[float]:
    at_s = np.array([place * period_s for place in range(len(waiting))])
    found = least_waits_s(at_s, np.array(waiting), np.array(switched))
    return [round(value, 9) for value in found.tolist()]


def test_what_is_switched_by_the_next_sample_has_waited_for_nothing_that_can_be_proved() -> None:
    assert waits([0, 3, 5, 0], [0, 10, 20, 30]) == [0, 0, 0, 0]


def test_a_switch_that_stands_still_is_seen_though_nothing_new_arrives() -> None:
    waiting = [0, 2] + [4] * 30 + [0, 0]
    switched = [0, 100] + [100] * 30 + [104, 110]
    assert max(waits(waiting, switched)) == pytest.approx(29 * 0.05)


def test_a_burst_waits_as_long_as_it_takes_to_switch_what_waited() -> None:
    # 100 waited in the second sample; 30 are switched a period.
    found = waits([0, 100, 80, 50, 20, 0], [1000, 1005, 1035, 1065, 1095, 1125])
    assert found[1] == pytest.approx(0.15)


def test_a_queue_seen_empty_proves_that_nothing_waits_any_more() -> None:
    # What waited was for nobody: no port was handed it.
    assert waits([0, 1, 0, 0, 0], [7, 7, 7, 7, 7]) == [0, 0, 0, 0, 0]


def test_packets_that_a_sample_counts_may_be_those_that_waited_in_it() -> None:
    # One waits when the queue is looked at, and is handed on before the packets are counted; then one waits again.
    assert waits([0, 1, 1, 0], [7, 8, 8, 9])[1] == 0


@pytest.mark.parametrize(("memory", "packets"), [(0, 0), (768, 1), (9024, 1), (9024 * 10, 9), (9024 * 100, 86)])
def test_memory_is_no_more_packets_than_are_sure_to_wait(memory: int, packets: int) -> None:
    assert waiting_packets(np.array([memory]), 4214).tolist() == [packets]
