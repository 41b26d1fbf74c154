"""What a run of resync says, from made-up rows; what it plays, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from experiments.resync.config import ResyncRunConfig, Returns
from experiments.resync.rows import Span, attempts_of, changes_of, share_inside, spans_of
from experiments.resync.run import silence
from experiments.resync.summary import Returned, Rolled, summarize, waves
from experiments.resync.tables import TABLES
from fabric.errors import ConfigError
from fabric.metrics import by_path
from fabric.model.network import Link
from runs.registry import resolve
from tests.experiments.declared import undeclared
from topologies.load import load_fabric
from traffic.storage.chain_states import ChainState, LocalState
from traffic.storage.chains import Target
from traffic.storage.client.verification import Verification
from traffic.storage.orders import ResyncAttempt
from traffic.storage.placement import TargetOrder

FABRIC = load_fabric("storage_zone_small")
VICTIM, PEER, OTHER = FABRIC.storages[:3]
KIB = 1024
NICS = {("a", "storage"): 9.9 * KIB}


def config_of(*overrides: str) -> ResyncRunConfig:
    return cast(ResyncRunConfig, resolve("resync", overrides)[1])


def attempt(chain: int, began_s: float, ended_s: float, chunks: int, outcome: str = "done") -> ResyncAttempt:
    return ResyncAttempt(chain, PEER, VICTIM, began_s, ended_s, chunks, chunks * KIB, outcome)


def test_spans_are_of_attempts_that_sent_anything() -> None:
    rows = attempts_of(
        "a", [attempt(0, 1, 2, 0, "stopped"), attempt(1, 3, 5, 2), attempt(2, 4, 7, 1), attempt(3, 9, 10, 1)], 1
    )
    assert list(rows.columns) == list(TABLES["resync_attempts"].columns)
    assert spans_of(rows) == [Span(2, 6), Span(8, 9)]


def test_what_part_of_an_operation_lies_in_spans() -> None:
    spans = [Span(2, 4), Span(6, 7)]
    assert share_inside(0, 4, spans) == 0.5
    assert share_inside(3, 7, spans) == 0.5
    assert share_inside(3, 3, spans) == 1
    assert share_inside(5, 5, spans) == 0


def test_delayed_reads_far_apart_are_waves_of_their_own() -> None:
    assert waves([1, 2, 9, 3, 10, 30]) == [Span(1, 3), Span(9, 10), Span(30, 30)]
    assert waves([]) == []


def session_of(**tables: pd.DataFrame) -> Any:
    return SimpleNamespace(table=lambda name: tables[name])


def tables() -> dict[str, pd.DataFrame]:
    """A load from 7 s to 30 s, chains known from 10 s on, and a resync from 20 s to 24 s: reads of 1 KiB and steps."""
    reads = [
        ("read", "h", at, at + took, KIB, 0)
        for at, took in ((8.0, 5.0), (10.0, 0.1), (15.0, 0.2), (21.0, 0.5), (22.0, 0.6))
    ]
    steps = [(at, at + took) for at, took in ((10.0, 1.0), (12.0, 1.0), (20.5, 3.0))]
    second = attempt(1, 50, 51, 0)
    jobs = [("storage", 5.0, 60.0), ("storage_clients", 10.0, 30.0), ("hfreduce", 10.0, 30.0)]
    return {
        "resync_attempts": attempts_of("a", [attempt(0, 19, 20, 0, "stopped"), attempt(0, 20, 24, 8), second], 0),
        "jobs": pd.DataFrame(jobs, columns=["job", "started_s", "ended_s"]).assign(phase="a"),
        "operations": pd.DataFrame(
            reads, columns=["operation", "host", "started_s", "ended_s", "size_bytes", "retries"]
        ).assign(phase="a"),
        "steps": pd.DataFrame(steps, columns=["started_s", "ended_s"]).assign(phase="a"),
        "routing_changes": pd.DataFrame(
            [("a", 8.0, 0, 2, 1, ""), ("a", 18.0, 0, 3, 1, "st000/0")], columns=list(TABLES["routing_changes"].columns)
        ),
        "lane_bytes": pd.DataFrame(
            [("a", "storage", "resync", 9 * KIB, 8 * KIB)], columns=list(TABLES["lane_bytes"].columns)
        ),
    }


def returned(variant: str, sent_bytes: int = 8 * KIB) -> Returned:
    shares = pd.DataFrame(
        [("a", str(PEER), 1.5, 2, 8 * KIB, sent_bytes), ("a", str(OTHER), 1.5, 1, 0, 0)],
        columns=list(TABLES["resync_shares"].columns),
    )
    times = {"back": 5.0, "loaded": 7.0, "whole": 26.0, "whole_again": 55.0}
    one = config_of().variants[variant]
    return Returned("a", one, VICTIM, times, cast(Any, None), shares, Verification(4), 2.0)


def test_a_summary_tells_costs_beside_and_during_a_resync() -> None:
    found = summarize(session_of(**tables()), [returned("shipped")], [], NICS)
    numbers = {path.removeprefix("a.storage."): value for path, value in by_path(found["metrics"]).items()}
    assert numbers["whole_s"] == 21
    assert numbers["sending_s"] == 4
    assert numbers["resync_bytes"] == numbers["expected_bytes"] == 8 * KIB
    assert numbers["most_off_bytes"] == 0
    assert (numbers["attempts"], numbers["attempts_stopped"]) == (2, 1)
    assert (numbers["second_resync_bytes"], numbers["second_resyncs"]) == (0, 1)
    assert numbers["busiest_over_mean"] == 2
    assert numbers["placed_over_mean"] == pytest.approx(4 / 3)
    assert (numbers["step_beside_s"], numbers["step_during_s"], numbers["step_slowdown"]) == (1, 3, 3)
    assert numbers["read_beside_Bps"] == 3 * KIB / 8
    assert numbers["read_during_Bps"] == 2 * KIB / 4
    assert (numbers["read_beside_p50_s"], numbers["read_beside_p99_s"]) == pytest.approx((0.2, 5.0))
    assert (numbers["read_during_p50_s"], numbers["read_during_p99_s"]) == pytest.approx((0.5, 0.6))
    assert "8 KiB sent, to the byte, a second one 0 B" in found["answer"]
    assert found["tables"][1].words[0] == ["a", str(PEER), "1.5", "2", "8 KiB", "8 KiB"]
    assert found["tables"][2].words == [["a", "storage", "resync 8 KiB", "8 KiB", "9 KiB", "9.9 KiB", "1.100"]]


def test_bytes_that_are_not_as_expected_are_told() -> None:
    rows = tables()
    rows["resync_attempts"] = attempts_of("a", [attempt(0, 20, 24, 7)], 0)
    assert "NOT AS EXPECTED" in summarize(session_of(**rows), [returned("shipped")], [], NICS)["answer"]
    assert "EXPECTED" not in summarize(session_of(**rows), [returned("silent")], [], NICS)["answer"]


def test_reads_that_failed_are_among_those_of_the_percentiles() -> None:
    """Half of the reads beside the resync failed: the median is one that completed, and nobody knows the 99th."""
    rows = tables()
    rows["operations"] = pd.concat([rows["operations"], rows["operations"].assign(operation="read_failed")])
    summary = summarize(session_of(**rows), [returned("shipped")], [], NICS)
    numbers = {path.removeprefix("a.storage."): value for path, value in by_path(summary["metrics"]).items()}
    assert numbers["read_beside_p50_s"] == pytest.approx(5.0)
    assert numbers["read_beside_p99_at_least_s"] == pytest.approx(5.0) and "read_beside_p99_s" not in numbers
    assert summary["tables"][0].words[0][7] == "> 5 s"


def test_restarts_are_told_over_time() -> None:
    chain = ChainState.first(0, [Target(VICTIM, 0), Target(PEER, 0)])
    gone = chain.updated({Target(PEER, 0): LocalState.UPTODATE})
    rows = tables() | {"routing_changes": changes_of("a", [(8.0, chain), (20.5, gone)])}
    assert list(rows["routing_changes"]["serving"]) == [2, 1]
    reads = [("read", "h", 10.0, 10.1, KIB, 0), ("read", "h", 10.6, 15.1, KIB, 1)]
    rows["operations"] = rows["operations"].iloc[:0]
    rows["operations"] = pd.DataFrame(
        reads, columns=["operation", "host", "started_s", "ended_s", "size_bytes", "retries"]
    ).assign(phase="a")
    rolled = Rolled("a", True, {"st000": 20.0}, cast(Any, SimpleNamespace(began_s=8.0)))
    found = summarize(session_of(**rows), [returned("shipped")], [rolled], NICS)
    assert undeclared("resync", found["metrics"]) == []
    told = found["resync"]["rolling"][0]
    assert told["changes_s"] == [12.5]
    assert told["restarts_s"] == {"st000": 12.0}
    assert [row["at_s"] for row in told["latency"]] == [2.0]
    assert told["latency"][0]["p99_s"] == pytest.approx(4.5)
    row = found["tables"][-1].words[0]
    assert (row[0], row[-2:]) == ("a", ["1 of 2", "1"])


def test_a_variant_changes_what_it_says() -> None:
    config = config_of()
    paced = config.storage_of(config.variants["paced"])
    assert paced.cluster_manager is not None
    assert paced.cluster_manager.resync.rate == 300_000
    assert paced.cluster_manager.resync.batch == 1
    assert config.storage_of(config.variants["shuffled"]).target_order is TargetOrder.SHUFFLED
    assert (paced.dataloader.share, paced.checkpoint.share) == (0.5, 0)
    silent = config.storage_of(config.variants["silent"])
    assert (silent.dataloader.share, silent.checkpoint.share) == (0, 0.25)
    own = config.storage_of(config.variants["own_lane"])
    assert own.cluster_manager is not None and own.cluster_manager.resync.level == "other"


def test_a_silent_node_is_cut_off_for_a_while() -> None:
    events = silence(config_of(), VICTIM, FABRIC).events
    assert {event.at_s for event in events} == {3, 78}
    assert all(isinstance(event.target, Link) for event in events)
    assert not config_of("variants={a: {}}").cuts_links
    assert config_of("variants={a: {}}").variants["a"].returns is Returns.EMPTY


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["nodes=9"], "nodes: 9 exceed the 8 storage nodes of storage_zone_small"),
        (["victim=5"], "victim 5 is not one of the 5 nodes"),
        (["storage.cluster_manager.host=st000"], "victim: st000 has the cluster manager"),
        (["storage.cluster_manager=null"], "without it nobody comes back"),
        (["rolling.nodes=6"], "rolling.nodes 6 exceeds nodes 5"),
        (["storage.checkpoint.share=0"], "variants.silent: nobody writes"),
        (["failures=[{storage: st001, at: 1}]"], "lets a storage node fail by itself"),
        (["storage.replicas=6"], "storage: replicas 6 exceed the 5 storage nodes"),
        (["after=9"], "after 9 s is less than storage.cluster_manager.polled_every, 10 s"),
        (["trainers=13"], "trainers: 13 exceed the 12 compute nodes"),
        (["variants={}"], "at least 1"),
    ],
)
def test_what_cannot_be_played_is_refused(overrides: list[str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        config_of(*overrides)
