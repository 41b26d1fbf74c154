"""A full lane cuts datagrams down to their headers and sends those ahead of the data that waits."""

from __future__ import annotations

import pytest

from fabric.model.lanes import TRIMMED_BYTES, ServiceLevel
from tests.vl.guest import measured
from tests.vl.lab import MTU_BYTES, PAYLOAD_BYTES

pytestmark = pytest.mark.guest

FRAMES, ROOM = 20, 8
WHOLE = ROOM + 1
"""The first frame is on its way before the lane fills."""
LEFT = TRIMMED_BYTES - 28


def test_what_finds_no_room_loses_its_payload_and_overtakes_what_waits() -> None:
    found = measured("trimming", "overflow", FRAMES, ROOM, True, False)
    whole = [number for number, size, _ in found["came"] if size == PAYLOAD_BYTES]
    cut = [(number, dscp) for number, size, dscp in found["came"] if size == LEFT]
    assert whole == [*range(WHOLE)]
    assert cut == [(number, ServiceLevel.CONTROL.dscp) for number in range(WHOLE, FRAMES)]
    order = [number for number, *_ in found["came"]]
    assert order.index(WHOLE) < order.index(2), "what was cut goes ahead of frames that came before it"
    assert found["trimmed"] == [FRAMES - WHOLE, (FRAMES - WHOLE) * (MTU_BYTES - TRIMMED_BYTES)]
    assert found["dropped"] == 0
    assert found["sent"] == [WHOLE, FRAMES - WHOLE, (FRAMES - WHOLE) * (TRIMMED_BYTES + 14)]


@pytest.mark.parametrize(("trims", "has_checksum"), [(False, False), (True, True)])
def test_what_cannot_be_trimmed_or_is_not_to_be_is_dropped(trims: bool, has_checksum: bool) -> None:
    found = measured("trimming", "overflow", FRAMES, ROOM, trims, has_checksum)
    assert [number for number, *_ in found["came"]] == [*range(WHOLE)]
    assert (found["trimmed"], found["dropped"]) == ([0, 0], FRAMES - WHOLE)
