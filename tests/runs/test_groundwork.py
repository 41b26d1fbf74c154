"""A fabric that stands before it is known which run it is: what is told of it, and who has it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controllers.routing import Routing
from controllers.task import Task
from fabric.errors import EmulationError
from fabric.model.lanes import QueueConfig, Queueing, plan_lanes
from fabric.world import inside
from runs import groundwork, live
from runs.live import LiveFabric, Wanted, bring_up
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_tiny")
QUEUES = QueueConfig(jitter=0.5)
LANES = plan_lanes(QUEUES, Queueing.LANES)
SPRAY = Routing.model_validate({"policy": "spray", "hash_seed": 7})
ECMP = Routing.model_validate({"policy": "ecmp", "hash_seed": 7})


def laid(monkeypatch: pytest.MonkeyPatch, routing: Routing) -> tuple[Wanted, bool]:
    """Return what is to stand by a groundwork, and whether it is measured."""
    found: list[tuple[Wanted, bool]] = []
    monkeypatch.setattr(inside, "set_up", lambda: None)
    monkeypatch.setattr(live, "stand", lambda wanted, calibrates: found.append((wanted, calibrates)))
    made = groundwork.groundwork_of(FABRIC, QUEUES, Queueing.LANES, routing, is_measured=False)
    assert made.module == groundwork.__name__
    groundwork.lay(made.content)
    return found[0]


def test_what_stands_is_what_a_run_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    assert laid(monkeypatch, ECMP) == (Wanted(FABRIC, LANES, ECMP), False)


def test_the_seed_of_what_ports_draw_is_not_in_it_and_that_of_hashes_is() -> None:
    def content(routing: Routing) -> str:
        return groundwork.groundwork_of(FABRIC, QUEUES, Queueing.LANES, routing, is_measured=True).content

    assert content(SPRAY) == content(SPRAY.model_copy(update={"hash_seed": 8}))
    assert content(ECMP) != content(ECMP.model_copy(update={"hash_seed": 8}))


class _Emulation(SimpleNamespace):
    lane_plan = LANES

    def stop(self) -> None:
        self.stopped = True

    def draw_ways(self, drawing: object) -> None:
        self.drawing = drawing


@pytest.fixture
def standing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LiveFabric:
    """A fabric that stands, with packets sprayed, and its logs."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "controller.log").write_text("so far")
    controller: Any = SimpleNamespace(stop=lambda: None)
    up = LiveFabric(
        cast(Any, _Emulation(fabric=FABRIC)), controller, tmp_path / "task", logs, SPRAY.undrawn, cast(Any, None), 1, 2
    )
    monkeypatch.setattr(live, "_LOGS", logs)
    monkeypatch.setattr(live, "_standing", (Wanted(FABRIC, LANES, SPRAY.undrawn), up))
    monkeypatch.setattr(live, "current_engine", lambda: SimpleNamespace(settle=lambda: None, has_own_kernel=True))
    return up


def test_a_run_has_the_fabric_that_stands_with_its_own_seed_and_its_logs_where_it_wants_them(
    standing: LiveFabric, tmp_path: Path
) -> None:
    wanted = tmp_path / "result"
    wanted.mkdir()
    before = standing.logs / "controller.log"
    with bring_up(FABRIC, LANES, wanted, print, SPRAY) as found:
        assert found is standing
        assert found.routing == Task.load(found.task).routing == SPRAY
        assert cast(Any, found.emulation).drawing == live.drawing_of(SPRAY)
        assert (wanted / "controller.log").read_text() == before.read_text() == "so far", "programs write on"
    assert cast(Any, standing.emulation).stopped


def test_no_run_has_a_fabric_that_it_does_not_want(standing: LiveFabric, tmp_path: Path) -> None:
    with (
        pytest.raises(EmulationError, match="brought up for a run that wants"),
        bring_up(FABRIC, LANES, tmp_path, print),
    ):
        pass


def test_a_run_reports_why_its_fabric_does_not_stand(
    standing: LiveFabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_standing", (Wanted(FABRIC, LANES, SPRAY.undrawn), EmulationError("no port")))
    with pytest.raises(EmulationError, match=r"^no port$"), bring_up(FABRIC, LANES, standing.logs, print, SPRAY):
        pass


def test_links_are_measured_once_for_the_lanes_that_they_have(
    standing: LiveFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Any] = []
    measured: Any = ["of a link"]

    def calibrate(emulation: object) -> Any:
        found.append(emulation)
        return measured

    monkeypatch.setattr("fabric.measure.calibration.calibrate", calibrate)
    told: list[str] = []
    assert standing.calibrate(told.append) == standing.calibrate(told.append) == measured
    assert len(found) == len(told) == 1
    cast(Any, standing.emulation).lane_plan = plan_lanes(QUEUES, Queueing.SHARED)
    standing.calibrate(told.append)
    assert len(found) == 2
