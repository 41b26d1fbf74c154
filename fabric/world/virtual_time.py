"""The engine ``virtual``: a guest kernel in virtual time (:mod:`fabric.world.virtual`), an ordinary process of any
account.

The same programs run in it as in the engine ``namespace``; the guest is what they share.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import pickle
import re
import site
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from fabric import pythons_distutils
from fabric.errors import EmulationError, UsageError
from fabric.world.engine import (
    INSIDE,
    STARTED_AT,
    TEMPORARY_DIR,
    Engine,
    Front,
    Groundwork,
    Guest,
    LatenessLimits,
    Spun,
    Timing,
    own_environment,
    started_at,
)
from fabric.world.isolation.sysctl import write_sysctl
from fabric.world.kernel_api import modules
from fabric.world.programs import hosts
from fabric.world.virtual import bytecode, forking, kernel, machines, starting
from fabric.world.virtual.guest import (
    CONTROL,
    DEFAULT_MEMORY_BYTES,
    GIB,
    SYSTEM_PROGRAMS,
    Channels,
    GuestMachine,
    Surroundings,
    directories_to_keep,
    guest_environment,
    host_time_s,
    in_guest,
    kept_anyway,
    leave_end,
    leave_hosts,
    run_in_guest,
)
from fabric.world.virtual.joining import MODULE as LINKING_MODULE
from fabric.world.virtual.joining import TOGETHER, Together, join
from fabric.world.virtual.kernel import HERE as GUEST_SOURCES
from fabric.world.virtual.kernel import KernelPaths
from fabric.world.virtual.starting import ORDER, Order
from fabric.world.virtual.together import Member, RunState, Share, run_together, serve_together
from fabric.world.virtual.watch import Limits

_USERS_ENVIRONMENT = "environment"
_FIGURES_DEPEND_ON = "figures_depend_on"
_GIVEN = "given"
_FIXED_ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "SHELL": "/bin/sh",
    "TERM": "dumb",
    **pythons_distutils.ENVIRONMENT,
}
_MOST_ARRIVING = 2**20
"""Frames that may have arrived and wait to be taken up: more than senders' windows of the largest fabric have."""
_TCP_MEMORY_PARTS = (4, 3, 2)
"""What part of a guest's memory all TCP together may use freely, sparingly and at most. A kernel's own choice, up to a
tenth, is for one host: with dozens in one guest windows shrink and packets are dropped once they have arrived."""
_SPUN = Path("/sys/module/time/parameters")
_PR_SET_TIMERSLACK = 29
_PR_GET_TIMERSLACK = 30
_TIMER_ABSTIME = 1
_BOOT_SEED = 0
"""What is drawn before a guest's run is known does not hang on the run."""
_SEEDS_APART = 1_000_003
"""Guests of one run draw other numbers each."""
_BUILT_IN = "reno"
"""Every kernel has this congestion control, without an option."""

_AROUND_GUEST_BYTES = GIB // 2
"""Of the kernel's own process, the launcher and what draws."""

_libc = ctypes.CDLL(None, use_errno=True)


class VirtualEngine(Engine):
    """A guest's kernel, whose clock stands still while anything computes.

    It is late only where something spins and will not let go of the clock: not by frames, but by far.
    """

    name = "virtual"
    clock = "virtual time"
    timing = Timing(
        slack_s=0.0, lead_s=0.0, rate_noise=0.0, flow_noise=0.1, carried_frames_s=float("inf"), kept_frames=12
    )
    lateness = LatenessLimits(switches=(0.005, 0.025), hosts=(0.05, 0.25), in_seconds=True)
    is_exact = True
    has_own_kernel = True
    has_terminal = False
    acts_for_user = True
    takes_machine = False
    programs_per_process = 50  # They start sooner and take less memory, and waiting for each other costs no time.

    def duration_s(self, against_noise_s: float, frames: float, frame_time_s: float) -> float:
        """Return how long the frames take."""
        return frames * frame_time_s

    def enter(self, command: Sequence[str], guest: Guest, front: Front) -> NoReturn:
        """Run a command in a new guest and end with its exit code. Raises UsageError, EmulationError."""
        hosts.build()
        work = Work.of(command, guest, front, sys.stdin.buffer.read() if front.gives else None)
        here = _Here(work, front.tell)

        def run(member: Member | None) -> int:
            return here.run(member, _channels(front, member), front.groundwork)

        if guest.count == 1:
            raise SystemExit(run(None))
        share = Share(guest.count, tuple(range(guest.count)), guest.lookahead_ns)
        if guest.meeting is None:
            raise SystemExit(run_together(share, run))
        others = machines.gathered(
            guest.meeting, guest.count, guest.lookahead_ns, work, here.facts, socket.gethostname()
        )
        for place in others.assignment.places:
            front.tell(f"{place} takes part in the run")
        raise SystemExit(
            run_together(
                others.assignment.share, run, beside=lambda memory, state: others.taking_part(memory, state, front.tell)
            )
        )

    def several(self, imports: Sequence[str] = ()) -> AbstractContextManager[None]:
        """Keep guests that have booted, to fork them."""
        return forking.waiting(imports)

    def given(self) -> bytes:
        """Return what was on stdin; a program in a guest has none."""
        return (CONTROL / _GIVEN).read_bytes()

    def furnish(self) -> None:
        """Give dozens of hosts in one kernel what they have on kernels of their own: memory of TCP, and room for all
        frames that arrive in one moment, of which the kernel would take 1,000 and drop the others."""
        write_sysctl("net/core/netdev_max_backlog", _MOST_ARRIVING)
        pages = os.sysconf("SC_PHYS_PAGES")
        write_sysctl("net/ipv4/tcp_mem", " ".join(str(pages // part) for part in _TCP_MEMORY_PARTS))
        leave_end()
        if (together := Together.read(CONTROL)) is not None:
            join(together, self.module(LINKING_MODULE))

    def settle(self) -> None:
        """Wait for the next whole second, to the nanosecond.

        Computing costs a guest no time, but reading the clock does, a little, and how often programs do so depends on
        more than the seed: on which modules Python finds compiled, for one. What starts here starts at the same time
        every time.
        """
        moment = (ctypes.c_long * 2)(int(time.monotonic()) + 1, 0)
        slack_ns = _libc.prctl(_PR_GET_TIMERSLACK)
        _libc.prctl(_PR_SET_TIMERSLACK, 1)
        _libc.clock_nanosleep(time.CLOCK_MONOTONIC, _TIMER_ABSTIME, moment, None)
        _libc.prctl(_PR_SET_TIMERSLACK, slack_ns)

    def wall_s(self) -> float:
        """Return the host's time, in whole seconds."""
        return host_time_s()

    def spun(self) -> Spun:
        """Return what the guest's kernel has counted (clock.c.inc)."""
        seconds = int((_SPUN / "spun_ns").read_text()) / 1e9
        return Spun(seconds, (_SPUN / "spun_by").read_text().strip())

    def leave_hosts(self, hosts: str) -> None:
        """Leave word of them beside the guest."""
        leave_hosts(hosts)

    def users_environment(self) -> dict[str, str]:
        """Return the user's, with what is other in the guest."""
        entries = os.fsdecode((CONTROL / _USERS_ENVIRONMENT).read_bytes()).split("\0")[:-1]
        users = dict(entry.split("=", 1) for entry in entries)
        return own_environment({**users, "TMPDIR": str(TEMPORARY_DIR)})

    def repeatable_with(self) -> dict[str, str] | None:
        """Return the guest's kernel and memory, and the state of the software.

        ``guest_kernel_changes`` names the state of what this project changes and builds its guests' kernels with,
        ``software`` that of its sources, its Python and the packages beside it.
        """
        depends_on: dict[str, str] = json.loads((CONTROL / _FIGURES_DEPEND_ON).read_text())
        return depends_on

    def why_no_modules(self) -> str | None:
        """Return that the guest's modules are not built, if so."""
        built = kernel.running() if in_guest() else kernel.find()
        if built is None or modules.find(built.directory.name) is None:
            return "the guest kernel's modules are not built; build them with: fabric virtual build"
        return None

    def why_no_bpf_controls(self) -> str | None:
        """Return that a guest does not compile BPF programs, which these must be."""
        return "the guest's kernel does not compile BPF programs"

    def module(self, name: str) -> Path:
        """Return a module of the guest's kernel. Raises EmulationError."""
        return kernel.running().module(name)

    def guest_for(self, guest: Guest, needed_bytes: int, subject: str) -> Guest:
        """Return ``guest`` with memory enough, in whole GiB if it is more than the default.

        Memory is taken from the host as it is used, so a large guest is not a promise; figures may depend on its size,
        which is among what a run says that it is repeatable with. Raises UsageError if the user gave it less.
        """
        enough = -(-needed_bytes // GIB)
        if guest.memory_bytes is None:
            return replace(guest, memory_bytes=enough * GIB) if needed_bytes > DEFAULT_MEMORY_BYTES else guest
        if guest.memory_bytes < needed_bytes:
            needed, given = math.ceil(10 * needed_bytes / GIB) / 10, math.floor(10 * guest.memory_bytes / GIB) / 10
            raise UsageError(
                f"{subject} needs some {needed:.1f} GiB of memory in the virtual engine, and would have {given:.1f} "
                f"GiB; omit --memory, or give it more: --memory {enough}GiB"
            )
        return guest

    def kernel(self) -> str:
        """Return the guest kernel's name, which says what source and changes it is of. Raises EmulationError."""
        return kernel.require().directory.name

    def memory_taken_bytes(self, guest: Guest) -> int:
        """Return the guest's memory, and what the processes around it need."""
        return (guest.memory_bytes or DEFAULT_MEMORY_BYTES) + _AROUND_GUEST_BYTES

    def congestion_controls(self) -> tuple[str, ...]:
        """Return those of the guest's kernel, and of our modules for it: outside of it, by its configuration."""
        if in_guest():
            return super().congestion_controls()
        text = (GUEST_SOURCES / "kernel.config").read_text()
        named = re.findall(r"^CONFIG_TCP_CONG_(\w+)=y$", text, re.MULTILINE)
        built_in = {name.lower() for name in named if name != "ADVANCED"}
        return tuple(sorted({_BUILT_IN, *built_in, *modules.CONGESTION_CONTROLS}))


@dataclass(frozen=True)
class Work:
    """What the guests of a run are started for, on whichever machine: a Python's ``module`` with ``arguments``, which
    needs ``imports``; ``handed``: files for each guest."""

    module: str
    arguments: tuple[str, ...]
    guest: Guest
    imports: tuple[str, ...]
    environment: Mapping[str, str]
    handed: Mapping[str, bytes]
    wall_s: float | None
    is_endless: bool

    @classmethod
    def of(cls, command: Sequence[str], guest: Guest, front: Front, given: bytes | None) -> Work:
        """Return it, of a command and what is on its stdin. Raises UsageError, EmulationError."""
        guest_kernel = kernel.require()
        if guest.count > 1 and modules.find(guest_kernel.directory.name, LINKING_MODULE) is None:
            raise UsageError(
                f"--guests {guest.count}: the guest kernel {guest_kernel.directory.name} is of a source whose guests "
                "can only play alone; build it from Debian's linux-source-6.1: fabric virtual build"
            )
        _, option, module, *arguments = command
        assert option == "-m", command
        memory_bytes = guest.memory_bytes or DEFAULT_MEMORY_BYTES
        handed = {
            _USERS_ENVIRONMENT: _encoded(guest_environment(os.environ, guest.seed)),
            _FIGURES_DEPEND_ON: json.dumps(_figures_depend_on(guest_kernel, memory_bytes, guest.count)).encode(),
            **({} if given is None else {_GIVEN: given}),
        }
        may_be_forked = guest.count == 1 and front.ask is None
        imports = (may_be_forked and forking.imports_of_all()) or tuple(front.imports)
        return cls(
            module, tuple(arguments), replace(guest, memory_bytes=memory_bytes, meeting=None), imports,
            _own_environment(), handed, front.wall_s, front.endless,
        )  # fmt: skip


class _Here:
    """Plays guests of a run on this machine."""

    def __init__(self, work: Work, tell: Callable[[str], None]) -> None:
        self._work, self._kernel = work, kernel.require()
        self._compiled = bytecode.prepare(tell)

    @property
    def facts(self) -> dict[str, str]:
        """What figures depend on that each machine has of its own."""
        return _facts(self._kernel)

    def run(self, member: Member | None, channels: Channels, groundwork: Groundwork | None) -> int:
        """Play one guest to its end, and return its exit code."""
        work, number = self._work, 0 if member is None else member.together.number
        assert work.guest.memory_bytes is not None
        limits = replace(Limits.of_guest(work.guest.memory_bytes), wall_s=work.wall_s)
        machine = GuestMachine(
            seed=_BOOT_SEED,
            memory_bytes=work.guest.memory_bytes,
            limits=replace(limits, virtual_s=math.inf) if work.is_endless else limits,
            kernel=self._kernel,
            companion=member,
        )
        order = _order(work, self._compiled, work.guest.seed + number * _SEEDS_APART)
        of_member = {} if member is None else {TOGETHER: member.together.encoded()}
        surroundings = Surroundings(
            environment=work.environment,
            bytecode=self._compiled,
            handed={**work.handed, **of_member, ORDER: order.encoded()},
            directory=Path("/"),
            groundwork=groundwork if member is None else None,
        )
        first = [sys.executable, "-m", starting.__name__, *work.imports]
        return run_in_guest(first, machine, surroundings, channels, forking.start)


def take_part(address: str, port: int, key: str) -> None:
    """Play the guests that this machine is given of a run whose first machine listens there, until it is over. Raises
    EmulationError if it cannot."""
    found = machines.joined(address, port, key, _facts(kernel.require()), socket.gethostname())
    control, assignment = found.control, found.assignment
    state = RunState(on_fault=lambda reason: control.say(machines.Failed(reason)))

    def tell(text: str) -> None:
        control.say(machines.Said(text))

    def attend() -> None:
        try:
            for message in control.heard():
                if isinstance(message, machines.Over):
                    break
        except EOFError as error:
            state.fault = EmulationError(f"{assignment.places[0]} of the run was lost: {error}")
        state.is_over.set()

    def run(member: Member) -> int:
        number = member.together.number
        return here.run(member, Channels(tell=lambda text: tell(f"guest {number}: {text}")), None)

    @contextmanager
    def beside(memory: Path, state: RunState) -> Iterator[None]:
        with machines.carried(assignment, found.links, memory, state):
            yield

    threading.Thread(target=attend, daemon=True).start()
    here = _Here(pickle.loads(assignment.work), tell)
    serve_together(assignment.share, run, state, beside)
    control.say(machines.Over())
    control.close()
    if state.fault is not None:
        raise state.fault


def _facts(guest_kernel: KernelPaths) -> dict[str, str]:
    return {
        "guest kernel": f"{guest_kernel.release} ({kernel.fingerprint()})",
        "state of the software": bytecode.fingerprint(),
    }


def _own_environment() -> dict[str, str]:
    """Return the environment of our programs in a guest: the same for everybody, but for where programs are.

    Its size and content decide where memory lies and what programs read at their start, and with that, in the end, the
    last digits of figures; under contention, the first. The system's programs come first: to look for one where it is
    not takes a guest time, however little, and Open vSwitch draws its identifiers from the time.
    """
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "SUDO_UID", "SUDO_GID") if name in os.environ}
    others = [part for part in os.environ.get("PATH", "").split(":") if part and part not in SYSTEM_PROGRAMS]
    kept["PATH"] = ":".join([*SYSTEM_PROGRAMS, *others])
    if site.ENABLE_USER_SITE:
        kept["PYTHONUSERBASE"] = site.getuserbase()  # It would be looked for in HOME.
    return {**_FIXED_ENVIRONMENT, **kept, INSIDE: "1"}


def _order(work: Work, compiled: Path, seed: int) -> Order:
    """Return the part of a guest's work that differs from run to run; of what it may see, that which is here."""
    anyway = directories_to_keep(kept_anyway(Path(sys.executable), compiled))
    kept = [path for path in directories_to_keep([*work.guest.keep, Path.cwd(), *anyway]) if path not in anyway]
    environment = {"PYTHONHASHSEED": str(seed % 2**32), STARTED_AT: started_at()}
    seen = [str(path) for path in kept if path.is_dir()]
    return Order(work.module, work.arguments, str(Path.cwd()), seen, environment, seed)


def _figures_depend_on(guest_kernel: KernelPaths, memory_bytes: int, guests: int) -> dict[str, str]:
    return {
        **({"guests": str(guests)} if guests > 1 else {}),
        "guest_kernel": guest_kernel.release,
        "guest_kernel_changes": kernel.fingerprint(),
        "guest_memory": f"{memory_bytes // 2**20} MiB",
        "software": bytecode.fingerprint(),
    }


def _channels(front: Front, member: Member | None) -> Channels:
    """Return what goes in and out of a guest: of several, the first one's is the run's, and each says which it is."""
    number = 0 if member is None else member.together.number

    def tell(text: str) -> None:
        front.tell(text if member is None else f"guest {number}: {text}")

    if number == 0:
        return Channels(front.stdout, ask=front.ask, progress=front.progress, tell=tell)
    return Channels(tell=tell)


def _encoded(environment: dict[str, str]) -> bytes:
    return b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
