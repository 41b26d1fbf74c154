"""What a run of kv_cache says, from made-up rows; and what it refuses to play."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.kv_cache.cases import CacheCase, cases_of
from experiments.kv_cache.config import KvCacheStudyConfig, Study
from experiments.kv_cache.experiment import EXPERIMENT
from experiments.kv_cache.peak import GIB
from experiments.kv_cache.study import STUDY, load_words
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.network import Fabric
from fabric.results import Phase
from fabric.tables import TABLES
from runs.registry import resolve
from tests.experiments.declared import undeclared
from tests.experiments.own_results import own_figures_drawn, own_result
from tests.experiments.studies import study_result
from tests.rows import table_of
from topologies.load import load_fabric
from traffic.storage.kv_cache.kinds import KV_REQUESTS, of_clients, of_requests

FABRIC = load_fabric("storage_plane_400g")
CLIENT_PORT = str(FABRIC.peer(FABRIC.nics_of[FABRIC.computes[0]][0].port))


def config_of(*overrides: str, experiment: str = "kv_cache") -> KvCacheStudyConfig:
    return cast(KvCacheStudyConfig, resolve(experiment, overrides)[1])


def requests_of(phase: str, *rows: tuple[float, float | None, int, int, float, float]) -> pd.DataFrame:
    """Rows of started_s, ready_s, hit blocks, those of theory, seconds of computing the rest and all; of 10 blocks."""
    full = [
        (phase, "kv_cache", "storage", "z0h000", 0, number, began, began, ready, None,
         5000, 10, hit, theory, 512 * hit, 100 * hit, 0, rest, all_)
        for number, (began, ready, hit, theory, rest, all_) in enumerate(rows)
    ]  # fmt: skip
    return pd.DataFrame(full, columns=list(KV_REQUESTS.columns)).astype(KV_REQUESTS.dtypes)


def operations_of(*rows: tuple[str, str, float, float, int]) -> pd.DataFrame:
    """Rows of phase, operation, started_s, ended_s, size_bytes."""
    full = [
        (phase, "kv_cache", "storage", kind, "z0h000", "st001", size, began, ended, 0)
        for phase, kind, began, ended, size in rows
    ]
    return table_of("operations", full)


def ports_of(*at_s: float) -> pd.DataFrame:
    """Rows of the client's port and another; the first sends 30 GiB/s in one lane and 10 in another."""
    full = [
        (at, port, lane, int(rate * GIB * (at - 30)), 0, 0, 0, 0)
        for at in at_s
        for port, lane, rate in ((CLIENT_PORT, "storage", 30), (CLIENT_PORT, "nccl", 10), ("z0l01:1", "storage", 9))
    ]
    return table_of("ports", full).astype(TABLES["ports"].dtypes)


STEPS = {"allreduce_alone": 1.0, "together_lossless_lanes": 0.5, "together_lossless": 0.8}
"""How fast the allreduce is in a phase, of what it is alone."""
PHASES = {
    "trace_compressed_1": (Study.TRACE, 10.0, 20.0),
    "prefill_by_layers": (Study.PREFILL, 20.0, 30.0),
    "peak_2_8": (Study.PEAK, 30.0, 31.0),
    "removal": (Study.REMOVAL, 40.0, 41.0),
    "training_reads_alone": (Study.TRAINING, 50.0, 51.0),
    "training_allreduce_alone": (Study.TRAINING, 51.0, 52.0),
    "training_together_lossless_lanes": (Study.TRAINING, 52.0, 53.0),
    "training_together_lossless": (Study.TRAINING, 53.0, 54.0),
}
READ = {"peak_2_8": 43, "removal": 40, "training_reads_alone": 40}
READ |= {"training_together_lossless_lanes": 20, "training_together_lossless": 10}


ALL = ("studies=[trace, prefill, peak, removal, training]", "compressions=[1]", "orders=[layers]", "storage_nodes=[2]",
       "depths=[8]")  # fmt: skip


def summarize(session: Any, config: KvCacheStudyConfig, cases: Sequence[CacheCase]) -> dict[str, Any]:
    """Return the summary of cases whose caches removed 3 files each."""
    counted = {one.name: {"window": 2, "kv_files_removed": 3} for one in cases}
    return STUDY.summarize(session, config, cases, counted)


def made_up(fabric: Fabric = FABRIC) -> tuple[Any, tuple[CacheCase, ...]]:
    """Return a session of all studies, in which each phase of 1 s reads a number of GiB, and its cases."""
    rows = [(name, "read", PHASES[name][1], PHASES[name][2], size * GIB) for name, size in READ.items()]
    rows += [("removal", "remove", 40.2, 40.3 + 0.001 * number, 0) for number in range(5)]
    requests = [
        requests_of("trace_compressed_1", (10, 12, 5, 6, 1.5, 4.0), (11, None, 0, 2, 4.0, 4.0)),
        requests_of("prefill_by_layers", (20, 21.1, 8, 8, 1.0, 3.0), (21, 22.5, 9, 9, 1.25, 5.0)),
    ]
    began = {name: PHASES[f"training_{name}"][1] + 0.1 for name in STEPS}
    steps = [
        (f"training_{name}", "allreduce", "nccl", "allreduce", 0, 4, 1_000_000, began[name], began[name] + 0.25 / share)
        for name, share in STEPS.items()
    ]
    tables = {
        "operations": operations_of(*rows),
        "kv_requests": pd.concat(requests),
        "steps": table_of("steps", steps),
        "ports": ports_of(*(from_s + place / 10 for from_s in (30.0, 40.0) for place in range(11))),
    }
    outcomes = [
        SimpleNamespace(
            phase=Phase(name, name, "lossless_lanes", began, ended),
            conservation=SimpleNamespace(dropped_by_queues=0),
        )
        for name, (_, began, ended) in PHASES.items()
    ]
    played = tuple(cases_of(config_of(*ALL)))
    assert {one.name for one in played} == set(PHASES)
    live = SimpleNamespace(fabric=fabric)
    return SimpleNamespace(phases=outcomes, table=tables.__getitem__, live=live), played


def test_beside_3fs_readme_stands_what_a_client_reads_at_the_true_rate() -> None:
    slow = load_fabric("storage_plane_400g", ["nic_rate=40 Gbit/s", "uplink_rate=40 Gbit/s"])
    session, played = made_up(slow)
    found = summarize(session, config_of(*ALL), played)
    assert slow.scale == 10
    assert "One client reads 394 GiB/s at most, times the scale of 10, " in found["answer"], "the same bytes, ten times"


def test_a_run_says_what_each_study_came_to() -> None:
    session, played = made_up()
    found = summarize(session, config_of(*ALL), played)
    metrics = by_path(found["metrics"])
    assert undeclared("kv_cache", found["metrics"]) == []
    assert metrics["trace_compressed_1.kv_cache.hit_blocks"] == 5
    assert metrics["trace_compressed_1.kv_cache.hit_blocks_in_theory"] == 8
    assert metrics["peak_2_8.kv_cache.read.bandwidth_Bps"] == pytest.approx(43 * GIB)
    assert metrics["removal.kv_cache.remove.operations"] == 5
    assert metrics["removal.kv_cache.link_busy_fraction"] == pytest.approx(40 * GIB / 50e9)
    assert metrics["removal.kv_cache.kv_files_removed"] == 3
    assert "Time compressed 1: 5 blocks found of 8 that LRU finds if writes take no time." in found["answer"]
    assert "By layers: first token after 1.1 s instead of 3 s (medians)." in found["answer"]
    by_link = 40 * GIB * (4200 - 52) / 4214
    assert metrics["peak_2_8.kv_cache.read.by_link_Bps"] == pytest.approx(by_link)
    assert metrics["peak_2_8.kv_cache.read.share_of_nics"] == pytest.approx(by_link / 50e9)
    assert metrics["training_reads_alone.kv_cache.read.share_of_nics"] == pytest.approx(40 * GIB / 50e9)
    assert "training_reads_alone.kv_cache.read.by_link_Bps" not in metrics, "other packets come by that link, too"
    assert "One client reads 39.4 GiB/s at most, 85% of its NIC, from 2 storage nodes" in found["answer"]
    assert "Beside 5 removals it reads 39.4 GiB/s." in found["answer"]
    assert "reads keep 50%, the allreduce 50%." in found["answer"]
    assert "reads keep 25%, the allreduce 80%." in found["answer"]
    assert [table.title for table in found["tables"]] == [
        "Requests",
        "One client that reads",
        "Reads beside removals",
        "Reads of all clients beside an allreduce on the same nodes",
    ]


def test_removals_and_reads_are_on_one_axis_of_time() -> None:
    session, played = made_up()
    (found,) = summarize(session, config_of(*ALL), played)["kv_cache"]["removal"]
    assert found["at_s"] == pytest.approx([place / 10 for place in range(11)])
    assert found["in_Bps"] == pytest.approx([40 * GIB] * 10)
    assert found["removals_per_s"] == pytest.approx([0, 0, 0, 50, *[0] * 6])


def test_the_time_to_the_first_token_is_of_all_requests_that_came() -> None:
    """Of three the second has none when the load ends at 20 s, 9 s after it came: it would have taken longer."""
    rows = requests_of("p", (10, 12, 5, 6, 1.5, 4.0), (11, None, 1, 2, 4.0, 4.0), (12, 15, 5, 5, 2.0, 9.0))
    found = of_requests(rows, [(0.0, 5.0), (10.0, 20.0)])
    assert (found["requests"], found["answered"]) == (3, 2)
    assert (found["hit_blocks"], found["hit_blocks_in_theory"], found["hit_tokens"]) == (11, 13, 11 * 512)
    assert found["hit_fraction"] == pytest.approx(11 / 30)
    assert (found["first_token.p50_s"], found["first_token.p99_at_least_s"]) == (3, 9)
    assert (found["first_token_without.p50_s"], found["first_token_without.p99_s"]) == (4, 9)
    assert found["exposed_read_at_least_s"] == pytest.approx((0.5 + 5.0 + 1.0) / 3)
    assert found["saved_at_most_s"] == pytest.approx((2 - 5 + 6) / 3)
    assert not {"first_token.p99_s", "exposed_read_s", "saved_s"} & set(found)
    assert of_requests(rows)["first_token.p99_at_least_s"] == 4, "it ranks last, and has waited as long as rows tell"


def test_of_requests_that_were_all_answered_the_means_are_known() -> None:
    found = of_requests(requests_of("p", (10, 12, 5, 6, 1.5, 4.0), (12, 15, 5, 5, 2.0, 9.0)), [(10.0, 20.0)])
    assert (found["first_token.p50_s"], found["first_token.p99_s"]) == (2, 3)
    assert found["exposed_read_s"] == pytest.approx((0.5 + 1.0) / 2)
    assert found["saved_s"] == pytest.approx((2 + 6) / 2)


def test_clients_are_format_apart_and_removals_counted_per_second() -> None:
    rows = operations_of(("p", "read", 0.0, 1.0, 100), ("p", "read", 0.0, 2.0, 600), ("p", "remove", 0.5, 1.5, 0))
    rows["host"] = ["a", "b", "a"]
    found = of_clients(rows, [(0.0, 1.0), (1.0, 2.0)])
    assert found == {"remove.per_second": 0.5, "read.least_client_Bps": 50.0, "read.most_client_Bps": 300.0}
    assert of_clients(rows[:0], [(0.0, 1.0)]) == {}


def test_all_figures_are_drawn_of_a_run_with_all_studies(tmp_path: Path) -> None:
    session, played = made_up()
    result = study_result(tmp_path, EXPERIMENT, summarize(session, config_of(*ALL), played))
    assert own_figures_drawn(result, EXPERIMENT) == {"peak", "first_token", "removal", "beside_training"}
    bare = own_result(tmp_path / "bare", EXPERIMENT)
    assert own_figures_drawn(bare, EXPERIMENT) == set()


def test_a_result_says_which_requests_were_played() -> None:
    words = load_words(config_of("cache.requests.hot=0.8", "cache.requests.first=133"))
    assert words == "conversation_first300 from request 133 on, deepseek_v3 in fp8, those that find 80% or more"
    more = load_words(config_of("cache.requests.instances=4", "cache.serving.scale=10"))
    assert "4 copies" in more and "bytes 1 : 10" in more


@pytest.mark.parametrize(("name", "study"), [("whole_trace", Study.TRACE), ("first_token", Study.PREFILL)])
def test_the_studies_of_traces_fit_their_fabrics(name: str, study: Study) -> None:
    config = config_of(experiment=str(EXPERIMENT.folder / f"{name}.yaml"))
    fabric = config.fabric()
    assert config.studies == [study]
    assert list(config.faults(fabric)) == []
    assert fabric.nic_rate_bps * config.cache.serving.scale == 400e9, "bytes are scaled as rates are"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["storage_nodes=[32]"], "storage_nodes: 32, and storage_plane_400g has 16; lower it"),
        (["cache.requests.cycle=true"], "trace and prefill play requests to their end; set it to false"),
        (["warm_up=4 ms"], "warm_up: 4 ms leaves nothing of phase_time"),
        (["topology.storage=0"], "topology.storage: 0 storage nodes, but the cache is on them; add some"),
        (["topology.compute=1"], "studies: training: an allreduce needs 2 compute nodes"),
        (["peak_requests.first=300"], "peak: requests: .* a trace that has 0 to 299"),
    ],
)
def test_what_cannot_be_played_is_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve("kv_cache", overrides)
