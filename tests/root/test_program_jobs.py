"""Users' programs as jobs of an experiment, in real time."""

from __future__ import annotations

import pytest

from tests.program_jobs import played, verify
from tests.real_time import in_real_time

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]


@in_real_time
def test_programs_come_and_go_and_use_their_lanes(tmp_path_factory: pytest.TempPathFactory) -> None:
    verify(played(tmp_path_factory.mktemp("programs"), "namespace"), slack_s=0.4)
