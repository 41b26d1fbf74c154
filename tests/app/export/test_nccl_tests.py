"""The table is the one that nccl-tests prints, and its figures follow nccl-tests' definitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from app.export.choice import Choice
from app.export.nccl_tests import nccl_tests
from fabric.errors import UsageError
from fabric.results import Result, ResultWriter
from fabric.tables import TABLES, Table
from runs.kinds import tables_of_jobs
from tests.rows import table_of
from tests.synthetic_result import Recipe, write_result

TINY = "fire_flyer_2_tiny"
PRINTED = """\
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
    33554432       8388608     float     sum      -1    187.5  178.96  335.54      0    183.5  182.86  342.86      0
"""  # noqa: W291
"""Of nccl-tests, over 16 ranks, in the format of its src/common.cu."""


def written(directory: Path, steps: list[tuple[Any, ...]], config: dict[str, Any] | None = None) -> Result:
    """Return a result with these steps: phase, job, number, ranks, bytes, start, end."""
    write_result(directory, Recipe(TINY))
    writer = ResultWriter(directory)
    writer.write_table("steps", table_of("steps", [(p, j, "hfreduce", *rest) for p, j, *rest in steps]))
    writer.write_yaml("config.yaml", config or {})
    return Result(directory)


def lines(result: Result, **choice: Any) -> list[str]:
    return nccl_tests(result, Choice(**choice)).data.decode().splitlines()


def rows(result: Result, **choice: Any) -> list[list[str]]:
    return [line.split() for line in lines(result, **choice) if line and not line.startswith("#")]


def test_a_row_is_the_one_that_nccl_tests_prints(tmp_path: Path) -> None:
    """All but what was not measured: the same bytes."""
    steps = [("mixed_lanes", "hfreduce", number, 16, 33_554_432, 1.0, 1.0 + 187.5e-6) for number in range(20)]
    found = lines(written(tmp_path / "r", steps, {"hfreduce": {"dtype": "fp32"}}))
    start = found.index(PRINTED.splitlines()[0])
    *header, row = PRINTED.splitlines()
    assert found[start : start + 3] == header
    in_place = "      N/A     N/A     N/A    N/A"
    assert found[start + 3] == row[: -len(in_place)] + in_place
    assert len(found[start + 3]) == len(row)
    assert found[start + 4 : start + 6] == ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 335.544 "]


def test_time_is_the_mean_over_steps_and_a_row_is_of_one_size(tmp_path: Path) -> None:
    steps = [
        ("mixed_lanes", "a", 0, 4, 4000, 1.0, 1.5),
        ("mixed_lanes", "a", 1, 4, 4000, 2.0, 3.5),
        ("mixed_lanes", "a", 2, 4, 2000, 4.0, 4.25),
        ("mixed_lanes", "a", 3, 4, 2000, 5.0, float("nan")),
    ]
    result = written(tmp_path / "r", steps)
    small, large = rows(result)
    assert large == ["4000", "N/A", "N/A", "sum", "-1", "1000000", "0.00000400", "0.00000600", "0"] + 4 * ["N/A"]
    assert small == ["2000", "N/A", "N/A", "sum", "-1", "250000", "0.00000800", "0.0000120", "0"] + 4 * ["N/A"]
    text = lines(result)
    assert "# 1 steps did not end, and are in no row" in text
    assert "# iters by size: 2000: 1, 4000: 2" in text
    assert any("minBytes 2000 maxBytes 4000" in line and "iters: N/A agg" in line for line in text)
    assert "# Avg bus bandwidth    : 9e-06 " in text


@pytest.mark.parametrize(
    ("collective", "described", "busbw"),
    [
        ("allreduce", ["4000", "1000", "float", "sum", "-1"], "6.00"),
        ("all_gather", ["4000", "250", "float", "none", "-1"], "3.00"),
        ("reduce_scatter", ["4000", "250", "float", "sum", "-1"], "3.00"),
        ("all_to_all", ["4000", "250", "float", "none", "-1"], "3.00"),
        ("broadcast", ["4000", "1000", "float", "none", "0"], "4.00"),
        ("reduce", ["4000", "1000", "float", "sum", "0"], "4.00"),
    ],
)
def test_each_collective_has_its_operation_its_count_its_root_and_its_busbw(
    tmp_path: Path, collective: str, described: list[str], busbw: str
) -> None:
    """4 ranks; 4000 bytes in 1 us are an algbw of 4 GB/s."""
    write_result(tmp_path / "r", Recipe(TINY))
    writer = ResultWriter(tmp_path / "r")
    row = ("mixed_lanes", "a", "nccl", collective, 0, 4, 4000, 1.0, 1.0 + 1e-6)
    writer.write_table("steps", table_of("steps", [row]))
    writer.write_yaml("config.yaml", {"dtype": "fp32"})
    result = Result(tmp_path / "r")
    assert f"# phase mixed_lanes, job a: {collective} over 4 ranks" in lines(result)
    (found,) = rows(result)
    assert (found[:5], found[6:8]) == (described, ["4.00", busbw])


def test_a_collective_that_is_not_listed_here_is_named(tmp_path: Path) -> None:
    write_result(tmp_path / "r", Recipe(TINY))
    row = ("mixed_lanes", "a", "nccl", "unlisted", 0, 4, 4000, 1.0, 2.0)
    ResultWriter(tmp_path / "r").write_table("steps", table_of("steps", [row]))
    with pytest.raises(UsageError, match="unlisted: not listed here"):
        nccl_tests(Result(tmp_path / "r"))


@pytest.mark.parametrize(
    ("took_s", "printed"), [(1.5e-6, "1.50"), (99.994e-6, "99.99"), (123.46e-6, "123.5"), (0.0123456, "12346")]
)
def test_times_have_the_digits_of_nccl_tests(tmp_path: Path, took_s: float, printed: str) -> None:
    ((*_,), *_) = found = rows(written(tmp_path / "r", [("mixed_lanes", "a", 0, 2, 8, 0.0, took_s)]))
    assert found[0][5] == printed


@pytest.mark.parametrize(
    ("config", "count", "kind"),
    [
        ({"a": {"dtype": "fp32"}}, "256", "float"),
        ({"a": {"dtype": "bf16"}}, "512", "bfloat16"),
        ({"a": {"dtype": "fp16"}}, "512", "half"),
        ({"jobs": [{"name": "b", "dtype": "fp32"}, {"name": "a", "dtype": "fp8"}]}, "1024", "f8e4m3"),
        ({"dtype": "fp32"}, "256", "float"),
        ({"b": {"dtype": "fp32"}}, "N/A", "N/A"),
        ({"a": {"dtype": "int7"}}, "N/A", "N/A"),
    ],
)
def test_the_type_is_that_of_the_config_or_not_known(
    tmp_path: Path, config: dict[str, Any], count: str, kind: str
) -> None:
    (row,) = rows(written(tmp_path / "r", [("mixed_lanes", "a", 0, 2, 1024, 0.0, 1.0)], config))
    assert row[1:3] == [count, kind]


STEPS = [
    ("hfreduce_alone", "a", 0, 2, 8, 0.0, 1.0),
    ("mixed_lanes", "a", 0, 2, 8, 0.0, 2.0),
    ("mixed_lanes", "b", 0, 2, 8, 0.0, 4.0),
    ("mixed_lanes", "b", 1, 4, 8, 0.0, 4.0),
]


def test_there_is_a_table_per_phase_job_and_number_of_ranks(tmp_path: Path) -> None:
    result = written(tmp_path / "r", STEPS)
    titles = [line for line in lines(result) if line.startswith("# phase ")]
    assert titles == [
        "# phase hfreduce_alone, job a: allreduce over 2 ranks",
        "# phase mixed_lanes, job a: allreduce over 2 ranks",
        "# phase mixed_lanes, job b: allreduce over 2 ranks",
        "# phase mixed_lanes, job b: allreduce over 4 ranks",
    ]
    assert [row[5] for row in rows(result, phase="mixed_lanes", job="a")] == ["2000000"]
    assert [row[5] for row in rows(result, job="a")] == ["1000000", "2000000"]


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"phase": "mixed_lane"}, "--phase mixed_lane: .* has no such phase; did you mean mixed_lanes"),
        ({"job": "zz"}, "--job zz: has no place in this format; it has a, b"),
        ({"phase": "hfreduce_alone", "job": "b"}, "--phase hfreduce_alone --job b: nothing is of both; omit one"),
    ],
)
def test_a_choice_of_nothing_is_refused(tmp_path: Path, choice: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lines(written(tmp_path / "r", STEPS), **choice)


def test_a_run_without_collectives_says_what_it_has(tmp_path: Path) -> None:
    result = Result(write_result(tmp_path / "r", Recipe(TINY, without=("steps", "rank_steps"))))
    with pytest.raises(UsageError, match=r"has no collectives, .*; it has storage \(read, write\)"):
        nccl_tests(result)


def test_scaled_rates_are_told(tmp_path: Path) -> None:
    result = written(tmp_path / "r", STEPS)
    assert lines(result)[1] == "# NICs of 20 Mbit/s stand for 200 Gbit/s; figures are those of the emulated NICs"


class ResultOfWork(Result):
    """One that knows the tables of jobs of work."""

    @property
    def known_tables(self) -> Mapping[str, Table]:
        return {**TABLES, **tables_of_jobs()}


def test_calls_of_a_replay_are_steps_from_when_their_last_rank_began(tmp_path: Path) -> None:
    """Of two ranks: three calls of one group, of two sizes; a group of one rank has none."""
    result = written(tmp_path / "r", [])
    rows = [
        {"phase": "replay", "job": "ddp", "host": f"h{rank}", "rank": rank, "step": 0, "operation": place,
         "name": "", "kind": kind, "stream": "", "partner": group, "size_bytes": size, "ready_s": 0.0,
         "started_s": at + 0.25 * rank, "ended_s": at + 1.25 - 0.125 * rank}
        for place, (kind, group, size, at) in enumerate(
            [("allreduce", "dp", 4000, 1.0), ("compute", "", 0, 2.0), ("allreduce", "dp", 4000, 3.0),
             ("allreduce", "dp", 8000, 5.0)])
        for rank in range(2)
    ]  # fmt: skip
    rows.append({**rows[0], "partner": "alone", "operation": 9})
    ResultWriter(tmp_path / "r", tables_of_jobs()).write_table("work_operations", pd.DataFrame(rows))
    found = lines(ResultOfWork(tmp_path / "r"))
    assert "# phase replay, job ddp: allreduce over 2 ranks" in found
    table = [line.split() for line in found if line and not line.startswith("#")]
    assert [row[0] for row in table] == ["4000", "8000"]
    assert {row[5] for row in table} == {"1000000"}
    assert any(line.startswith("# iters by size: 4000: 2, 8000: 1") for line in found)
    assert not any("over 1 ranks" in line for line in found)
    assert result.table("steps").empty
