"""A sweep on a Ray cluster of two workers, of which one is lost half-way. Runs take no time, or wait."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.sweeps.planning import require_same
from app.sweeps.ray_cluster import RayExecutor, _played, _unpack
from app.sweeps.scratch import remove_abandoned
from fabric.errors import ResultError, UsageError
from runs.launching.spec import RunSpec
from tests.app.sweeps import plain_runs
from tests.app.sweeps.plain_runs import SHARE, InTurn, planned, swept

WAIT_S = 60.0
_NODE = {"num_cpus": 1, "memory": 8 << 30}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose head runs nothing, and two workers."""
    ray = pytest.importorskip("ray", reason="Ray is not installed; tools/setup.sh test installs it")
    utils = importlib.import_module("ray.cluster_utils")
    for module in (plain_runs, importlib.import_module(__name__)):
        ray.cloudpickle.register_pickle_by_value(module)
    made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def test_a_lost_workers_runs_are_done_again_and_the_table_is_the_same(cluster: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    doomed = cluster.add_node(**_NODE, resources={"doomed": 1})
    cluster.add_node(**_NODE)

    def waiting_where_doomed(spec: RunSpec) -> None:
        import ray

        node = ray.get_runtime_context().get_node_id()
        is_doomed = any("doomed" in one["Resources"] for one in ray.nodes() if one["NodeID"] == node and one["Alive"])
        (marks / f"{spec.seed}{spec.settings[SHARE]}-{'doomed' if is_doomed else 'safe'}").write_text(
            str(spec.directory and spec.directory.parent)
        )
        if is_doomed:
            time.sleep(WAIT_S)
        wait_for_a_doomed_run()  # Or this worker does them all before the other one has begun.
        plain_runs.play(spec, lambda event: None, "invalid" if spec.seed == 2 else "faithful")

    def wait_for_a_doomed_run() -> None:
        deadline = time.monotonic() + WAIT_S
        while not any(path.stat().st_size for path in marks.glob("*-doomed")) and time.monotonic() < deadline:
            time.sleep(0.05)

    def lose() -> None:
        wait_for_a_doomed_run()
        cluster.remove_node(doomed, allow_graceful=False)

    losing = threading.Thread(target=lose)
    losing.start()
    plan = planned(memory="1 GiB", grid={SHARE: [0.1, 0.3]})
    found = swept(plan, tmp_path / "ray", RayExecutor(play=waiting_where_doomed))
    losing.join()
    lost = [path.name.partition("-")[0] for path in marks.glob("*-doomed")]
    assert len(lost) >= 1
    assert all((marks / f"{name}-safe").exists() for name in lost), "a lost run was not done again elsewhere"
    assert_removed([Path(path.read_text()) for path in marks.glob("*-*")])
    assert list(found.runs["verdict"]) == ["faithful", "invalid", "faithful"] * 2
    swept(plan, tmp_path / "here", InTurn(seed_2_invalid))
    assert (tmp_path / "ray" / "runs.csv").read_bytes() == (tmp_path / "here" / "runs.csv").read_bytes()


def assert_removed(directories: list[Path]) -> None:
    """Directories of runs are gone once their worker is, which may outlive its node for a moment."""
    deadline = time.monotonic() + WAIT_S
    while any(one.exists() for one in directories) and time.monotonic() < deadline:
        remove_abandoned()
        time.sleep(0.05)
    assert [one for one in directories if one.exists()] == []


def seed_2_invalid(spec: RunSpec, report: Any) -> None:
    plain_runs.play(spec, report, "invalid" if spec.seed == 2 else "faithful")


class FakeRay:
    """A cluster whose daemon, through which this program speaks with it, dies under a run so many times."""

    class exceptions:  # noqa: N801 - as Ray has it.
        class RayError(Exception):
            pass

        class LocalRayletDiedError(RayError):
            pass

    def __init__(self, key: str, deaths: int) -> None:
        self.key, self.deaths, self.connections, self.is_up = key, deaths, 0, False

    def is_initialized(self) -> bool:
        return self.is_up

    def init(self, **options: Any) -> None:
        self.is_up = True
        self.connections += 1

    def shutdown(self) -> None:
        self.is_up = False

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, **options: Any) -> Any:
        def made(function: Any) -> Any:
            return type("Remote", (), {"remote": staticmethod(lambda *arguments: _Reference(function, arguments))})

        return made

    def wait(self, references: list[Any], **options: Any) -> tuple[list[Any], list[Any]]:
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        if reference.arguments[2] == self.key and self.deaths:
            self.deaths -= 1
            raise self.exceptions.LocalRayletDiedError("the daemon died")
        return reference.function(*reference.arguments)


class _Reference:
    def __init__(self, function: Any, arguments: Any) -> None:
        self.function, self.arguments = function, arguments


@pytest.mark.parametrize(("deaths", "connections", "failed"), [(0, 1, 0), (2, 3, 0), (9, 4, 1)])
def test_runs_go_on_by_another_daemon_if_the_one_spoken_with_is_lost(
    deaths: int, connections: int, failed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, played = planned(memory="1 GiB"), list[str]()
    doomed = plan.runs[1].key
    fake = FakeRay(doomed, deaths)

    def play(spec: RunSpec) -> None:
        assert spec.directory is not None
        played.append(spec.directory.name)
        plain_runs.play(spec, lambda event: None, "faithful")

    monkeypatch.setattr("app.sweeps.ray_cluster._ray", lambda: fake)
    found = swept(plan, tmp_path / "ray", RayExecutor(play=play))
    assert fake.connections == connections
    assert len(found.failures) == failed
    wanted = sorted(run.key for run in plan.runs if not (failed and run.key == doomed))
    assert sorted(played) == wanted, "one is done twice, or never"


def test_a_run_that_fails_on_a_worker_says_why() -> None:
    def fail(spec: RunSpec) -> None:
        raise UsageError("no")

    assert _played(fail, planned().runs[0].spec, "key", {}) == ({}, "no")


@pytest.mark.parametrize("name", ["../elsewhere", "/etc/passwd"])
def test_a_result_that_would_be_written_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="which is not in its directory"):
        _unpack({name: b""}, tmp_path / "run")


def test_a_worker_with_another_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned().runs[0]
    require_same(run.spec, run.key)
    monkeypatch.setattr("fabric.world.virtual_time.VirtualEngine.kernel", lambda self: "linux-6.12-c-d")
    with pytest.raises(UsageError, match=r"the kernel is linux-6.12-c-d, not linux-6.1-a-b: install the same program"):
        require_same(run.spec, run.key, run.parts)
