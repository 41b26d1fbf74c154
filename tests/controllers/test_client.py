"""The launcher as a real process, without switches."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from controllers.client import ControllerProcess, ControllerState
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP
from controllers.routing import Repair, Routing
from controllers.task import Task
from fabric.errors import ControllerError, FabricError
from tests.controllers.sizes import tree
from tests.ports import held_ports
from tests.waiting import until

FABRIC = tree(1, leaves=10, spines=2, compute=2, storage=0, exits=(0, 0))


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "task.json"
    Task(FABRIC, Routing(repair=Repair.REROUTE)).save(path)
    return path


@contextmanager
def started(task: Path, tmp_path: Path, openflow_port: int | None = None) -> Iterator[ControllerProcess]:
    log = tmp_path / "controller.log"
    with (
        held_ports(2) as (openflow, rest),
        ControllerProcess(task, log, openflow_port=openflow_port or openflow, rest_port=rest) as process,
    ):
        yield process


@pytest.fixture
def controller(task: Path, tmp_path: Path) -> Iterator[ControllerProcess]:
    with started(task, tmp_path) as process:
        yield process


def test_controller_answers_soon_after_its_start(task: Path, tmp_path: Path) -> None:
    before_s = time.monotonic()
    with started(task, tmp_path) as controller:
        state = controller.wait_listening(timeout_s=60)
        assert time.monotonic() - before_s < 30, "measured 0.4 s on an idle core"
        assert_it_has_planned_and_nothing_else(controller, state, before_s)


def assert_it_has_planned_and_nothing_else(
    controller: ControllerProcess, state: ControllerState, before_s: float
) -> None:
    assert (state.ready, state.policy, state.expected, state.connected) == (False, "static", 12, 0)
    assert state.missing == tuple(switch.name for switch in FABRIC.switches)
    assert controller.rules() == []
    assert controller.ports() == []
    assert controller.counters() == {}
    assert (state.repair, state.links_down, state.cuts) == ("reroute", (), {})
    (planned,) = controller.events()
    assert planned.kind == "planned"
    assert before_s < planned.at_s < time.monotonic()


def test_missing_switches_and_the_log_are_named(controller: ControllerProcess) -> None:
    controller.wait_listening(timeout_s=60)
    expected = r"12 of 12 switches not connected \(z0l00, z0l01, .*, …\) after 1 s; controller log: .*controller\.log"

    def is_named() -> bool:
        with pytest.raises(ControllerError) as error:
            controller.wait_ready(timeout_s=1)
        return re.search(expected, str(error.value)) is not None

    until(is_named, "an answer within a second, which a busy machine may hold up")


def test_a_controller_with_another_plan_than_the_run_is_an_error(
    controller: ControllerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placement and paths would go by the one, switches by the other."""
    routing = Routing(repair=Repair.REROUTE)
    same, other = (plan_routes(FABRIC, one) for one in (routing, routing.model_copy(update={"policy": ECMP})))
    state = replace(controller.wait_listening(timeout_s=60), ready=True)
    monkeypatch.setattr(controller, "_wait", lambda *_: state)
    assert controller.wait_ready(1, same).plan == same.digest
    words = rf"routes by the plan {same.digest} \(static\), and this run looks for paths by {other.digest} \(ecmp\)"
    with pytest.raises(ControllerError, match=words):
        controller.wait_ready(1, other)


def test_unreadable_task_ends_the_controller_with_its_reason(tmp_path: Path) -> None:
    with started(tmp_path / "none.json", tmp_path) as controller:
        expected = r"the controller ended with code 1: task .*none\.json: cannot be read"
        with pytest.raises(ControllerError, match=expected):
            controller.wait_ready(timeout_s=60)


def test_taken_port_ends_the_controller_with_its_reason(task: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with started(task, tmp_path, taken.getsockname()[1]) as controller:
            expected = r"the controller ended with code 1: port 127\.0\.0\.1:\d+: Address already in use"
            with pytest.raises(ControllerError, match=expected):
                controller.wait_ready(timeout_s=60)


def test_stopped_controller_answers_no_more(controller: ControllerProcess) -> None:
    controller.wait_listening(timeout_s=60)
    controller.stop()
    controller.stop()
    with pytest.raises(ControllerError, match="/state: the controller does not answer"):
        controller.state()


def test_openflow_target_is_what_a_bridge_takes(controller: ControllerProcess) -> None:
    assert controller.target == f"tcp:127.0.0.1:{controller.openflow_port}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no fabric and routing"),
        ('{"fabric": {}, "routing": {}}', r"holds no fabric \(KeyError: 'links'\)"),
    ],
)
def test_file_that_is_no_task_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "task.json"
    path.write_text(text)
    with pytest.raises(FabricError, match=rf"task .*task\.json: {message}"):
        Task.load(path)


def test_task_survives_a_file(task: Path) -> None:
    assert Task.load(task) == Task(FABRIC, Routing(repair=Repair.REROUTE))


def test_a_killed_controller_starts_again(controller: ControllerProcess) -> None:
    controller.wait_listening(timeout_s=60)
    first = controller.pid
    with pytest.raises(ControllerError, match="still runs; kill or stop it"):
        controller.restart()
    controller.kill()
    controller.restart()
    controller.wait_listening(timeout_s=60)
    assert controller.pid != first
