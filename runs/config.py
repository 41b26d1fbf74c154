"""The config keys of every experiment, and how a name or a file becomes a checked config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationInfo, field_validator

from controllers.planning.planner import routing_faults
from controllers.routing import PolicyKey, Routing
from fabric.config import SizeBytes, Strict, TimeS, checked, checked_with_settings, read_yaml, require_none, unknown_key
from fabric.emulation import insides
from fabric.errors import ConfigError, UsageError
from fabric.failures.config import FailureLine, failure_faults, failures_of, schedule_failures
from fabric.failures.kinds.disk import DiskTarget
from fabric.failures.kinds.gpu import GpuTarget
from fabric.failures.kinds.link import LinkFailureConfig
from fabric.failures.kinds.process import RESTARTED, ProcessFailureConfig, ProgramTarget
from fabric.failures.line import FailureConfig
from fabric.failures.schedule import FailureSchedule, State
from fabric.model.lanes import DATA_LEVELS, QueueConfig, Queueing, ServiceLevel
from fabric.model.marking import Marking
from fabric.model.network import Fabric
from fabric.queueing import lossless
from fabric.units import format_rate, format_time
from fabric.world.engine import Engine
from fabric.world.programs import verbs
from runs.phase_lengths import PhaseLengths
from topologies.load import fabric_of, read_topology
from traffic import congestion_control
from traffic.dcqcn import DcqcnConfig
from traffic.transport.connection import DEFAULT_CONGESTION_CONTROL
from traffic.transport.reordering import TransportConfig

_TOPOLOGY, _QUEUES = "topology.", "queues."

_LOSSLESS = " or ".join(one.value for one in Queueing if one.is_lossless)
_MOST_SAMPLES = 200_000
_LEAST_FRAMES = 32
"""Of the slowest link, which the time that counts of a phase has to hold: one more or less is then a few percent."""
Choice = TypeVar("Choice", bound=Enum)


Value = TypeVar("Value")


def each_once(value: list[Value]) -> list[Value]:
    """Return a list as it is. Raises ValueError, naming what is in it more than once."""
    if twice := [str(getattr(choice, "value", choice)) for choice, count in Counter(value).items() if count > 1]:
        raise ValueError(f"{', '.join(twice)}: named more than once; name each once")
    return value


Choices = Annotated[list[Annotated[Choice, Field(strict=False)]], Field(min_length=1), AfterValidator(each_once)]
"""What an experiment plays in turn: one or more, each once."""


Duration = Annotated[TimeS, Field(gt=0)]
Policies = Annotated[list[PolicyKey], Field(min_length=1), AfterValidator(each_once)]
"""Routing policies that an experiment plays in turn: one or more, each once."""


def _cubic_for_all() -> dict[str, str]:
    return {level.label: DEFAULT_CONGESTION_CONTROL for level in DATA_LEVELS}


def _failure_lines(value: Any) -> Any:
    """Return the lines of a file if a value is the path of one. Raises ValueError."""
    if not isinstance(value, str):
        return value
    try:
        data = read_yaml(Path(value).expanduser())
    except ConfigError as error:
        raise ValueError(str(error)) from None
    if list(data) != ["failures"]:
        raise ValueError(
            f"{value}: has keys {', '.join(map(str, data)) or 'none'}; it must have failures, and no other"
        )
    return data["failures"]


class HostsConfig(Strict):
    """What users' programs find on hosts."""

    verbs: bool = Field(
        default=False,
        description=(
            "Whether each host has an RDMA device per NIC, `mlx5_0` for `eth0`, for users' programs: soft RoCE v2, in "
            "virtual time only."
        ),
    )

    def require_verbs(self, engine: Engine) -> None:
        """Raise UsageError with the reason if hosts cannot have the RDMA devices that are asked for."""
        if self.verbs:
            verbs.require(engine, "verbs")


class RunConfig(HostsConfig):
    """What every experiment has. ``periods_per_sample``: sample periods from one sample to the next."""

    periods_per_sample: ClassVar[int] = 1

    experiment: str = Field(description="Which experiment the file configures, by name.")
    topology: dict[str, Any] = Field(
        description=(
            "The fabric: a topology's name, the path of its file, or its keys themselves. Change it for another "
            "size, shape or rate."
        )
    )
    rates_from: str | None = Field(
        default=None,
        description="Where the topology's rates come from if not from its file; `fabric run --rate` writes it.",
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        default=1,
        description=(
            "Decides every random choice: sizes and arrivals of flows, hosts, jitter, cuts. Vary it to repeat a "
            "run with other draws."
        ),
    )
    sample_period: Annotated[TimeS, Field(gt=0, le=0.05)] = Field(
        default=0.05,
        description=(
            "Time between two samples of every queue. Shorter shows shorter bursts, and costs CPU time and memory."
        ),
    )
    phase_attempts: Annotated[int, Field(ge=1, le=10)] = Field(
        default=1,
        description=(
            "How often a phase is played, at most, until the machine keeps up with it: in real time, if nothing "
            "fails in it and its jobs have no fixed amount to do; and how often links are calibrated. The last "
            "attempt counts. Users' programs are started again, too."
        ),
    )
    queues: QueueConfig = Field(
        default_factory=QueueConfig, description="Lanes, queue limits, input buffers and marking of every port."
    )
    routing: Routing = Field(
        default_factory=Routing,
        description="Which of several equal paths packets take, and what happens when a link fails.",
    )
    congestion_control: dict[str, str] = Field(
        default_factory=_cubic_for_all,
        description=(
            "TCP congestion control by Service Level, such as `cubic`, `reno`, `dctcp`, `dcqcn`, or `line` for none."
        ),
    )
    dcqcn: DcqcnConfig = Field(
        default_factory=DcqcnConfig,
        description="Parameters of DCQCN, for Service Levels whose congestion control it is.",
    )
    receive_window: Annotated[SizeBytes, Field(gt=0, le=2**30)] | None = Field(
        default=None,
        description=(
            "What a sender may have in flight on one connection. Without it each kernel sizes windows in its "
            "own way, which changes queues."
        ),
    )
    transport: TransportConfig = Field(
        default_factory=TransportConfig, description="What TCP takes for a loss, where packets overtake each other."
    )
    failures: Annotated[list[FailureLine], BeforeValidator(_failure_lines)] = Field(
        default_factory=list,
        description=(
            "Links, switches, NICs, hosts, programs, disks or GPUs that fail in every phase, at times counted from "
            "when all its jobs play: a list, or the path of a YAML file with one, as `fabric cluster faults` writes it."
        ),
    )

    @field_validator("congestion_control")
    @classmethod
    def _verify_levels(cls, value: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        queues: QueueConfig = info.data.get("queues", QueueConfig())  # Missing if they have faults of their own.
        labels = [level.label for level in queues.data_levels]
        require_none(unknown_key(label, labels) for label in value if label not in labels)
        return value

    def fabric(self) -> Fabric:
        """Return the fabric of this config's topology. Raises ConfigError."""
        return fabric_of(self.topology, "topology")

    @property
    def sampled_every_s(self) -> float:
        """How often a run samples."""
        return self.periods_per_sample * self.sample_period

    def sampled_on(self, fabric: Fabric) -> float:
        """Return how often a run on a fabric samples, in seconds: more often where its length follows from that."""
        return self.sampled_every_s

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands of users' programs that play in it: a guest sees the directories that they name."""
        return ()

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """The queueings that a run plays, the first first."""
        return (Queueing.SHARED,)

    @property
    def routings_played(self) -> tuple[Routing, ...]:
        """The routings under which a run plays."""
        return (self.routing,)

    @property
    def controls_played(self) -> dict[str, str]:
        """The TCP congestion controls that a run plays, by whatever they are for, such as service levels."""
        return self.congestion_control

    @property
    def cuts_links(self) -> bool:
        """Whether anything fails in a run: by its ``failures``, or since its experiment cuts links by itself."""
        return bool(self.failures)

    def failure_schedule(self, fabric: Fabric) -> FailureSchedule | None:
        """Return what fails in a phase; None if nothing does. Raises ConfigError."""
        return schedule_failures(self.failures, fabric, self.seed) if self.failures else None

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what of this config does not fit its fabric."""
        yield from self._too_long()
        yield from _piece_faults(self)
        yield from list(failure_faults(self.failures, fabric, self.seed)) or self._target_faults(fabric)
        yield from self._never_faults()
        yield from self._pause_faults()
        yield from dict.fromkeys(fault for one in self.routings_played for fault in routing_faults(fabric, one))
        yield from self.dcqcn.faults(fabric)
        yield from congestion_control.faults(self.congestion_control, self.queues.marks)
        yield from queue_faults(self.queues, self.queueings_played, fabric)
        yield from insides.faults(fabric, self.queueings_played)
        needed = round(fabric.nic_rate_bps / 8 * fabric.round_trip_s)
        if self.receive_window is not None and self.receive_window < needed:
            least = f"what a NIC sends in a round trip of {format_time(fabric.round_trip_s)}, {needed} B"
            yield f"receive_window: {self.receive_window} B is less than {least}; raise it"

    def programs_of(self, fabric: Fabric) -> Mapping[str, Collection[str]] | None:
        """Return the hosts of each job that plays, by its name, where that is known before the run; else None."""
        return None

    def restarted_programs(self, fabric: Fabric) -> Mapping[str, Collection[str]] | None:
        """Return the hosts of each job whose programs there can be killed and started again, by its name; services of
        storage left out. None: that is not known, since jobs have other faults."""
        return {}

    def _target_faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield which lines of ``failures`` are of programs or disks that no job has."""
        storage = [part for _, part in _parts(self) if hasattr(part, "disk_fault")]
        programs = self.programs_of(fabric)
        platforms = [part for _, part in _parts(self) if hasattr(part, "gpu_fault")]
        for number, line in enumerate(self.failures):
            for failure in failures_of(number, line, fabric, self.seed)[:1]:
                fault = ""
                if isinstance(failure.target, DiskTarget):
                    fault = _disk_fault(failure.target, failure.state, storage, fabric)
                elif isinstance(failure.target, GpuTarget):
                    fault = _gpu_fault(failure.target, platforms, programs)
                elif failure.state == RESTARTED:
                    fault = _restart_fault(failure.target, storage, fabric, self.restarted_programs(fabric))
                elif isinstance(failure.target, ProgramTarget) and programs is not None:
                    fault = _program_fault(failure.target, programs)
                if fault:
                    yield f"failures.{number}.{fault}"

    @property
    def phase_lengths(self) -> PhaseLengths:
        """For how long its phases play their load; by default that is not known before the run."""
        return PhaseLengths(until="something is done")

    def _never_faults(self) -> Iterator[str]:
        """Yield which lines of ``failures`` begin after the end of all phases."""
        if (longest := self.phase_lengths.longest) is None:
            return
        key, length_s = longest
        for number, line in enumerate(self.failures):
            if line.at >= length_s:
                at, length = format_time(line.at), format_time(length_s)
                yield (
                    f"failures.{number}.at: {at} is after the end of all phases, so that it would never happen; lower "
                    f"it, or raise {key} ({length})"
                )

    def _pause_faults(self) -> Iterator[str]:
        """Yield which lines of ``failures`` pause what drops instead."""
        dropping = [one.value for one in self.queueings_played if not one.is_lossless]
        for number, line in enumerate(self.failures):
            if dropping and isinstance(line, LinkFailureConfig) and line.pause:
                yield (
                    f"failures.{number}.pause: queues of {dropping[0]} drop, and wait for nobody; play {_LOSSLESS} "
                    "only, or give loss or rate in its place"
                )

    def _too_long(self) -> Iterator[str]:
        """Yield what plays for longer than its samples, which a run holds in memory, can be."""
        for name, seconds in self.phase_lengths.by_key.items():
            if (samples := seconds / self.sampled_every_s) > _MOST_SAMPLES:
                every = f"{samples:,.0f} samples, one every {format_time(self.sampled_every_s)}"
                yield f"{name}: {seconds:,.0f} s take {every}, and a phase has {_MOST_SAMPLES:,} at most; lower it"

    def marking_for(self, control: str, fabric: Fabric) -> Marking | None:
        """Return the marking of switches where one control steers all traffic: None for a control that ignores marks,
        otherwise that of the queues or, without one, of DCQCN's parameters."""
        if control not in congestion_control.STEERED_BY_ECN:
            return None
        return self.queues.marking or self.dcqcn.parameters(fabric).marking

    def settled(self, fabric: Fabric) -> RunConfig:
        """Return the same with the marking of DCQCN's parameters, where it is used and no other marking is stated."""
        used = congestion_control.DCQCN in self.congestion_control.values()
        if not used or self.queues.marking is not None or list(self.dcqcn.faults(fabric)):
            return self
        marking = self.dcqcn.parameters(fabric).marking
        return self.model_copy(update={"queues": self.queues.model_copy(update={"marking": marking})})

    def congestion_controls(self) -> dict[ServiceLevel, str]:
        """Return the TCP congestion control of each service level."""
        by_label = {level.label: level for level in self.queues.levels}
        return {by_label[label]: name for label, name in self.congestion_control.items()}


def _parts(config: BaseModel, path: str = "") -> Iterator[tuple[str, BaseModel]]:
    """Yield the configs within a config, wherever in it they are, with their places."""
    for name, value in config:
        for number, one in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(one, BaseModel):
                place = f"{path}{name}." + (f"{number}." if isinstance(value, list) else "")
                yield place, one
                yield from _parts(one, place)


def _piece_faults(config: BaseModel) -> Iterator[str]:
    """Yield which collectives of a config, wherever in it they are, would be sent in one piece."""
    for place, one in _parts(config):
        yield from (f"{place}{fault}" for fault in getattr(one, "piece_faults", tuple)())


def _disk_fault(target: DiskTarget, state: State, storage: Sequence[Any], fabric: Fabric) -> str:
    """Return why a disk cannot fail so; nothing if it can. ``storage``: the configs of storage jobs."""
    nodes = [node.name for node in fabric.storages] if storage else []
    if target.host not in nodes:
        known = f"they are on {nodes[0]} to {nodes[-1]}" if nodes else "it has no storage job"
        return f"disk: no job of this experiment has a disk on {target.host}; {known}"
    faults = [part.disk_fault(target, state) for part in storage]
    return "" if "" in faults else str(faults[0])


def _gpu_fault(target: GpuTarget, platforms: Sequence[Any], programs: Mapping[str, Collection[str]] | None) -> str:
    """Return why an error of a GPU comes to nothing; nothing if somebody sees it. ``platforms``: configs of jobs that
    may."""
    if not platforms:
        return f"gpu: no job of this experiment looks at errors of {target}; a job of kind platform with health does"
    names = [str(getattr(part, "name", "")) for part in platforms]
    if programs is not None and not any(target.host in programs.get(name, ()) for name in names):
        return f"gpu: {target.host} is not a node of {', '.join(names)}"
    faults = [part.gpu_fault(target) for part in platforms]
    return "" if "" in faults else str(faults[0])


def _restart_fault(
    target: Hashable, storage: Sequence[Any], fabric: Fabric, restarted: Mapping[str, Collection[str]] | None
) -> str:
    """Return why programs cannot be killed and started again; nothing if they can: services of storage, and the jobs
    that are named in ``restarted``."""
    assert isinstance(target, ProgramTarget), "only programs are"
    if restarted is None or any(target.covers(job, host) for job, hosts in restarted.items() for host in hosts):
        return ""
    nodes = [node.name for node in fabric.storages] if storage else []
    if target.host not in nodes:
        programs = f"neither a storage service nor a program of {', '.join(restarted)}"
        known = programs if restarted else "no storage service"
        return f"effect restart: on {target.host} is {known}, and only such are started again; use kill"
    faults = [part.restart_fault(target.host, nodes[-1]) for part in storage]
    return "" if "" in faults else f"effect restart: {faults[0]}"


def _program_fault(target: ProgramTarget, programs: Mapping[str, Collection[str]]) -> str:
    """Return why programs cannot fail; nothing if they can."""
    if target.job and target.job not in programs:
        return f"job: {target.job!r} is not a job of this experiment; it has {', '.join(programs)}"
    if any(target.covers(job, host) for job, hosts in programs.items() for host in hosts):
        return ""
    here = [job for job, hosts in programs.items() if target.host in hosts]
    have = f"; {', '.join(here)} has" if here else ""
    which = f"job {target.job}" if target.job else "no job of this experiment"
    return f"process: {which} has {'no' if target.job else 'a'} program on {target.host}{have}"


class QueueingConfig(RunConfig):
    """A run that plays all in one ``queueing``, a key of its own with a default of its own."""

    if TYPE_CHECKING:
        queueing: Queueing

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """The configured one."""
        return (self.queueing,)


class LongPhasesConfig(QueueingConfig):
    """A run whose phases last minutes, in most of which nothing but timers runs."""

    periods_per_sample: ClassVar[int] = 10


class QueueingsConfig(RunConfig):
    """A run that plays the same in each of several ``queueings``, in their order."""

    queueings: Choices[Queueing] = Field(
        default_factory=lambda: [Queueing.SHARED, Queueing.LANES],
        description="The queueings to play, in this order: the same load in each.",
    )

    @property
    def queueings_played(self) -> tuple[Queueing, ...]:
        """Each in its turn; what plays alone does so in the first."""
        return tuple(self.queueings)


class CountedPhases(QueueingsConfig):
    """A run whose phases are all as long, and count after a warm-up."""

    phase_time: Duration = Field(default=0.003, description="Length of each phase, warm-up included.")
    warm_up: Duration = Field(
        default=0.001, description="Warm-up at the start of each phase, which is excluded from results."
    )

    @property
    def phase_lengths(self) -> PhaseLengths:
        """All phases are as long."""
        return PhaseLengths.of(self, "phase_time")

    def faults(self, fabric: Fabric) -> Iterator[str]:
        """Yield what does not fit the fabric."""
        yield from super().faults(fabric)
        yield from counted_faults(fabric, self.phase_time, self.warm_up)


def storage_faults(fabric: Fabric, purpose: str) -> Iterator[str]:
    """Yield that a fabric has no storage nodes, if so; ``purpose``: what they are needed for."""
    if not fabric.storages:
        yield f"topology.storage: 0 storage nodes, but {purpose}; add some"


def counted_faults(fabric: Fabric, phase_time_s: float, warm_up_s: float) -> Iterator[str]:
    """Yield that a warm-up leaves too little of a phase to measure, if so."""
    if warm_up_s >= phase_time_s:
        yield (f"warm_up: {format_time(warm_up_s)} leaves nothing of phase_time, {format_time(phase_time_s)}; lower it")
    else:
        of = f"phase_time: of {format_time(phase_time_s)} warm_up leaves"
        yield from (f"{of} {fault}" for fault in short_faults(fabric, phase_time_s - warm_up_s))


def short_faults(fabric: Fabric, measured_s: float) -> Iterator[str]:
    """Yield that a time is too short to measure anything in, if so: with its length in front, and what to do."""
    least_s = _LEAST_FRAMES * fabric.frame_time_s
    if measured_s < least_s:
        yield (
            f"{format_time(measured_s)}, in which nothing can be measured: {_LEAST_FRAMES} frames take "
            f"{format_time(least_s)} on the slowest link; make it longer"
        )


def queue_faults(queues: QueueConfig, queueings: Iterable[Queueing], fabric: Fabric) -> Iterator[str]:
    """Yield the queue settings that do not fit a fabric, in any of these queueings."""
    for queueing in queueings:
        yield from lossless.faults(queues, queueing, fabric)
    limits = {f"queues.lanes.{name}.limit": lane.limit for name, lane in queues.lanes.items()}
    for key, limit in {**limits, "queues.shared_limit": queues.shared_limit}.items():
        if limit < fabric.frame_bytes:
            least = f"a full frame of {fabric.frame_bytes} B, which could never be sent"
            yield f"{key}: {limit} B is less than {least}; raise it"
    if Queueing.LANES in queueings:
        yield from _share_faults(queues, fabric)


def _share_faults(queues: QueueConfig, fabric: Fabric) -> Iterator[str]:
    """Yield the lanes whose share of the slowest link is less than the kernel has rates for: a byte per second."""
    for name, lane in queues.lanes.items():
        if round(lane.share * fabric.slowest_rate_bps / 8) < 1:
            slowest, least = format_rate(fabric.slowest_rate_bps), 8 / fabric.slowest_rate_bps
            limit = f"of the slowest link, {slowest}, is less than a byte per second"
            yield f"queues.lanes.{name}.share: {lane.share:g} {limit}; raise it to {least:.3g} or more"


def require_engine_for_jitter(engine: Engine, queues: QueueConfig) -> None:
    """Raise UsageError if jitter is configured in an engine whose clock already has jitter."""
    if queues.jitter and not engine.is_exact:
        raise UsageError(
            f"queues.jitter is for virtual time (--engine virtual); {engine.clock} has its own jitter: set it to 0"
        )


def require_engine_for_failures(engine: Engine, failures: Sequence[FailureConfig]) -> None:
    """Raise UsageError if programs are to be slow where computing takes no time."""
    for number, line in enumerate(failures):
        if isinstance(line, ProcessFailureConfig) and line.share is not None and engine.is_exact:
            raise UsageError(
                f"failures.{number}.effect: slow is for real time: in {engine.clock} programs compute in no time, so "
                "nothing slows them; stop them instead (effect: stop), again and again if need be (repeat)"
            )


def split_fabric_settings(overrides: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the settings of a topology and those of its queues, for commands that play no experiment.

    They are written as for one, ``topology.placement=packed`` and ``queues.shared_limit=64KiB``; ``topology.`` may be
    left out.
    """
    texts = list(overrides)
    queues = [text for text in texts if text.startswith(_QUEUES)]
    return [text.removeprefix(_TOPOLOGY) for text in texts if text not in queues], queues


def queues_of(overrides: Iterable[str], default: QueueConfig | None = None) -> QueueConfig:
    """Return a command's default queues with those of its settings that are of queues. Raises ConfigError."""
    settings = [text.removeprefix(_QUEUES) for text in split_fabric_settings(overrides)[1]]
    data = (default or QueueConfig()).model_dump(mode="json")
    source = "--set queues"
    return checked_with_settings(lambda raw: checked(QueueConfig, raw, source), data, settings, prefix=_QUEUES)


def with_whole_topology(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return ``data`` with a topology's name or path replaced by what that file says. Raises ConfigError."""
    topology = data.get("topology")
    if isinstance(topology, Mapping):
        return dict(data)
    if not isinstance(topology, str):
        raise ConfigError(source, [f"topology: {topology!r} is neither a topology's name, a path nor a mapping"])
    return {**data, "topology": read_topology(topology)}


def split_topology_setting(overrides: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the overrides that name the whole topology (``topology=small.yaml``), which come first, and the others."""
    texts = list(overrides)
    whole = [text for text in texts if text.startswith("topology=")]
    return whole, [text for text in texts if text not in whole]
