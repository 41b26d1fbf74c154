"""A file system beside the programs of ``fabric exec``, for them to mount."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import yaml

from fabric.config import checked
from fabric.errors import UsageError
from fabric.model.identity import NodeId, Role
from fabric.model.lanes import ServiceLevel
from fabric.model.network import Fabric
from runs.live import LiveFabric

if TYPE_CHECKING:
    from traffic.storage.metadata.job import FilesJob
    from traffic.storage.metadata.job_config import FilesConfig

JOB = "files"
_SEED = 1


def add_files_option(parser: argparse.ArgumentParser) -> None:
    """Define the option that has one."""
    what = (
        "a file system on the storage nodes that the programs can mount, by the keys of jobs of kind files, as YAML, "
        "e.g. '{}' or '{replicas: 3}' (default: none)"
    )
    parser.add_argument("--files", dest="file_system", metavar="KEYS", help=what)


def files_config(options: argparse.Namespace, fabric: Fabric) -> FilesConfig | None:
    """Return what an option asks for; None if it is not given. Raises UsageError, and ConfigError for keys that cannot
    be."""
    if options.file_system is None:
        return None
    from traffic.storage.metadata.job_config import FilesConfig  # Few ask for a file system, and all would load it.
    from traffic.storage.metadata.kinds import FILES

    try:
        given = yaml.safe_load(options.file_system)
    except yaml.YAMLError as error:
        raise UsageError(
            f"--files {options.file_system!r}: is not YAML: {error}; write e.g. '{{replicas: 3}}'"
        ) from error
    if not isinstance(given, dict):
        raise UsageError(
            f"--files {options.file_system!r}: is not a mapping of keys; write e.g. '{{replicas: 3}}', or '{{}}'"
        )
    config = checked(FilesConfig, given, "--files")
    if config.load is not None:
        raise UsageError("--files: fio and mdtest are loads of jobs; leave them out, the programs are the load here")
    for fault in FILES.faults(config, fabric):
        raise UsageError(f"--files: {fault}")
    return config


def require_clients(fabric: Fabric, hosts: Sequence[str]) -> None:
    """Raise UsageError if a host cannot mount it."""
    for name in hosts:
        if fabric.host_named(name).role is not Role.COMPUTE:
            raise UsageError(f"--files: {name} is not a compute node, and only these mount; name others: z0h000")


def mountable(live: LiveFabric, hosts: Sequence[NodeId], config: FilesConfig | None) -> Any:
    """Return a context in which programs on ``hosts`` can mount a file system, whose job it gives; none without a
    config."""
    return nullcontext() if config is None else _mountable(live, hosts, config)


@contextmanager
def _mountable(live: LiveFabric, hosts: Sequence[NodeId], config: FilesConfig) -> Iterator[FilesJob]:
    from fabric.world.programs.agents import AgentPool
    from traffic.job import Stage
    from traffic.storage.metadata.job import PRELOAD, FilesJob

    pool = AgentPool(PRELOAD)
    clients = list(dict.fromkeys(hosts))
    stage = Stage(live.fabric, pool, live.emulation.namespace_of, _SEED, logs=live.logs)
    job = FilesJob(stage, config, clients, level=ServiceLevel.STORAGE, name=JOB)
    try:
        job.start()
        job.play("exec")
        yield job
        job.halt()
    finally:
        job.close()
        pool.stop()
