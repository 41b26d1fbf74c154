"""The launcher as a real process, without switches. Ports are taken from the system, so runs do not meet."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controllers.client import ControllerProcess
from controllers.plan import RoutePlan, table_miss
from fabric.errors import ControllerError

NAMES = {number: f"z0l{number:02d}" for number in range(1, 13)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    RoutePlan.of("test", NAMES, [table_miss(dpid) for dpid in NAMES]).save(path)
    return path


def started(plan: Path, tmp_path: Path, openflow_port: int | None = None) -> ControllerProcess:
    return ControllerProcess(
        plan, tmp_path / "controller.log", openflow_port=openflow_port or free_port(), rest_port=free_port()
    )


@pytest.fixture
def controller(plan: Path, tmp_path: Path) -> Iterator[ControllerProcess]:
    with started(plan, tmp_path) as process:
        yield process


def test_controller_answers_soon_after_its_start(controller: ControllerProcess) -> None:
    started_s = time.monotonic()
    state = controller.wait_listening(timeout_s=20)
    assert time.monotonic() - started_s < 5, "measured 0.4 s on an idle core"
    assert (state.ready, state.policy, state.expected, state.connected) == (False, "test", 12, 0)
    assert state.missing == tuple(NAMES.values())
    assert controller.rules() == []
    assert controller.ports() == []
    assert controller.counters() == {}


def test_missing_switches_and_the_log_are_named(controller: ControllerProcess) -> None:
    controller.wait_listening(timeout_s=20)
    expected = r"12 of 12 switches not connected \(z0l01, z0l02, .*, …\) after 0.1 s; controller log: .*controller\.log"
    with pytest.raises(ControllerError, match=expected):
        controller.wait_ready(timeout_s=0.1)


def test_unreadable_plan_ends_the_controller_with_its_reason(tmp_path: Path) -> None:
    with started(tmp_path / "none.json", tmp_path) as controller:
        expected = r"the controller ended with code 1: route plan .*none\.json: cannot be read"
        with pytest.raises(ControllerError, match=expected):
            controller.wait_ready(timeout_s=20)


def test_taken_port_ends_the_controller_with_its_reason(plan: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with started(plan, tmp_path, taken.getsockname()[1]) as controller:
            expected = r"the controller ended with code 1: port 127\.0\.0\.1:\d+: Address already in use"
            with pytest.raises(ControllerError, match=expected):
                controller.wait_ready(timeout_s=20)


def test_stopped_controller_answers_no_more(controller: ControllerProcess) -> None:
    controller.wait_listening(timeout_s=20)
    controller.stop()
    controller.stop()
    with pytest.raises(ControllerError, match="/state: the controller does not answer"):
        controller.state()


def test_openflow_target_is_what_a_bridge_takes(controller: ControllerProcess) -> None:
    assert controller.target == f"tcp:127.0.0.1:{controller.openflow_port}"
