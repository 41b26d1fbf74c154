"""``fabric doctor``: which engines can run here, what is missing, and the command that fixes it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from rich.table import Table
from rich.text import Text

from app.commands.options import add_json_option
from cluster.slurm.installed import INSTALL, why_no_slurm
from fabric.emulation import mininet_place
from fabric.emulation.openvswitch import DAEMONS, SCHEMA
from fabric.errors import UsageError
from fabric.queueing import lossless, red
from fabric.world import cache
from fabric.world.datapath import Datapath, find_datapath
from fabric.world.engine import Engine
from fabric.world.engines import ENGINES, NAMESPACE, VIRTUAL
from fabric.world.kernel_api import modules
from fabric.world.programs import verbs
from fabric.world.virtual import kernel
from runs.console import OUT
from runs.engine_choice import chosen_engine

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
_MODULES = {("mininet",): "apt-get install mininet", ("ryu", "os_ken"): "pip install os-ken", ("scapy",): "make setup"}
"""Of each, one is needed, and what installs it."""
_OPTIONAL = {"tcpdump", "iperf3"}
_REAL_TIME_ONLY = {"unshare", "cc"}
"""A guest is a world by itself, and nothing is preloaded into its switch."""
_NAMESPACE, _BOTH = (NAMESPACE.name,), (NAMESPACE.name, VIRTUAL.name)
_SYSTEMS_PACKAGES = (Path("/usr/lib/python3/dist-packages"), Path("/usr/local/lib/python3/dist-packages"))
"""Where Debian and Ubuntu put Python's packages."""

_OK, _MISSING, _NOTE = Text("ok", "green"), Text("missing", "red"), Text("note", "yellow")


@dataclass(frozen=True)
class Diagnosis:
    """One thing looked at. ``remedy`` mends it; ``needed`` names the engines that cannot run without it."""

    subject: str
    good: bool
    needed: tuple[str, ...]
    detail: str
    remedy: str = ""


def examine() -> list[Diagnosis]:
    """Return all findings on this machine. An engine can run if every one that it needs is good."""
    return [found for look in _LOOKS for found in look()]


def lacking(findings: list[Diagnosis]) -> dict[str, list[str]]:
    """Return, by engine, the subjects of what it needs and lacks; one that lacks nothing can run."""
    return {
        engine: [found.subject for found in findings if engine in found.needed and not found.good] for engine in ENGINES
    }


def _root() -> Iterator[Diagnosis]:
    is_root = os.geteuid() == 0
    detail = "running as root" if is_root else "not root; network namespaces need it, virtual time does not"
    yield Diagnosis("root", is_root, _NAMESPACE, detail, "" if is_root else "sudo fabric ..., or --engine virtual")


def _programs() -> Iterator[Diagnosis]:
    for program, package in _PACKAGES.items():
        path = shutil.which(program, path=os.environ.get("PATH", "") + _SBIN)
        remedy = "" if path else f"apt-get install {package}"
        needed = () if program in _OPTIONAL else _NAMESPACE if program in _REAL_TIME_ONLY else _BOTH
        yield Diagnosis(program, path is not None, needed, path or "not installed", remedy)
    has_schema = SCHEMA.exists()
    remedy = "" if has_schema else "apt-get install openvswitch-switch"
    yield Diagnosis("Open vSwitch schema", has_schema, _BOTH, str(SCHEMA), remedy)


def _modules() -> Iterator[Diagnosis]:
    for names, install in _MODULES.items():
        found = any(_is_importable(module) for module in names)
        detail, remedy = ("importable", "") if found else _why_not_importable(names[0], install)
        yield Diagnosis(f"python: {' or '.join(names)}", found, _BOTH, detail, remedy)


def _is_importable(module: str) -> bool:
    """Whether this Python has a module; Mininet is found where the distribution has it, too."""
    if module == mininet_place.NAME:
        return mininet_place.folder() is not None
    return importlib.util.find_spec(module) is not None


def _why_not_importable(module: str, remedy: str) -> tuple[str, str]:
    """Return why this Python has no such module, and what helps: to install what is there already would not."""
    hidden = PathFinder.find_spec(module, [*map(str, _SYSTEMS_PACKAGES)])
    if hidden is None or hidden.origin is None:
        return "not installed", remedy
    where = Path(hidden.origin).parent.parent
    if sys.prefix == sys.base_prefix:
        return f"installed in {where}, which {sys.executable} does not search", "use /usr/bin/python3"
    shown = f"set include-system-site-packages = true in {sys.prefix}/pyvenv.cfg"
    return f"installed in {where}, which this virtual environment hides", shown


def _namespaces() -> Iterator[Diagnosis]:
    script = "ip link add d0 type veth peer name d1 2>/dev/null && tc qdisc add dev d0 root handle 1: htb"
    subject = "namespaces, veth, HTB"
    if os.geteuid() != 0:
        yield Diagnosis(subject, False, (), "not tried: that needs root", "sudo fabric doctor")
        return
    reason, good = _try_in_namespaces(script)
    remedy = "" if good else "run on a kernel with CONFIG_NET_NS, CONFIG_VETH and CONFIG_NET_SCH_HTB"
    yield Diagnosis(subject, good, _NAMESPACE, reason, remedy)


def _guest_kernel() -> Iterator[Diagnosis]:
    subject, needed = "guest kernel", (VIRTUAL.name,)
    try:
        found = kernel.find()
    except UsageError as error:
        yield Diagnosis(subject, False, needed, str(error), "do as it says")
        return
    if found is not None:
        yield Diagnosis(subject, True, needed, f"{found.release}, {found.directory}")
    elif (machine := platform.machine()) != "x86_64":
        yield Diagnosis(subject, False, needed, f"needs an x86-64 machine; this is {machine}", "--engine namespace")
    else:
        missing = kernel.missing_packages()
        first = f"apt-get install {' '.join(missing)}; then " if missing else ""
        yield Diagnosis(subject, False, needed, "not built", f"{first}fabric virtual build (some 12 minutes, once)")


def _try_in_namespaces(script: str) -> tuple[str, bool]:
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), False
    return (done.stderr.strip() or "tried, they work"), done.returncode == 0


def _datapath() -> Iterator[Diagnosis]:
    before = modules.loaded()
    in_kernel = find_datapath() is Datapath.KERNEL
    detail = "kernel module openvswitch" if in_kernel else "userspace: no kernel module here; about 1 Gbit/s in total"
    if "openvswitch" in modules.loaded() - before:
        detail += "; loaded just now, it stays until modprobe -r openvswitch"
    yield Diagnosis("Open vSwitch datapath", True, (), detail)


def _cache() -> Iterator[Diagnosis]:
    try:
        yield Diagnosis("cache", True, _BOTH, str(cache.own()))
    except UsageError as error:
        yield Diagnosis("cache", False, _BOTH, str(error), "unset XDG_CACHE_HOME, or run sudo without -E")


def _by_engine(what: str, why_not: Callable[[Engine], str | None]) -> Iterator[Diagnosis]:
    for engine, remedy in ((NAMESPACE, "--engine virtual"), (VIRTUAL, "fabric virtual build")):
        try:
            reason = why_not(engine)
        except UsageError as error:
            reason = str(error)
        yield Diagnosis(f"{what}, {engine} engine", reason is None, (), reason or "can run", remedy if reason else "")


def _lossless() -> Iterator[Diagnosis]:
    return _by_engine("lossless queueing", lossless.why_not)


def _congestion_control() -> Iterator[Diagnosis]:
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    good = "cubic" in available
    yield Diagnosis(
        "TCP congestion control", good, _NAMESPACE, ", ".join(available), "" if good else "modprobe tcp_cubic"
    )


def _own_congestion_controls() -> Iterator[Diagnosis]:
    own = ", ".join(modules.CONGESTION_CONTROLS)
    return _by_engine(f"congestion controls {own}", lambda engine: engine.why_no_own_controls())


def _marking() -> Iterator[Diagnosis]:
    for engine in (NAMESPACE, VIRTUAL):
        reason = red.why_not(engine)
        subject = f"queues that mark (ECN), not lossless, {engine} engine"
        yield Diagnosis(subject, reason is None, (), reason or "can run", "--engine virtual" if reason else "")


def _verbs() -> Iterator[Diagnosis]:
    return _by_engine("RDMA verbs", verbs.why_not)


def _slurm() -> Iterator[Diagnosis]:
    why = why_no_slurm()
    yield Diagnosis("Slurm as a platform's engine", not why, (), why or "installed", INSTALL if why else "")


def _resources() -> Iterator[Diagnosis]:
    cores = os.cpu_count() or 1
    yield Diagnosis("cores", cores >= 2, (), f"{cores}", "" if cores >= 2 else "results need 2 cores or lower rates")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    good = memory >= _MEMORY_BYTES
    yield Diagnosis("memory", good, (), f"{memory / 2**30:.1f} GiB", "" if good else "2 GiB are wanted")


_LOOKS: tuple[Callable[[], Iterator[Diagnosis]], ...] = (
    _root,
    _programs,
    _modules,
    _namespaces,
    _guest_kernel,
    _cache,
    _datapath,
    _lossless,
    _congestion_control,
    _own_congestion_controls,
    _marking,
    _verbs,
    _slurm,
    _resources,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Define ``fabric doctor``."""
    add_json_option(parser)
    parser.set_defaults(command=run_doctor)


def run_doctor(options: argparse.Namespace, _: list[str]) -> int:
    """Print what this machine can do; 0 if an engine can run."""
    findings = examine()
    without = lacking(findings)
    ready = [engine for engine, subjects in without.items() if not subjects]
    if options.json:
        engines = {engine: {"ready": not subjects, "needs": subjects} for engine, subjects in without.items()}
        found = [vars(found) | {"needed": list(found.needed)} for found in findings]
        answer = {"can_run": bool(ready), "default": chosen_engine(), "engines": engines, "findings": found}
        OUT.print_json(data=answer)
        return 0 if ready else 1
    table = Table("", "checked", "found", "fix it with")
    for one in findings:
        mark = _OK if one.good else _MISSING if one.needed else _NOTE
        table.add_row(mark, one.subject, one.detail, one.remedy)
    OUT.print(table)
    for engine, subjects in without.items():
        state = f"needs {', '.join(subjects)}" if subjects else ("ready", "green")
        OUT.print(Text.assemble((engine, "bold"), f" ({ENGINES[engine].clock}): ", state))
    OUT.print(_summary(ready), highlight=False)
    return 0 if ready else 1


def _summary(ready: Sequence[str]) -> str:
    if not ready:
        return "experiments cannot run yet"
    default = chosen_engine()
    if default in ready:
        return f"experiments can run, by default in the engine {default}"
    return f"experiments can run with --engine {ready[0]}; the default here is {default} (FABRIC_ENGINE changes it)"
