"""Files of tests are handed out so that workers which bring up guests bring up no worlds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.side_by_side import LONGEST, WAITING, Kind, SideBySide, kind_of

HERE = Path(__file__).parent
MARKS = {Kind.WORLD: "pytestmark = [\n    pytest.mark.root,\n]", Kind.GUEST: "pytestmark = pytest.mark.guest"}


class Worker:
    """A worker of xdist, as a scheduler sees it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.to_do: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.to_do += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.mark.parametrize(
    ("file", "kind"),
    [("root/test_paths.py", Kind.WORLD), ("virtual/test_isolation.py", Kind.GUEST), ("test_imports.py", Kind.NEITHER)],
)
def test_what_a_file_brings_up_is_known_by_its_mark(file: str, kind: Kind) -> None:
    assert kind_of(HERE / file) is kind


def test_a_mark_of_one_test_is_not_its_files(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text("pytestmark = pytest.mark.timeout(5)\n\n\n@pytest.mark.root\ndef test_it(): pass\n")
    assert kind_of(path) is Kind.NEITHER


def scheduled(directory: Path, kinds: dict[str, Kind], workers: int) -> tuple[SideBySide, list[Any], list[str]]:
    """Return a scheduler that has handed out the first files, its workers and all tests."""
    for file, kind in kinds.items():
        (directory / file).write_text(MARKS.get(kind, ""))
    config: Any = SimpleNamespace(
        rootpath=directory, option=SimpleNamespace(loadscopereorder=False), getvalue=lambda name: ["popen"] * workers
    )
    scheduler, tests = SideBySide(config), [f"{file}::test_{number}" for file in kinds for number in range(5)]
    nodes: list[Any] = [Worker(f"gw{number}") for number in range(workers)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    return scheduler, nodes, tests


def played(directory: Path, kinds: dict[str, Kind], workers: int) -> dict[str, list[str]]:
    """Return which tests each worker was given, in order, if each ends its next one in turn."""
    scheduler, nodes, tests = scheduled(directory, kinds, workers)
    done: dict[str, list[str]] = {node.gateway.id: [] for node in nodes}
    while any(node.to_do for node in nodes):
        for node in (node for node in nodes if node.to_do):
            index = node.to_do.pop(0)
            done[node.gateway.id].append(tests[index])
            scheduler.mark_test_complete(node, index)
    assert all(node.shutting_down for node in nodes)
    assert scheduler.tests_finished
    return done


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
def test_every_test_is_handed_out_once_and_guests_workers_bring_no_world_up(tmp_path: Path, workers: int) -> None:
    kinds = {f"test_{kind.name.lower()}_{number}.py": kind for number in range(6) for kind in Kind}
    done = played(tmp_path, kinds, workers)
    handed_out = [test for tests in done.values() for test in tests]
    assert len(handed_out) == len(set(handed_out)) == 5 * len(kinds)
    for worker, tests in done.items():
        files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
        if worker in ("gw0", "gw2"):
            assert kinds[files[0]] is Kind.WORLD
        elif worker == "gw4":
            assert kinds[files[0]] is Kind.NEITHER
            assert Kind.WORLD not in {kinds[file] for file in files}
        else:
            assert kinds[files[0]] is Kind.GUEST
            assert Kind.WORLD not in {kinds[file] for file in files}


def test_the_longest_files_are_begun_first(tmp_path: Path) -> None:
    for file in LONGEST[:2]:
        (tmp_path / file).parent.mkdir(exist_ok=True)
    kinds = dict.fromkeys(("test_a.py", LONGEST[1], LONGEST[0]), Kind.WORLD)
    begun = list(dict.fromkeys(test.partition("::")[0] for test in played(tmp_path, kinds, 1)["gw0"]))
    assert begun == [LONGEST[0], LONGEST[1], "test_a.py"]
    assert [file for file in LONGEST if not (HERE / file).exists()] == []


def test_files_that_wait_for_sockets_are_begun_before_others_that_bring_nothing_up(tmp_path: Path) -> None:
    waiting = f"{WAITING}test_z.py"
    (tmp_path / waiting).parent.mkdir(parents=True)
    guests = (f"test_guest_{number}.py" for number in range(8))
    kinds = {**dict.fromkeys(("test_a.py", waiting), Kind.NEITHER), **dict.fromkeys(guests, Kind.GUEST)}
    files = list(dict.fromkeys(test.partition("::")[0] for test in played(tmp_path, kinds, 5)["gw4"]))
    assert files[:2] == [waiting, "test_a.py"]


def test_a_worker_without_a_file_of_its_kinds_is_let_go(tmp_path: Path) -> None:
    done = played(tmp_path, {"test_a.py": Kind.WORLD, "test_b.py": Kind.WORLD}, 2)
    assert [len(tests) for tests in done.values()] == [10, 0]


def test_the_last_worker_takes_what_a_crashed_one_leaves(tmp_path: Path) -> None:
    kinds = {"test_a.py": Kind.WORLD, "test_b.py": Kind.WORLD, "test_c.py": Kind.GUEST, "test_d.py": Kind.GUEST}
    scheduler, (crashed, left), _ = scheduled(tmp_path, kinds, 2)
    assert scheduler.remove_node(crashed) == "test_a.py::test_0"
    while left.to_do:
        scheduler.mark_test_complete(left, left.to_do.pop(0))
    assert scheduler.tests_finished
    assert not scheduler.workqueue
