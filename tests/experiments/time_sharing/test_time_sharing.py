"""What a run of time_sharing says, from lists that the simulation has played; its keys, and what cannot be played."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import pytest

from app.cli import main
from cluster.sharing.bounds import BoundedWait
from cluster.sharing.composed import Cluster, Played, grid_of, play_list, sweep
from cluster.sharing.packets import suspend_costs
from cluster.tasks import Priority
from experiments.time_sharing.config import TimeSharingConfig
from experiments.time_sharing.run import _frame, list_lives
from experiments.time_sharing.summary import Found, agreement, summarize
from experiments.time_sharing.tables import TABLES
from fabric.errors import ConfigError, TrafficError
from fabric.metrics import as_metrics, by_path
from runs.registry import resolve
from tests.experiments.declared import undeclared
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_small")


def config_of(*overrides: str) -> TimeSharingConfig:
    return cast(TimeSharingConfig, resolve("time_sharing", overrides)[1])


def found_of(config: TimeSharingConfig) -> Found:
    """What a run would find if packets did as the simulation does."""
    cluster = Cluster(config.cluster_nodes(FABRIC), config.given_costs())
    played = [play_list(config.listed.jobs, config.policy(name), cluster, config.seed) for name in config.policies]
    suspends = {one.policy: suspend_costs(one.lives) for one in played}
    assert config.composed is not None
    policies = [config.policy(name) for name in config.policies]
    points = sweep(config.composed.jobs, cluster, policies, config.composed.loads, [1, 2], lambda words: None)
    return Found(played, suspends, config.given_costs(), played, points, composed_nodes=len(cluster.nodes))


def test_the_default_list_has_what_the_question_is_about() -> None:
    """Some tens of jobs of all priorities on 8 to 24 nodes, an hour and more under all policies together; and some are
    suspended and some killed under HAI's rules."""
    config = config_of()
    jobs = config.listed.jobs
    assert 30 <= len(jobs) <= 60
    assert {job.priority for job in jobs} == {Priority.HIGH, Priority.NORMAL, Priority.UNDER_NORMAL}
    cluster = Cluster(config.cluster_nodes(FABRIC), config.given_costs())
    hai, lent = (
        play_list(jobs, config.policy(name), cluster, config.seed).measures for name in ("hai", "hai_backfill")
    )
    assert hai.makespan_s >= 1200
    assert hai.suspends >= 2
    assert hai.kills >= 1
    assert lent.suspends >= 10


def test_hosts_are_of_all_zones_and_the_schedulers_is_the_first() -> None:
    config = config_of("nodes=6")
    hosts = config.hosts(FABRIC)
    assert hosts[0] == FABRIC.computes[0]
    assert [host.zone for host in hosts[1:]] == [0, 0, 0, 1, 1, 1]
    nodes = config.cluster_nodes(FABRIC)
    assert nodes.names == tuple(host.name for host in hosts[1:])
    assert nodes.zones.tolist() == [0, 0, 0, 1, 1, 1]
    assert [job.at for job in config.platform("hai").jobs] == [job.submitted_s for job in config.listed.jobs]


def test_the_summary_tells_waits_use_suspends_and_what_processes_add_to_turns() -> None:
    config = config_of("composed={jobs: {count: 30}, loads: [0.9]}", "policies=[hai, fifo]")
    found = found_of(config)
    summary = summarize(config, found)
    whole, parts, suspends, agreed, composed = summary["tables"]
    assert [row[0] for row in whole.words] == ["hai", "fifo"]
    assert {row[1] for row in parts.words} >= {"priority high", "nodes 1"}
    assert [row[1] for row in suspends.words] == [len(found.suspends["hai"]), 0]
    assert all(row[1].split(" of ")[0] == row[1].split(" of ")[1] for row in agreed.words)
    assert [row[:2] for row in composed.words] == [["0.9", "hai"], ["0.9", "fifo"]]
    metrics = by_path(as_metrics(summary["metrics"]))
    assert undeclared("time_sharing", summary["metrics"]) == []
    assert metrics["hai.composed.same_fraction"] == 1
    assert metrics["hai.wait_mean_s"] == found.packets[0].measures.waits.mean_s
    assert "hai.composed.load_90.used_waiting_fraction" in metrics
    assert "The simulation, which has the same scheduler and the costs measured here, makes" in summary["answer"]
    assert "the simulation has the same scheduler and list" in (agreed.note_words or "")
    assert "used" not in " ".join(agreed.columns), "that follows from decisions in the same turn"
    frame = _frame("packets", found.packets, config.cluster_nodes(FABRIC).names)
    assert list(frame.columns) == list(TABLES["sharing_lives"].columns)
    assert len(frame) == sum(len(one.lives) for one in found.packets)


def test_a_composed_list_is_titled_with_the_nodes_that_it_was_played_on() -> None:
    """100 nodes are 128 in whole leaves of two zones, by which the load and the waits are."""
    config = config_of("composed={jobs: {count: 5}, nodes: 100, loads: [0.9, 1.5], repeat: 1}", "policies=[hai]")
    found = replace(found_of(config), composed_nodes=len(grid_of(100)))
    summary = summarize(config, found)
    assert summary["tables"][-1].title == (
        "Composed of the costs measured here: 5 jobs on 128 nodes (whole leaves in two zones; 100 asked for)"
    )
    said = summary["time_sharing"]
    assert (said["composed_nodes"], said["composed_nodes_asked"]) == (128, 100)


def test_quotas_are_all_users_and_bounds_are_told_beside_waits() -> None:
    config = config_of(
        "composed=null",
        "policies=[hai, fifo]",
        "quotas={HIGH: 16}",
        "list_seeds=1",
        "users={u001: {quotas: {HIGH: 20}}}",
    )
    users, names = config.users_of, {job.user for job in config.listed.jobs}
    assert {name: users.quota((name, Priority.HIGH, "training")) for name in names} == {
        name: 20 if name == "u001" else 16 for name in names
    }
    assert users.quota(("u000", Priority.NORMAL, "training")) is None
    cluster = Cluster(config.cluster_nodes(FABRIC), config.given_costs(), users)
    played = [play_list(config.listed.jobs, config.policy(name), cluster, 1) for name in config.policies]
    waits = {"hai": [BoundedWait(3, 10.0, 30.0), BoundedWait(4, 18.0, 20.0)]}
    found = Found(played, {}, config.given_costs(), played, [], waits)
    (table,) = [one for one in summarize(config, found)["tables"] if "have a bound" in one.title]
    assert table.words == [["hai", 2, "18", "18", "20", "yes"]]
    waits["hai"].append(BoundedWait(5, 21.0, 20.0))
    (table,) = [one for one in summarize(config, found)["tables"] if "have a bound" in one.title]
    assert table.words == [["hai", 3, "21", "21", "20", "no: jobs [5]"]]
    metrics = by_path(as_metrics(summarize(config, found)["metrics"]))
    assert metrics["hai.bound.held_fraction"] == pytest.approx(2 / 3)


def test_other_seeds_of_the_list_are_composed_for_intervals() -> None:
    config = config_of("composed=null", "policies=[easy]", "list_seeds=6")
    measured = Cluster(config.cluster_nodes(FABRIC), config.given_costs())
    policy, load = config.policy("easy"), config.job_list.load
    points = sweep(config.job_list, measured, [policy], [load], config.seeds, lambda words: None)
    played = play_list(config.listed.jobs, policy, measured, config.seed)
    assert points[0].measures == played.measures, "the first is the list that is played"
    found = Found([played], {}, measured.costs, [played], [], seeds=points)
    (table,) = [one for one in summarize(config, found)["tables"] if "of 6 seeds" in one.title]
    assert [row[0] for row in table.words] == ["easy"]
    assert "[" in str(table.words[0][1])
    assert "easy.composed.seeds.wait_mean_s" in by_path(as_metrics(summarize(config, found)["metrics"]))
    assert undeclared("time_sharing", summarize(config, found)["metrics"]) == []


def test_the_order_of_fair_share_changes_though_nothing_happens() -> None:
    """At 260 s of the default list others have used more than the user of job 19, as the platform saw with packets; who
    decides only when a job comes or ends starts it at 272 s."""
    config = config_of("composed=null", "policies=[fair_share]")
    nodes, costs = config.cluster_nodes(FABRIC), config.given_costs()
    began = []
    for reorder_s in (None, 1.0):
        cluster = Cluster(nodes, costs, reorder_s=reorder_s)
        played = play_list(config.listed.jobs, config.policy("fair_share"), cluster, config.seed)
        began.append(next(life.began_s for life in played.lives if life.job == 19))
    assert began == [272, 260]


def test_another_decision_is_seen() -> None:
    config = config_of("composed=null", "policies=[hai]")
    cluster = Cluster(config.cluster_nodes(FABRIC), config.given_costs())
    hai, fifo = (play_list(config.listed.jobs, config.policy(name), cluster, 1) for name in ("hai", "fifo"))
    assert agreement(hai, hai, 1.0).same == agreement(hai, hai, 1.0).all
    other = agreement(hai, Played("fifo", fifo.jobs, fifo.lives, fifo.measures), 1.0)
    assert other.same < other.all
    assert other.most_s > 0


def test_the_command_prints_the_numbers_of_the_composed_part(capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(
        "composed={jobs: {count: 50, given: {deaf: 0.1}}, nodes: 32, loads: [1.2], repeat: 3}", "policies=[hai, easy]"
    )
    composed = config.composed
    assert composed is not None
    costs = config.given_costs()
    from cluster.sharing.composed import over_seeds

    policies = [config.policy(name) for name in config.policies]
    points = sweep(
        composed.jobs, Cluster(grid_of(32), costs), policies, composed.loads, range(1, 4), lambda words: None
    )
    said = [f"--set={name}={value}" for name, value in costs.model_dump().items()]
    words = ["--count", "50", "--deaf", "0.1", "--nodes", "32", "--load", "1.2", "--repeat", "3"]
    assert main(["cluster", "play", *words, "--policy", "hai", "--policy", "easy", *said, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    for row in rows:
        for name, value in row.items():
            if name not in ("policy", "load", "intervals"):
                estimate = over_seeds(points, row["policy"], 1.2, name)
                assert estimate is not None
                assert value == estimate.median, name
    assert [row["policy"] for row in rows] == ["hai", "easy"]


def test_what_cannot_be_played_is_said() -> None:
    for override, words in (
        ("nodes=24", "nodes: 24, but fire_flyer_2_small has 23 beside the scheduler's; lower it"),
        ("job_list.shortest=900000 s", "none of 60 jobs fits"),
        ("policies=[slurm]", "'slurm' is not one of hai"),
        ("policies=[slurm_fair_share]", "policies: slurm_fair_share: policy: fair_share, and engine slurm has"),
        ("policies=[hai, hai]", "hai: named more than once"),
        ("quotas={TOP: 4}", "quotas: TOP: no priority that has a quota; use"),
        (
            "quotas={HIGH: 8}",
            r"quotas: job 2: nodes: 16, but u002's quota at HIGH in training is 8; ask for 8",
        ),
        ("quotas={HIGH: 8, NORMAL: 16}", "list_seeds: seed 6: job 1: nodes: 16, but u001's quota at HIGH"),
        ("job_list.step=null", "step: is not there; jobs of the platform make steps"),
        ("job_list.jobs_from=/nowhere.csv", "jobs_from: '/nowhere.csv' is not a file, and none of seren"),
    ):
        with pytest.raises(ConfigError, match=words):
            config = config_of(override, *(["job_list.longest=null"] if "shortest" in override else []))
            if faults := list(config.faults(FABRIC)):
                raise ConfigError("time_sharing", faults)


def test_jobs_that_did_not_finish_are_named(tmp_path: Any) -> None:
    config = config_of("composed=null")
    rows = [{"at_s": 1.0, "event": "submitted", "number": 1, "life": 1, "nodes": "", "why": "j00000"}]
    with pytest.raises(TrafficError, match=r"jobs \[0, 1.* of the list did not finish by themselves; see what"):
        list_lives(rows, config.listed.jobs, {}, tmp_path, 1.0)
    with pytest.raises(TrafficError, match="the platform took no job"):
        list_lives([], config.listed.jobs, {}, tmp_path, 1.0)
