"""The kinds of jobs: each says all that is asked of it, in terms that others know."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from controllers.planning.routes import plan_static_routes
from fabric.model.lanes import DATA_LEVELS, ServiceLevel
from runs.job_config import config_of
from runs.kinds import KINDS, tables_of_jobs
from runs.preload import PRELOAD
from topologies.load import load_fabric
from traffic.job_kind import JobKind

SMALL = load_fabric("fire_flyer_2_small")
PLAN = plan_static_routes(SMALL)
NODES = SMALL.computes[:4]
BY_NAME = {kind.name: kind for kind in KINDS}
RING = Path(__file__).parents[1] / "traffic" / "work" / "ring.jsonl"
TRAINING = {"model": "resnet50", "layout": {"data": 4, "gpus_per_node": 1}, "compute": {"forward": 1.0}}
MORE: dict[str, dict[str, Any]] = {
    "program": {"command": "sleep 1"},
    "work": {"graph": str(RING)},
    "training": TRAINING,
    "sort": {"ranks": 4},
    "platform": {"jobs": [{"name": "one", "user": "ada", "nodes": 3, "command": ["sleep", "1 h"]}]},
}
"""Keys that a kind has no default for."""


def test_their_names_are_their_own() -> None:
    assert len(BY_NAME) == len(KINDS)
    assert tables_of_jobs().keys() == {name for kind in KINDS for name in kind.tables}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_is_configured_and_its_own_keys_reach_its_programs(kind: JobKind) -> None:
    model = config_of(kind)
    config = model.model_validate({"name": "a", "kind": kind.name, "nodes": 4, **MORE.get(kind.name, {})})
    own = config.own()
    assert type(own) is kind.config, "programs know no class of runs"
    assert own == kind.config.model_validate(own.model_dump())
    assert list(kind.faults(own, SMALL)) == []
    assert kind.level in (*DATA_LEVELS, ServiceLevel.CONTROL)
    assert ("rank_order" in model.model_fields) == kind.data.orders_ranks


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_data_of_a_kind_goes_between_hosts_of_the_fabric(kind: JobKind) -> None:
    own = config_of(kind).model_validate({"name": "a", "kind": kind.name, "nodes": 4, **MORE.get(kind.name, {})}).own()
    flows = kind.data.flows(own, SMALL, NODES)
    ends = {node for source, target, _ in flows for node in (source, target)}
    assert ends <= set(NODES) if kind.data.orders_ranks else ends <= set(SMALL.hosts)
    assert all(source != target and share > 0 for source, target, share in flows)
    assert list(kind.data.rails(own, SMALL, NODES)) == []


def test_the_rings_of_several_channels_are_on_the_nics_of_their_numbers() -> None:
    rails = load_fabric("dgx_superpod_140_small")
    nccl = BY_NAME["nccl"]
    config = nccl.config.model_validate({"channels": 4})
    assert list(nccl.data.rails(config, rails, rails.computes)) == [0, 1, 0, 1]


def test_storage_needs_storage_nodes_and_a_program_is_a_command() -> None:
    bare = load_fabric("fire_flyer_2_small", ["storage=0"])
    storage, program = BY_NAME["storage"], BY_NAME["program"]
    words = "has no storage nodes; give it some (topology.storage)"
    assert [fault.partition(" ")[2] for fault in storage.faults(storage.config(), bare)] == [words]
    assert list(program.commands(program.config.model_validate(MORE["program"]))) == ["sleep 1"]
    platform = BY_NAME["platform"]
    assert list(platform.commands(platform.config.model_validate(MORE["platform"]))) == ["sleep '1 h'"]
    others = [kind for kind in KINDS if kind not in (program, platform)]
    assert [one.name for one in others if one.commands(one.config.model_validate(MORE.get(one.name, {})))] == []


def test_what_programs_are_in_is_imported_once() -> None:
    assert len(set(PRELOAD)) == len(PRELOAD)
    for kind in KINDS:
        assert set(kind.preload) <= set(PRELOAD)
        for name in kind.preload:
            importlib.import_module(name)


def test_jobs_use_all_nics_but_for_those_of_users_programs() -> None:
    """The list that is declared: who adds a kind that uses one NIC gives the reason."""
    assert {kind.name for kind in KINDS if kind.data.one_nic} == {"program", "platform"}
    rails = load_fabric("dgx_superpod_140_small")
    for kind in KINDS:
        own = (
            config_of(kind)
            .model_validate({"name": "a", "kind": kind.name, "nodes": 4, **MORE.get(kind.name, {})})
            .own()
        )
        assert list(kind.data.rails(own, rails, rails.computes)) == []
