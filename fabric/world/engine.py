"""What an engine is, and what it is asked: what keeps its time, how exact that is, what it needs and what it offers.

No code outside the engines asks which engine it is. Two implement this: :mod:`fabric.world.namespaces` and
:mod:`fabric.world.virtual_time`.
"""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NoReturn, Protocol

from fabric.world.kernel_api.modules import CONGESTION_CONTROLS

if TYPE_CHECKING:  # A guest's; who asks an engine loads none.
    from fabric.world.virtual.meeting import Meeting
    from fabric.world.virtual.watch import Progress

INSIDE = "FABRIC_WORLD"
"""Set in the environment of every process of a run's own namespaces or guest."""
STARTED_AT = "FABRIC_STARTED_AT"
"""Holds when a run began, where the run has no date of its own."""
SHARED = "FABRIC_SHARED"
"""Holds, where a run sees the machine's /tmp, the directories that all hosts share of it, joined by colons."""
RUN_DIR = Path("/run/fabric")
"""Files of a run: Open vSwitch's, the plan, and the result until it is whole. Private, in memory."""
TEMPORARY_DIR = RUN_DIR / "tmp"
"""Where temporary files of a run and its programs go (TMPDIR), so that they end with the run."""
_LOADED_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_KERNEL_MODULES = Path("/lib/modules")
_NO_CONGESTION_CONTROL = {"diag"}
"""Of what kernels have as ``tcp_*``."""

Ask = Callable[[], str | None]
"""Returns the user's next line without its end, None if there will be no more."""


class ByteSink(Protocol):
    """What takes what a program writes."""

    def write(self, text: bytes, /) -> object:
        """Take some of it."""

    def flush(self) -> object:
        """Pass on what was taken."""


@dataclass(frozen=True)
class Timing:
    """How exact an engine's time is.

    ``slack_s``: how late a timer may fire without a link losing rate. ``lead_s``: how long before an event whoever
    carries it out begins to prepare. ``rate_noise``, ``flow_noise``: what a link's rate, and a TCP flow alone on its
    path, may fall short by, as fractions, without a fault of the fabric. ``carried_frames_s``: how many full frames per
    second are sure to be sent, switched and seen. ``kept_frames``: how many frames a sender that must never run dry
    keeps queued.
    """

    slack_s: float
    lead_s: float
    rate_noise: float
    flow_noise: float
    carried_frames_s: float
    kept_frames: int


@dataclass(frozen=True)
class LatenessLimits:
    """How late wake-ups may be for a run that is ``faithful``, and for one that is ``degraded``.

    ``switches``: at the priority of switches; ``hosts``: at that of programs. In frame times, or in seconds if
    ``in_seconds``.
    """

    switches: tuple[float, float]
    hosts: tuple[float, float]
    in_seconds: bool = False

    def switches_s(self, frame_time_s: float) -> tuple[float, float]:
        """Return the limits at the priority of switches, in seconds."""
        return self._seconds(self.switches, frame_time_s)

    def hosts_s(self, frame_time_s: float) -> tuple[float, float]:
        """Return the limits at the priority of programs, in seconds."""
        return self._seconds(self.hosts, frame_time_s)

    def _seconds(self, limits: tuple[float, float], frame_time_s: float) -> tuple[float, float]:
        unit_s = 1.0 if self.in_seconds else frame_time_s
        return limits[0] * unit_s, limits[1] * unit_s


@dataclass(frozen=True)
class Spun:
    """The seconds that passed because programs spun while others were ready to run, and which program did so last."""

    seconds: float
    program: str

    def since(self, before: Spun) -> Spun:
        """Return what was added to what there was before."""
        return Spun(self.seconds - before.seconds, self.program)


@dataclass(frozen=True)
class Guest:
    """What a guest is like, for engines that have one: its ``seed`` fixes what is drawn at random in it, ``keep`` names
    directories of the host below ``/tmp``, ``/run`` or ``/dev`` that programs need, None is the usual memory.
    ``count``: how many guests play a run together, with so much memory each; ``lookahead_ns``: by how much one of them
    may be ahead of another; ``meeting``: where other machines join that play some of them."""

    seed: int
    keep: tuple[Path, ...] = ()
    memory_bytes: int | None = None
    count: int = 1
    lookahead_ns: int = 0
    meeting: Meeting | None = None


@dataclass(frozen=True)
class Groundwork:
    """What runs have in common that is made before it is known which run it is: a module, whose function ``lay`` makes
    it of ``content``. No seed is in it: who draws anything at random there draws the same for all."""

    module: str
    content: str


@dataclass(frozen=True)
class Front:
    """How a run that is to start reaches whoever starts it: ``progress`` is called with how far virtual time is,
    ``ask`` returns the user's lines to a program without a terminal, ``tell`` is called with what is done before the
    run starts. ``stdout`` gets what the program writes, where it cannot have this process's own. ``gives``: what is on
    stdin is for the program, which finds it by :meth:`Engine.given`. ``endless``: virtual time has no end, for whoever
    is asked paces it. ``wall_s``: after how much wall time a run in virtual time is ended (None: never).
    ``imports``: modules that the program will need; ``groundwork``: what an engine may make before the program starts,
    which makes it itself where none has."""

    progress: Progress = lambda time: None
    ask: Ask | None = None
    tell: Callable[[str], None] = lambda text: None
    stdout: ByteSink | None = None
    gives: bool = False
    endless: bool = False
    wall_s: float | None = None
    imports: tuple[str, ...] = ()
    groundwork: Groundwork | None = None


class Engine(ABC):
    """What runs are made of. ``name`` is what configs, manifests and ``--engine`` call it, ``clock`` what it is in
    words."""

    name: ClassVar[str]
    clock: ClassVar[str]
    timing: ClassVar[Timing]
    lateness: ClassVar[LatenessLimits]
    is_exact: ClassVar[bool]
    """Computing takes no time: any rate is carried, only a jitter that is asked for is there, and nothing but seed,
    config and software changes a figure."""
    has_own_kernel: ClassVar[bool]
    """A run has a kernel to itself: with Open vSwitch's datapath, and with the project's changes and modules."""
    has_terminal: ClassVar[bool]
    """Programs can read the user's terminal."""
    acts_for_user: ClassVar[bool]
    """A run has no more rights than the user who started it."""
    takes_machine: ClassVar[bool]
    """A run needs all cores of the machine to itself; else it takes one, whatever the others do."""
    programs_per_process: ClassVar[int]
    """How many of a job's programs share an interpreter, unless a config says otherwise."""

    @abstractmethod
    def duration_s(self, against_noise_s: float, frames: float, frame_time_s: float) -> float:
        """Return how long to play or measure: the time of ``frames`` frames of ``frame_time_s`` seconds if time is
        exact, else ``against_noise_s``, long enough to average out the machine's noise."""

    @abstractmethod
    def enter(self, command: Sequence[str], guest: Guest, front: Front) -> NoReturn:
        """Go on as ``command``, a Python with ``-m`` and a module, in a new run's own namespaces or guest. Raises
        UsageError, EmulationError."""

    def several(self, imports: Sequence[str] = ()) -> AbstractContextManager[None]:
        """Let runs that this process and those below it play during a block have in common what they can; ``imports``:
        modules that any of them may need."""
        return nullcontext()

    @abstractmethod
    def given(self) -> bytes:
        """Return, inside, what was on stdin outside."""

    @abstractmethod
    def furnish(self) -> None:
        """Give a run that has just been entered its own files and devices."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until the clock is at a place that does not depend on how often programs have read it."""

    @abstractmethod
    def wall_s(self) -> float:
        """Return, inside, the seconds of a clock that goes on while programs compute."""

    @abstractmethod
    def spun(self) -> Spun | None:
        """Return, inside, what programs that spun have made of time so far that else passes only while all wait; None
        where time passes anyway."""

    def leave_hosts(self, hosts: str) -> None:  # noqa: B027 - most engines end nothing from outside
        """Leave word, inside, of the hosts on which users' programs run: who ends the run from outside can say so."""

    @abstractmethod
    def users_environment(self) -> dict[str, str]:
        """Return, inside, the environment that the user's own programs get."""

    @abstractmethod
    def repeatable_with(self) -> dict[str, str] | None:
        """Return, inside, what figures depend on in addition to seed and config; None: more than can be named."""

    @abstractmethod
    def why_no_modules(self) -> str | None:
        """Return why the project's kernel modules cannot be used, with what would mend it; None: they can."""

    @abstractmethod
    def why_no_bpf_controls(self) -> str | None:
        """Return why the project's congestion controls cannot be BPF programs, with what would mend it; None: they
        can."""

    def why_no_own_controls(self) -> str | None:
        """Return why the project's congestion controls cannot be had, as BPF programs or as modules; None: they
        can."""
        if (no_programs := self.why_no_bpf_controls()) is None or (no_modules := self.why_no_modules()) is None:
            return None
        return f"{no_programs}; nor as a module: {no_modules}"

    @abstractmethod
    def module(self, name: str) -> Path:
        """Return, inside, one of the project's kernel modules, built if need be. Raises EmulationError."""

    @abstractmethod
    def guest_for(self, guest: Guest, needed_bytes: int, subject: str) -> Guest:
        """Return the guest in which ``subject``, which needs so much memory, will run. Raises UsageError if it
        cannot."""

    @abstractmethod
    def kernel(self) -> str:
        """Return which kernel a run would have, as a name that no other kernel has. Raises EmulationError if none."""

    @abstractmethod
    def memory_taken_bytes(self, guest: Guest) -> int:
        """Return how much of the machine's memory a run in such a guest may take."""

    def congestion_controls(self) -> tuple[str, ...]:
        """Return the TCP congestion controls of the engine's kernel: loaded ones, modules that a socket may ask
        for, and our own, where the kernel takes them."""
        modules = (_KERNEL_MODULES / platform.release()).glob("kernel/net/ipv4/tcp_*.ko*")
        loadable = {path.name.partition(".")[0].removeprefix("tcp_") for path in modules}
        own = CONGESTION_CONTROLS if self.why_no_own_controls() is None else ()
        return tuple(sorted({*_LOADED_CONTROLS.read_text().split(), *loadable, *own} - _NO_CONGESTION_CONTROL))

    def __str__(self) -> str:
        return self.name


def own_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with the mark of a run's own namespaces or guest, and when the run began: what is asked for
    that at its end would take the end for it."""
    return {**environment, INSIDE: "1", STARTED_AT: started_at()}


def started_at() -> str:
    """Return the date and time (UTC) at which this run began; a guest has a clock, but no date, of its own."""
    return os.environ.get(STARTED_AT) or datetime.now(timezone.utc).isoformat(timespec="seconds")


def is_marked() -> bool:
    """Return whether this process has the mark of a run's own namespaces or guest."""
    return os.environ.get(INSIDE) == "1"
