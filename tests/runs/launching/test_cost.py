"""What a run cost the machine: measured from its events, kept beside its result, told in a table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from fabric.errors import ResultError, UsageError
from fabric.measure.cores import CpuUse
from fabric.report.cost import COLUMNS, cost_table, costs, costs_table
from fabric.report.figures.cost import growth
from fabric.results import Result
from fabric.world.virtual.spent import Spent, spent
from fabric.world.virtual.watch import GuestTime
from runs.launching import cost
from runs.launching.cost import Cost, CostMeter
from runs.launching.events import Note, PhaseProgress
from tests.synthetic_result import Recipe, write_result

MakeResult = Callable[..., Result]
COST = Cost(setup_s=4, phases_s=20, wall_s=25, memory_bytes=1_500_000_000)


@pytest.fixture
def make_result(tmp_path: Path) -> MakeResult:
    """Return a function that writes a result, with the fields of ``Recipe`` as options, and reads it."""
    count = iter(range(100))
    return lambda **options: Result(write_result(tmp_path / f"run{next(count)}", Recipe(**options)))


def clock_of(*moments: float) -> Callable[[], float]:
    times: Iterator[float] = iter(moments)
    return lambda: next(times)


def test_phases_are_format_apart_from_what_is_before_and_between_them() -> None:
    meter = CostMeter(clock_of(100, 104, 106, 110, 120, 121, 125))
    meter.report(Note("building"))
    for event in (
        PhaseProgress("alone", 0.0),  # At 104.
        PhaseProgress("alone", 0.5),
        PhaseProgress("alone", 1.0),  # At 110.
        PhaseProgress("together", 0.0),  # At 120.
        PhaseProgress("together", 1.0),
    ):
        meter.report(event)
    found = meter.cost()
    assert (found.setup_s, found.phases_s, found.wall_s) == (4, 7, 25)


def test_a_run_without_phases_is_all_setup() -> None:
    assert CostMeter(clock_of(100, 107)).cost().setup_s == 7


def test_memory_is_what_was_available_less_the_least_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "_LOOK_S", 0.001)
    seen = iter([900, 700, 300])
    looked: list[int] = []

    def available_bytes() -> int:
        looked.append(next(seen, 800))
        return looked[-1]

    monkeypatch.setattr(cost, "available_bytes", available_bytes)
    with CostMeter() as meter:
        while len(looked) < 5:
            time.sleep(0.001)
    assert meter.cost().memory_bytes == 900 - 300


def test_it_is_written_once_and_read_with_the_result(make_result: MakeResult) -> None:
    result = make_result()
    assert (result.cost, cost_table(result)) == ({}, None), "a result from before it was measured"
    COST.write(result.directory)
    again = Result(result.directory)
    assert again.cost == COST.as_json()
    with pytest.raises(ResultError, match=r"cost.json: cannot be written"):
        COST.write(result.directory)


def test_packets_are_told_per_second_of_phases(make_result: MakeResult) -> None:
    result = make_result()
    counted = {"alone": {"switched_packets": 1_000_000}, "together": {"switched_packets": 3_000_000}}
    path = result.directory / "manifest.json"
    path.write_text(json.dumps({**result.manifest, "conservation": counted}))
    COST.write(result.directory)
    table = cost_table(Result(result.directory))
    assert table is not None
    assert [list(row) for row in table.rows] == [["25 s", "4 s", "20 s", "1.50 GB", "4,000,000", "200,000"]]


def test_a_guests_cpu_time_is_of_its_kernel_its_programs_and_those_around_it(
    make_result: MakeResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter([Spent(1, 2, 10), Spent(2, 2, 20), Spent(4, 5, 0), None, None])  # At last it has ended.
    monkeypatch.setattr(cost, "spent", lambda process: {7: next(used)}[process])
    monkeypatch.setattr(cost, "cpu_s", {8: 0.5}.__getitem__)
    events = (GuestTime(13.0, 1.0, 7, 8), PhaseProgress("alone", 0.0), PhaseProgress("alone", 1.0), Note("done"))

    def metered(guests: int) -> Cost:
        meter = CostMeter(guests=guests)
        for event in events:
            meter.report(event)
        return meter.cost()

    found = metered(guests=1)
    assert (found.kernel_cpu_s, found.programs_cpu_s, found.phases_cpu_s, found.memory_bytes) == (4, 5, 5, 20)
    assert found.host_cpu_s == pytest.approx(0.5, abs=0.3), "with this process's own"
    assert metered(guests=2).kernel_cpu_s is None, "the others would lack"
    result = priced(make_result, "fire_flyer_2_small", 1_000_000, found, engine="virtual")
    table = cost_table(result)
    assert table is not None
    assert table.rows[0][-3:] == ("4.0 s", "5.0 s", "200,000")
    assert costs([result])["cpu_s"].tolist() == [5]


def test_a_process_is_counted_with_its_children(tmp_path: Path) -> None:
    program = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; sleep 60'; true"
    with subprocess.Popen(["sh", "-c", program], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()  # Its child has computed.
        found = spent(shell.pid)
        assert found is not None
        for child in below(shell.pid):
            os.kill(child, signal.SIGKILL)
        shell.kill()
    assert found.programs_cpu_s >= 0.05 and found.kernel_cpu_s < found.programs_cpu_s
    assert spent(shell.pid) is None, "it has gone"


def below(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "cost.json").symlink_to(tmp_path / "victim")
    with pytest.raises(ResultError, match=r"cost.json: cannot be written"):
        COST.write(tmp_path)
    assert (tmp_path / "victim").read_text() == "mine"


def priced(make_result: MakeResult, fabric: str, packets: int, cost: Cost, **options: object) -> Result:
    """Return a result with a cost, whose only phase passed so many packets."""
    result = make_result(fabric=fabric, **options)
    path = result.directory / "manifest.json"
    used = {"alone": CpuUse(4, 1, 2, 1, 0.5, 0, 0, 20, 2, 0, 2).as_json()}
    told = {"conservation": {"alone": {"switched_packets": packets}}, "cpu": used, "setup": {"rules": 7 * packets}}
    path.write_text(json.dumps({**result.manifest, **told}))
    cost.write(result.directory)
    return Result(result.directory)


def test_costs_of_several_runs_stand_beside_what_was_run(make_result: MakeResult) -> None:
    small = priced(make_result, "fire_flyer_2_small", 1_000_000, COST)
    large = priced(make_result, "two_hundred_hosts", 5_000_000, replace(COST, phases_s=10), engine="virtual")
    found = costs([small, large])
    sizes = found[["hosts", "switches", "links", "rules", "switched_packets", "cpu_s"]].to_numpy().tolist()
    assert sizes == [[28, 18, 72, 7_000_000, 1_000_000, 8.5], [200, 30, 300, 35_000_000, 5_000_000, 8.5]]
    table = costs_table(found)
    assert [row[-2:] for row in table.rows] == [("50 k", "8.5 s"), ("500 k", "1.7 s")]
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_each_cost_is_drawn_over_each_size_a_line_for_each_engine(make_result: MakeResult) -> None:
    runs = [
        priced(make_result, fabric, packets, COST, engine=engine)
        for engine in ("namespace", "virtual")
        for fabric, packets in (("two_hundred_hosts", 5_000_000), ("fire_flyer_2_small", 1_000_000))
    ]
    panels = growth(costs(runs)).subfigs[1].axes
    assert len(panels) == 3 * 4
    hosts, rules = (panels[place].lines for place in (0, 1))
    assert len(hosts) == len(rules) == 2
    assert [np.asarray(line.get_xdata()).tolist() for line in hosts] == [[28, 200]] * 2, "in order of size"
    assert [np.asarray(line.get_xdata()).tolist() for line in rules] == [[7e6, 35e6]] * 2


def test_a_result_without_a_cost_is_named(make_result: MakeResult, capsys: pytest.CaptureFixture[str]) -> None:
    old = make_result()
    assert main(["cost", str(old.directory)]) == UsageError.exit_code
    told = capsys.readouterr().err
    assert "run0: has no cost.json, since it was run before costs were measured; run it again" in told


def test_the_command_prints_writes_and_draws(
    make_result: MakeResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = priced(make_result, "fire_flyer_2_small", 1_000_000, COST)
    table, figures = tmp_path / "cost.csv", tmp_path / "figures"
    assert main(["cost", str(result.directory), "--csv", str(table), "--out", str(figures)]) == 0
    assert "50 k" in capsys.readouterr().out
    assert table.read_text().splitlines()[0].split(",") == [name for name, _ in COLUMNS]
    assert sorted(path.name for path in figures.iterdir()) == ["cost.png", "cost.svg"]
