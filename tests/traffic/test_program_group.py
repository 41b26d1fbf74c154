"""Groups of programs: orders to all and to some, which failure is told of several, and how they end."""

from __future__ import annotations

import importlib
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.errors import TrafficError
from fabric.world.engine import Engine
from fabric.world.engines import NAMESPACE, VIRTUAL
from fabric.world.programs.agents import AgentPool, Program
from topologies.load import load_fabric
from traffic import program_group
from traffic.job import Stage
from traffic.program_group import ProgramGroup, ProgramsFailedError, close_all

FABRIC = load_fabric("fire_flyer_2_tiny")
KEYS = ("a", "b", "c")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))  # Where a fresh process finds group_programs, as here.
    pool = AgentPool()
    yield Stage(FABRIC, pool, lambda _: None, seed=1)
    pool.stop()


def answer() -> Program:
    """Return the program that answers orders."""
    program: Program = importlib.import_module("group_programs").answer
    return program


@pytest.fixture
def group(stage: Stage) -> ProgramGroup[str]:
    """Three programs that are ready."""
    made: ProgramGroup[str] = ProgramGroup(stage, "a job")
    for key, node in zip(KEYS, FABRIC.computes, strict=False):
        made.start(key, "program", node, answer(), key)
    made.await_ready("readiness", 30)
    return made


def test_all_or_some_are_ordered_and_answer_in_their_order(group: ProgramGroup[str]) -> None:
    group.order("go")
    assert group.collect("answers", 20) == {key: (key, "go") for key in KEYS}
    group.order("stay", ["c", "a"])
    assert list(group.collect("answers", 20, ["c", "a"]).values()) == [("c", "stay"), ("a", "stay")]
    group.order_each({"a": 1, "b": 2})
    assert group.collect("answers", 20, ["a", "b"]) == {"a": ("a", 1), "b": ("b", 2)}


@pytest.mark.parametrize(
    ("engine", "asked", "together"),
    [(NAMESPACE, None, 1), (NAMESPACE, 2, 2), (VIRTUAL, None, 3), (VIRTUAL, 1, 1)],
    ids=["real time", "real time, two", "virtual time", "virtual time, one"],
)
def test_programs_share_processes_as_the_engine_or_the_config_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, engine: Engine, asked: int | None, together: int
) -> None:
    monkeypatch.setattr(program_group, "current_engine", lambda: engine)
    made: ProgramGroup[str] = ProgramGroup(stage, "a job")
    made.start_all(answer(), {key: ("program", FABRIC.computes[0], key) for key in KEYS}, asked)
    made.await_ready("readiness", 30)
    processes = Counter(handle.process for handle in made.handles.values())
    assert max(processes.values()) == together
    assert len(processes) == math.ceil(len(KEYS) / together)


def test_an_answer_that_is_not_readiness_is_shown(group: ProgramGroup[str]) -> None:
    group.order("go", ["b"])
    with pytest.raises(TrafficError, match=r"program on z0h001: answered \('b', 'go'\) instead of readiness"):
        group.await_ready("readiness", 20, ["b"])


def test_of_several_failures_the_one_that_is_no_consequence_is_told(group: ProgramGroup[str]) -> None:
    group.order_each({"a": "follow", "b": "fail", "c": "follow"})
    with pytest.raises(ProgramsFailedError, match=r"^b fell over \(2 more of its programs ended with it\)$") as failed:
        group.collect("answers", 20)
    assert failed.value.is_stall


def test_silence_after_a_failure_is_its_consequence_and_is_not_waited_for(
    group: ProgramGroup[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_group, "FAILURES_TIMEOUT_S", 0.2)
    began = time.monotonic()
    group.order_each({"a": "raise", "b": "sleep", "c": "go"})
    with pytest.raises(ProgramsFailedError, match="a has had enough") as failed:
        group.collect("answers", 30)
    assert time.monotonic() - began < 10
    assert not failed.value.is_stall


def test_silence_alone_is_a_stall(group: ProgramGroup[str]) -> None:
    group.order("sleep", ["a"])
    with pytest.raises(ProgramsFailedError, match=r"program on z0h000: no answer within") as failed:
        group.collect("answer", 0.1, ["a"])
    assert failed.value.is_stall


def test_one_that_was_killed_is_expected_no_more_and_one_that_died_is_told(group: ProgramGroup[str]) -> None:
    group.kill("b")
    assert list(group.living) == ["a", "c"]
    group.order("go")
    assert list(group.collect("answers", 20)) == ["a", "c"]
    group.handles["c"].kill()
    group.order("go")
    with pytest.raises(ProgramsFailedError, match="program on z0h002: ended with -9 before answers"):
        group.collect("answers", 20)


def test_one_that_ends_unasked_is_told_to_who_looks(group: ProgramGroup[str]) -> None:
    group.verify("the end")
    group.order("go", ["a"])
    group.collect("answers", 20, ["a"])
    group.kill("b")
    group.verify("the end")
    group.order("raise", ["c"])
    until_s = time.monotonic() + 20
    with pytest.raises(ProgramsFailedError, match=r"program on z0h002: failed before the end:(.|\n)*c has had enough"):
        while time.monotonic() < until_s:
            group.verify("the end")
            time.sleep(0.01)
    with group.asking:
        other = threading.Thread(target=group.verify, args=("the end",))
        other.start()
        other.join(20)
        assert not other.is_alive(), "who asks is told, and nobody else waits for that"


def test_one_that_shares_its_process_is_not_killed(stage: Stage) -> None:
    made: ProgramGroup[str] = ProgramGroup(stage, "a job")
    made.start_all(answer(), {key: ("program", FABRIC.computes[0], key) for key in KEYS}, 2)
    made.await_ready("readiness", 30)
    with pytest.raises(TrafficError, match=r"program on z0h000: 1 more share its process .* one program per process"):
        made.kill("b")
    made.kill("c")
    made.order("go")
    assert list(made.collect("answers", 20)) == ["a", "b"]


def test_a_group_that_was_ended_at_once_starts_anew_and_one_that_was_closed_does_not(
    stage: Stage, group: ProgramGroup[str]
) -> None:
    processes = [handle.process for handle in group.handles.values()]
    group.end_at_once()
    assert group.handles == {}
    assert [process.exitcode for process in processes] == [-9, -9, -9]
    group.start("a", "program", FABRIC.computes[0], answer(), "a")
    group.await_ready("readiness", 20)
    close_all(stage, group)
    with pytest.raises(TrafficError, match="a job: was closed while its programs were started"):
        group.start("a", "program", FABRIC.computes[0], answer(), "a")
