"""What becomes of a run of several guests when one of them cannot go on; the guests are functions here."""

from __future__ import annotations

import time

import pytest

from fabric.errors import EmulationError
from fabric.world.virtual.together import Member, Share, run_together

WAIT_S = 20.0


def told_by_guest_0(fault: Exception | None, code: int = 1) -> str:
    """Let guest 1 fail or end, and return what guest 0 is told of it."""

    def run(member: Member) -> int:
        if member.together.number == 1:
            if fault is not None:
                raise fault
            return code
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            member.must_end()
            time.sleep(0.01)
        pytest.fail("guest 0 was told nothing")

    with pytest.raises(EmulationError) as told:
        run_together(Share(2, (0, 1), 1000), run)
    return str(told.value)


@pytest.mark.timeout(60)
def test_guest_0_is_told_why_another_guest_ended_whatever_the_reason() -> None:
    no_space = OSError(28, "No space left on device", "/tmp/fabric-guest-1")
    expected = "guest 1 of the run: OSError: [Errno 28] No space left on device: '/tmp/fabric-guest-1'"
    assert told_by_guest_0(no_space) == expected
    assert told_by_guest_0(EmulationError("its kernel has gone")) == "guest 1 of the run: its kernel has gone"
    assert told_by_guest_0(None, 3) == "guest 1 of the run ended with exit code 3 before the run did"
