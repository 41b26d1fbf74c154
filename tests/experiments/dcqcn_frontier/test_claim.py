"""The paper's claim, judged by numbers that are made for it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from experiments.dcqcn_frontier.cases import NO_CONTROL, Alone, Point, Setting
from experiments.dcqcn_frontier.claim import CLAIM
from experiments.dcqcn_frontier.config import DcqcnFrontierConfig
from experiments.dcqcn_frontier.reference import (
    ALGBW,
    P99,
    READ,
    SHARES,
    WORST,
    AnyFound,
    AnyOutcome,
    Kind,
    kinds_of,
    lanes_do,
    limiting,
)
from fabric.metrics import Metric, least_name
from fabric.model.lanes import Queueing
from fabric.records.figure_forms import frontier
from runs.registry import resolve
from runs.session import Session
from runs.study import Found, Outcome
from traffic.congestion_control import DCQCN

CONFIG = cast(DcqcnFrontierConfig, resolve("dcqcn_frontier", [])[1])
LANES = (6e9, 60e9, 200e-6)
Got = tuple[float, float, float]
"""The bandwidths of both programs in bytes per second, and the p99 of reads in seconds; below 0: at least that."""


def outcome(case: Setting, got: Got, stalled_s: float) -> AnyOutcome:
    algbw_Bps, read_Bps, p99_s = got  # noqa: N806 - bytes, not bits
    p99 = (P99, p99_s) if p99_s > 0 else (least_name(P99), -p99_s)
    named = dict([(ALGBW, algbw_Bps), (READ, read_Bps), p99, ("stalled_s", stalled_s)])
    return Outcome(case, [Metric(case.name, "", name, value) for name, value in named.items()])


def found_of(
    points: dict[str, Got],
    stalls: dict[str, float] | None = None,
    reference: Got = LANES,
    alone: tuple[float, float] = (12e9, 90e9),
    suits: float = 0.9,
) -> AnyFound:
    """Return sets of DCQCN's parameters in lanes that stand still for so much of the time without it, by default for a
    tenth."""
    lanes = Queueing.LOSSLESS_LANES
    outcomes = [
        *(outcome(Alone(lanes, NO_CONTROL, name), (rate, rate, 0.0), 0.0)
          for name, rate in zip(("hfreduce", "storage"), alone, strict=True)),
        outcome(Setting(lanes, NO_CONTROL), reference, 1.0),
        *(outcome(Point(lanes, DCQCN, name, 1.0, 1.0), got, (stalls or {}).get(name, 0.1))
          for name, got in points.items()),
    ]  # fmt: skip
    config = CONFIG.model_copy(update={"suits": suits, "queueings": [lanes]})
    found = Found(cast(Session, SimpleNamespace()), config, outcomes)
    return replace(found, outcomes=[replace(one, aside=CLAIM.aside_of(found, one)) for one in outcomes])


def kind_of(*arguments: Any, **more: Any) -> Kind:
    """Return what came of DCQCN."""
    (kind,) = kinds_of(found_of(*arguments, **more), with_dcqcn=True)
    return kind


def names(points: list[AnyOutcome]) -> list[str]:
    return [one.case.profile for one in points]


def nearest(kind: Kind) -> AnyOutcome:
    return kind.nearest("{name}", works=True)


def claim_holds(found: AnyFound) -> bool:
    return bool(next(one.value for one in CLAIM.over_cases(found) if one.name == "claim_holds"))


def test_a_claim_holds_if_every_set_that_works_costs_one_program_more_than_the_tolerance() -> None:
    found = found_of({"slow": (3e9, 70e9, 190e-6), "late": (6e9, 60e9, 400e-6), "near": (5.1e9, 66e9, 200e-6)})
    (claim,) = kinds_of(found, with_dcqcn=True)
    assert (claim_holds(found), lanes_do(found), len(claim.outcomes), claim.suiting) == (True, True, 3, [])
    assert nearest(claim).case.profile == "near"
    assert [nearest(claim)[share] for share in SHARES.values()] == pytest.approx([0.85, 1.1, 1.0])
    assert nearest(claim)[WORST] == pytest.approx(0.85)
    assert limiting(nearest(claim)) == "allreduce bandwidth"


def test_one_set_that_suits_both_and_works_ends_it() -> None:
    points = {"slow": (3e9, 70e9, 190e-6), "good": (5.5e9, 58e9, 210e-6)}
    claim = kind_of(points)
    assert (names(claim.suiting), names(claim.working)) == (["good"], ["good"])
    assert [claim_holds(found_of(points, suits=suits)) for suits in (0.9, 0.95)] == [False, True]


def test_a_set_that_hardly_acts_does_not_end_it() -> None:
    points = {"idle": LANES, "starves": (1e9, 60e9, 200e-6)}
    claim = kind_of(points, {"idle": 0.51})
    assert (names(claim.suiting), names(claim.working), nearest(claim).case.profile) == (["idle"], [], "starves")
    assert claim_holds(found_of(points, {"idle": 0.51}))
    assert names(kind_of(points, {"idle": 0.5}).working) == ["idle"]
    assert nearest(kind_of(points, {"idle": 0.9, "starves": 0.9})).case.profile == "idle"


def test_lanes_that_do_not_give_what_they_promise_end_it_too() -> None:
    found = found_of({"slow": (3e9, 70e9, 190e-6)}, alone=(20e9, 90e9))
    (claim,) = kinds_of(found, with_dcqcn=True)
    assert (claim.working, lanes_do(found), claim_holds(found)) == ([], False, False)


def test_the_frontier_is_what_nobody_beats_in_both_bandwidths() -> None:
    best = [(10.0, 6.0), (20.0, 5.0), (30.0, 1.0)]
    assert frontier([*best, (20.0, 4.0), (15.0, 4.0), (10.0, 6.0)]) == best
    assert frontier([(1.0, 4.0), (3.0, 7.0), (4.0, 3.0)], more_x=False) == [(1.0, 4.0), (3.0, 7.0)]


def test_a_point_whose_p99_is_not_known_suits_nothing_and_is_nearest_last() -> None:
    unknown, far = (9e9, 90e9, -2e-3), (1e9, 90e9, 200e-6)
    claim = kind_of({"unknown": unknown, "far": far})
    assert (claim.suiting, nearest(claim).case.profile, limiting(nearest(claim))) == ([], "far", "allreduce bandwidth")
    alone = kind_of({"unknown": unknown})
    assert (nearest(alone).case.profile, limiting(nearest(alone)), alone.working) == ("unknown", "read p99", [])
    assert nearest(alone)["algbw_share"] == nearest(alone)["read_share"] == 1.5


def test_nothing_is_known_beside_a_reference_whose_p99_is_not() -> None:
    assert kinds_of(found_of({"slow": LANES}, reference=(6e9, 60e9, -1.0))) == []
    assert kinds_of(found_of({"slow": LANES}, alone=(0.0, 90e9))) == []
