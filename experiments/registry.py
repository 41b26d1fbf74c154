"""The experiments that come with the project, by name, and how a name or a YAML file becomes a checked config."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.flash_cut_year.run import QUESTION as FLASH_CUT_YEAR_QUESTION
from experiments.flash_cut_year.run import FlashCutYearConfig, run_flash_cut_year
from experiments.head_of_line.run import QUESTION as HEAD_OF_LINE_QUESTION
from experiments.head_of_line.run import HeadOfLineConfig, run_head_of_line
from experiments.hfreduce_vs_nccl.run import QUESTION as HFREDUCE_VS_NCCL_QUESTION
from experiments.hfreduce_vs_nccl.run import run_hfreduce_vs_nccl
from experiments.hfreduce_vs_nccl.variants import HFReduceVsNcclConfig
from experiments.isolation.run import QUESTION as ISOLATION_QUESTION
from experiments.isolation.run import IsolationConfig, run_isolation
from experiments.link_flap.run import QUESTION as LINK_FLAP_QUESTION
from experiments.link_flap.run import LinkFlapConfig, run_link_flap
from experiments.lossless_soak.run import QUESTION as LOSSLESS_SOAK_QUESTION
from experiments.lossless_soak.run import LosslessSoakConfig, run_lossless_soak
from experiments.protection.run import QUESTION as PROTECTION_QUESTION
from experiments.protection.run import ProtectionConfig, run_protection
from experiments.routing_incast.run import QUESTION as ROUTING_INCAST_QUESTION
from experiments.routing_incast.run import RoutingIncastConfig, run_routing_incast
from experiments.run.config import RunConfig, split_topology_setting, with_whole_topology
from experiments.run.experiment import Experiment
from experiments.shared_cluster.run import QUESTION as SHARED_CLUSTER_QUESTION
from experiments.shared_cluster.run import SharedClusterConfig, run_shared_cluster
from fabric.config import checked, read_yaml, unknown_key, with_overrides
from fabric.errors import ConfigError
from topologies.load import fabric_of

_AFTER_ISOLATION = (
    "fabric run protection: what lanes leave to each program as the load of others grows beyond what links carry"
)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("head_of_line", HEAD_OF_LINE_QUESTION, HeadOfLineConfig, run_head_of_line),
        Experiment("isolation", ISOLATION_QUESTION, IsolationConfig, run_isolation, _AFTER_ISOLATION),
        Experiment("protection", PROTECTION_QUESTION, ProtectionConfig, run_protection),
        Experiment("hfreduce_vs_nccl", HFREDUCE_VS_NCCL_QUESTION, HFReduceVsNcclConfig, run_hfreduce_vs_nccl),
        Experiment("routing_incast", ROUTING_INCAST_QUESTION, RoutingIncastConfig, run_routing_incast),
        Experiment("shared_cluster", SHARED_CLUSTER_QUESTION, SharedClusterConfig, run_shared_cluster),
        Experiment("link_flap", LINK_FLAP_QUESTION, LinkFlapConfig, run_link_flap),
        Experiment("lossless_soak", LOSSLESS_SOAK_QUESTION, LosslessSoakConfig, run_lossless_soak),
        Experiment("flash_cut_year", FLASH_CUT_YEAR_QUESTION, FlashCutYearConfig, run_flash_cut_year),
    )
}


def resolve(name_or_file: str, overrides: Iterable[str]) -> tuple[Experiment, RunConfig, dict[str, Any]]:
    """Return an experiment, its checked config, and that config as it can be written to a file again.

    Raises ConfigError with every fault, those of the topology included.
    """
    path = Path(name_or_file)
    if name_or_file in EXPERIMENTS:
        path = EXPERIMENTS[name_or_file].file
    elif not path.is_file():
        raise ConfigError("experiment", [f"{unknown_key(name_or_file, EXPERIMENTS)}, or the path of a YAML file"])
    return _resolve_data(read_yaml(path), str(path), overrides)


def _resolve_data(
    data: dict[str, Any], source: str, overrides: Iterable[str]
) -> tuple[Experiment, RunConfig, dict[str, Any]]:
    name = data.get("experiment")
    if not isinstance(name, str) or name not in EXPERIMENTS:
        raise ConfigError(source, [f"experiment: {name!r} does not exist; use one of {', '.join(EXPERIMENTS)}"])
    whole, single = split_topology_setting(overrides)
    raw = with_overrides(with_whole_topology(with_overrides(data, whole), source), single)
    config = _checked_with_topology(EXPERIMENTS[name].config, raw, source)
    return EXPERIMENTS[name], config, config.model_dump(mode="json", by_alias=True)


def _checked_with_topology(kind: type[RunConfig], raw: dict[str, Any], source: str) -> RunConfig:
    config = None
    faults: list[str] = []
    try:
        config = checked(kind, raw, source)
    except ConfigError as error:
        faults += error.faults
    try:
        fabric = fabric_of(raw["topology"], source)
    except ConfigError as error:
        faults += [f"topology: {fault}" for fault in error.faults]
    else:
        faults += config.faults(fabric) if config is not None else []
    if faults or config is None:
        raise ConfigError(source, faults)
    return config
