"""``fabric exec --gpu``: programs that say ``cuda`` have GPUs that are not there, and whose time is virtual."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from fabric.errors import UsageError
from fabric.model.identity import NodeId
from fabric.model.network import Fabric
from fabric.world import cache
from traffic.torch_gpus.catalogue import gpu_named
from traffic.torch_gpus.kernel_sources import kernel_times_in
from traffic.torch_gpus.startup import FOLDER
from traffic.torch_gpus.variables import COUNT, GPU, NAN, ROUTER, TIMES, VALUES, seed_and_skew

_MOST = 16
_TABLE = "--gpu-times-table"
"""For ourselves: where the times of ``--gpu-times`` are as our own CSV."""


def add_gpu_options(parser: argparse.ArgumentParser) -> None:
    """Define the options."""
    gpu = (
        "let PyTorch on hosts have GPUs that are not there, e.g. h100: tensors on cuda have no values, operators take "
        "their time by a roofline, nccl is this project's; COUNT per host, by default as the topology says, or 1 "
        "(default: none)"
    )
    parser.add_argument("--gpu", metavar="NAME[:COUNT]", help=gpu)
    values = "what reading a value from such a GPU gives: an error, or nan, 0 and False (default: error)"
    parser.add_argument("--gpu-values", choices=("error", NAN), default="error", help=values)
    router = (
        "draw which experts tokens take (topk of scores without values), the same in each layer and step; SKEW: how "
        "unequal experts are liked, as that of jobs (default: none, reading them is an error)"
    )
    parser.add_argument("--gpu-router", metavar="SEED[:SKEW]", help=router)
    times = (
        "how long operators took on such a GPU, in place of the roofline: a CSV of operator, shapes, type, us; a trace "
        "of PyTorch's profiler (.json, .json.gz); a folder of Phantora's tables (default: none)"
    )
    parser.add_argument("--gpu-times", type=Path, metavar="FILE", help=times)
    parser.add_argument(_TABLE, type=Path, help=argparse.SUPPRESS)


def require_gpus(options: argparse.Namespace, fabric: Fabric) -> list[str]:
    """Refuse GPUs that cannot be, before a fabric comes up, and build what they need if PyTorch is here; return words
    to add to the command. Raises UsageError, and EmulationError without a compiler."""
    if options.gpu is None:
        return []
    name, _ = _asked(options.gpu, fabric)
    gpu_named(name)
    if options.gpu_router is not None:
        seed_and_skew(options.gpu_router)
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        from traffic.torch_gpus.library import device_library

        device_library(Path(torch.origin).parent)
    return [] if options.gpu_times is None else [_TABLE, str(_table(options.gpu_times))]


def _table(path: Path) -> Path:
    """Return where a file of times is as our own CSV, which each program reads. Raises ConfigError."""
    text = kernel_times_in(path).csv()
    written = cache.own() / f"gpu_times-{hashlib.sha256(text.encode()).hexdigest()[:16]}.csv"
    written.parent.mkdir(parents=True, exist_ok=True)
    unfinished = written.with_suffix(f".{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(written)
    return written


def gpu_environment(options: argparse.Namespace, fabric: Fabric, hosts: Sequence[NodeId]) -> dict[str, str]:
    """Return the environment of programs on all hosts; empty without ``--gpu``."""
    if options.gpu is None:
        return {}
    name, count = _asked(options.gpu, fabric)
    before = os.environ.get("PYTHONPATH")
    path = str(FOLDER) if not before else f"{FOLDER}:{before}"
    values = {VALUES: NAN} if options.gpu_values == NAN else {}
    times = {} if options.gpu_times_table is None else {TIMES: str(options.gpu_times_table)}
    router = {} if options.gpu_router is None else {ROUTER: options.gpu_router}
    nodes = {"PET_NNODES": str(len(hosts))}
    return {GPU: name, COUNT: str(count), "PYTHONPATH": path, **nodes, **values, **router, **times}


def torchrun_environment(options: argparse.Namespace, own: dict[str, str]) -> dict[str, str]:
    """Return ``torchrun``'s variables on a host, from its programs' environment; empty without ``--gpu``."""
    if options.gpu is None:
        return {}
    return {"PET_NODE_RANK": own["FABRIC_RANK"], "PET_MASTER_ADDR": own["MASTER_ADDR"]}


def _asked(text: str, fabric: Fabric) -> tuple[str, int]:
    name, colon, number = text.partition(":")
    if not colon:
        return name, 1 if fabric.inside is None else fabric.inside.gpus
    if not number.isdecimal() or not 1 <= int(number) <= _MOST:
        raise UsageError(f"--gpu {text}: {number!r} GPUs per host; give a number from 1 to {_MOST}, e.g. {name}:8")
    return name, int(number)
