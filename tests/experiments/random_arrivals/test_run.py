"""Random arrivals: waits beside theory, on waits that are computed and on a loopback interface."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.random_arrivals.config import RandomArrivalsConfig
from experiments.random_arrivals.study import STUDY, Arrivals, frame_time_s
from fabric.errors import ConfigError, TrafficError
from fabric.metrics import by_path
from fabric.results import Phase
from fabric.world.programs.agents import AgentPool
from runs.registry import resolve
from tests.experiments.declared import undeclared
from topologies.load import load_fabric
from traffic.flows.random_arrivals import Burst, RandomArrivalsJob
from traffic.flows.random_waits import Seconds, lindley, waits
from traffic.job import FiniteJob, Records, Stage

FABRIC = load_fabric("head_of_line")
CONFIG = cast(RandomArrivalsConfig, resolve("random_arrivals", ["loads=[0.5, 0.8]", "frames=100000"])[1])
WIRE_S, BASE_S = 1e-6, 5e-6


def computed(load: float, service_s: float = WIRE_S) -> tuple[Seconds, Seconds]:
    """Return when packets are sent and come over a link on which each takes ``service_s``."""
    sent = np.cumsum(np.random.default_rng(1).exponential(WIRE_S / load, CONFIG.frames))
    return sent, sent + lindley(sent, service_s) + BASE_S


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_computed_waits_are_what_theory_says(load: float) -> None:
    found = waits(*computed(load), load, WIRE_S, CONFIG.frames, CONFIG.batches)
    assert found["theory_wait_s"] == pytest.approx(load / (2 * (1 - load)) * WIRE_S)
    assert abs(found["mean_wait_s"] - found["theory_wait_s"]) < 4 * found["error_s"]
    assert found["error_s"] < 0.05 * found["theory_wait_s"]
    assert found["explained_wait_s"] == pytest.approx(found["mean_wait_s"])
    assert found["most_off_s"] < 1e-12
    assert found["lost_packets"] == 0


def test_a_link_of_half_the_rate_is_far_off() -> None:
    found = waits(*computed(0.4, 2 * WIRE_S), 0.4, WIRE_S, CONFIG.frames, CONFIG.batches)
    assert found["mean_wait_s"] > 3 * found["theory_wait_s"]
    assert found["most_off_s"] > WIRE_S


def test_waits_follow_from_gaps() -> None:
    assert lindley(np.array([0.0, 1.0, 1.0, 9.0]), 2.0).tolist() == [0.0, 1.0, 3.0, 0.0]


def summarize(config: RandomArrivalsConfig, found: dict[str, dict[str, float]]) -> dict[str, Any]:
    cases = Arrivals.grid(config)
    phases = [SimpleNamespace(phase=Phase(one.name, one.title, "lossless", 0.0, 1.0)) for one in cases]
    session: Any = SimpleNamespace(phases=phases, live=SimpleNamespace(fabric=FABRIC))
    return STUDY.summarize(session, config, cases, found)


def test_the_summary_says_how_far_off_and_survives_that_nothing_came() -> None:
    found = {
        Arrivals(load).name: waits(*computed(load), load, WIRE_S, CONFIG.frames, CONFIG.batches)
        for load in CONFIG.loads
    }
    summary = summarize(CONFIG, found)
    assert [row[0] for row in summary["tables"][0].words] == ["50%", "80%"]
    assert {"load_0p5.mean_wait_s", "load_0p8.theory_wait_s"} <= by_path(summary["metrics"]).keys()
    assert undeclared("random_arrivals", summary["metrics"]) == []
    nothing = {
        Arrivals(load).name: waits(np.empty(0), np.empty(0), load, WIRE_S, CONFIG.frames, CONFIG.batches)
        for load in CONFIG.loads
    }
    assert summarize(CONFIG, nothing)["answer"] == "No packet came."
    assert nothing["load_0p5"]["lost_packets"] == CONFIG.frames


def test_a_frame_takes_its_bytes_at_the_rate_of_a_nic() -> None:
    assert frame_time_s(FABRIC, 1024) == pytest.approx(1066 * 8 / FABRIC.nic_rate_bps)


@pytest.mark.parametrize(
    ("setting", "words"), [("payload=5000B", "does not fit a frame"), ("batches=9000", "exceed the 8000 frames")]
)
def test_what_does_not_fit_is_refused(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve("random_arrivals", [setting])


def test_packets_are_timed_from_the_source_to_the_sink() -> None:
    pool = AgentPool(["traffic.flows.random_arrivals"])
    source, sink = FABRIC.computes[:2]
    try:
        stage = Stage(fabric=FABRIC, pool=pool, namespace_of=lambda host: None, seed=1)
        addresses = {source: "127.0.0.1", sink: "127.0.0.1"}
        with closing(RandomArrivalsJob(stage, source, sink, 100, addresses)) as job:
            job.start()
            job.burst = Burst(50, 1e-4, (1, 2))
            job.finish()
            assert isinstance(job, FiniteJob), "its load plays until it is told to halt, as that of all jobs"
            assert job.halt() == Records()
            assert len(job.sent_ns) == len(job.came_ns) == 50
            assert (job.came_ns > job.sent_ns).all()
            assert (np.diff(job.sent_ns) > 0).all()
    finally:
        pool.stop()


def test_a_payload_too_small_for_a_number_is_refused() -> None:
    stage = Stage(fabric=FABRIC, pool=None, namespace_of=lambda host: None, seed=1)  # type: ignore[arg-type]
    with pytest.raises(TrafficError, match="holds no number"):
        RandomArrivalsJob(stage, FABRIC.computes[0], FABRIC.computes[1], 2)


def test_loads_that_agree_in_six_digits_are_two_phases() -> None:
    assert Arrivals(0.5).name == "load_0p5"
    assert Arrivals(0.1234567).name != Arrivals(0.1234568).name
