"""A run builds its fabric once where it is checked, once where it is played; and that both know one config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.sweeps.planning import plan_runs
from fabric.errors import ConfigError, EmulationError
from runs.launching import play
from runs.launching.order import Order
from runs.launching.spec import RunSpec, prepare
from runs.registry import EXPERIMENTS, resolve, restored
from topologies import load

HOME = Path(__file__).parents[3] / "experiments"
FILES = [*EXPERIMENTS, *(str(path) for path in sorted(HOME.glob("*/*.yaml")) if path.stem not in EXPERIMENTS)]
SETTINGS: dict[str, list[str]] = {"isolation": ["congestion_control.storage=dcqcn", "queues.lanes.storage.limit=1 MiB"]}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the topologies that were built, in their order."""
    names: list[str] = []

    def counted(build: Any) -> Any:
        def build_counted(spec: Any) -> Any:
            names.append(spec.name)
            return build(spec)

        return build_counted

    for name, (kind, build, outline) in load._BUILDERS.items():
        monkeypatch.setitem(load._BUILDERS, name, (kind, counted(build), outline))
    return names


def play_until_it_comes_up(order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def fail(*_: object, **__: object) -> Iterator[None]:
        raise EmulationError("comes up")
        yield

    monkeypatch.setattr("fabric.world.inside.RUN_DIR", tmp_path / "run")
    monkeypatch.setattr(play, "bring_up", fail)
    monkeypatch.setattr("traffic.congestion_control.provide", lambda *_: None)
    with pytest.raises(EmulationError, match="comes up"):
        play.play(Order.decoded(order.encoded()), lambda event: None)


def test_a_run_builds_its_fabric_once_in_each_of_its_processes(
    builds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(RunSpec("isolation", engine="virtual", directory=tmp_path / "result"), [])
    assert builds == ["fire_flyer_2_small"]
    play_until_it_comes_up(prepared.order, tmp_path, monkeypatch)
    assert builds == ["fire_flyer_2_small"] * 2


def test_points_of_a_sweep_with_one_topology_build_it_once_together(builds: list[str]) -> None:
    spec = RunSpec("isolation", engine="virtual")
    plan = plan_runs("sweep", spec, {"alone_time": [1, 2, 3]}, [1, 2])
    assert (len(plan.runs), builds) == (6, ["fire_flyer_2_small"])
    plan_runs("sweep", spec, {"topology.storage": [2, 4], "alone_time": [1, 2]}, [1])
    assert len(builds) == 1 + 2


@pytest.mark.parametrize("name", FILES)
def test_the_process_that_plays_has_the_same_config(name: str, tmp_path: Path) -> None:
    spec = RunSpec(name, overrides=SETTINGS.get(name, []), engine="virtual", directory=tmp_path / "result")
    prepared = prepare(spec, [])
    order = Order.decoded(prepared.order.encoded())
    again = restored(order.experiment, None, order.config)
    assert (again.experiment, again.config) == (prepared.experiment, prepared.config)
    assert (again.data, again.fabric) == (prepared.resolved.data, prepared.resolved.fabric)
    assert list(again.data) == list(prepared.resolved.data), "config.yaml has them in this order"
    assert list(again.config.queues.lanes) == list(prepared.config.queues.lanes)


def test_an_order_with_a_value_of_another_kind_is_refused() -> None:
    data = resolve("isolation", []).data
    with pytest.raises(ConfigError, match=r"the config of isolation: seed: Input should be a valid integer .got 'x'."):
        restored("isolation", None, {**data, "seed": "x"})
