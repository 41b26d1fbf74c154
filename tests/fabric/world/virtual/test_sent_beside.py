"""What a program sends passes in one order, whatever others do in the same moment that sends nothing. Needs no root.

Where memory lies, and with that when a program asks the kernel for more or gives some back, hangs on which modules it
has imported.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.world.virtual.guest import GIB
from tests.guest_scripts import run_script

pytestmark = pytest.mark.guest


def test_packets_do_not_wait_for_memory_that_others_free_or_files_that_they_close() -> None:
    alone, beside_unmapping, beside_closing = run_script(
        Path(__file__).parent / "sent_beside.py", memory_bytes=GIB
    ).split()
    print(alone, beside_unmapping, beside_closing)
    assert alone.count("S") >= 2
    assert beside_unmapping == beside_closing == alone
