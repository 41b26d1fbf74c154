"""What head_of_line says of a run, and what theory says of it: numbers from rows, shares from full buffers."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.head_of_line.config import HeadOfLineConfig
from experiments.head_of_line.study import FLOWS, RATES, STUDY, Repeat, closed_form_bps
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.lanes import Queueing
from fabric.records.conservation import Conservation
from fabric.results import Phase
from fabric.tables import TABLES
from runs.record import summary_as_json
from runs.registry import resolve
from runs.session import PhaseOutcome, Session
from tests.experiments.declared import undeclared
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.job import Records
from traffic.metrics import payload_fraction

FABRIC = load_fabric("head_of_line")
CONFIG = cast(HeadOfLineConfig, resolve("head_of_line", [])[1])
PHASES = [(queueing, number) for queueing in CONFIG.queueings for number in (1, 2, 3)]
C = 1e9 * payload_fraction(FABRIC.mtu_bytes)
"""What a NIC carries of payload."""
VICTIM = next(iter(FLOWS))


def table(name: str, rows: list[list[object]]) -> pd.DataFrame:
    return table_of(name, rows).astype(TABLES[name].dtypes)


def victim_bps(queueing: Queueing, number: int) -> float:
    return (330e6 if queueing is Queueing.LOSSLESS else 980e6) + number * 1e6


class FakeSession:
    """Three repeats of 1 s of each queueing."""

    def __init__(self) -> None:
        self.live = SimpleNamespace(fabric=FABRIC)
        self.phases = [self._outcome(at, *phase) for at, phase in enumerate(PHASES)]

    def _outcome(self, at: int, queueing: Queueing, number: int) -> PhaseOutcome:
        drops = 0 if queueing.is_lossless else 7 * number
        counted = Conservation(100, 100, 100, drops, 0, 0, {}, 0, retransmissions=drops)
        phase = Phase(Repeat(queueing, number, 3).name, "title", queueing.value, float(at), at + 1.0)
        return PhaseOutcome(phase, Records(), counted, pd.DataFrame())

    def table(self, name: str) -> pd.DataFrame:
        rows: list[list[object]] = []
        for at, (queueing, number) in enumerate(PHASES):
            if name == "operations":
                for name_of_flow, (source, sink, level, _) in FLOWS.items():
                    rate = victim_bps(queueing, number) if name_of_flow == VICTIM else 300e6
                    hosts = [FABRIC.computes[place].name for place in (source, sink)]
                    size, phase = round(rate / 8 * 0.5), Repeat(queueing, number, 3).name
                    rows.append([phase, level.label, "stream", *hosts, size, at, at + 0.5, 0])
            elif name == "stalls" and queueing.is_lossless:
                port = str(FABRIC.nics_of[FABRIC.computes[3]][0].port)
                rows += [
                    [at + 0.1, port, "hfreduce", 1, 0, 0, 0],
                    [at + 0.9, port, "hfreduce", 9, 5 * 10**8, 4096, 5000],
                ]
                rows += [[at + 0.1, "z0l00:1", "storage", 0, 0, 0, 0], [at + 0.9, "z0l00:1", "storage", 5, 10**8, 1, 1]]
        return table(name, rows)


@cache
def usual_summary() -> dict[str, Any]:
    return STUDY.summarize(cast(Session, FakeSession()), CONFIG, Repeat.grid(CONFIG))


def in_theory(queueing: Queueing) -> list[float]:
    return list(closed_form_bps(FABRIC, queueing).values())


def test_no_port_in_theory_carries_more_than_its_link() -> None:
    for queueing in CONFIG.queueings:
        _, *into_host = rates = in_theory(queueing)
        assert sum(into_host) == pytest.approx(C), "the port to the host of the three is full"
        assert max(rates) <= C


def test_in_theory_both_uplinks_carry_the_same_to_a_full_port_without_losses() -> None:
    victim, beside, *others = in_theory(Queueing.LOSSLESS)
    assert victim + beside == pytest.approx(sum(others))
    _, beside, *others = in_theory(Queueing.LOSSLESS_LANES)
    assert beside == pytest.approx(sum(others))


def test_only_one_lossless_lane_costs_the_victim() -> None:
    shares = {queueing: closed_form_bps(FABRIC, queueing)[RATES[VICTIM]] for queueing in CONFIG.queueings}
    assert shares.pop(Queueing.LOSSLESS) == pytest.approx(C / 3)
    assert set(shares.values()) == {C}


def test_the_flows_are_where_the_question_has_them() -> None:
    def leaf(place: int) -> str:
        return FABRIC.leaf_of(FABRIC.nics_of[FABRIC.computes[place]][0]).name

    victim, beside, *others = FLOWS.values()
    assert leaf(victim[0]) == leaf(beside[0]) != leaf(others[0][0]) == leaf(others[1][0])
    assert leaf(victim[1]) == leaf(beside[1]) not in {leaf(source) for source, *_ in FLOWS.values()}
    assert victim[1] != beside[1] == others[0][1] == others[1][1]
    assert victim[2] is not beside[2]


def test_goodput_is_what_headers_leave() -> None:
    assert payload_fraction(FABRIC.mtu_bytes) == pytest.approx(4148 / 4214)


def test_a_rate_is_what_a_stream_delivered_over_its_time() -> None:
    assert by_path(usual_summary()["metrics"])["lossless_2.victim_bps"] == pytest.approx(332e6)
    assert undeclared("head_of_line", usual_summary()["metrics"]) == []
    assert by_path(usual_summary()["metrics"])["shared_3.drops_packets"] == 21
    assert by_path(usual_summary()["metrics"])["lossless_1.victim_stalled_fraction"] == pytest.approx(0.5)
    assert "shared_1.stalls" not in by_path(usual_summary()["metrics"])


def test_the_tables_tell_medians_with_their_spread() -> None:
    throughput, network = (found.words for found in usual_summary()["tables"])
    assert len(throughput) == len(CONFIG.queueings) * len(FLOWS)
    assert throughput[8][:4] == ["one lossless lane", "victim", "332 (331-333)", "328"]
    assert network[0] == ["one shared queue", "14", "14", "-", "-", "-", "-"]
    assert network[2] == ["one lossless lane", "0", "0", "13", "50%", "50%", "4.0 KiB"]


def test_the_answer_names_each_queueing_and_its_theory() -> None:
    assert "332 Mbit/s in one lossless lane (theory: 328 Mbit/s)" in usual_summary()["answer"]
    json.dumps(summary_as_json(usual_summary()), allow_nan=False)


def test_a_fabric_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match="this needs 6 at 3 leaves with 1 spine"):
        resolve("head_of_line", ["topology=fire_flyer_2_small"])


def test_a_time_that_holds_no_frames_is_refused() -> None:
    with pytest.raises(ConfigError, match="measured: 10 us, in which nothing can be measured: 32 frames take"):
        resolve("head_of_line", ["measured=10 us"])


def test_a_queueing_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="named more than once"):
        resolve("head_of_line", ["queueings=[shared, shared]"])


def test_times_scale_with_rates() -> None:
    fast = cast(HeadOfLineConfig, resolve("head_of_line", ["topology=head_of_line_200g", "time_scale=0.005"])[1])
    assert fast.timetable.duration_s == pytest.approx(CONFIG.timetable.duration_s / 200)
    assert fast.sampled_every_s == pytest.approx(CONFIG.sampled_every_s / 200)
    assert fast.fabric().round_trip_s == pytest.approx(CONFIG.fabric().round_trip_s / 200)
