"""What ``fabric cluster up`` brings up, and the folder that it leaves: its config, its journal and what ranks printed.

::

    cluster.yaml             the whole config, topology included
    logs/platform/journal    what has happened, an event per line
    logs/platform/NODE/LIFE-RANK/log    what a rank printed
    logs/failures            what failed by hand, a row per change
    logs/samples             samples of the ports (:mod:`fabric.measure.live_file`)

Who brings a folder up has it locked as long as that goes on.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cluster.nodes import Nodes
from cluster.platform.config import PlatformConfig, SubmittedJob
from controllers.planning.planner import routing_faults
from controllers.routing import Routing
from fabric.config import (
    SizeBytes,
    TimeS,
    checked,
    checked_with_settings,
    files_noted,
    read_yaml,
    with_overrides,
    yaml_of,
)
from fabric.emulation import insides
from fabric.errors import ConfigError, TopologyError, UsageError
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import QueueConfig, Queueing
from fabric.model.network import Fabric
from fabric.queueing import lossless, red
from fabric.world.engine import Engine
from runs.config import (
    HostsConfig,
    queue_faults,
    require_engine_for_jitter,
    split_topology_setting,
    with_whole_topology,
)
from topologies.load import built
from traffic.storage.metadata.job_config import FilesConfig
from traffic.storage.metadata.kinds import FILES

CONFIG_FILE = "cluster.yaml"
PLATFORM = "platform"
"""What the job is called, and so its folder."""


class LiveConfig(PlatformConfig, HostsConfig):
    """A platform with the fabric that it is on."""

    topology: dict[str, Any] = Field(description="The fabric: a topology's name, the path of its file, or its keys.")
    nodes: tuple[str, ...] | None = Field(
        default=None,
        min_length=2,
        strict=False,
        description="Compute nodes; the scheduler is on the first one, agents are on the others. Default: all.",
    )
    login: str | None = Field(
        default=None,
        description=(
            "The host from which users' questions go to the scheduler over the fabric. Default: the first compute node "
            "beside `nodes`, or else the last of them."
        ),
    )
    queueing: Annotated[Queueing, Field(strict=False)] = Field(default=Queueing.LANES, description="The queues.")
    queues: QueueConfig = Field(default_factory=QueueConfig, description="Lanes, and queue limits of every port.")
    routing: Routing = Field(default_factory=Routing, description="Which of several equal paths packets take.")
    receive_window: Annotated[SizeBytes, Field(gt=0, le=2**30)] | None = Field(
        default=None, description="What the platform's connections may have in flight. Default: the kernel's choice."
    )
    files: FilesConfig | None = Field(
        default=None,
        description=(
            "A file system on the storage nodes that programs can mount, by the keys of jobs of kind `files`; it is "
            "empty whenever the cluster comes up. Default: none."
        ),
    )
    sample_period: Annotated[TimeS, Field(ge=0.01, le=3600)] | None = Field(
        default=1.0,
        description="Time between two samples of the ports, for its page and metrics. `null`: none are taken.",
    )
    jobs: tuple[SubmittedJob, ...] = Field(
        default=(), max_length=10_000, strict=False, description="Jobs that are submitted when it first comes up."
    )

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric. Users need not have jobs in the config."""
        yield from routing_faults(fabric, self.routing)
        yield from queue_faults(self.queues, [self.queueing], fabric)
        yield from insides.faults(fabric, [self.queueing])
        yield from self.unfit(fabric)
        if self.files is not None:
            yield from (f"files.{fault}" for fault in FILES.faults(self.files, fabric))
            if self.files.load is not None:
                yield "files.load: fio and mdtest are loads of jobs; leave it out, programs are the load here"
        named = list(self._named_faults(fabric))
        yield from named
        if named:
            return
        nodes, login = self.placed(fabric)
        if login != nodes[0] and fabric.nic_pair(login, nodes[0]) is None:
            yield f"login: {login} cannot reach {nodes[0]}, which has the scheduler; give another host"
        try:
            listed = self.nodes_of(fabric, nodes[1:])
        except ConfigError as error:
            yield from (f"groups: {fault}" for fault in error.faults)
            return
        yield from self.submission_faults(listed)

    def _named_faults(self, fabric: Fabric) -> Iterator[str]:
        names = list(self.nodes) if self.nodes is not None else [node.name for node in fabric.computes]
        if len(names) < 2:
            yield f"nodes: {fabric.name} has {len(names)} compute nodes; the scheduler needs one, and jobs one or more"
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"nodes: {name} is named more than once; name each once"
            elif (fault := _host_fault(fabric, name)) or fabric.host_named(name).role is not Role.COMPUTE:
                yield f"nodes: {fault or f'{name} is not a compute node, and jobs run on these only'}"
        if self.login is not None and (fault := _host_fault(fabric, self.login)):
            yield f"login: {fault}"

    def placed(self, fabric: Fabric) -> tuple[tuple[NodeId, ...], NodeId]:
        """Return the nodes, and from where users ask."""
        nodes = fabric.computes if self.nodes is None else tuple(map(fabric.host_named, self.nodes))
        if self.login is not None:
            return nodes, fabric.host_named(self.login)
        own = set(nodes)
        beside = (one for one in fabric.computes if one not in own and fabric.nic_pair(one, nodes[0]) is not None)
        return nodes, next(beside, nodes[-1])

    def listed(self, fabric: Fabric) -> Nodes:
        """Return the nodes that jobs may get, as the scheduler has them."""
        return self.nodes_of(fabric, self.placed(fabric)[0][1:])

    def require(self, engine: Engine) -> None:
        """Raise UsageError if an engine cannot have its queues."""
        lossless.require(engine, self.queueing)
        red.require(engine, self.queues, self.queueing)
        require_engine_for_jitter(engine, self.queues)
        self.require_verbs(engine)


def _host_fault(fabric: Fabric, name: str) -> str:
    try:
        fabric.host_named(name)
    except TopologyError as error:
        return "; ".join(error.faults)
    return ""


@dataclass(frozen=True)
class Asked:
    """A config with its fabric, and the files that were read for it, which a guest must see."""

    config: LiveConfig
    fabric: Fabric
    files: tuple[Path, ...]


def config_named(source: str, settings: Sequence[str]) -> Asked:
    """Return the config of a YAML file, or the usual one of a topology. Raises ConfigError with every fault."""
    with files_noted() as files:
        data: dict[str, Any] = {"topology": source}
        path = Path(source)
        if path.suffix in (".yaml", ".yml") and path.is_file() and "builder" not in (given := read_yaml(path)):
            data = given
        found: list[Fabric] = []

        def check(raw: dict[str, Any]) -> LiveConfig:
            config, fabric = _checked(raw, source)
            found[:] = [fabric]
            return config

        def applied(data: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
            whole, single = split_topology_setting(settings)
            return with_overrides(with_whole_topology(with_overrides(data, whole), source), single)

        config = checked_with_settings(check, data, list(settings), applied=applied)
    return Asked(config, found[0], tuple(files))


def _checked(raw: Mapping[str, Any], source: str) -> tuple[LiveConfig, Fabric]:
    config = checked(LiveConfig, raw, source)
    fabric = built(config.topology, f"{source}: topology").fabric
    if faults := list(config.faults(fabric)):
        raise ConfigError(source, faults)
    return config, fabric


# The folder ----------------------------------------------------------------------------------------------------------


def is_folder(path: Path) -> bool:
    """Return whether a path is the folder of a cluster."""
    return (path / CONFIG_FILE).is_file()


def keep_config(config: LiveConfig, folder: Path) -> None:
    """Write the config of a new folder."""
    text = yaml_of(config.model_dump(mode="json", by_alias=True))
    (folder / CONFIG_FILE).write_text(f"# fabric cluster up {folder} goes on with it\n{text}")


def forget_new(folder: Path) -> None:
    """Remove the folder of a cluster that has never come up: it has nothing but its config."""
    if [one.name for one in folder.iterdir()] == [CONFIG_FILE]:
        (folder / CONFIG_FILE).unlink()
        folder.rmdir()


def config_of(folder: Path) -> Asked:
    """Return the config of a folder. Raises ConfigError, UsageError if it is not a cluster's."""
    if not is_folder(folder):
        raise UsageError(f"{folder}: is not a cluster's folder: it has no {CONFIG_FILE}; fabric cluster up makes one")
    with files_noted() as files:
        source = str(folder / CONFIG_FILE)
        config, fabric = _checked(read_yaml(folder / CONFIG_FILE), source)
    return Asked(config, fabric, tuple(files))


def journal_of(folder: Path) -> Path:
    """Return where a folder's journal is, or will be."""
    return folder / "logs" / PLATFORM / "journal"


def samples_of(folder: Path) -> Path:
    """Return where a folder's samples are, or will be."""
    return folder / "logs" / "samples"


def failures_of(folder: Path) -> Path:
    """Return where what failed by hand is, or will be, in a cluster's folder."""
    return folder / "logs" / "failures"


def locked(folder: Path) -> int:
    """Lock a folder for as long as this process, or one that it becomes, has the descriptor that is returned open.
    Raises UsageError if another has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(
            f"{folder}: is up already; ask it (fabric cluster list), or end it: fabric cluster down"
        ) from error
    return descriptor
