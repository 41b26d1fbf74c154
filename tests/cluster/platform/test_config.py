"""Users, quotas and groups in a platform's config: what the scheduler is told, and what is refused with which words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.platform.config import PlatformConfig
from cluster.platform.timers import Timers
from cluster.tasks import Priority
from fabric.config import checked
from fabric.errors import ConfigError
from runs.registry import resolve
from topologies.load import load_fabric

FABRIC = load_fabric("fire_flyer_2_tiny")
NODES = FABRIC.computes[1:5]
NAMES = [node.name for node in NODES]
JOB = {"name": "one", "user": "ada", "nodes": 2, "command": ["true"]}


def config(**keys: Any) -> PlatformConfig:
    return checked(PlatformConfig, {"jobs": [JOB], **keys}, "test")


def test_quotas_and_groups_as_the_scheduler_gets_them() -> None:
    found = config(
        quota=1,
        users={"ada": {"quota": 3, "quotas": {"HIGH": 2}, "share": 4.0}, "bo": {"quotas": {"NORMAL": 0}}},
        groups={"debug": NAMES[3:]},
        jobs=[JOB, {**JOB, "name": "d", "user": "bo", "nodes": 1, "group": "debug", "limit": "90 s"}],
    )
    users = found.users_of
    for name, level, quota in (
        ("ada", Priority.NORMAL, 3),
        ("ada", Priority.HIGH, 2),
        ("bo", Priority.NORMAL, 0),
        ("bo", Priority.HIGH, 1),
        ("cy", Priority.HIGH, 1),
    ):
        assert [users.quota((name, level, group)) for group in ("training", "debug")] == [quota, quota]
    assert users.shares == {"ada": 4.0, "bo": 1.0}
    nodes = found.nodes_of(FABRIC, NODES)
    assert [nodes.groups[place] for place in nodes.group_of] == ["training"] * 3 + ["debug"]
    spec = found.jobs[1].submission.spec
    assert (spec.group, spec.limit_s) == ("debug", 90.0)
    (fault,) = found.submission_faults(nodes)
    assert fault.startswith("jobs.1 (d): nodes: 1, but bo's quota at NORMAL in debug is 0; ask for 0 or fewer")


def test_what_is_wrong_is_named() -> None:
    for keys, words in (
        ({"users": {"ada": {"quotas": {"TOP": 1}}}}, "TOP: no priority that has a quota; use EXTREME_HIGH, VERY_HIGH"),
        ({"users": {"ada": {"quota": -1}}}, "users.ada.quota: Input should be greater than or equal to 0 (got -1)"),
        ({"groups": {"a": ["x"], "b": ["x"]}}, "x is in a and b; a node is in one group"),
        ({"restart": 0}, "restart"),
        ({"timers": {"beat": "20 s"}}, "failed_after: 60 s are no more than three heartbeats of 20 s"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            config(**keys)
    assert list(config(users={"eve": {}}, groups={"a": ["z9h9"]}).faults(FABRIC)) == [
        "groups.a: z9h9: no compute node of fire_flyer_2_tiny",
        "users: eve: submits no job here; the users of jobs are ada",
    ]
    with pytest.raises(ConfigError, match=f"{FABRIC.computes[0].name}: no node of this platform's jobs; they run on"):
        config(groups={"a": [FABRIC.computes[0].name]}).nodes_of(FABRIC, NODES)
    small = config(users={"ada": {"quota": 1}})
    assert list(small.submission_faults(small.nodes_of(FABRIC, NODES))) == [
        "jobs.0 (one): nodes: 2, but ada's quota at NORMAL in training is 1; ask for 1 or fewer, or use another "
        "priority"
    ]
    assert list(small.faults(FABRIC)) == list(small.submission_faults(small.nodes_of(FABRIC, NODES)))
    strange = config(jobs=[{**JOB, "group": "debug"}])
    assert "group: unknown group 'debug'; use 'training'" in "".join(
        strange.submission_faults(strange.nodes_of(FABRIC, NODES))
    )


def test_a_default_timer_stands_for_three_heartbeats() -> None:
    assert Timers().failed_after > 3 * Timers().beat


def test_programs_of_a_platform_may_be_begun_again_and_no_others_beside_storages(tmp_path: Path) -> None:
    file = "experiments/shared_cluster/cluster_kills.yaml"
    assert len(resolve(file, [])[1].failures) == 11
    line = "failures=[{process: z0h010, at: 1 s, effect: restart, for: 1 s}]"
    with pytest.raises(ConfigError, match="on z0h010 is neither a storage service nor a program of platform"):
        resolve(file, [line])
    data = yaml.safe_load(Path(file).read_text())
    data["jobs"][0]["users"] = {"bo": {"quotas": {"HIGH": 3}}}
    (tmp_path / "quota.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError) as caught:
        resolve(str(tmp_path / "quota.yaml"), [])
    assert str(caught.value).partition(": ")[2] == (
        "jobs.platform: jobs.3 (urgent): nodes: 4, but bo's quota at HIGH in training is 3; ask for 3 or fewer, or use "
        "another priority"
    ), "and of what may be killed nothing is said"


def test_the_policy_says_whether_limits_end_jobs() -> None:
    assert [config(ends_at_limit=ends).policy_of.ends_at_limit for ends in (False, True)] == [False, True]
    assert config(policy="easy", placement="spread").policy_of.placement.value == "spread"
