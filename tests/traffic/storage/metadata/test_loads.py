"""Loads of files by processes over servers in memory, phase after phase."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from runs.load_evidence import failed_operations
from traffic.job import Records
from traffic.measures import JobRows
from traffic.storage.metadata.kinds import FILES
from traffic.storage.metadata.load_config import FioConfig, MdtestConfig
from traffic.storage.metadata.loads import FioProcess, LoadProcess, MdtestProcess, StepResult, mdtest_steps, together

from ..true_timers import run
from .memory import FileSystem

MDTEST = MdtestConfig.model_validate({"files": 40, "phases": ["create", "stat", "read", "remove"]})


async def mdtest_of(config: MdtestConfig) -> list[MdtestProcess]:
    system = FileSystem()
    await system.start()
    return [MdtestProcess(await system.client(number + 1), number, 2, "/fs", 1, config) for number in range(2)]


async def steps_of(processes: Sequence[MdtestProcess], cut_in: str = "") -> dict[str, StepResult]:
    """Carry out the steps of a phase; end it a while after a step has begun."""
    found = {}
    for step in mdtest_steps(processes[0].config):
        if step == cut_in:
            for one in processes:
                asyncio.get_running_loop().call_later(0.5, one.stopping.set)
        found[step] = together(await asyncio.gather(*(one.carry_out(step, 0) for one in processes)))
        if processes[0].stopping.is_set():
            break
    return found


def rows_of(processes: Sequence[LoadProcess], steps: dict[str, StepResult]) -> JobRows:
    rows = [{**one._asdict(), "job": "files"} for process in processes for one in process.done]
    of_steps = [{"step": name, "iteration": 0, **result._asdict()} for name, result in steps.items()]
    tables = {"operations": pd.DataFrame(rows), "file_steps": pd.DataFrame(of_steps)}
    return JobRows(lambda name: tables[name], [(0.0, 1.0)])


@pytest.mark.parametrize("cut_in", ["", "file_stat"])
def test_a_second_phase_makes_as_many_files_as_fast_wherever_the_first_one_was_cut(cut_in: str) -> None:
    async def scene() -> list[dict[str, float]]:
        processes = await mdtest_of(MDTEST)
        found = []
        for phase_cut_in in (cut_in, ""):
            for one in processes:
                one.done.clear()
                one.stopping.clear()
            found.append(dict(FILES.measures.of(rows_of(processes, await steps_of(processes, phase_cut_in)))))
            tops.append(processes[0].named("mdtest", 0))
        return found

    tops: list[str] = []

    first, second = run(scene())
    assert tops[0] != tops[1] and tops[0].count("/") == tops[1].count("/"), "each name takes a look-up"
    for numbers in (first, second):
        assert (numbers["file_create.operations"], numbers["file_create.failed"]) == (80, 0)
    name = "file_create.operations_per_s"
    assert second[name] == pytest.approx(first[name], rel=0.1), "latencies are drawn"


def test_what_failed_is_no_item_and_a_load_that_all_failed_is_no_measurement() -> None:
    """The files are there already."""

    async def scene() -> tuple[StepResult, JobRows]:
        processes = await mdtest_of(MDTEST)
        for step in ("tree_create", "file_create"):
            await asyncio.gather(*(one.carry_out(step, 0) for one in processes))
        for one in processes:
            one.done.clear()
        again = together(await asyncio.gather(*(one.carry_out("file_create", 0) for one in processes)))
        return again, rows_of(processes, {"file_create": again})

    again, rows = run(scene())
    assert (again.items, again.size_bytes) == (0, 0)
    numbers = FILES.measures.of(rows)
    assert (numbers["file_create.operations"], numbers["file_create.failed"]) == (0, 80)
    assert "file_create.operations_per_s" not in numbers
    assert FILES.measures.account(rows) == "all 80 of file_create failed, which measures nothing"
    operations: list[dict[str, Any]] = rows.table("operations").to_dict("records")  # type: ignore[assignment]
    (failed,) = failed_operations(Records(operations=operations))
    assert (failed.kind, failed.begun, failed.failed, failed.unexplained) == ("file_create", 80, 80, 80)


def test_ios_cover_a_file_whose_size_is_no_multiple_of_theirs() -> None:
    async def scene() -> list[StepResult]:
        system = FileSystem()
        await system.start()
        config = FioConfig.model_validate({"rw": "read", "bs": 300, "size": 1000, "iodepth": 2})
        process = FioProcess(await system.client(1), 0, 1, "/fs", 1, config)
        await process.carry_out("layout", 0)
        return [await process.carry_out("fio", 0)]

    (found,) = run(scene())
    assert (found.items, found.size_bytes) == (4, 1000)
