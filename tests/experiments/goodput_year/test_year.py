"""Years that are composed: causes sum to the whole, the best interval is near Young's, and closed forms hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cluster.faults.classes import Effect
from cluster.simulation.goodput import Cause
from cluster.simulation.measured import MeasuredCosts, SpineCost
from experiments.goodput_year.config import YearConfig
from experiments.goodput_year.summary import _year_metrics
from experiments.goodput_year.year import (
    ASYNCHRONOUS,
    SYNCHRONOUS,
    Composed,
    best_interval,
    compose,
    shares,
    slowed,
    whole_machine,
)
from runs.registry import resolve
from tests.experiments.declared import undeclared

CONFIG: Any = resolve("goodput_year", [])[1]
MEASURED = MeasuredCosts(
    detect_error=2, detect_silent=60, stop=0.5, start=1, answer=1, suspend_save=3, cut=11, slow_communication=2,
    restore_part=0.8, write_part=0.5, replicas=3, storage_lost=11, resync=1, wrong_part=0.5, validation=4,
    spine=SpineCost(spines=4, stall=2, slow_communication=1.2),
)  # fmt: skip
YEAR: YearConfig = CONFIG.year.model_copy(
    update={
        "days": 20.0, "sweep_days": 20.0, "seeds": 2, "intervals": [30.0, 120.0, 300.0, 1200.0], "spares": [0, 20],
        "validations": [1.0, 7.0],
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def composed() -> Composed:
    return compose(YEAR, MEASURED, seed=1, tell=lambda text: None)


def test_causes_of_each_year_sum_to_the_whole(composed: Composed) -> None:
    assert [one.machine.name for one in composed.played] == ["fire_flyer_2", "llama3", "rsc1"]
    for played in composed.played:
        rows = list(shares(played))
        for seed in played.years:
            own = {cause: share for year, cause, share in rows if year == seed}
            assert math.fsum(own.values()) == pytest.approx(1, abs=1e-9)
            assert set(own) == set(Cause) and min(own.values()) > -1e-9


def test_all_numbers_of_a_year_are_declared(composed: Composed) -> None:
    found = list(_year_metrics(composed))
    assert undeclared("goodput_year", found) == []
    assert {f"{one.machine.name}.runtime_fraction" for one in composed.played} < {one.name for one in found}


def test_what_is_published_holds(composed: Composed) -> None:
    """More than 90 % with Llama 3's rates, and at most five minutes of steps lost to a failure, but for those until a
    checkpoint is complete."""
    by_name = {one.machine.name: one for one in composed.played}
    assert all(one.goodput.runtime > 0.9 for one in by_name["llama3"].years.values())
    for played in composed.played:
        costs = played.machine.costs[ASYNCHRONOUS]
        each = np.array(played.lost_per_failure_s)
        most_s = 300 + costs.save + costs.durable + 1e-6
        assert each.max() <= most_s + 300, "a node that computed wrong loses one interval more"
        assert (each > most_s).mean() < 0.12
    lost, durable_s = by_name["llama3"].lost_per_failure_s, by_name["llama3"].machine.costs[ASYNCHRONOUS].durable
    assert sum(lost) / len(lost) == pytest.approx(150 + durable_s + 300 * 6 / 419, rel=0.1)


def test_goodput_over_intervals_is_that_of_dalys_model(composed: Composed) -> None:
    points = [one for one in composed.points if one.sweep == "interval"]
    assert len(points) == 3 * 2 * 4
    for one in points:
        assert one.goodput.median == pytest.approx(one.theory, abs=0.012), one
    synchronous = best_interval(points, "llama3", SYNCHRONOUS)
    (curve,) = (one for one in composed.curves if (one.machine, one.way) == ("llama3", SYNCHRONOUS))
    assert synchronous is not None
    assert synchronous.value / 3 < curve.young_s < synchronous.value * 3


def test_what_no_table_counts_comes_as_often_as_given_and_costs_what_was_measured(composed: Composed) -> None:
    """Storage nodes of all three, switches where their number is known, nodes that compute wrong where the table has
    none of these; each with its own cause of lost time, and the validator once a week."""
    by_name = {one.machine.name: one for one in composed.played}
    given = {
        name: {one.effect: one.events / one_.machine.table.days for one in one_.machine.table.classes
               if one.cause == "given, not counted"}
        for name, one_ in by_name.items()
    }  # fmt: skip
    assert given["fire_flyer_2"] == pytest.approx(
        {Effect.STORAGE_DOWN: 0.036, Effect.SWITCH_DOWN: 0.0168 * 0.12, Effect.CORRUPTION: 0.0543 * 1.25}
    )
    assert given["llama3"] == pytest.approx({Effect.STORAGE_DOWN: 1.5}), "its table has switches and wrong data"
    costs = by_name["fire_flyer_2"].machine.costs[ASYNCHRONOUS]
    assert (costs.storage, costs.spine, costs.wrong) == pytest.approx((12, 2, 0.5 * costs.restore))
    assert costs.spine_slowdown == pytest.approx(1 + 0.2 * 0.2 * 4 / 20), "of 20 spines in a zone one is lost"
    for seed, year in by_name["llama3"].years.items():
        node_s, nodes = year.goodput.node_s, 2048
        assert node_s[Cause.STORAGE] == pytest.approx(nodes * 12 * 30, rel=0.45), seed
        assert node_s[Cause.VALIDATION] == pytest.approx(nodes * 604 * 2)


def test_a_machines_bytes_take_its_own_rate() -> None:
    costs = whole_machine(YEAR, MEASURED, "llama3").costs
    assert costs[ASYNCHRONOUS].restore == pytest.approx(5670e9 / (0.8 * 2e12))
    assert costs[ASYNCHRONOUS].save == pytest.approx(5670e9 / 2048 / 27e9)
    assert costs[ASYNCHRONOUS].durable == costs[SYNCHRONOUS].save == pytest.approx(3 * 5670e9 / (0.5 * 2e12))
    assert costs[SYNCHRONOUS].durable == 0
    assert costs[ASYNCHRONOUS].start == 31
    assert costs[ASYNCHRONOUS].slowdown == pytest.approx(1.2)


def test_the_closed_form_waits_for_a_checkpoint_that_takes_longer_than_the_interval() -> None:
    machine = whole_machine(YEAR, MEASURED, "llama3")
    costs = machine.costs[ASYNCHRONOUS].model_copy(update={"save": 0.5, "durable": 60.0})
    short, whole = (machine.theory(costs.model_copy(update={"interval": one})) for one in (6.0, 60.0))
    assert short == pytest.approx(whole / 10, rel=0.02), "a tenth of the steps in the same time"


def test_a_validator_that_comes_more_often_finds_slow_nics_sooner_and_takes_more_time(composed: Composed) -> None:
    points = {(one.machine, one.value): one for one in composed.points if one.sweep == "validator"}
    assert len(points) == 6
    assert points["fire_flyer_2", 1.0].goodput.median == pytest.approx(points["fire_flyer_2", 1.0].theory, abs=0.01)


def test_how_long_any_nic_is_slow_is_that_of_the_closed_form() -> None:
    rng = np.random.default_rng(1)
    days, per_period = 7.0, 0.1 / 1000 * 2048 * 7.0
    first = [rng.uniform(0, days, count).min() if (count := rng.poisson(per_period)) else days for _ in range(20_000)]
    part = 1 - float(np.mean(first)) / days
    assert slowed(0.1, 2048, days, slowdown=1.25) == pytest.approx(part * 0.2, rel=0.03)


def test_spare_nodes_keep_a_job_from_waiting(composed: Composed) -> None:
    points = {(one.machine, one.value): one.goodput.median for one in composed.points if one.sweep == "spare"}
    assert points["llama3", 20.0] > points["llama3", 0.0] + 0.2
