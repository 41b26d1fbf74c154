"""``fabric doctor``: what this machine can do, what is missing, and the command that fixes it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from experiments.commands.options import add_json_option
from experiments.run.console import OUT, escaped
from fabric.emulation.openvswitch import DAEMONS, SCHEMA
from fabric.errors import UsageError
from fabric.queueing import lossless, red
from fabric.world import cache, modules
from fabric.world.datapath import Datapath, find_datapath
from fabric.world.engines import NAMESPACE, VIRTUAL

_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"
_MEMORY_BYTES = 2 * 2**30
_PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mnexec": "mininet",
    "cc": "gcc libc6-dev",
    "tcpdump": "tcpdump",
    "iperf3": "iperf3",
    **dict.fromkeys(DAEMONS, "openvswitch-switch"),
}
_OPTIONAL = {"tcpdump", "iperf3"}


@dataclass(frozen=True)
class Diagnosis:
    """One thing looked at. ``remedy`` mends it; ``needed``: experiments cannot run without it."""

    subject: str
    good: bool
    needed: bool
    detail: str
    remedy: str = ""


def examine() -> list[Diagnosis]:
    """Return all findings on this machine. Experiments can run if every needed one is good."""
    return [found for look in _LOOKS for found in look()]


def can_run(findings: list[Diagnosis]) -> bool:
    """Return whether experiments can run."""
    return all(found.good for found in findings if found.needed)


def _root() -> Iterator[Diagnosis]:
    is_root = os.geteuid() == 0
    detail = "running as root" if is_root else "not root; network namespaces need it"
    yield Diagnosis("root", is_root, True, detail, "" if is_root else "sudo fabric ...")


def _programs() -> Iterator[Diagnosis]:
    for program, package in _PACKAGES.items():
        path = shutil.which(program, path=os.environ.get("PATH", "") + _SBIN)
        remedy = "" if path else f"apt-get install {package}"
        yield Diagnosis(program, path is not None, program not in _OPTIONAL, path or "not installed", remedy)
    has_schema = SCHEMA.exists()
    remedy = "" if has_schema else "apt-get install openvswitch-switch"
    yield Diagnosis("Open vSwitch schema", has_schema, True, str(SCHEMA), remedy)


def _modules() -> Iterator[Diagnosis]:
    for module, remedy in {"mininet": "apt-get install mininet", "ryu": "make setup", "scapy": "make setup"}.items():
        found = importlib.util.find_spec(module) is not None
        detail = "importable" if found else "cannot be imported by this Python"
        yield Diagnosis(f"python: {module}", found, True, detail, "" if found else remedy)


def _namespaces() -> Iterator[Diagnosis]:
    script = "ip link add d0 type veth peer name d1 2>/dev/null && tc qdisc add dev d0 root handle 1: htb"
    reason, good = _try_in_namespaces(script) if os.geteuid() == 0 else ("not tried without root", False)
    remedy = "" if good else "run on a kernel with CONFIG_NET_NS, CONFIG_VETH and CONFIG_NET_SCH_HTB"
    yield Diagnosis("namespaces, veth, HTB", good, True, reason, remedy)


def _try_in_namespaces(script: str) -> tuple[str, bool]:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), False
    return (done.stderr.strip() or "tried, they work"), done.returncode == 0


def _datapath() -> Iterator[Diagnosis]:
    before = modules.loaded()
    kernel = find_datapath() is Datapath.KERNEL
    detail = "kernel module openvswitch" if kernel else "userspace: no kernel module here; about 1 Gbit/s in total"
    if "openvswitch" in modules.loaded() - before:
        detail += "; loaded just now, it stays until modprobe -r openvswitch"
    yield Diagnosis("Open vSwitch datapath", True, False, detail)


def _cache() -> Iterator[Diagnosis]:
    try:
        yield Diagnosis("cache", True, True, str(cache.own()))
    except UsageError as error:
        yield Diagnosis("cache", False, True, str(error), "unset XDG_CACHE_HOME, or run sudo without -E")


def _lossless() -> Iterator[Diagnosis]:
    for engine, remedy in ((NAMESPACE, "--engine virtual"), (VIRTUAL, "fabric virtual build")):
        try:
            reason = lossless.why_not(engine)
        except UsageError as error:
            reason = str(error)
        subject = f"lossless queueing, {engine} engine"
        yield Diagnosis(subject, reason is None, False, reason or "can run", remedy if reason else "")


def _congestion_control() -> Iterator[Diagnosis]:
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    good = "cubic" in available
    yield Diagnosis("TCP congestion control", good, True, ", ".join(available), "" if good else "modprobe tcp_cubic")


def _own_congestion_controls() -> Iterator[Diagnosis]:
    own = ", ".join(modules.CONGESTION_CONTROLS)
    for engine, remedy in ((NAMESPACE, "--engine virtual"), (VIRTUAL, "fabric virtual build")):
        try:
            reason = engine.why_no_own_controls()
        except UsageError as error:
            reason = str(error)
        subject = f"congestion controls {own}, {engine} engine"
        yield Diagnosis(subject, reason is None, False, reason or "can run", remedy if reason else "")


def _marking() -> Iterator[Diagnosis]:
    for engine in (NAMESPACE, VIRTUAL):
        reason = red.why_not(engine)
        subject = f"queues that mark (ECN), not lossless, {engine} engine"
        yield Diagnosis(subject, reason is None, False, reason or "can run", "--engine virtual" if reason else "")


def _resources() -> Iterator[Diagnosis]:
    cores = os.cpu_count() or 1
    yield Diagnosis("cores", cores >= 2, False, f"{cores}", "" if cores >= 2 else "results need 2 cores or lower rates")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    good = memory >= _MEMORY_BYTES
    yield Diagnosis("memory", good, False, f"{memory / 2**30:.1f} GiB", "" if good else "2 GiB are wanted")


_LOOKS: tuple[Callable[[], Iterator[Diagnosis]], ...] = (
    _root,
    _programs,
    _modules,
    _namespaces,
    _cache,
    _datapath,
    _lossless,
    _congestion_control,
    _own_congestion_controls,
    _marking,
    _resources,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric doctor``."""
    add_json_option(parser)
    parser.set_defaults(command=run_doctor)


def run_doctor(options: argparse.Namespace, _: list[str]) -> int:
    """Print what this machine can do; 0 if experiments can run."""
    findings = examine()
    ready = can_run(findings)
    if options.json:
        OUT.print_json(data={"can_run": ready, "findings": [vars(found) for found in findings]})
        return 0 if ready else 1
    table = Table("", "checked", "found", "fix it with")
    for found in findings:
        mark = "[green]ok[/]" if found.good else "[red]missing[/]" if found.needed else "[yellow]note[/]"
        table.add_row(mark, found.subject, escaped(found.detail), found.remedy)
    OUT.print(table)
    OUT.print("experiments can run" if ready else "experiments cannot run yet")
    return 0 if ready else 1
