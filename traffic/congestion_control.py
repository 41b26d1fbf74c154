"""The TCP congestion controls that a run can have: those of its engine's kernel whose signals its queues provide, and
the project's own (``fabric/kernel``): ``line`` is none at all, ``dcqcn`` is RoCE's.

These are BPF programs or kernel modules. Of the former nothing stays behind, and runs may differ in their parameters;
so they come first where both can be had.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from fabric.errors import EmulationError, TrafficError, UsageError
from fabric.model.lanes import LanePlan, ServiceLevel
from fabric.world.engine import Engine
from fabric.world.engines import NAMESPACE, VIRTUAL, current_engine
from fabric.world.kernel_api import modules, struct_ops
from fabric.world.programs import guest_calls
from traffic.dcqcn import Parameters, module_parameters

DCQCN = "dcqcn"
STEERED_BY_ECN = ("dctcp", DCQCN)
"""Without marks they behave as reno, or as if nothing were ever congested."""
_DCQCN_MODULE = modules.CONGESTION_CONTROLS[DCQCN]
_DCQCN_MODULES = (_DCQCN_MODULE, modules.RDMA_DCQCN)
_SYS_MODULE = Path("/sys/module")
_COUNTED = ("flows", "flows_without_ecn", "cnps")
_HOST = {DCQCN: struct.Struct("=8Q4I3Q"), "line": struct.Struct("=2Q")}
"""What BPF programs know of a host: parameters, and at the end counters. ``struct dcqcn_host`` and ``line_host``."""
_held: dict[str, struct_ops.Control] = {}
"""The controls that this process, that of a run, has registered as BPF programs, until it ends."""
_hosts: set[int] = set()
"""The cookies of the network namespaces of hosts that have them."""
_COUNTED_BEFORE: Counter[str] = Counter()
"""What ``dcqcn`` counted until it was given other parameters."""


def faults(controls: Mapping[str, str], marks: bool) -> Iterator[str]:
    """Yield what no engine can do of a ``congestion_control`` by service level; ``marks``: whether queues do."""
    here, guest = NAMESPACE.congestion_controls(), VIRTUAL.congestion_controls()
    for level, name in controls.items():
        if name not in {*here, *guest}:
            yield (
                f"congestion_control.{level}: {name!r} is not a congestion control here ({', '.join(here)}) or "
                f"of the guest's ({', '.join(guest)}); use one of theirs"
            )
        elif name in STEERED_BY_ECN and not marks:
            others = ", ".join(other for other in here if other not in STEERED_BY_ECN)
            yield (
                f"congestion_control.{level}: {name} steers by ECN, and no queue marks it, so it would never hear of "
                f"congestion; set queues.marking, or use one of {others}"
            )


def require(engine: Engine, controls: Mapping[str, str]) -> None:
    """Raise UsageError if an engine's kernel lacks one of a ``congestion_control`` by service level."""
    have = engine.congestion_controls()
    for level, name in controls.items():
        if name in modules.CONGESTION_CONTROLS and (reason := engine.why_no_own_controls()):
            raise UsageError(
                f"congestion_control.{level}: {name} is one of this project's own, and cannot be had in the engine "
                f"{engine}: {reason}"
            )
        if name not in have:
            raise UsageError(
                f"congestion_control.{level}: {name!r} is not in the kernel of --engine {engine}, which has "
                f"{', '.join(have)}; use one of them or the other engine"
            )


def provide(names: Iterable[str], parameters: Parameters, line_rate_bps: int) -> None:
    """Make those of the project's own among ``names`` known to the kernels of this world. Raises EmulationError.

    A module that is loaded keeps the parameters that it was loaded with. Where the kernel is the run's own, it is taken
    out and loaded with the new ones, once no connection has it any more. Hosts know BPF programs, and their parameters,
    only once they are admitted (:func:`admit`).
    """
    guest_calls.everywhere(_provide_here, list(names), parameters, line_rate_bps)


def _provide_here(names: Iterable[str], parameters: Parameters, line_rate_bps: int) -> None:
    for name in sorted(modules.CONGESTION_CONTROLS.keys() & set(names)):
        module = modules.CONGESTION_CONTROLS[name]
        given = module_parameters(parameters, line_rate_bps) if name == DCQCN else {}
        if name in _held:
            continue
        if not modules.is_loaded(module) and current_engine().why_no_bpf_controls() is None:
            _held[name] = struct_ops.register(name)
            continue
        _load(module, given)


def _load(module: str, parameters: Mapping[str, int]) -> None:
    """Load a module with parameters; anew, if the run's own kernel has it with others."""
    if modules.is_loaded(module):
        if not (differs := _difference(module, parameters)):
            return
        if not current_engine().has_own_kernel:
            raise UsageError(
                f"dcqcn: this kernel has loaded it with {differs}; end what uses it, and then: "
                f"modprobe -r {module}, or rmmod {module}"
            )
        _COUNTED_BEFORE.update(_counts_of(module))
        modules.unload(module)
    modules.load(current_engine().module(module), parameters)


def of_queue_pairs(lanes: LanePlan) -> dict[ServiceLevel, str]:
    """The controls of programs' queue pairs by service level: DCQCN in each lane that switches mark, as ConnectX has it
    unless it is turned off."""
    return {level: DCQCN for lane in lanes.lanes if lane.marking is not None for level in lane.levels}


def control_queue_pairs(controls: Mapping[ServiceLevel, str], parameters: Parameters, line_rate_bps: int) -> None:
    """Let queue pairs of the service levels that have ``dcqcn`` send by its rates, those of others by none.

    It is for queue pairs that send nothing yet, in a guest whose kernel has RDMA devices. Raises EmulationError.
    """
    guest_calls.everywhere(_control_queue_pairs_here, dict(controls), parameters, line_rate_bps)


def _control_queue_pairs_here(controls: Mapping[ServiceLevel, str], parameters: Parameters, line_rate_bps: int) -> None:
    classes = sum({1 << (level.tos >> 5) for level, name in controls.items() if name == DCQCN})
    if classes:
        _load(modules.RDMA_DCQCN, {**module_parameters(parameters, line_rate_bps), "classes": classes})
    elif modules.is_loaded(modules.RDMA_DCQCN):
        _COUNTED_BEFORE.update(_counts_of(modules.RDMA_DCQCN))
        modules.unload(modules.RDMA_DCQCN)


def offer(parameters: Parameters, line_rate_bps: int, tell: Callable[[str], None]) -> None:
    """Make all of the project's own known to the kernel of this world, since programs of users may choose them, where
    nothing of them stays on the machine. Raises EmulationError where the kernel is the run's own; elsewhere ``tell`` is
    told why they are not there.
    """
    engine = current_engine()
    if not engine.has_own_kernel and engine.why_no_bpf_controls() is not None:
        return
    try:
        provide(modules.CONGESTION_CONTROLS, parameters, line_rate_bps)
    except EmulationError as error:
        if engine.has_own_kernel:
            raise
        tell(f"without the congestion controls {', '.join(modules.CONGESTION_CONTROLS)}: {error}")


def admit(namespaces: Iterable[Path], parameters: Parameters, line_rate_bps: int) -> None:
    """Let hosts, by their network namespaces, have what :func:`provide` registered as BPF programs.

    They have these parameters from now on.
    """
    if not _held:
        return
    values = {
        DCQCN: _HOST[DCQCN].pack(*module_parameters(parameters, line_rate_bps).values(), 0, 0, 0),
        "line": _HOST["line"].pack(line_rate_bps, 0),
    }
    if DCQCN in _held:
        _COUNTED_BEFORE.update(_counted_now())  # A host counts from 0 with its new parameters.
    for namespace in namespaces:
        host = struct_ops.cookie(namespace)
        _hosts.add(host)
        for name, control in _held.items():
            control.admit(host, values[name])


def _difference(module: str, given: Mapping[str, int]) -> str:
    """A parameter that a module was loaded with otherwise, in words; empty: there is none."""
    for name, value in given.items():
        if (had := _parameter(module, name)) != value:
            return f"{name} {had}, not {value}"
    return ""


def counted() -> dict[str, int] | None:
    """Return what ``dcqcn`` has counted in this world, with whichever parameters: ends of connections, those without
    ECN, and notifications that cut a rate; None: it is not there."""
    found = [one for one in guest_calls.everywhere(_counted_here) if one is not None]
    return {name: sum(one[name] for one in found) for name in _COUNTED} if found else None


def _counted_here() -> dict[str, int] | None:
    if DCQCN not in _held and not any(map(modules.is_loaded, _DCQCN_MODULES)) and not _COUNTED_BEFORE:
        return None
    now = _counted_now()
    return {name: _COUNTED_BEFORE[name] + now[name] for name in _COUNTED}


def rate_cuts() -> int:
    """Return how often ``dcqcn`` has cut a rate in this world; 0 if it is not there."""
    return (counted() or {"cnps": 0})["cnps"]


def _counted_now() -> Counter[str]:
    """What of that it has counted with the parameters that it has now."""
    found = sum((_counts_of(module) for module in _DCQCN_MODULES if modules.is_loaded(module)), Counter[str]())
    if (control := _held.get(DCQCN)) is not None:
        layout = _HOST[DCQCN]
        for host in _hosts:
            counts = layout.unpack(control.entry(host, layout.size))[-len(_COUNTED) :]
            found.update(dict(zip(_COUNTED, counts, strict=True)))
    return found


def _counts_of(module: str) -> Counter[str]:
    """What a module has counted; one for RDMA knows no connections without ECN."""
    return Counter({name: _parameter(module, name) for name in _COUNTED if _has(module, name)})


def _has(module: str, parameter: str) -> bool:
    return (_SYS_MODULE / module / "parameters" / parameter).exists()


def _parameter(module: str, name: str) -> int:
    return int((_SYS_MODULE / module / "parameters" / name).read_text())


def require_ecn() -> None:
    """Raise TrafficError if a connection had ``dcqcn`` and no ECN."""
    if fault := ecn_fault():
        raise TrafficError(fault)


def ecn_fault() -> str | None:
    """Return that connections had ``dcqcn`` and no ECN, and so have never heard of congestion; None: none had."""
    found = counted()
    if not found or not found["flows_without_ecn"]:
        return None
    return (
        f"dcqcn: {found['flows_without_ecn']} of {found['flows']} ends of connections had not agreed on ECN and never "
        "heard of congestion; both ends need dcqcn before they connect, the listening socket included; for programs "
        "that choose it later (iperf3 -C dcqcn), set queues.marking: then hosts ask for ECN on every connection"
    )
