"""Traffic patterns: what is observed of a phase, what theory says of uplinks, the summary, and configs refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from controllers.planning.paths import planned_path
from controllers.planning.planner import plan_routes
from controllers.planning.policies import ECMP, STATIC
from controllers.routing import Routing
from experiments.traffic_patterns.cases import Variant
from experiments.traffic_patterns.config import Pattern, TrafficPatternsConfig
from experiments.traffic_patterns.experiment import EXPERIMENT
from experiments.traffic_patterns.flows import goodputs
from experiments.traffic_patterns.phases import PatternPhase
from experiments.traffic_patterns.study import STUDY
from experiments.traffic_patterns.tables import FLOWS, UPLINKS
from experiments.traffic_patterns.uplinks import expected_on_uplinks, flows_on_uplinks
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.network import Port
from fabric.model.patterns import NicPair
from runs.registry import resolve
from runs.session import Session
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_result
from topologies.load import load_fabric
from traffic.metrics import payload_fraction

FABRIC = load_fabric("fat_tree_k4_small", ["nic_rate=20 Mbit/s", "uplink_rate=20 Mbit/s"])
PLAN = plan_routes(FABRIC, Routing(policy=STATIC))
RATE_BPS = 20e6
PAYLOAD = payload_fraction(FABRIC.mtu_bytes)
A, B, C, D = (FABRIC.nics_of[FABRIC.computes[place]][0] for place in (0, 1, 8, 9))
"""Two NICs of one leaf, and two of another pod's."""


def phase(goodput_bps: Mapping[NicPair, float], pattern: str = "permutation") -> PatternPhase:
    paths = {flow: dict.fromkeys(planned_path(PLAN, FABRIC, *flow), 1.0) for flow in goodput_bps}
    return PatternPhase("p", pattern, "static", paths, goodput_bps, dict.fromkeys(goodput_bps, RATE_BPS * PAYLOAD))


def samples(sent_bytes: Mapping[Port, tuple[int, int]]) -> pd.DataFrame:
    """Samples of ports one second apart, two of them within the measured time, from 9.5 to 11.5 s."""
    rows = [
        {"at_s": at_s, "port": str(port), "lane": "nccl", "sent_bytes": sent}
        for port, (first, last) in sent_bytes.items()
        for at_s, sent in ((9.0, 0), (10.0, first), (11.0, last), (12.0, 10**9))
    ]
    return pd.DataFrame(rows)


def test_each_uplink_of_a_leaf_has_its_flows_and_what_it_carried_in_the_measured_time() -> None:
    flows = {(A, C): 12e6 * PAYLOAD, (B, A): 5e6}
    seen = phase(flows)
    up = [*seen.paths[(A, C)]][1]
    frame = seen.uplinks_frame(FABRIC, samples({up: (1_000, 1_501_000)}), (9.5, 11.5)).set_index("port")
    assert len(frame) == 8 * 2, "two uplinks of each of eight leaves"
    assert frame["flows"].sum() == 1, "the other flow stays on its leaf"
    own = frame.loc[str(up)]
    assert (own["flows"], own["flows_of_leaf"]) == (1, 1)
    assert own["delivered_bps"] == pytest.approx(12e6)
    assert own["carried_bps"] == pytest.approx(12e6)
    (beside,) = frame[(frame["flows_of_leaf"] == 1) & (frame["flows"] == 0)]["carried_bps"]
    assert beside == 0
    rows = seen.flows_frame()
    assert list(rows["source"]) == [str(A.port), str(B.port)]
    assert list(rows["goodput_bps"]) == list(flows.values())


def test_static_routes_in_theory_are_what_all_permutations_of_a_leaf_come_to() -> None:
    """Two flows leave a leaf, to 2 of the 14 NICs elsewhere: 7 by each uplink. Counted over every pair of them."""
    leaf = FABRIC.leaf_of(A)
    elsewhere = [FABRIC.nics_of[host][0] for host in FABRIC.computes if FABRIC.leaf_of(FABRIC.nics_of[host][0]) != leaf]
    counted: Counter[int] = Counter()
    for one in elsewhere:
        for other in elsewhere:
            if one != other:
                ways = Counter(planned_path(PLAN, FABRIC, *flow)[1] for flow in ((A, one), (B, other)))
                counted.update(ways[port] for port in FABRIC.uplinks_of(leaf))
    uplinks = phase({(A, C): 1.0, (B, D): 1.0}).uplinks_frame(FABRIC, samples({A.port: (0, 0)}), (9.5, 11.5))
    of_leaf = uplinks[uplinks["flows_of_leaf"] == 2]
    expected = {count: number / counted.total() for count, number in sorted(counted.items())}
    assert expected_on_uplinks(FABRIC, STATIC, True, of_leaf) == pytest.approx(expected)
    assert expected_on_uplinks(FABRIC, ECMP, True, of_leaf) == pytest.approx({0: 0.25, 1: 0.5, 2: 0.25})


def test_where_no_leaf_has_an_uplink_there_is_no_theory_of_them() -> None:
    uplinks = phase({(A, C): 1.0}).uplinks_frame(FABRIC, samples({A.port: (0, 0)}), (9.5, 11.5))
    for policy in (STATIC, ECMP):
        assert expected_on_uplinks(FABRIC, policy, True, uplinks.iloc[:0]) == {}


def summary_of(pattern: Pattern, flows: pd.DataFrame, uplinks: pd.DataFrame) -> dict[str, Any]:
    """Return the summary of a draw of a pattern by static routes."""
    tables = {FLOWS: flows, UPLINKS: uplinks}
    session = SimpleNamespace(phases=[], live=SimpleNamespace(fabric=FABRIC), table=tables.__getitem__)
    return STUDY.summarize(cast(Session, session), config("draws=1"), [Variant(pattern, STATIC)])


def test_the_summary_sets_what_arrived_beside_theory() -> None:
    flows = {(A, C): RATE_BPS * PAYLOAD, (B, D): RATE_BPS * PAYLOAD / 2}
    seen = phase(flows)
    up = [*seen.paths[(A, C)]][1]
    uplinks = seen.uplinks_frame(FABRIC, samples({up: (0, 2_500_000)}), (9.5, 11.5))
    found = summary_of(Pattern.PERMUTATION, seen.flows_frame(), uplinks)
    assert undeclared("traffic_patterns", found["metrics"]) == []
    metrics = {name.removeprefix("permutation_static."): value for name, value in by_path(found["metrics"]).items()}
    assert metrics["nics_used_fraction"] == pytest.approx(1.5 / 16)
    assert metrics["theory_nics_used_fraction"] == pytest.approx(2 / 16)
    assert (metrics["share_p50_fraction"], metrics["share_least_fraction"]) == pytest.approx((0.5, 0.5))
    assert metrics["uplink_flows_mean"] == pytest.approx(2 / 16)
    assert metrics["carried_off_fraction"] == pytest.approx(0.5), "the other uplink carried nothing of its 10 Mbit/s"
    assert found["answer"] == (
        "Of what all NICs could receive, there arrive: permutation by static routes 9% (12% in theory)."
    )


def test_of_static_all_to_all_nothing_is_left_to_chance() -> None:
    seen = phase({(A, C): 1.0}, pattern="all_to_all")
    uplinks = seen.uplinks_frame(FABRIC, samples({A.port: (0, 0)}), (9.5, 11.5))
    found = summary_of(Pattern.ALL_TO_ALL, seen.flows_frame(), uplinks)
    of_uplinks = [one for one in found["cases"] if "flows" in one["settings"]]
    assert {one["settings"]["of"] for one in of_uplinks} == {"measured"}
    assert not any("theory_uplink" in name for name in by_path(found["metrics"]))
    assert found["tables"][1].words[0][5] == found["tables"][1].words[0][7] == "-"


def test_parts_are_distributions_beside_theory() -> None:
    flows = pd.DataFrame({"goodput_bps": [1.0, 2.0, 3.0, 4.0], "fair_bps": [2.5] * 4})
    uplinks = pd.DataFrame({"flows": [0, 0, 1, 3]})
    parts = [*goodputs(flows), *flows_on_uplinks(uplinks, {0: 0.25, 1: 0.7, 2: 0.05, 5: 1e-9})]

    def shown(x: str, of: str, number: str) -> dict[str, float]:
        mine = [one for one in parts if x in one.settings and one.settings["of"] == of]
        return {one.settings[x]: one.numbers[number] for one in mine}

    values = shown("flows_percent", "measured", "goodput_bps")
    assert (values["0"], values["50"], values["55"], values["100"]) == (1, 2, 3, 4)
    assert set(shown("flows_percent", "in theory", "goodput_bps").values()) == {2.5}
    assert shown("flows", "measured", "uplinks_fraction") == {"0": 0.5, "1": 0.75, "2": 0.75, "3": 1}
    assert shown("flows", "in theory", "uplinks_fraction") == pytest.approx({"0": 0.25, "1": 0.95, "2": 1})


def test_a_result_of_before_has_the_same_figures(tmp_path: Path) -> None:
    seen = phase({(A, C): RATE_BPS * PAYLOAD, (B, D): RATE_BPS * PAYLOAD / 2})
    uplinks = seen.uplinks_frame(FABRIC, samples({A.port: (0, 0)}), (9.5, 11.5))
    frames = {FLOWS: seen.flows_frame(), UPLINKS: uplinks}
    theory = {"permutation_static": [[0, 0.75], [1, 0.25]]}
    tables = {name: frame[list(EXPERIMENT.load_tables()[name].dtypes)] for name, frame in frames.items()}
    earlier = own_result(tmp_path / "e", EXPERIMENT, summary={"uplinks_in_theory": theory}, own=tables)
    drawn = {spec.name: spec.draw(earlier) for spec in EXPERIMENT.load_figures()}
    lines = {
        name: {
            str(line.get_label()): np.asarray(line.get_ydata(), dtype=float).tolist()
            for part in figure.subfigs
            for panel in part.axes
            for line in panel.lines
        }
        for name, figure in drawn.items()
        if figure is not None
    }
    assert lines["flows_on_uplinks"] == {
        "static, measured": pytest.approx([14 / 16, 1]),
        "static, in theory": pytest.approx([0.75, 1]),
    }
    full = RATE_BPS * PAYLOAD / 1e6
    assert lines["goodputs"]["static, measured"] == pytest.approx([full / 2] * 11 + [full] * 10)
    assert lines["goodputs"]["static, in theory"] == pytest.approx([full] * 21)


def config(*settings: str) -> TrafficPatternsConfig:
    found = resolve("traffic_patterns", ["topology=fat_tree_k4_small", *settings])[1]
    assert isinstance(found, TrafficPatternsConfig)
    return found


def test_other_draws_and_seeds_are_other_permutations_and_all_to_all_is_one() -> None:
    one, other = config(), config("seed=2")
    drawn = [made.flows(FABRIC, Pattern.PERMUTATION, draw) for made in (one, other) for draw in (0, 1)]
    assert len({tuple(flows) for flows in drawn}) == 4
    assert drawn[0] == one.flows(FABRIC, Pattern.PERMUTATION, 0)
    assert len(one.flows(FABRIC, Pattern.ALL_TO_ALL, 0)) == 16 * 15
    assert len(config("most_flows=48").flows(FABRIC, Pattern.ALL_TO_ALL, 0)) == 48


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["policies=[adaptive]"], "policies: adaptive: theory needs paths that stay; use static"),
        (["routing.policy=ecmp"], "routing.policy: ecmp is not what decides here; remove it and set policies"),
        (["measured_time=100 us"], "measured_time: 100 us, in which nothing can be measured: 32 frames take"),
        (["topology=fire_flyer_2_tiny", "topology.compute=1"], "topology: 1 compute nodes; this needs 2"),
    ],
)
def test_what_does_not_fit_is_refused(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(*settings)
